package cli

import (
	"context"
	"log/slog"
	"time"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/storage"
)

const (
	// watchEvery is how often memory and the state of storage are looked at; the disk at least every diskEvery, more often the
	// nearer it is to its limit, as if it could fill at fillRate octets a second.
	watchEvery = time.Second
	diskEvery  = 10 * time.Second
	fillRate   = 250 << 20
)

// watch raises and clears the alarms of a node, and keeps its ballast.
type watch struct {
	alarms    *broker.Alarms
	ballast   *storage.Ballast
	log       *slog.Logger
	memory    func() uint64          // octets that the process uses
	free      func() (uint64, error) // octets free on the disk
	unwritten func() error           // why storage takes no writes
	maxMemory uint64
	minFree   uint64

	diskAt time.Time // when the disk is to be looked at
	blind  bool      // it could not be at the last time
	full   bool      // the ballast could not be made at the last time
}

// watch is that of a running node on a machine with that much memory.
func (r *rooms) watch(memory uint64) *watch {
	dir := r.cfg.DataDir
	return &watch{
		alarms: &r.alarms, ballast: r.ballast, log: r.log,
		memory: anonymousMemory, maxMemory: r.cfg.MemoryWatermark.Bytes(memory),
		free: func() (uint64, error) { return r.fs.Free(dir) }, minFree: r.cfg.DiskFreeLimit.Bytes(memory),
		unwritten: func() error {
			if err := r.store.Err(); err != nil {
				return err
			}
			return r.db.Err()
		},
	}
}

// run looks until ctx ends.
func (w *watch) run(ctx context.Context) {
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	for {
		select {
		case now := <-t.C:
			w.look(now)
			w.fill()
		case <-ctx.Done():
			return
		}
	}
}

// look sets the alarms to what is.
func (w *watch) look(now time.Time) {
	used := w.memory()
	if w.alarms.Set(broker.MemoryAlarm, used > w.maxMemory) {
		w.say(broker.MemoryAlarm, "memory", "the node uses more memory than vm_memory_high_watermark allows", "used", used, "allowed", w.maxMemory)
	}
	err := w.unwritten()
	if w.alarms.Set(broker.StorageAlarm, err != nil || w.ballast.Missing() > 0) {
		why := "the disk is full: the ballast was given up"
		if err != nil {
			why = err.Error()
		}
		w.say(broker.StorageAlarm, "storage", "the disk takes no writes, or has no ballast left", "reason", why)
		w.diskAt = time.Time{}
	}
	if now.Before(w.diskAt) {
		return
	}
	free, err := w.free()
	if err != nil {
		if !w.blind {
			w.log.Error("it cannot be told how much of the disk is free; the disk alarm stays as it is", "error", err.Error())
		}
		w.blind, w.diskAt = true, now.Add(watchEvery)
		return
	}
	w.blind = false
	free -= min(free, uint64(w.ballast.Missing()))
	if w.alarms.Set(broker.DiskAlarm, free < w.minFree) {
		w.say(broker.DiskAlarm, "disk", "free disk space is insufficient", "free", free, "limit", w.minFree)
	}
	w.diskAt = now.Add(untilDisk(free, w.minFree))
}

// untilDisk is how long the disk need not be looked at.
func untilDisk(free, limit uint64) time.Duration {
	if free < limit {
		return watchEvery
	}
	seconds := time.Duration(min((free-limit)/fillRate, 1<<20))
	return min(max(seconds*time.Second, watchEvery), diskEvery)
}

// say tells of a change.
func (w *watch) say(which broker.Alarm, name, what string, figures ...any) {
	figures = append([]any{"alarm", name}, figures...)
	if w.alarms.Own()&which != 0 {
		w.log.Warn("alarm set: "+what+"; publishers are blocked", figures...)
	} else if left := w.alarms.On(); left != 0 {
		w.log.Warn("alarm cleared; publishers stay blocked by others", append(figures, "left", left.Names())...)
	} else {
		w.log.Warn("alarm cleared; publishers go on", figures...)
	}
}

// fill makes the ballast when there is none, and room for it.
func (w *watch) fill() {
	if w.ballast.Size() == 0 || w.ballast.Held() || w.unwritten() != nil {
		return
	}
	free, err := w.free()
	if err != nil || free < w.minFree+uint64(w.ballast.Size()) {
		return
	}
	if err := w.ballast.Fill(); err != nil {
		if !w.full {
			w.log.Warn("the ballast could not be made; it will be tried again", "error", err.Error())
		}
		w.full = true
		return
	}
	w.full = false
	w.diskAt = time.Time{}
}

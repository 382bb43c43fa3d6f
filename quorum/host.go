package quorum

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/storage"
)

const (
	// slotsAlone is how many slots a node is made with that has no peers.
	slotsAlone = 4
	// stopPatience is how long a stop waits for what was commanded.
	stopPatience = 5 * time.Second
)

// Options say what a Host works with.
type Options struct {
	FS    storage.FS  // of the runs; the Raft engine uses the operating system's
	Dir   string      // is made when there is the first quorum queue
	DB    *storage.DB // the keys below k/ are the host's
	Pool  *queue.Pool
	Clock *queue.Clock
	Log   *slog.Logger
	// LetterRetry is after how long dead letters that must arrive, and have not, are sent again. 0 is 30 s.
	LetterRetry time.Duration
	Node        uint64 // this node's identity, from 1 and below 1<<32; 0 is 1
}

// Host has the slots of a node. It costs nothing until there is a quorum queue. Its methods may be called concurrently.
//
//	h, err := Open(...)
//	q := h.NewQueue(...)  // for each queue that metadata knows, and later for new ones
//	h.Recover()           // all of the former were made
//	h.Close()
type Host struct {
	o       Options
	boot    uint64
	pressed atomic.Int32 // slots with too much on its way

	mu      sync.Mutex // guards what follows
	slots   []*slot
	engine  *dragonboat.NodeHost
	opening chan struct{} // closed when the start is over; nil: there was none
	err     error         // of the start
	closed  bool
}

var (
	keySlots   = []byte("k/slots")
	keyBoot    = []byte("k/boot")
	keyCluster = []byte("k/cluster")
)

// Open opens what there is of quorum queues. Without any it does no more than note that the node has started.
func Open(o Options) (*Host, error) {
	if o.Node == 0 {
		o.Node = 1
	}
	h := &Host{o: o}
	slots, err := h.number(keySlots)
	if err != nil {
		return nil, err
	}
	if h.boot, err = h.number(keyBoot); err != nil {
		return nil, err
	}
	h.boot++
	if slots == 0 { // nobody has heard of this start
		return h, nil
	}
	if slots > 1<<16-1 {
		return nil, fmt.Errorf("%w: %d slots", errFormat, slots)
	}
	h.make(int(slots))
	if h.start(); h.err != nil {
		return nil, h.err
	}
	return h, nil
}

func (h *Host) number(key []byte) (uint64, error) {
	v, err := h.o.DB.Get(key)
	if err != nil || v == nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, fmt.Errorf("%w: %s", errFormat, key)
	}
	return binary.LittleEndian.Uint64(v), nil
}

// make makes the slots. Commands can be given to them at once.
func (h *Host) make(n int) {
	h.opening = make(chan struct{})
	for i := range n {
		m := newMachine(uint16(i))
		m.fs, m.dir = h.o.FS, filepath.Join(h.o.Dir, fmt.Sprintf("slot-%d", i))
		m.db, m.pool, m.log, m.node, m.boot = h.o.DB, h.o.Pool, h.o.Log, h.o.Node, h.boot
		m.retry = cmp.Or(h.o.LetterRetry, retryLetters)
		h.slots = append(h.slots, newSlot(m, h.o.Clock, h.press))
	}
}

// press is told that a slot has too much on its way, or no longer.
func (h *Host) press(on bool) {
	if on {
		h.pressed.Add(1)
		h.o.Pool.Block(queue.BlockedBySlots, true)
	} else if h.pressed.Add(-1) == 0 {
		h.o.Pool.Block(queue.BlockedBySlots, false)
		if h.pressed.Load() > 0 { // another came in between
			h.o.Pool.Block(queue.BlockedBySlots, true)
		}
	}
}

// start starts the Raft engine and the slots' replicas.
func (h *Host) start() {
	defer close(h.opening)
	engine, err := h.open()
	h.mu.Lock()
	h.engine, h.err = engine, err
	h.mu.Unlock()
	if err != nil {
		h.o.Log.Error("quorum queues cannot be run", "error", err.Error())
	}
}

func (h *Host) open() (*dragonboat.NodeHost, error) {
	cluster, err := h.number(keyCluster)
	if err != nil {
		return nil, err
	}
	had := cluster != 0
	if !had {
		cluster = rand.Uint64() | 1
	}
	dir := filepath.Join(h.o.Dir, "log")
	if had {
		if err := h.checkLog(dir); err != nil {
			return nil, err
		}
	}
	var batch storage.Batch
	for _, x := range []struct {
		key   []byte
		value uint64
	}{{keySlots, uint64(len(h.slots))}, {keyBoot, h.boot}, {keyCluster, cluster}} {
		batch.Set(x.key, binary.LittleEndian.AppendUint64(nil, x.value))
	}
	if err := h.o.DB.Commit(&batch, true); err != nil {
		return nil, err
	}
	for _, s := range h.slots {
		if _, err := s.machine.load(); err != nil {
			return nil, err
		}
	}
	engine, err := openEngine(dir, h.o.Node, cluster, h.o.Log)
	if err != nil {
		return nil, fmt.Errorf("the Raft log in %s: %w", dir, err)
	}
	for _, s := range h.slots {
		err := startReplica(engine, s.number, h.o.Node, s.machine)
		if err == nil {
			err = s.start(engine)
		}
		if err != nil {
			for _, s := range h.slots {
				s.stop(0)
			}
			engine.Close()
			return nil, fmt.Errorf("slot %d: %w", s.number, err)
		}
	}
	return engine, nil
}

// checkLog refuses to go on without the log of slots that have applied something: what it had was confirmed, and a
// replica that lost it must not vote.
func (h *Host) checkLog(dir string) error {
	_, err := os.Stat(filepath.Join(dir, "dragonboat.ds"))
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, s := range h.slots {
		if v, err := h.o.DB.Get(s.machine.key('a', 0)); err != nil || v != nil {
			return errors.Join(fmt.Errorf("the log in %s is gone, but there are quorum queues", dir), err)
		}
	}
	return nil
}

// NewQueue makes the queue behind a declared one, or finds it again after a start. id is never given out twice. It touches
// memory only.
func (h *Host) NewQueue(id uint64, config queue.Config, dead queue.DeadLetters) *Queue {
	h.mu.Lock()
	if len(h.slots) == 0 {
		if h.make(slotsAlone); !h.closed {
			go h.start()
		}
	}
	s := h.slots[id%uint64(len(h.slots))]
	h.mu.Unlock()
	q := &Queue{id: id, slot: s, dead: dead, consumers: map[queue.ConsumerID]*consumer{}}
	s.machine.mu.Lock()
	s.machine.locals[id] = q
	s.machine.mu.Unlock()
	q.create(config)
	return q
}

// Report says what a start found.
type Report struct {
	Queues   int
	Messages uint64
	Unknown  int // queues that metadata does not know; they are deleted
}

// Recover waits until the slots have caught up with what they were told before the node stopped, and deletes queues that
// metadata no longer knows. An error means that they cannot.
func (h *Host) Recover(ctx context.Context) (report Report, err error) {
	h.mu.Lock()
	slots := slices.Clone(h.slots)
	opening := h.opening
	h.mu.Unlock()
	if opening == nil {
		return report, nil
	}
	<-opening
	if h.err != nil {
		return report, h.err
	}
	for _, s := range slots {
		if err := s.catchUp(ctx); err != nil {
			return report, fmt.Errorf("slot %d: %w", s.number, err)
		}
		m := s.machine
		m.mu.Lock()
		var unknown []uint64
		for id, q := range m.queues {
			if q.local == nil {
				unknown = append(unknown, id)
				continue
			}
			report.Queues++
			report.Messages += q.state.Stats().Ready
		}
		m.mu.Unlock()
		report.Unknown += len(unknown)
		for _, id := range unknown {
			(&Queue{id: id, slot: s}).Forget(nil)
		}
	}
	return report, nil
}

// catchUp returns when everything commanded up to now has been applied.
func (s *slot) catchUp(ctx context.Context) error {
	done := make(chan struct{})
	q := Queue{slot: s}
	q.ask(cmdPurge, nil, func(*dispatcher, *result) { close(done) }) // of no queue: it does nothing
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends the host, when what was commanded has been done: what is in memory is on disk then. Nobody may use the queues
// any more.
func (h *Host) Close() error {
	h.mu.Lock()
	opening := h.opening
	h.closed = true
	h.mu.Unlock()
	if opening == nil {
		return nil
	}
	<-opening
	if h.engine == nil {
		return nil
	}
	var stopping sync.WaitGroup
	for _, s := range h.slots {
		stopping.Go(func() { s.stop(stopPatience) })
	}
	stopping.Wait()
	var errs []error
	for _, s := range h.slots {
		_, err := s.machine.checkpoint()
		errs = append(errs, err)
	}
	h.engine.Close()
	return errors.Join(errs...)
}

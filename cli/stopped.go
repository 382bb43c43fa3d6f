package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/storage"
)

// stopped is the data directory of a node that does not run, opened as that node would open it, but over an overlay: nothing
// on the disk is changed. What a start would log is kept.
type stopped struct {
	dir    string
	rooms  *rooms
	report queue.RecoveryReport
	log    findings
	// registered are the runs that are written down, recorded the queues with a consumption record, as they are on the disk.
	registered []storage.RunID
	recorded   []storage.LogID
	unlock     func()
	// broken is why the node would not start; what could be opened before is there, the rest is nil.
	broken error
}

// openStopped opens a directory. The error is that it is none, or in use.
func openStopped(dir string) (*stopped, error) {
	if info, err := os.Stat(filepath.Join(dir, "meta")); err != nil || !info.IsDir() {
		return nil, &failure{code: exitData, text: fmt.Sprintf("%s is no data directory of a node: it has no directory meta", dir), err: err,
			remedy: "Name the directory that the node was given with --data-dir or warren.data_dir."}
	}
	unlock, err := holdLock(dir)
	if err != nil {
		return nil, err
	}
	s := &stopped{dir: dir, unlock: unlock}
	cfg := config.Default()
	cfg.DataDir = dir
	s.rooms = &rooms{cfg: cfg, pool: queue.NewPool(int64(cfg.MemoryBound)), clock: queue.NewClock(), log: slog.New(&s.log)}
	s.broken = s.open()
	return s, nil
}

// holdLock keeps nodes away from a directory, if it has a file for that.
func holdLock(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) { // of a copy
		return func() {}, nil
	}
	if err != nil {
		return nil, &failure{code: exitPermission, text: "cannot tell whether a node runs: " + err.Error(), err: err,
			remedy: "Run this as the user that the node runs as."}
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, &failure{code: exitUnavailable, text: fmt.Sprintf("a node is running on %s", dir), err: err,
			remedy: "Stop it first, or look at a copy of the directory that was made while it was stopped."}
	}
	return func() { f.Close() }, nil
}

// open does what a start does, without ever moving messages.
func (s *stopped) open() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a start would fail: %v", p)
		}
	}()
	r, dir := s.rooms, s.dir
	over := storage.NewOverlay(storage.OS{})
	if r.db, err = openMetadata(over, dir, storage.DBOptions{}); err != nil {
		return err
	}
	if s.registered, err = queue.Registered(r.db); err != nil {
		return unreadable(dir, err)
	}
	if s.recorded, err = queue.Recorded(r.db); err != nil {
		return unreadable(dir, err)
	}
	r.store, err = queue.OpenStore(queue.StoreOptions{FS: over, Dir: dir, DB: r.db, Pool: r.pool, Clock: r.clock, Log: r.log,
		FlushAt: 1 << 60, JournalMax: 1 << 60})
	if err != nil {
		return fmt.Errorf("messages in %s: %w", dir, err)
	}
	r.broker, err = broker.Open(broker.Options{Node: r.cfg.NodeName, Pool: r.pool, Clock: r.clock, NewQueue: r.newQueue, Store: r.db})
	if err != nil {
		return unreadable(dir, err)
	}
	s.report, err = r.store.Recover()
	return err
}

// close lets go of the directory.
func (s *stopped) close() {
	r := s.rooms
	if r.broker != nil {
		_ = r.broker.Close() // nothing of it is to stay
	}
	if r.store != nil {
		r.store.Abandon()
	}
	if r.db != nil {
		_ = r.db.Close()
	}
	r.clock.Close()
	s.unlock()
}

// findings are what a start would log of things that should not be, as sentences.
type findings struct {
	mu   sync.Mutex
	list []string
}

// Enabled implements slog.Handler.
func (*findings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle implements slog.Handler.
func (f *findings) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString(r.Message)
	sep := ": "
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, "%s%s %v", sep, a.Key, a.Value)
		sep = ", "
		return true
	})
	f.mu.Lock()
	f.list = append(f.list, b.String())
	f.mu.Unlock()
	return nil
}

// WithAttrs implements slog.Handler.
func (f *findings) WithAttrs([]slog.Attr) slog.Handler { return f }

// WithGroup implements slog.Handler.
func (f *findings) WithGroup(string) slog.Handler { return f }

func (f *findings) all() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string{}, f.list...)
}

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/server"
	"github.com/warrenmq/warren/storage"
	warren "github.com/warrenmq/warren/test/node"
)

// machine is a Warren in this process, on a simulated disk whose power is cut.
type machine struct {
	fs  *storage.FaultFS
	rng *rand.Rand
	log logBuffer

	kills int

	db     *storage.DB
	store  *queue.Store
	broker *broker.Broker
	server *server.Server
	clock  *queue.Clock
	pool   *queue.Pool
}

func newMachine(seed uint64, sabotage string) (*machine, error) {
	m := &machine{fs: storage.NewFaultFS(seed), rng: rand.New(rand.NewPCG(seed, 4))}
	switch sabotage {
	case "":
	case "nosync":
		m.fs.SetSabotage(storage.Sabotage{NoSync: true, Name: "journal"})
	case "nosyncdir":
		m.fs.SetSabotage(storage.Sabotage{NoSyncDir: true, Name: "journal"})
	case "dropwrite":
		m.fs.SetSabotage(storage.Sabotage{DropWrite: true, Name: "journal"})
	default:
		if !canSabotage || os.Getenv("WARREN_SABOTAGE") != sabotage {
			return nil, fmt.Errorf("for this sabotage build with -tags sabotage and set WARREN_SABOTAGE=%s", sabotage)
		}
	}
	return m, nil
}

func (m *machine) start() (string, error) {
	log := slog.New(slog.NewTextHandler(&m.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	m.pool, m.clock = queue.NewPool(bound), queue.NewClock()
	m.store, m.broker, m.server = nil, nil, nil
	var err error
	if m.db, err = storage.OpenDB(m.fs, "data/meta", storage.DBOptions{}); err != nil {
		return "", err
	}
	store, err := queue.OpenStore(queue.StoreOptions{FS: m.fs, Dir: "data", DB: m.db, Pool: m.pool, Clock: m.clock, Log: log,
		FlushAt: flushAt, JournalMax: journalMax})
	if err != nil {
		return "", err
	}
	m.store = store
	m.broker, err = broker.Open(broker.Options{Node: "drill", Pool: m.pool, Clock: m.clock, Store: m.db, NewQueue: func(q broker.NewQueue) queue.Queue {
		return store.NewClassic(storage.LogID(q.ID), q.Durable, queue.ClassicRules(q.MaxPriority), q.Config, q.DeadLetters)
	}})
	if err != nil {
		return "", err
	}
	report, err := store.Recover()
	if err != nil {
		return "", err
	}
	for _, f := range report.Journal.Faults {
		log.Error("the journal is damaged", "fault", fmt.Sprint(f))
	}
	o := server.DefaultOptions()
	o.Log = log
	m.server = server.New(o, m.broker, m.pool, m.clock)
	address, err := m.server.Listen("127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return address.String(), nil
}

// kill cuts the power, now or within the next operations of the disk. The first time, and every third time from there, all
// is lost that was not synced; otherwise chance decides of each sector and name. What depends on one name, such as that of
// a new file whose directory was not synced, must not depend on chance alone.
func (m *machine) kill() error {
	losing := m.kills%3 == 0
	m.kills++
	if m.rng.IntN(2) == 0 {
		m.fs.StopAfter(m.rng.Int64N(60))
		time.Sleep(time.Duration(m.rng.Int64N(int64(20 * time.Millisecond))))
	}
	m.log.mute(true)
	defer m.log.mute(false)
	var after *storage.FaultFS
	if losing {
		after = m.fs.CrashLosing()
	} else {
		after = m.fs.Crash(m.rng.Uint64())
	}
	m.end()
	m.fs = after
	return nil
}

// end has what still runs on the dead disk come to its end.
func (m *machine) end() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	if m.server != nil {
		m.server.Shutdown(now)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.close()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second): // it holds memory, and can do no harm
		m.log.mute(false)
		m.log.Write([]byte("level=ERROR msg=\"what ran on a dead disk did not end within 10 s\"\n"))
	}
}

func (m *machine) close() error {
	var errs []error
	m.clock.Close()
	if m.broker != nil {
		errs = append(errs, m.broker.Close())
	}
	if m.store != nil {
		errs = append(errs, m.store.Close())
	}
	errs = append(errs, m.db.Close())
	return errors.Join(errs...)
}

func (m *machine) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	m.server.Shutdown(ctx)
	return m.close()
}

// interrupt cuts the power at some operation of a start. The start goes on, on a disk that nobody looks at any more: Pebble
// does not always survive the loss of its disk while it opens a database.
func (m *machine) interrupt(time.Duration) error {
	left, seed := int64(m.rng.IntN(60)), m.rng.Uint64()
	var once sync.Once
	var image *storage.FaultFS
	cut := func() { once.Do(func() { image = m.fs.Image(seed) }) }
	var count atomic.Int64
	m.fs.Observe(func(e storage.Event) {
		if e.Op != storage.OpRead && e.Op != storage.OpOpen && count.Add(1) > left {
			cut()
		}
	})
	_, err := m.start()
	cut()
	m.fs.Observe(nil)
	if err == nil {
		err = m.stop()
	}
	m.fs = image
	return err
}

func (m *machine) complaints() string { return m.log.complaints() }

// logBuffer keeps a log.
type logBuffer struct {
	mu   sync.Mutex // guards what follows
	text bytes.Buffer
	deaf bool // what is said now does not count
}

func (l *logBuffer) mute(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = on
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deaf || bytes.Contains(b, []byte(storage.ErrDead.Error())) {
		return len(b), nil
	}
	return l.text.Write(b)
}

func (l *logBuffer) complaints() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return warren.ComplaintsIn(l.text.Bytes())
}

package quorum

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/storage"
)

// node is a node with quorum queues and nothing else.
type node struct {
	testing.TB
	dir   string
	db    *storage.DB
	pool  *queue.Pool
	clock *queue.Clock
	host  *Host
	with  func(*Options) // what else it is opened with
}

var noLimits = queue.Config{TTL: -1, MaxLength: -1, MaxBytes: -1, DeliveryLimit: -1}

func open(t testing.TB, dir string) *node { return openWith(t, dir, func(*Options) {}) }

func openWith(t testing.TB, dir string, with func(*Options)) *node {
	t.Helper()
	n := &node{TB: t, dir: dir, pool: queue.NewPool(128 << 20), clock: queue.NewClock(), with: with}
	n.pool.Poison = true
	n.openDB()
	var err error
	if n.host, err = Open(n.options()); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) openDB() {
	n.Helper()
	var err error
	if n.db, err = storage.OpenDB(storage.OS{}, filepath.Join(n.dir, "meta"), storage.DBOptions{}); err != nil {
		n.Fatal(err)
	}
}

func (n *node) options() Options {
	o := Options{FS: storage.OS{}, Dir: filepath.Join(n.dir, "raft"), DB: n.db, Pool: n.pool, Clock: n.clock, Log: testLog(), LetterRetry: 50 * time.Millisecond}
	if n.with != nil {
		n.with(&o)
	}
	return o
}

func testLog() *slog.Logger {
	level := slog.LevelWarn
	if os.Getenv("QUORUM_LOG") != "" {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

func (n *node) recover() Report {
	n.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r, err := n.host.Recover(ctx)
	if err != nil {
		n.Fatal(err)
	}
	return r
}

func (n *node) close() {
	n.Helper()
	n.clock.Close()
	if err := n.host.Close(); err != nil {
		n.Fatal(err)
	}
	if err := n.db.Close(); err != nil {
		n.Fatal(err)
	}
	n.pool.Close()
}

// message is a message whose body is a number.
func (n *node) message(number uint64, size int) queue.Message {
	body := make([]byte, max(size, 8))
	binary.BigEndian.PutUint64(body, number)
	header := make([]byte, 14)
	binary.BigEndian.PutUint64(header[4:], uint64(len(body)))
	m := n.pool.NewMessage([]byte("x"), []byte("k"), header, func(yield func([]byte) bool) { yield(body) }, len(body), 1)
	m.Flags |= queue.Persistent
	return m
}

func (n *node) number(m queue.Message) uint64 {
	return binary.BigEndian.Uint64(queue.ParseStored(n.pool.Bytes(m.Ref)).AppendBody(nil))
}

// publisher publishes with confirms.
type publisher struct {
	n  *node
	mu sync.Mutex
	// next is the number of the next publish; confirmed and refused are how many have been.
	next, confirmed, refused uint64
	base                     uint64 // what the numbers in bodies are more than those
	more                     sync.Cond
}

func (n *node) publisher() *publisher {
	p := &publisher{n: n}
	p.more.L = &p.mu
	return p
}

func (p *publisher) Settled(ranges []queue.Range, ok bool, _ *queue.Wake) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range ranges {
		if ok {
			p.confirmed += r.Last - r.First + 1
		} else {
			p.refused += r.Last - r.First + 1
		}
	}
	p.more.Broadcast()
}

func (p *publisher) publish(q *Queue, count, size int) {
	var b queue.Batch
	b.Confirms = p
	p.mu.Lock()
	for range count {
		p.next++
		b.Messages = append(b.Messages, p.n.message(p.base+p.next, size))
		b.Numbers = append(b.Numbers, p.next)
	}
	p.mu.Unlock()
	var w queue.Wake
	q.Publish(&b, &w)
	w.Flush()
}

// wait returns when everything was confirmed or refused.
func (p *publisher) wait() {
	p.n.Helper()
	stop := time.AfterFunc(21*time.Second, p.more.Broadcast)
	defer stop.Stop()
	begun := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.confirmed+p.refused < p.next {
		if time.Since(begun) > 20*time.Second {
			p.n.Fatalf("%d of %d publishes were confirmed, %d refused", p.confirmed, p.next, p.refused)
		}
		p.more.Wait()
	}
}

// taker is a consumer that remembers what it got.
type taker struct {
	n    *node
	q    *Queue
	id   queue.ConsumerID
	room int // how many it takes before it is full; 0: no end

	mu        sync.Mutex
	got       []queue.Offered // messages released
	numbers   []uint64
	cancelled bool
	more      sync.Cond
}

func (n *node) consume(q *Queue, spec queue.ConsumerSpec) *taker {
	n.Helper()
	k := &taker{n: n, q: q}
	k.more.L = &k.mu
	k.attach(spec)
	return k
}

func (k *taker) attach(spec queue.ConsumerSpec) {
	k.n.Helper()
	done := make(chan error, 1)
	var w queue.Wake
	k.q.Attach(spec, k, &w, func(id queue.ConsumerID, err error) {
		k.id = id
		done <- err
	})
	w.Flush()
	if err := <-done; err != nil {
		k.n.Fatal(err)
	}
}

func (k *taker) Offer(ds []queue.Offered, _ *queue.Wake) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range ds {
		k.numbers = append(k.numbers, k.n.number(d.Message))
		k.n.pool.Release(d.Message.Ref.Slab, 1)
		k.got = append(k.got, d)
	}
	k.more.Broadcast()
	return k.room == 0 || len(k.got) < k.room
}

func (k *taker) Cancelled(*queue.Wake) {
	k.mu.Lock()
	k.cancelled = true
	k.more.Broadcast()
	k.mu.Unlock()
}

func (k *taker) Activity(bool) {}

// TimedOut implements queue.Outlet.
func (k *taker) TimedOut(*queue.Wake) {}

// wait returns what it got when that is n messages, which it forgets.
func (k *taker) wait(n int) ([]uint64, []queue.Offered) {
	k.n.Helper()
	stop := time.AfterFunc(21*time.Second, k.more.Broadcast)
	defer stop.Stop()
	begun := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.got) < n {
		if time.Since(begun) > 20*time.Second {
			k.n.Fatalf("a consumer got %d of %d messages; %+v", len(k.got), n, k.q.Stats())
		}
		k.more.Wait()
	}
	numbers, got := slices.Clone(k.numbers[:n]), slices.Clone(k.got[:n])
	k.numbers, k.got = k.numbers[n:], k.got[n:]
	return numbers, got
}

func (k *taker) settle(o queue.Outcome, ds ...queue.Offered) {
	var ids []queue.Range
	for _, d := range ds {
		ids = appendRange(ids, queue.Range{First: d.ID, Last: d.ID})
	}
	var w queue.Wake
	k.q.Settle(k.id, ids, o, &w)
}

// settled returns when what was commanded so far has been done.
func (n *node) settled(q *Queue) {
	n.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := q.slot.catchUp(ctx); err != nil {
		n.Fatal(err)
	}
}

func numbers(first, last uint64) (list []uint64) {
	for n := first; n <= last; n++ {
		list = append(list, n)
	}
	return list
}

func TestThroughTheLog(t *testing.T) {
	dir := t.TempDir()
	n := open(t, dir)
	q := n.host.NewQueue(7, noLimits, nil)
	p := n.publisher()
	p.publish(q, 100, 1000)
	p.wait()
	if st := q.Stats(); st.Ready != 100 {
		t.Fatalf("%+v", st)
	}
	k := n.consume(q, queue.ConsumerSpec{Prefetch: 10})
	got, ds := k.wait(10)
	if !slices.Equal(got, numbers(1, 10)) {
		t.Fatal(got)
	}
	k.settle(queue.Ack, ds[:5]...)
	got, more := k.wait(5)
	if !slices.Equal(got, numbers(11, 15)) {
		t.Fatal(got)
	}
	k.settle(queue.Ack, more[0])
	k.wait(1)
	n.settled(q)
	if st := q.Stats(); st.Ready != 84 || st.Unacked != 10 || st.Acked != 6 {
		t.Fatalf("%+v", st)
	}
	n.close()
	for round := range 3 {
		n = open(t, dir)
		q = n.host.NewQueue(7, noLimits, nil)
		if r := n.recover(); r.Queues != 1 || r.Messages != 94 {
			t.Fatalf("start %d: %+v", round, r)
		}
		k = n.consume(q, queue.ConsumerSpec{})
		got, ds = k.wait(94)
		want := append(numbers(6, 10), append(numbers(12, 16), numbers(17, 100)...)...)
		if round > 0 {
			slices.Sort(got)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("start %d: %v", round, got)
		}
		if again := ds[0].Redelivered && ds[9].Redelivered; !again || round == 0 && ds[10].Redelivered {
			t.Fatal("redelivered")
		}
		n.close()
	}
	n = open(t, dir) // metadata does not know it any more
	if r := n.recover(); r.Queues != 0 || r.Unknown != 1 {
		t.Fatalf("%+v", r)
	}
	n.close()
	n = open(t, dir)
	if r := n.recover(); r.Unknown != 0 {
		t.Fatalf("%+v", r)
	}
	n.close()
}

// TestEngineFails: who ends the process hears whether the disk is at fault, without the stack that the engine tells.
func TestEngineFails(t *testing.T) {
	for _, c := range []struct {
		err  error
		disk bool
	}{
		{&os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, true},
		{fmt.Errorf("saved: %w", syscall.EIO), true},
		{errors.New("gap in entries\nstack"), false},
	} {
		var told error
		func() {
			defer func() { _ = recover() }()
			engineLog{testLog(), "engine", func(err error) { told = err }}.Panicf("%+v", c.err)
			t.Error("it goes on")
		}()
		var e *EngineError
		if !errors.As(told, &e) || e.Disk != c.disk || strings.Contains(told.Error(), "\n") {
			t.Errorf("%v: %v", c.err, told)
		}
	}
}

// TestStartsLater: the Raft engine of a node that runs cannot be started with its first quorum queue. It is tried again, and
// what the queue was told meanwhile is done.
func TestStartsLater(t *testing.T) {
	t.Parallel()
	n := open(t, t.TempDir())
	defer n.close()
	dir := filepath.Join(n.dir, "raft")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	q := n.host.NewQueue(1, noLimits, nil)
	p := n.publisher()
	p.publish(q, 10, 100)
	if _, err := n.host.raft(); err == nil {
		t.Fatal("it was started")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	p.wait()
	if st := q.Stats(); st.Ready != 10 {
		t.Fatalf("%+v", st)
	}
}

// TestEndsWithoutStart: a node whose Raft engine could not be started ends all the same.
func TestEndsWithoutStart(t *testing.T) {
	t.Parallel()
	n := open(t, t.TempDir())
	if err := os.WriteFile(filepath.Join(n.dir, "raft"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.host.NewQueue(1, noLimits, nil)
	n.close()
}

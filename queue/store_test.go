package queue

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/storage"
)

// disk is a store on a file system, opened again and again.
type disk struct {
	t     testing.TB
	fs    storage.FS
	db    *storage.DB
	pool  *Pool
	clock *Clock
	store *Store
	queue *Classic
	bound int64
	rest  func(time.Duration) // of the background; nil: as ever
	set   Time                // by how much the system's clock was set before the start
}

func (d *disk) open() {
	d.t.Helper()
	var err error
	if d.db, err = storage.OpenDB(d.fs, "data/meta", storage.DBOptions{}); err != nil {
		d.t.Fatal(err)
	}
	if d.bound == 0 {
		d.bound = 64 << 20
	}
	d.pool = NewPool(d.bound)
	d.pool.Poison = true
	d.clock = newClock(Time(time.Now().UnixMilli()) + d.set)
	d.store, err = OpenStore(StoreOptions{FS: d.fs, Dir: "data", DB: d.db, Pool: d.pool, Clock: d.clock,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		d.t.Fatal(err)
	}
	d.store.background.rest = d.rest
	d.queue = d.store.NewClassic(7, true, ClassicRules(0), noLimits, nil)
	if _, err := d.store.Recover(); err != nil {
		d.t.Fatal(err)
	}
}

var noLimits = Config{TTL: -1, MaxLength: -1, MaxBytes: -1, DeliveryLimit: -1}

func (d *disk) close() {
	d.t.Helper()
	if err := d.store.Close(); err != nil {
		d.t.Fatal(err)
	}
	if err := d.db.Close(); err != nil {
		d.t.Fatal(err)
	}
	d.clock.Close()
}

// publish enqueues messages with the bodies n, n+1 … as text, padded to size, and waits for their confirms.
func (d *disk) publish(first, n, size int) {
	var w Wake
	waiting := &confirmed{done: make(chan struct{})}
	waiting.left.Store(int64(n))
	for ; n > 0; n, first = n-100, first+100 {
		b := Batch{Confirms: waiting}
		for i := first; i < first+min(n, 100); i++ {
			b.Messages = append(b.Messages, d.message(i, size))
			b.Numbers = append(b.Numbers, uint64(i))
		}
		d.queue.Publish(&b, &w)
		w.Flush()
	}
	<-waiting.done
}

func (d *disk) message(i, size int) Message {
	body := fmt.Appendf(make([]byte, 0, size), "%d.", i)
	body = append(body, bytes.Repeat([]byte{'x'}, max(0, size-len(body)))...)
	header := []byte{0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, byte(len(body)), 0, 0}
	m := d.pool.NewMessage([]byte("x"), []byte("key"), header, func(yield func([]byte) bool) { yield(body) }, len(body), 1)
	m.Flags |= Persistent
	return m
}

type confirmed struct {
	left atomic.Int64
	done chan struct{}
}

func (c *confirmed) Settled(ranges []Range, ok bool, w *Wake) {
	n := int64(0)
	for _, r := range ranges {
		n += int64(r.Last - r.First + 1)
	}
	if c.left.Add(-n) == 0 {
		close(c.done)
	}
}

// get takes the next message without acknowledgement and returns its number, -1 when there is none.
func (d *disk) get(getter ConsumerID, noAck bool) (number int, o Offered) {
	d.t.Helper()
	var w Wake
	type answer struct {
		o  Offered
		ok bool
	}
	got := make(chan answer, 1)
	d.queue.Get(getter, noAck, &w, func(o Offered, _ uint64, ok bool) { got <- answer{o, ok} })
	w.Flush()
	a := <-got
	if !a.ok {
		return -1, a.o
	}
	body := ParseStored(d.pool.Bytes(a.o.Message.Ref)).AppendBody(nil)
	if _, err := fmt.Sscanf(string(body), "%d.", &number); err != nil {
		d.t.Fatalf("body %q: %v", body, err)
	}
	d.pool.Release(a.o.Message.Ref.Slab, 1)
	return number, a.o
}

func (d *disk) getter() (id ConsumerID) {
	var w Wake
	d.queue.Attach(ConsumerSpec{Getter: true}, nowhereOutlet{}, &w, func(c ConsumerID, _ error) { id = c })
	return id
}

func (d *disk) settle(c ConsumerID, o Outcome, first, last uint64) {
	var w Wake
	d.queue.Settle(c, []Range{{first, last}}, o, &w)
	w.Flush()
}

func TestRestartKeepsWhatWasNotSettled(t *testing.T) {
	d := &disk{t: t, fs: storage.NewFaultFS(1)}
	d.open()
	d.publish(0, 1000, 100)
	g := d.getter()
	for i := range 500 {
		if n, o := d.get(g, false); n != i || o.Redelivered {
			t.Fatal(i, n, o)
		}
	}
	d.settle(g, Ack, 1, 100)
	d.settle(g, Ack, 200, 300)
	d.close()

	d.open()
	g = d.getter()
	for i := range 1000 {
		if i < 100 || i >= 199 && i < 300 {
			continue
		}
		if n, o := d.get(g, true); n != i || o.Redelivered != (i < 500) {
			t.Fatal(i, n, o.Redelivered)
		}
	}
	if n, _ := d.get(g, true); n != -1 {
		t.Fatal(n)
	}
	d.close()

	d.open()
	if n, _ := d.get(d.getter(), true); n != -1 {
		t.Fatal(n)
	}
	d.close()
	if used := d.pool.InUse(); used > SlabSize {
		t.Errorf("%d octets still in use", used)
	}
}

// TestBacklogLeavesMemory: more messages than memory holds go to runs, and come back in order.
func TestBacklogLeavesMemory(t *testing.T) {
	d := &disk{t: t, fs: storage.OS{}, bound: 8 << 20}
	t.Chdir(t.TempDir())
	d.open()
	const messages = 200_000
	g := d.getter()
	for n := 0; n < messages; n += 1000 {
		d.publish(n, 1000, 100)
		if n == 50_000 {
			for i := range 10 {
				if n, _ := d.get(g, false); n != i {
					t.Fatal(i, n)
				}
			}
		}
	}
	if used := d.pool.InUse(); used > 3*d.bound {
		t.Errorf("%d octets in memory", used)
	}
	if runs := d.store.Stats().Runs; runs.Runs == 0 {
		t.Error("nothing was flushed")
	}
	d.settle(g, Return, 1, 5)
	d.settle(g, Ack, 6, 10)
	next := 0
	for range messages - 5 {
		if next == 5 {
			next = 10
		}
		n, _ := d.get(g, true)
		if n != next {
			t.Fatalf("got %d instead of %d", n, next)
		}
		next++
	}
	if n, _ := d.get(g, true); n != -1 {
		t.Fatal(n)
	}
	d.close()
}

// TestDeadRunsGo: what was acknowledged gives its room on disk back, after a crash and a restart too, and without anybody
// publishing anything.
func TestDeadRunsGo(t *testing.T) {
	d := &disk{t: t, fs: storage.OS{}, bound: 4 << 20}
	t.Chdir(t.TempDir())
	d.open()
	const messages = 20_000
	d.publish(0, messages, 1000)
	g := d.getter()
	for i := range messages {
		if n, _ := d.get(g, false); n != i {
			t.Fatal(i, n)
		}
		if i%1000 == 999 && i < messages/2 { // the rest of the acks before the crash, or after it
			d.settle(g, Ack, uint64(max(2, i-998)), uint64(i+1))
		}
	}
	for deadline := time.Now().Add(20 * time.Second); d.store.Stats().Runs.Octets < 1<<20; time.Sleep(20 * time.Millisecond) {
		d.store.wakeFlusher()
		if time.Now().After(deadline) {
			t.Fatal("nothing is flushed")
		}
	}
	d.store.Abandon()
	d.db.Close()
	d.clock.Close()
	d.bound = 64 << 20 // nothing asks for a flush
	d.open()
	g = d.getter()
	first := 0
	for {
		n, _ := d.get(g, false)
		if n < 0 {
			break
		}
		first++
	}
	d.settle(g, Ack, 1, uint64(first))
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		d.store.wakeFlusher() // as it does itself every ten seconds
		runs := d.store.Stats().Runs
		if runs.Octets == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d octets in %d runs, %d alive, with nothing in the queue", runs.Octets, runs.Runs, runs.Live)
		}
	}
	d.close()
}

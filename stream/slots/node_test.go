package slots

import (
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/quorum"
	"github.com/warrenmq/warren/storage"
)

// node is a node with streams and nothing else.
type node struct {
	testing.TB
	dir   string
	db    *storage.DB
	pool  *queue.Pool
	clock *queue.Clock
	raft  *quorum.Host
	host  *Host
}

var noLimits = queue.Config{TTL: -1, MaxLength: -1, MaxBytes: -1}

func open(t testing.TB, dir string) *node {
	t.Helper()
	n := &node{TB: t, dir: dir, pool: queue.NewPool(128 << 20), clock: queue.NewClock()}
	n.pool.Poison = true
	var err error
	if n.db, err = storage.OpenDB(storage.OS{}, filepath.Join(dir, "meta"), storage.DBOptions{}); err != nil {
		t.Fatal(err)
	}
	n.raft, err = quorum.Open(quorum.Options{FS: storage.OS{}, Dir: filepath.Join(dir, "raft"), DB: n.db, Pool: n.pool, Clock: n.clock, Log: silent()})
	if err != nil {
		t.Fatal(err)
	}
	n.host, err = Open(Options{FS: storage.OS{}, Dir: filepath.Join(dir, "streams"), DB: n.db, Pool: n.pool, Log: silent(), Quorum: n.raft})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) recover() Report {
	n.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := n.raft.Recover(ctx); err != nil {
		n.Fatal(err)
	}
	r, err := n.host.Recover(ctx)
	if err != nil {
		n.Fatal(err)
	}
	return r
}

func (n *node) close() {
	n.Helper()
	n.clock.Close()
	for _, err := range []error{n.host.Close(), n.raft.Close(), n.db.Close()} {
		if err != nil {
			n.Fatal(err)
		}
	}
	n.pool.Close()
}

// confirms counts what becomes of publishes.
type confirms struct {
	mu          sync.Mutex
	ok, refused int
	more        sync.Cond
}

func (c *confirms) Settled(rs []queue.Range, ok bool, _ *queue.Wake) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range rs {
		if ok {
			c.ok += int(r.Last - r.First + 1)
		} else {
			c.refused += int(r.Last - r.First + 1)
		}
	}
	c.more.Broadcast()
}

// publish publishes bodies, one batch each, waits for the confirms, and returns how many were confirmed.
func (n *node) publish(q *Queue, bodies ...string) int {
	n.Helper()
	c := &confirms{}
	c.more.L = &c.mu
	var w queue.Wake
	for i, body := range bodies {
		b := queue.Batch{Messages: []queue.Message{n.message(body)}, Numbers: []uint64{uint64(i + 1)}, Confirms: c}
		q.Publish(&b, &w)
	}
	w.Flush()
	timeout := time.AfterFunc(patience, func() { panic("no confirms") })
	defer timeout.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.ok+c.refused < len(bodies) {
		c.more.Wait()
	}
	return c.ok
}

// spread publishes bodies a few at a time, so that there are many chunks.
func (n *node) spread(q *Queue, bodies ...string) (confirmed int) {
	n.Helper()
	for len(bodies) > 0 {
		k := min(5, len(bodies))
		confirmed += n.publish(q, bodies[:k]...)
		bodies = bodies[k:]
	}
	return confirmed
}

func (n *node) message(body string) queue.Message {
	header, err := amqp.AppendHeader(nil, uint64(len(body)), &amqp.PropertyList{DeliveryMode: amqp.Persistent})
	if err != nil {
		n.Fatal(err)
	}
	return n.pool.NewMessage([]byte("x"), []byte("k"), header, func(yield func([]byte) bool) { yield([]byte(body)) }, len(body), 1)
}

// listener is a consumer that writes down what it gets.
type listener struct {
	n     *node
	q     *Queue
	id    queue.ConsumerID
	got   chan string // "offset body", or "cancelled"
	small bool        // its outlet is full after each offer
}

var listenerHead = []byte{amqp.FrameMethod, 0, 7, 0, 0, 0, 0, 0, 60, 0, 60, 1, 't'}

func (r *listener) Form() (head []byte, frameMax int)            { return listenerHead, 4096 }
func (r *listener) Offer(ds []queue.Offered, w *queue.Wake) bool { panic("a stream offers frames") }

func (r *listener) OfferFrames(fs []queue.Frames, _ int, w *queue.Wake) bool {
	for _, f := range fs {
		b := r.n.pool.Bytes(f.Ref)
		for i := range f.N {
			length := binary.BigEndian.Uint64(b[len(listenerHead):])
			one := b[:length]
			one = one[amqp.FrameOverhead+int(binary.BigEndian.Uint32(one[3:])):] // the method
			one = one[amqp.FrameOverhead+int(binary.BigEndian.Uint32(one[3:])):] // the header
			body := queue.Stored{Frames: one}.AppendBody(nil)
			r.got <- fmt.Sprintf("%d %s", f.First+uint64(i), body)
			b = b[length:]
		}
		if len(b) > 0 {
			panic("frames are longer than their deliveries")
		}
		r.n.pool.Release(f.Ref.Slab, 1)
	}
	return !r.small
}
func (r *listener) Cancelled(*queue.Wake) { r.got <- "cancelled" }
func (r *listener) TimedOut(*queue.Wake)  {}
func (r *listener) Activity(bool)         {}

func table(t testing.TB, args map[string]any) amqp.Table {
	t.Helper()
	table, err := amqp.TableOf(args)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// consume attaches a consumer, or returns why that was refused.
func (n *node) consume(q *Queue, prefetch int, args map[string]any) (*listener, error) {
	n.Helper()
	r := &listener{n: n, q: q, got: make(chan string, 100_000)}
	done := make(chan error, 1)
	var w queue.Wake
	q.Attach(queue.ConsumerSpec{Prefetch: uint32(prefetch), Arguments: table(n, args)}, r, &w, func(id queue.ConsumerID, err error) {
		r.id = id
		done <- err
	})
	w.Flush()
	select {
	case err := <-done:
		return r, err
	case <-time.After(patience):
		n.Fatal("no answer")
		return nil, nil
	}
}

func (n *node) mustConsume(q *Queue, prefetch int, args map[string]any) *listener {
	n.Helper()
	r, err := n.consume(q, prefetch, args)
	if err != nil {
		n.Fatal(err)
	}
	return r
}

// wants waits for what comes next.
func (r *listener) wants(list ...string) {
	r.n.Helper()
	for _, want := range list {
		select {
		case got := <-r.got:
			if got != want {
				r.n.Fatalf("got %q, want %q", got, want)
			}
		case <-time.After(patience):
			r.n.Fatalf("nothing came, want %q", want)
		}
	}
}

func (r *listener) ack(first, last uint64) {
	var w queue.Wake
	r.q.Settle(r.id, []queue.Range{{First: first, Last: last}}, queue.Ack, &w)
	w.Flush()
}

func (r *listener) leave() {
	var w queue.Wake
	r.q.Detach(r.id, queue.Remove, &w, func() {})
	w.Flush()
}

func numbered(from, to int) (list []string) {
	for i := from; i < to; i++ {
		list = append(list, fmt.Sprintf("%d m%d", i, i))
	}
	return list
}

func bodies(from, to int) (list []string) {
	for i := from; i < to; i++ {
		list = append(list, "m"+strconv.Itoa(i))
	}
	return list
}

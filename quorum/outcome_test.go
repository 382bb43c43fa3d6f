package quorum

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/test/seeds"
)

// flaky is a Raft engine between which and the proposer not everything comes through.
type flaky struct {
	engine
	mu    sync.Mutex
	rng   *rand.Rand
	tried atomic.Int64
	shut  atomic.Bool // nothing is taken
}

var errFlaky = errors.New("it did not come through, or it did")

func (f *flaky) propose(b []byte, timeout time.Duration) (Proposal, error) {
	f.tried.Add(1)
	if f.shut.Load() {
		return nil, errFlaky
	}
	f.mu.Lock()
	x := f.rng.IntN(7)
	f.mu.Unlock()
	switch x {
	case 0: // it did not
		return nil, errFlaky
	case 1: // it will, later
		late := bytes.Clone(b)
		time.AfterFunc(10*time.Millisecond, func() {
			if state, err := f.engine.propose(late, timeout); err == nil {
				<-state.ResultC()
				state.Release()
			}
		})
		return nil, errFlaky
	case 2: // it did, and nobody knows
		state, err := f.engine.propose(b, timeout)
		if err == nil {
			<-state.ResultC()
			state.Release()
		}
		return nil, errFlaky
	}
	return f.engine.propose(b, timeout)
}

// openFlaky opens a node with one slot, and something between it and its log.
func openFlaky(t *testing.T) (*node, *flaky) {
	n := open(t, t.TempDir())
	n.host.members, n.host.opening = []uint64{1}, make(chan struct{})
	n.host.make(1)
	f := &flaky{engine: n.host.slots[0], rng: rand.New(rand.NewPCG(seeds.Of(t), 0))}
	n.host.slots[0].proposer.Propose = f.propose
	if n.host.start(); n.host.err != nil {
		t.Fatal(n.host.err)
	}
	return n, f
}

// TestUnknownOutcomes: what became of a batch is often not known. Everything happens once and in order all the same.
func TestUnknownOutcomes(t *testing.T) {
	n, _ := openFlaky(t)
	defer n.close()
	q := n.host.NewQueue(1, noLimits, nil)
	p := n.publisher()
	k := n.consume(q, queue.ConsumerSpec{Prefetch: 50})
	const total = 3000
	go func() {
		for range total / 10 {
			p.publish(q, 10, 100)
			time.Sleep(200 * time.Microsecond) // so that there are many batches
		}
	}()
	var all []uint64
	for len(all) < total {
		got, ds := k.wait(1)
		all = append(all, got...)
		k.settle(queue.Ack, ds...)
	}
	if !slices.Equal(all, numbers(1, total)) {
		t.Fatal("not each once and in order")
	}
	p.wait()
	n.settled(q)
	if st := q.Stats(); p.refused > 0 || st.Ready+st.Unacked > 0 || st.Acked != total || st.Published != total {
		t.Fatalf("%d refused, %+v", p.refused, st)
	}
}

// TestNothingIsConfirmedBefore: a publish is confirmed when it is in the log and applied, and not before.
func TestNothingIsConfirmedBefore(t *testing.T) {
	n, f := openFlaky(t)
	defer n.close()
	q := n.host.NewQueue(1, noLimits, nil)
	n.settled(q)
	f.shut.Store(true)
	p := n.publisher()
	p.publish(q, 10, 100)
	for before := f.tried.Load(); f.tried.Load() < before+10; {
		time.Sleep(time.Millisecond)
	}
	p.mu.Lock()
	confirmed, refused := p.confirmed, p.refused
	p.mu.Unlock()
	if confirmed+refused > 0 || q.Stats().Published > 0 {
		t.Fatalf("%d confirmed, %d refused, %d published", confirmed, refused, q.Stats().Published)
	}
	f.shut.Store(false)
	p.wait()
	if q.Stats().Ready != 10 || p.refused > 0 {
		t.Fatalf("%+v", q.Stats())
	}
}

// TestPublishersRest: publishers of a queue are stopped while too much of it is on its way, and go on when it is through. Those of
// another queue of the slot are not, and what they publish is confirmed before what had waited longer.
func TestPublishersRest(t *testing.T) {
	n, f := openFlaky(t)
	defer n.close()
	q, other := n.host.NewQueue(1, noLimits, nil), n.host.NewQueue(2, noLimits, nil)
	n.settled(q)
	n.settled(other)
	f.shut.Store(true)
	p := n.publisher()
	published := 0
	for ; !q.Full(); published++ {
		if published == 32 {
			t.Fatal("publishers do not rest")
		}
		p.publish(q, 1, 1<<20)
	}
	if published < 4 || other.Full() || n.pool.Full(0) {
		t.Fatalf("after %d: other full: %v, all full: %v", published, other.Full(), n.pool.Full(0))
	}
	const inFlight = 2 // what does not wait any more cannot be overtaken
	roomy := make(chan struct{})
	q.WaitForRoom(func() { close(roomy) })
	quiet := &ordered{before: func() int { p.mu.Lock(); defer p.mu.Unlock(); return int(p.confirmed) }, done: make(chan int, 1)}
	var w queue.Wake
	other.Publish(&queue.Batch{Messages: []queue.Message{n.message(1, 10)}, Numbers: []uint64{1}, Confirms: quiet}, &w)
	f.shut.Store(false)
	select {
	case <-roomy:
	case <-time.After(20 * time.Second):
		t.Fatal("publishers rest for ever")
	}
	if before := <-quiet.done; before > inFlight {
		t.Errorf("%d of %d were confirmed before, and at most %d were in flight", before, published, inFlight)
	}
	p.wait()
	if in := n.pool.InUse(); in < int64(published)<<20 || in > int64(published+4)<<20 {
		t.Errorf("%d octets in use", in)
	}
}

// ordered is told of one confirm, and says how many of others came before.
type ordered struct {
	before func() int
	done   chan int
}

func (o *ordered) Settled([]queue.Range, bool, *queue.Wake) { o.done <- o.before() }

// TestNoAnswerWhileStopped: Recover gives up when its time is over.
func TestNoAnswerWhileStopped(t *testing.T) {
	n, f := openFlaky(t)
	n.settled(n.host.NewQueue(1, noLimits, nil))
	f.shut.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := n.host.Recover(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	f.shut.Store(false)
	n.close()
}

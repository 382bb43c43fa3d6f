package slots

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/quorum"
	"github.com/warrenmq/warren/test/seeds"
)

// TestQuietBesideFlood: what is published to a stream while much of another one of its slot waits is proposed before that, and only who
// publishes to the other one is to rest.
func TestQuietBesideFlood(t *testing.T) {
	n := open(t, t.TempDir())
	defer n.close()
	n.host.make(slotsAlone)
	var shut atomic.Bool
	for _, s := range n.host.slots {
		s.proposer.Propose = func(b []byte, timeout time.Duration) (quorum.Proposal, error) {
			if shut.Load() {
				return nil, errors.New("shut")
			}
			return s.shard.Propose(b, timeout)
		}
	}
	go n.host.start()
	busy := n.host.NewQueue(1, Config{Name: "busy", Limits: noLimits})
	quiet := n.host.NewQueue(4, Config{Name: "quiet", Limits: noLimits})
	if n.publish(busy, "m0") != 1 || n.publish(quiet, "m0") != 1 {
		t.Fatal("refused")
	}
	shut.Store(true)
	body := strings.Repeat("x", 1<<20)
	c := &confirms{}
	c.more.L = &c.mu
	var w queue.Wake
	published := uint64(0)
	for ; !busy.Full(); published++ {
		if published == 32 {
			t.Fatal("nobody rests")
		}
		busy.Publish(&queue.Batch{Messages: []queue.Message{n.message(body)}, Numbers: []uint64{published + 1}, Confirms: c}, &w)
	}
	if published < 4 || quiet.Full() || n.pool.Full(0) {
		t.Fatalf("after %d: the quiet one full: %v, all full: %v", published, quiet.Full(), n.pool.Full(0))
	}
	confirmed := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.ok
	}
	before := make(chan int, 1)
	quiet.Publish(&queue.Batch{Messages: []queue.Message{n.message("m1")}, Numbers: []uint64{1}, Confirms: &heard{func() { before <- confirmed() }}}, &w)
	shut.Store(false)
	const inFlight = 2
	if x := <-before; x > inFlight {
		t.Errorf("%d of %d were confirmed before, and at most %d were in flight", x, published, inFlight)
	}
	wait(t, func() bool { return confirmed() == int(published) && !busy.Full() })
}

// heard is told of confirms.
type heard struct{ tell func() }

func (h *heard) Settled([]queue.Range, bool, *queue.Wake) { h.tell() }

// TestUnknownOutcomes has the Raft engine refuse batches, and take batches and say that it has not: each is applied once, in
// order, and everyone hears once.
func TestUnknownOutcomes(t *testing.T) {
	n := open(t, t.TempDir())
	defer n.close()
	n.host.make(slotsAlone)
	rng := rand.New(rand.NewPCG(seeds.Of(t), 1))
	var mu sync.Mutex
	refused, doubtful := 0, 0
	for _, s := range n.host.slots {
		s.proposer.Propose = func(b []byte, timeout time.Duration) (quorum.Proposal, error) {
			mu.Lock()
			defer mu.Unlock()
			switch rng.IntN(4) {
			case 0:
				refused++
				return nil, errors.New("busy")
			case 1:
				doubtful++
				_, _ = s.shard.Propose(b, timeout)
				return nil, errors.New("who knows")
			}
			return s.shard.Propose(b, timeout)
		}
	}
	go n.host.start()
	q := n.host.NewQueue(1, Config{Name: "s", Limits: noLimits})
	other := n.host.NewQueue(4, Config{Name: "other", Limits: noLimits}) // of the same slot
	r := n.mustConsume(q, 1000, map[string]any{"x-stream-consumer-name": "n", "x-stream-offset": "first"})
	for i := range 60 {
		if n.publish(q, bodies(i*3, i*3+3)...) != 3 || n.publish(other, fmt.Sprintf("m%d", i)) != 1 {
			t.Fatal("refused")
		}
	}
	r.wants(numbered(0, 180)...)
	r.ack(0, 99)
	wait(t, func() bool { o := q.Offsets(false); return len(o) == 1 && o[0].Next == 100 })
	n.mustConsume(other, 1000, map[string]any{"x-stream-offset": "first"}).wants(numbered(0, 60)...)
	if q.Status().Next != 180 || other.Status().Next != 60 {
		t.Errorf("%+v, %+v", q.Status(), other.Status())
	}
	mu.Lock()
	defer mu.Unlock()
	if refused == 0 || doubtful == 0 {
		t.Errorf("%d refused, %d in doubt", refused, doubtful)
	}
}

package slots

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/queue"
)

// drain is a consumer that acknowledges what it gets, and has no use for it.
type drain struct {
	listener
	acks chan queue.Range
	got  atomic.Uint64
	done chan struct{}
	all  uint64
}

func (d *drain) OfferFrames(fs []queue.Frames, _ int, _ *queue.Wake) bool {
	for _, f := range fs {
		d.n.pool.Release(f.Ref.Slab, 1)
		d.acks <- queue.Range{First: f.First, Last: f.First + uint64(f.N) - 1}
		if d.got.Add(uint64(f.N)) == d.all {
			close(d.done)
		}
	}
	return true
}

// TestDrainMakesNoGarbage has a consumer read a stream from its first message to its end: nothing is allocated for a message.
func TestDrainMakesNoGarbage(t *testing.T) {
	n := open(t, t.TempDir())
	n.pool.Poison = false // or all slabs are written through
	defer n.close()
	q := n.host.NewQueue(1, Config{Name: "s", Limits: noLimits})
	const rounds, each = 30, 500
	b := queue.Batch{}
	for range rounds {
		b.Messages = b.Messages[:0]
		for range each {
			b.Messages = append(b.Messages, n.message(strings.Repeat("x", 1000)))
		}
		var w queue.Wake
		q.Publish(&b, &w)
		w.Flush()
		n.publish(q, "confirmed")
	}
	d := &drain{listener: listener{n: n, q: q}, acks: make(chan queue.Range, 10_000), done: make(chan struct{}), all: rounds * (each + 1)}
	attached := make(chan error, 1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var w queue.Wake
	q.Attach(queue.ConsumerSpec{Prefetch: 1000, Arguments: table(t, map[string]any{"x-stream-offset": "first"})}, d, &w, func(id queue.ConsumerID, err error) {
		d.id = id
		attached <- err
	})
	w.Flush()
	if err := <-attached; err != nil {
		t.Fatal(err)
	}
	timeout := time.After(patience)
	for ended := false; !ended; {
		select {
		case r := <-d.acks:
			d.ack(r.First, r.Last)
		case <-d.done:
			ended = true
		case <-timeout:
			t.Fatalf("%d of %d messages came", d.got.Load(), d.all)
		}
	}
	runtime.ReadMemStats(&after)
	allocations := float64(after.Mallocs-before.Mallocs) / float64(d.all)
	t.Logf("%.4f allocations a message", allocations)
	if allocations > 0.1 { // the node's own, and a few for each turn and each block
		t.Errorf("%.4f allocations a message", allocations)
	}
	d.leave()
}

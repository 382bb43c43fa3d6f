package quorum

import (
	"testing"

	"github.com/warrenmq/warren/queue"
)

// TestDigest: replicas that have applied the same have the same sum, also one that was started anew, and one that differs in
// anything has another.
func TestDigest(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	qs := c.declare(7, noLimits, nil)
	c.declare(8, noLimits, nil)
	sums := func() map[string]int {
		list := map[string]int{}
		indexes := map[uint64]bool{}
		for _, n := range c.nodes {
			applied, sum := n.host.Digest(0)
			if sum == "" {
				t.Fatal("there is none")
			}
			indexes[applied] = true
			list[sum]++
		}
		if len(indexes) > 1 {
			return nil
		}
		return list
	}
	equal := func(what string) {
		t.Helper()
		until(t, what, func() bool { return len(sums()) == 1 })
	}
	p := c.nodes[1].publisherFrom(1 << 32)
	p.publish(qs[1], 10, 100)
	p.wait()
	equal("equal sums")
	c.kill(3)
	c.nodes[2].eat(qs[2], queue.ConsumerSpec{Prefetch: 3})
	until(t, "all is acknowledged", func() bool { return qs[2].Stats().Acked == 10 })
	n := c.start(3)
	n.host.NewQueue(7, noLimits, nil)
	n.host.NewQueue(8, noLimits, nil)
	equal("equal sums with one that was started anew")
	m := n.host.slots[0].machine
	m.mu.Lock()
	m.queues[8].gotTaken++
	m.mu.Unlock()
	until(t, "different sums", func() bool { return len(sums()) == 2 })
}

package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/warrenmq/warren/queue"
)

// grown is a cluster that began as a node alone, which had messages.
func grown(t *testing.T) (c *cluster, founder *Queue, p *publisher) {
	t.Helper()
	c = &cluster{TB: t, net: newNetwork(), dirs: map[uint64]string{}, nodes: map[uint64]*node{}}
	c.dirs[1] = t.TempDir()
	t.Cleanup(func() {
		for n := range c.nodes {
			c.kill(n)
		}
	})
	n := open(t, c.dirs[1]) // as it was before there were clusters
	q := n.host.NewQueue(5, noLimits, nil)
	p = n.publisher()
	p.publish(q, 100, 1000)
	p.wait()
	n.close()
	n = openWith(t, c.dirs[1], func(o *Options) { o.Transport = c.net })
	c.nodes[1] = n
	q = n.host.NewQueue(5, noLimits, nil)
	if r := n.recover(); r.Messages != 100 {
		t.Fatalf("%+v", r)
	}
	p = n.publisher()
	p.next, p.confirmed = 100, 100
	return c, q, p
}

// add makes a new node a member.
func (c *cluster) add(number uint64) *node {
	c.Helper()
	c.dirs[number] = c.TempDir()
	n := openWith(c, c.dirs[number], func(o *Options) { o.Transport = c.net })
	c.nodes[number] = n
	founder := c.nodes[1].host
	if err := n.host.Cluster(number, founder.ClusterID()); err != nil {
		c.Fatal(err)
	}
	if err := n.host.JoinSlots(founder.SlotCount()); err != nil {
		c.Fatal(err)
	}
	for _, s := range founder.Slots() {
		waitFor(c, func(ctx context.Context) error {
			return c.place(ctx, 1, Replica{Shard: s.Shard, Member: number, Votes: true})
		})
	}
	waitFor(c, func(ctx context.Context) error { _, err := n.host.Reconcile(ctx, nil); return err })
	return n
}

// again starts a member that was added, after it was killed.
func (c *cluster) again(number uint64) *node {
	c.Helper()
	n := openWith(c, c.dirs[number], func(o *Options) { o.Node, o.Clustered, o.Transport = number, true, c.net })
	c.nodes[number] = n
	return n
}

// TestOneBecomesThree: a node that was alone, with messages and clients, gets members while it works. They have everything,
// and any of the three may die then, the first included; who joined leads after a start of its own as well.
func TestOneBecomesThree(t *testing.T) {
	t.Parallel()
	c, q, p := grown(t)
	k := c.nodes[1].consume(q, queue.ConsumerSpec{Prefetch: 10})
	got, ds := k.wait(10)
	if err := c.nodes[1].host.Cluster(1, 0); err != nil {
		t.Fatal(err)
	}
	p.publish(q, 10, 100)
	qs := map[uint64]*Queue{1: q}
	for _, number := range []uint64{2, 3} {
		n := c.add(number)
		qs[number] = n.host.NewQueue(5, noLimits, nil)
		p.publish(q, 10, 100)
	}
	p.wait()
	k.settle(queue.Ack, ds...)
	more, _ := k.wait(10)
	if got = append(got, more...); !slices.Equal(got, numbers(1, 20)) {
		t.Fatal(got)
	}
	c.agree()
	for _, n := range c.nodes {
		for _, s := range n.host.Slots() {
			if !slices.Equal(s.Members, []uint64{1, 2, 3}) || !s.Voting {
				t.Fatalf("%+v", s)
			}
		}
	}
	if m := qs[2].Members(); !slices.Equal(m, []uint64{1, 2, 3}) {
		t.Fatal(m)
	}
	c.kill(2)
	c.again(2)
	qs[2] = c.nodes[2].host.NewQueue(5, noLimits, nil)
	waitFor(t, func(ctx context.Context) error { _, err := c.nodes[2].host.Reconcile(ctx, nil); return err })
	c.kill(1)
	c.down(1)
	k3 := c.nodes[3].consume(qs[3], queue.ConsumerSpec{})
	all, _ := k3.wait(120)
	slices.Sort(all)
	if !slices.Equal(all, numbers(11, 130)) {
		t.Fatal(all)
	}
	p2 := c.nodes[2].publisher()
	p2.publish(qs[2], 10, 10)
	p2.wait()
	if leader := c.leader(1, 2, 3); leader == 1 {
		t.Fatal("a dead node leads")
	}
	// Who joined, and was started again, can lead.
	until(t, "node 2 leads", func() bool {
		_ = c.nodes[3].host.TransferLeader(1, 2)
		return c.nodes[2].host.Slots()[1].Leader == 2
	})
	c.agree()
}

// TestLeavesForEver: a member that is removed has no part in anything any more, and its number does not come back.
func TestLeavesForEver(t *testing.T) {
	t.Parallel()
	c := newCluster(t, testSlots)
	qs := c.declare(1, noLimits, nil)
	leader := c.leader(1, 1, 2, 3)
	rest := others(leader)
	for slot := range uint16(testSlots) {
		waitFor(t, func(ctx context.Context) error { return c.nodes[rest[0]].host.Remove(ctx, shardOf(slot), leader) })
	}
	c.kill(leader)
	p := c.nodes[rest[1]].publisher()
	p.publish(qs[rest[1]], 10, 10)
	p.wait()
	for _, n := range c.nodes {
		until(t, "it is gone", func() bool {
			for _, s := range n.host.Slots() {
				if !slices.Equal(s.Members, rest) {
					return false
				}
			}
			return true
		})
	}
	waitFor(t, func(ctx context.Context) error {
		if err := c.place(ctx, rest[0], Replica{Shard: shardOf(0), Member: leader, Votes: true}); !errors.Is(err, ErrSpent) {
			return fmt.Errorf("it comes back under its number: %v", err)
		}
		return nil
	})
}

// TestRebalance: leaders are spread over those that are up.
func TestRebalance(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 6)
	spread := func(want int, among ...uint64) {
		t.Helper()
		until(t, "leaders are spread", func() bool {
			for _, number := range among {
				if err := c.nodes[number].host.Rebalance(); err != nil {
					t.Fatal(err)
				}
			}
			leads := map[uint64]int{}
			for _, s := range c.nodes[among[0]].host.Slots() {
				leads[s.Leader]++
			}
			for _, number := range among {
				if leads[number] != want {
					return false
				}
			}
			return true
		})
	}
	spread(2, 1, 2, 3)
	c.kill(3)
	c.down(3)
	spread(3, 1, 2)
}

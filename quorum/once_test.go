package quorum

import (
	"context"
	"slices"
	"testing"

	"github.com/warrenmq/warren/queue"
)

// mourners are who takes dead letters, one on each node.
func (c *cluster) mourners() map[uint64]*letters {
	ls := map[uint64]*letters{}
	for number, n := range c.nodes {
		l := &letters{n: n}
		l.more.L = &l.mu
		ls[number] = l
	}
	return ls
}

func (l *letters) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.got)
}

// TestOnlyTheLeaderActs: messages expire, and dead letters leave, on one node only, and on another one when that has died.
func TestOnlyTheLeaderActs(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	ls := c.mourners()
	config := noLimits
	config.TTL = 1500
	qs := map[uint64]*Queue{}
	for number, n := range c.nodes {
		qs[number] = n.host.NewQueue(1, config, ls[number])
	}
	sum := func() (n int) {
		for _, l := range ls {
			n += l.count()
		}
		return n
	}
	p := c.nodes[1].publisher()
	p.publish(qs[1], 2000, 10) // more than one command expires
	p.wait()
	until(t, "all expire", func() bool { return sum() >= 2000 })
	leader := c.leader(0, 1, 2, 3)
	rest := others(leader)
	p = c.nodes[rest[0]].publisherFrom(10000)
	p.publish(qs[rest[0]], 100, 10)
	p.wait()
	c.kill(leader)
	c.down(leader)
	until(t, "the rest expires", func() bool { return sum() >= 2100 })
	c.agree()
	var got []uint64
	for _, l := range ls {
		got = append(got, l.wait(0)...)
	}
	slices.Sort(got)
	if !slices.Equal(got, append(numbers(1, 2000), numbers(10001, 10100)...)) {
		t.Fatal(got)
	}
}

// TestKeptLettersPassOn: dead letters that have not arrived when the leader dies are sent by the next one.
func TestKeptLettersPassOn(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	ls := c.mourners()
	config := noLimits
	config.KeepDiscards, config.Overflow, config.TTL = true, queue.RejectPublish, 50
	qs := map[uint64]*Queue{}
	for number, n := range c.nodes {
		qs[number] = n.host.NewQueue(1, config, ls[number])
	}
	leader := c.leader(0, 1, 2, 3)
	ls[leader].mu.Lock()
	ls[leader].keep = true
	ls[leader].mu.Unlock()
	rest := others(leader)
	p := c.nodes[rest[0]].publisher()
	p.publish(qs[rest[0]], 10, 10)
	p.wait()
	until(t, "they are sent", func() bool { return ls[leader].count() >= 10 })
	if n := ls[rest[0]].count() + ls[rest[1]].count(); n > 0 {
		t.Fatalf("%d are sent by others", n)
	}
	c.kill(leader)
	c.down(leader)
	next := c.leader(0, rest...)
	until(t, "they are sent again", func() bool { return ls[next].count() >= 10 })
	until(t, "they have arrived", func() bool { st := qs[next].Stats(); return st.Kept == 0 && st.Ready == 0 })
	c.agree()
}

// TestOneIsActive: of the consumers of a queue with a single active one, on several nodes, another becomes it when the node
// of the first dies.
func TestOneIsActive(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	config := noLimits
	config.SingleActive = true
	qs := c.declare(1, config, nil)
	leader := c.leader(0, 1, 2, 3)
	rest := others(leader)
	first := c.nodes[leader].consume(qs[leader], queue.ConsumerSpec{Prefetch: 5})
	second := c.nodes[rest[0]].consume(qs[rest[0]], queue.ConsumerSpec{Prefetch: 5})
	p := c.nodes[rest[1]].publisher()
	p.publish(qs[rest[1]], 5, 10)
	first.wait(5)
	c.kill(leader)
	c.down(leader)
	got, ds := second.wait(5)
	if slices.Sort(got); !slices.Equal(got, numbers(1, 5)) || !ds[0].Redelivered {
		t.Fatal(got)
	}
}

// TestLimitsFollowTheLeader: a node that starts with metadata of yesterday does not change the limits of a queue; when it
// knows all, and leads, it does.
func TestLimitsFollowTheLeader(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	qs := c.declare(1, noLimits, nil)
	for _, n := range c.nodes {
		waitFor(t, func(ctx context.Context) error { _, err := n.host.Reconcile(ctx, nil); return err })
	}
	leader := c.leader(0, 1, 2, 3)
	p := c.nodes[leader].publisher()
	p.publish(qs[leader], 100, 10)
	p.wait()
	away := others(leader)[0]
	c.kill(away)
	n := c.start(away)
	old := noLimits
	old.MaxLength = 10
	q := n.host.NewQueue(1, old, nil)
	n.settled(q)
	if st := q.Stats(); st.Ready != 100 {
		t.Fatalf("%+v", st)
	}
	lead := func() {
		until(t, "it leads", func() bool {
			_ = c.nodes[leader].host.TransferLeader(0, away)
			s := n.host.Slots()[0]
			return s.Leader == away && s.Leads == away
		})
	}
	lead()
	n.settled(q)
	if st := q.Stats(); st.Ready != 100 {
		t.Fatalf("%+v", st)
	}
	old.MaxLength = 20 // by now it has heard
	var w queue.Wake
	q.Configure(old, &w)
	waitFor(t, func(ctx context.Context) error { _, err := n.host.Reconcile(ctx, nil); return err })
	until(t, "the limit counts", func() bool { return q.Stats().Ready == 20 })
	c.agree()
}

// TestUnknownQueuesGo: a queue that nobody's metadata knows is deleted, and one that another node has just declared is not.
func TestUnknownQueuesGo(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	leader := c.leader(0, 1, 2, 3)
	rest := others(leader)
	c.nodes[rest[0]].settled(c.nodes[rest[0]].host.NewQueue(1, noLimits, nil)) // which has since died, with its metadata
	q := c.nodes[rest[1]].host.NewQueue(2, noLimits, nil)
	p := c.nodes[rest[1]].publisher()
	p.publish(q, 1, 10)
	p.wait()
	deleted := 0
	waitFor(t, func(ctx context.Context) (err error) {
		deleted, err = c.nodes[leader].host.Reconcile(ctx, func(context.Context) error {
			c.nodes[leader].host.NewQueue(2, noLimits, nil)
			return nil
		})
		return err
	})
	if deleted != 1 {
		t.Fatalf("%d were deleted", deleted)
	}
	c.nodes[rest[1]].settled(q)
	if q.Stats().Ready != 1 {
		t.Fatal("it is gone")
	}
}

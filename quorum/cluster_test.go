package quorum

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/queue"
)

// cluster is three hosts in this process.
type cluster struct {
	testing.TB
	net   *network
	dirs  map[uint64]string
	nodes map[uint64]*node // that are up
}

const testSlots = 2

func newCluster(t testing.TB, slots int) *cluster {
	t.Helper()
	c := &cluster{TB: t, net: newNetwork(), dirs: map[uint64]string{}, nodes: map[uint64]*node{}}
	for n := range uint64(3) {
		c.start(n + 1)
	}
	for _, n := range c.nodes {
		if err := n.host.MakeSlots(slots, []uint64{1, 2, 3}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for n := range c.nodes {
			c.kill(n)
		}
	})
	return c
}

// start starts a node, anew if it was stopped.
func (c *cluster) start(number uint64) *node {
	c.Helper()
	if c.dirs[number] == "" {
		c.dirs[number] = c.TempDir()
	}
	n := openWith(c, c.dirs[number], func(o *Options) {
		o.Node, o.Clustered, o.ClusterID, o.Transport = number, true, 77, c.net
	})
	c.nodes[number] = n
	return n
}

// kill stops a node that has no time to say anything, and forgets what it has not written.
func (c *cluster) kill(number uint64) {
	c.Helper()
	n := c.nodes[number]
	delete(c.nodes, number)
	n.clock.Close()
	if err := n.host.close(0, false); err != nil {
		c.Fatal(err)
	}
	if err := n.db.Close(); err != nil {
		c.Fatal(err)
	}
}

// declare makes a queue on all nodes.
func (c *cluster) declare(id uint64, config queue.Config, dead queue.DeadLetters) map[uint64]*Queue {
	qs := map[uint64]*Queue{}
	for number, n := range c.nodes {
		qs[number] = n.host.NewQueue(id, config, dead)
	}
	return qs
}

// until waits for something to become true.
func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	for begun := time.Now(); !f(); time.Sleep(time.Millisecond) {
		if time.Since(begun) > 20*time.Second {
			t.Fatalf("it does not happen: %s", what)
		}
	}
}

// leader waits until all nodes that are asked agree on who leads a slot, and that it carries things out.
func (c *cluster) leader(slot int, among ...uint64) (leader uint64) {
	c.Helper()
	until(c, "a leader", func() bool {
		leader = 0
		for _, number := range among {
			s := c.nodes[number].host.Slots()[slot]
			if s.Leader == 0 || s.Leader != s.Leads || leader != 0 && s.Leader != leader {
				return false
			}
			leader = s.Leader
		}
		return slices.Contains(among, leader)
	})
	return leader
}

// agree waits until the replicas of all nodes that are up have the same state.
func (c *cluster) agree() {
	c.Helper()
	for slot := range testSlotsOf(c) {
		until(c, "equal replicas", func() bool {
			states := map[string]bool{}
			for _, n := range c.nodes {
				states[stateOf(n.host.slots[slot].machine)] = true
			}
			return len(states) == 1
		})
	}
}

func testSlotsOf(c *cluster) int {
	for _, n := range c.nodes {
		return n.host.SlotCount()
	}
	return 0
}

// eater is a consumer that acknowledges what it gets, and notes it.
type eater struct {
	n  *node
	q  *Queue
	id queue.ConsumerID

	mu        sync.Mutex
	got       []queue.Offered // messages released
	numbers   []uint64
	cancelled bool
}

// eat attaches an eater when that is possible, and returns at once.
func (n *node) eat(q *Queue, spec queue.ConsumerSpec) *eater {
	k := &eater{n: n, q: q}
	var w queue.Wake
	q.Attach(spec, k, &w, func(id queue.ConsumerID, err error) {
		if err == nil {
			k.mu.Lock()
			k.id = id
			k.mu.Unlock()
		}
	})
	return k
}

func (k *eater) Offer(ds []queue.Offered, _ *queue.Wake) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	var ids []queue.Range
	for _, d := range ds {
		k.numbers = append(k.numbers, k.n.number(d.Message))
		k.n.pool.Release(d.Message.Ref.Slab, 1)
		k.got = append(k.got, d)
		ids = appendRange(ids, queue.Range{First: d.ID, Last: d.ID})
	}
	k.q.settle(k.id, ids, queue.Ack)
	return true
}

func (k *eater) Cancelled(*queue.Wake) {
	k.mu.Lock()
	k.cancelled = true
	k.mu.Unlock()
}

func (k *eater) Activity(bool)        {}
func (k *eater) TimedOut(*queue.Wake) {}

func (k *eater) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.got)
}

func (n *node) publisherFrom(base uint64) *publisher {
	p := n.publisher()
	p.base = base
	return p
}

// TestThreeNodes: whatever node a client is connected to, it publishes and consumes, each message once, and in the order of
// its publisher.
func TestThreeNodes(t *testing.T) {
	c := newCluster(t, testSlots)
	qs := c.declare(7, noLimits, nil)
	const each = 500
	var ps []*publisher
	var ks []*eater
	for number, n := range c.nodes {
		ps = append(ps, n.publisherFrom(number<<32))
		ks = append(ks, n.eat(qs[number], queue.ConsumerSpec{Prefetch: 20}))
	}
	for range each / 10 {
		for _, p := range ps {
			p.publish(qs[p.base>>32], 10, 100)
		}
	}
	for _, p := range ps {
		p.wait()
	}
	until(t, "everything is consumed", func() bool {
		n := 0
		for _, k := range ks {
			n += k.count()
		}
		return n >= 3*each
	})
	seen := map[uint64]int{}
	for _, k := range ks {
		last := map[uint64]uint64{}
		for i, n := range k.numbers {
			if seen[n]++; k.got[i].Redelivered || n <= last[n>>32] {
				t.Fatalf("message %x behind %x, redelivered: %v", n, last[n>>32], k.got[i].Redelivered)
			}
			last[n>>32] = n
		}
	}
	if len(seen) != 3*each {
		t.Fatalf("%d of %d messages", len(seen), 3*each)
	}
	c.agree()
	for _, q := range qs {
		until(t, "all acknowledged", func() bool { return q.Stats().Acked == 3*each })
	}
}

func waitFor(t testing.TB, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := f(ctx); err != nil {
		t.Fatal(err)
	}
}

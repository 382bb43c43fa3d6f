package quorum

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/queue"
)

// cluster is hosts in this process, three where nothing else is said.
type cluster struct {
	testing.TB
	net   *network
	dirs  map[uint64]string
	nodes map[uint64]*node // that are up
	with  func(number uint64, o *Options)
}

const testSlots = 2

func newCluster(t testing.TB, slots int) *cluster {
	t.Helper()
	return newClusterWith(t, slots, func(uint64, *Options) {})
}

// newClusterWith is newCluster with options that nodes are opened with besides.
func newClusterWith(t testing.TB, slots int, with func(number uint64, o *Options)) *cluster {
	t.Helper()
	return newClusterOf(t, []uint64{1, 2, 3}, slots, 0, with)
}

// newClusterOf is newClusterWith of members of which size have a vote in each slot. The others wait for place.
func newClusterOf(t testing.TB, members []uint64, slots, size int, with func(number uint64, o *Options)) *cluster {
	t.Helper()
	c := &cluster{TB: t, net: newNetwork(), dirs: map[uint64]string{}, nodes: map[uint64]*node{}, with: with}
	for _, n := range members {
		c.start(n)
	}
	for _, n := range c.nodes {
		if err := n.host.MakeSlots(slots, members, size); err != nil {
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
		c.with(number, o)
	})
	c.nodes[number] = n
	return n
}

// kill stops a node that has no time to say anything, and forgets what it has not written.
func (c *cluster) kill(number uint64) {
	c.Helper()
	n := c.nodes[number]
	delete(c.nodes, number)
	n.crash()
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
	t.Parallel()
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

// begin puts a load on all nodes.
func (c *cluster) begin(id uint64) (*load, map[uint64]*Queue) {
	l := &load{c: c, id: id}
	qs := c.declare(id, noLimits, nil)
	for number := range c.nodes {
		l.join(number, qs[number])
	}
	return l, qs
}

func others(than uint64) (list []uint64) {
	for n := uint64(1); n <= 3; n++ {
		if n != than {
			list = append(list, n)
		}
	}
	return list
}

// restart starts a node that was killed, with its clients.
func (c *cluster) restart(l *load, number uint64) {
	c.Helper()
	n := c.start(number)
	for _, o := range c.nodes {
		o.host.Up(number, 0)
	}
	l.join(number, n.host.NewQueue(l.id, noLimits, nil))
}

// down tells all others that a node is down.
func (c *cluster) down(number uint64) {
	for o, n := range c.nodes {
		if o != number {
			n.host.Down(number, 0)
		}
	}
}

// TestLeaderDies: the leader is killed under load. The others go on, what its consumers held comes once more, and nothing
// confirmed is lost.
func TestLeaderDies(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	l, _ := c.begin(1)
	for range 2 {
		leader := c.leader(0, 1, 2, 3)
		l.progress(1, 2, 3)
		l.leave(leader)
		c.kill(leader)
		c.down(leader)
		rest := others(leader)
		c.leader(0, rest...)
		l.progress(rest...)
		c.restart(l, leader)
		l.progress(1, 2, 3)
	}
	l.end()
}

// TestLeaderCutOff: the leader is cut off under load, in each of the ways in which that can happen. The others go on; its
// clients wait, and go on when it is back, with what they published meanwhile.
func TestLeaderCutOff(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	l, _ := c.begin(1)
	for _, f := range []fault{cut, lossy, stuck} {
		leader := c.leader(0, 1, 2, 3)
		l.progress(1, 2, 3)
		rest := others(leader)
		c.net.isolate(leader, f, rest...)
		c.leader(0, rest...)
		l.progress(rest...)
		c.net.isolate(leader, fine, rest...)
		l.progress(1, 2, 3)
	}
	l.end()
}

// TestCutOffAndGivenUp: a node is cut off for so long that the others end its consumers. What they held comes to others,
// once; when it is back, its consumers hear that they are none any more, and its publishers go on.
func TestCutOffAndGivenUp(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	qs := c.declare(1, noLimits, nil)
	leader := c.leader(0, 1, 2, 3)
	rest := others(leader)
	away := rest[0]
	k := c.nodes[away].consume(qs[away], queue.ConsumerSpec{Prefetch: 10})
	p := c.nodes[leader].publisherFrom(1 << 32)
	p.publish(qs[leader], 10, 100)
	k.wait(10)
	c.net.isolate(away, cut, others(away)...)
	c.down(away)
	k2 := c.nodes[leader].consume(qs[leader], queue.ConsumerSpec{})
	_, ds := k2.wait(10)
	for _, d := range ds {
		if !d.Redelivered {
			t.Fatal("a message comes for the first time again")
		}
	}
	for _, n := range c.nodes {
		n.host.Up(away, 0)
	}
	p2 := c.nodes[away].publisherFrom(2 << 32)
	p2.publish(qs[away], 5, 100)
	c.net.isolate(away, fine, others(away)...)
	p2.wait()
	until(t, "the consumer is cancelled", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.cancelled
	})
	k2.wait(5)
	k3 := c.nodes[away].consume(qs[away], queue.ConsumerSpec{})
	p2.publish(qs[away], 6, 100)
	k2.wait(3)
	k3.wait(3)
	k2.mu.Lock()
	cancelled := k2.cancelled
	k2.mu.Unlock()
	if cancelled {
		t.Fatal("a consumer of a node that was up is cancelled")
	}
	c.agree()
}

// TestNoMajority: while a node is alone, nothing is confirmed or refused, and it does not wear itself out; then everything
// is confirmed. What it believes of the others meanwhile does not hurt them.
func TestNoMajority(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	qs := c.declare(1, noLimits, nil)
	leader := c.leader(0, 1, 2, 3)
	rest := others(leader)
	k := c.nodes[rest[0]].consume(qs[rest[0]], queue.ConsumerSpec{})
	p := c.nodes[leader].publisherFrom(1 << 32)
	p.publish(qs[leader], 1, 100)
	k.wait(1)
	c.net.isolate(leader, cut, rest...)
	c.nodes[leader].host.Down(rest[0], 0)
	c.nodes[leader].host.Down(rest[1], 0)
	c.leader(0, rest...)
	p.publish(qs[leader], 10, 100)
	until(t, "the old leader sees that it is alone", func() bool { return c.nodes[leader].host.Slots()[0].Leader == 0 })
	time.Sleep(600 * time.Millisecond) // several elections long
	p.mu.Lock()
	if p.confirmed > 1 || p.refused > 0 {
		t.Fatalf("%d confirmed, %d refused", p.confirmed, p.refused)
	}
	p.mu.Unlock()
	c.net.isolate(leader, fine, rest...)
	p.wait()
	k.wait(10)
	if k.mu.Lock(); k.cancelled {
		t.Error("a consumer is cancelled that was never cut off")
	}
	k.mu.Unlock()
	c.agree()
}

// cutLogs has all nodes of a list make a checkpoint, and cut their logs behind it as far as they may.
func (c *cluster) cutLogs(numbers ...uint64) {
	for _, number := range numbers {
		for _, s := range c.nodes[number].host.slots {
			s.machine.mu.Lock()
			s.machine.keepLog = 1
			s.machine.tail.marks = []tailMark{{s.machine.applied, s.machine.tail.octets}}
			s.machine.holds = nil // nor what snapshots sent before would keep, or members that are away
			for n := range uint64(4) {
				s.machine.other(n).known = place{s.machine.applied, s.machine.tail.octets}
			}
			s.machine.mu.Unlock()
			index, err := s.machine.checkpoint()
			if err == nil {
				err = s.cutLog(index)
			}
			if err != nil {
				c.Fatal(err)
			}
		}
	}
}

// snapshots is how many chunks of snapshots have been sent.
func (c *cluster) snapshots() int {
	c.net.mu.Lock()
	defer c.net.mu.Unlock()
	return c.net.chunks
}

// TestBySnapshot: a follower is away until the log behind it is gone. It comes back by a snapshot, and its own clients go
// on: what they had commanded is answered, its consumers get what they hold, and what was given to them before not again.
func TestBySnapshot(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	l, qs := c.begin(1)
	for i := range 2 {
		leader := c.leader(0, 1, 2, 3)
		l.progress(1, 2, 3)
		rest := others(leader)
		away, other := rest[0], rest[1]
		// Commands that were taken, and whose answers do not come.
		c.net.set(leader, away, cut)
		c.net.set(other, away, cut)
		k := c.nodes[away].eat(qs[away], queue.ConsumerSpec{Prefetch: 5})
		l.progress(leader, other)
		c.net.isolate(away, cut, leader, other)
		if i == 1 {
			c.down(away)
		}
		l.progress(leader, other)
		before := c.snapshots()
		log := func(number uint64) (first, last uint64) {
			r, err := c.nodes[number].host.engine.GetLogReader(shardOf(0))
			if err != nil {
				t.Fatal(err)
			}
			return r.GetRange()
		}
		for _, number := range []uint64{leader, other} {
			until(t, "the log is cut", func() bool {
				l.progress(number)
				c.cutLogs(number)
				first, _ := log(number)
				_, had := log(away)
				return first > had+100 // and what it has received and not looked at
			})
		}
		for _, n := range c.nodes {
			n.host.Up(away, 0)
		}
		c.net.isolate(away, fine, leader, other)
		// It has confirms without one, too: of what is in its log and was not known to be committed.
		until(t, "it is sent a snapshot", func() bool { return c.snapshots() > before })
		l.progress(1, 2, 3)
		until(t, "a consumer is attached", func() bool { k.mu.Lock(); defer k.mu.Unlock(); return k.id != 0 })
		l.mu.Lock()
		x := l.nodes[away]
		l.mu.Unlock()
		x.mu.Lock()
		x.eaters = append(x.eaters[:len(x.eaters):len(x.eaters)], k)
		x.eaters[len(x.eaters)-1], x.eaters[len(x.eaters)-2] = x.eaters[len(x.eaters)-2], x.eaters[len(x.eaters)-1]
		x.mu.Unlock()
	}
	l.end()
}

// TestAnswersBySnapshot: what a node commanded, and what became of it while it heard nothing, it learns from a snapshot:
// confirms, a consumer that was attached, and what that one holds. What a consumer had got before does not come again, and
// may be settled.
func TestAnswersBySnapshot(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	qs := c.declare(1, noLimits, nil)
	leader := c.leader(0, 1, 2, 3)
	rest := others(leader)
	away, other := rest[0], rest[1]
	p := c.nodes[leader].publisherFrom(0)
	p.publish(qs[leader], 5, 100)
	p.wait()
	k := c.nodes[away].consume(qs[away], queue.ConsumerSpec{Prefetch: 3})
	_, ds := k.wait(3)
	c.nodes[away].settled(qs[away])
	c.agree()
	c.net.set(leader, away, cut)
	c.net.set(other, away, cut)
	k2 := &taker{n: c.nodes[away], q: qs[away]}
	k2.more.L = &k2.mu
	attached := make(chan struct{})
	var w queue.Wake
	qs[away].Attach(queue.ConsumerSpec{Prefetch: 10}, k2, &w, func(id queue.ConsumerID, err error) {
		k2.id = id
		close(attached)
	})
	p2 := c.nodes[away].publisherFrom(100)
	p2.publish(qs[away], 3, 100)
	until(t, "the others have it", func() bool { st := qs[leader].Stats(); return st.Consumers == 2 && st.Unacked == 8 })
	c.net.isolate(away, cut, leader, other)
	for first := uint64(0); first < 300; {
		p.publish(qs[leader], 1, 100)
		p.wait()
		c.cutLogs(leader, other)
		log, err := c.nodes[leader].host.engine.GetLogReader(shardOf(0))
		if err != nil {
			t.Fatal(err)
		}
		if first, _ = log.GetRange(); first >= 60 {
			break
		}
	}
	before := c.snapshots()
	c.net.isolate(away, fine, leader, other)
	<-attached
	p2.wait()
	k2.wait(5)
	if c.snapshots() == before {
		t.Fatal("it came back without a snapshot")
	}
	k.settle(queue.Ack, ds...)
	c.nodes[away].settled(qs[away])
	k.mu.Lock()
	n := len(k.got)
	k.mu.Unlock()
	if n > 3 {
		t.Fatalf("%d messages, of which 3 were there before", n)
	}
	for i := range k.got {
		if k.got[i].ID <= 3 {
			t.Fatal("a delivery comes again")
		}
	}
	until(t, "they are settled", func() bool { return qs[away].Stats().Acked == 3 })
	c.agree()
}

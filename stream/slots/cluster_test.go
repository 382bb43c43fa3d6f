package slots

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/quorum"
	"github.com/warrenmq/warren/storage"
)

// wire connects nodes in this process.
type wire struct {
	mu    sync.Mutex
	ends  map[uint64]*quorum.Transport
	hosts map[uint64]*Host
	off   map[uint64]bool
	conns map[uint64][]net.Conn
}

var errOff = errors.New("unplugged")

type plug struct {
	*wire
	own uint64
}

func (p plug) Dial(_ context.Context, member uint64, purpose uint8) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	to, host := p.ends[member], p.hosts[member]
	if to == nil || p.off[p.own] || p.off[member] || purpose == quorum.PurposeStreams && host == nil {
		return nil, errOff
	}
	a, b := net.Pipe()
	p.conns[p.own] = append(p.conns[p.own], a, b)
	p.conns[member] = append(p.conns[member], a, b)
	if purpose == quorum.PurposeStreams {
		host.Accept(p.own, b)
	} else {
		to.Accept(p.own, purpose, b)
	}
	return a, nil
}

func (p plug) Others() (others []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.ends {
		if i != p.own {
			others = append(others, i)
		}
	}
	return others
}

// unplug cuts a node off, or no longer.
func (w *wire) unplug(node uint64, off bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.off[node] = off
	for _, c := range w.conns[node] {
		c.Close()
	}
	w.conns[node] = nil
}

// members are nodes of one cluster.
type members struct {
	testing.TB
	wire  *wire
	dirs  map[uint64]string
	nodes map[uint64]*node
}

func newMembers(t testing.TB) *members {
	t.Helper()
	c := noMembers(t)
	for i := range uint64(3) {
		n := c.start(i + 1)
		if err := n.raft.MakeSlots(1, []uint64{1, 2, 3}, 0); err != nil {
			t.Fatal(err)
		}
		if err := n.host.MakeSlots(); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// noMembers is a cluster without nodes.
func noMembers(t testing.TB) *members {
	t.TempDir() // directories go when the nodes have stopped
	c := &members{TB: t, wire: &wire{ends: map[uint64]*quorum.Transport{}, hosts: map[uint64]*Host{}, off: map[uint64]bool{}, conns: map[uint64][]net.Conn{}},
		dirs: map[uint64]string{}, nodes: map[uint64]*node{}}
	t.Cleanup(func() {
		for i := range c.nodes {
			c.stop(i)
		}
	})
	return c
}

func (c *members) start(i uint64) *node {
	c.Helper()
	if c.dirs[i] == "" {
		c.dirs[i] = c.TempDir()
	}
	n := &node{TB: c, dir: c.dirs[i], pool: queue.NewPool(128 << 20), clock: queue.NewClock()}
	n.pool.Poison = true
	transport := quorum.NewTransport(plug{c.wire, i}, silent())
	c.wire.mu.Lock()
	c.wire.ends[i] = transport
	c.wire.mu.Unlock()
	var err error
	if n.db, err = storage.OpenDB(storage.OS{}, filepath.Join(n.dir, "meta"), storage.DBOptions{}); err != nil {
		c.Fatal(err)
	}
	n.raft, err = quorum.Open(quorum.Options{FS: storage.OS{}, Dir: filepath.Join(n.dir, "raft"), DB: n.db, Pool: n.pool, Clock: n.clock, Log: silent(),
		Node: i, Clustered: true, ClusterID: 77, Transport: transport})
	if err != nil {
		c.Fatal(err)
	}
	n.host, err = Open(Options{FS: storage.OS{}, Dir: filepath.Join(n.dir, "streams"), DB: n.db, Pool: n.pool, Log: silent(), Quorum: n.raft, Network: plug{c.wire, i}, keepNone: true})
	if err != nil {
		c.Fatal(err)
	}
	c.wire.mu.Lock()
	c.wire.hosts[i] = n.host
	c.wire.mu.Unlock()
	c.nodes[i] = n
	return n
}

func (c *members) stop(i uint64) {
	n := c.nodes[i]
	delete(c.nodes, i)
	c.wire.mu.Lock()
	delete(c.wire.hosts, i)
	c.wire.mu.Unlock()
	n.close()
}

// declare makes a stream on all nodes.
func (c *members) declare(id uint64) map[uint64]*Queue {
	qs := map[uint64]*Queue{}
	for i, n := range c.nodes {
		qs[i] = n.host.NewQueue(id, Config{Name: "s", Limits: noLimits, SegmentBytes: 2000})
	}
	return qs
}

func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	for begun := time.Now(); !f(); time.Sleep(time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatalf("it does not happen: %s", what)
		}
	}
}

// leader waits until those who are asked agree on who leads the slot of a stream.
func (c *members) leader(qs map[uint64]*Queue, among ...uint64) (leader uint64) {
	c.Helper()
	until(c, "a leader", func() bool {
		leader = qs[among[0]].Leader()
		for _, i := range among {
			if qs[i].Leader() != leader {
				return false
			}
		}
		return slices.Contains(among, leader)
	})
	return leader
}

// agree waits until all nodes have the same state of a slot and the same messages in it.
func (c *members) agree(slot int) {
	c.Helper()
	until(c, "equal replicas", func() bool {
		states := map[string]bool{}
		for _, n := range c.nodes {
			m := n.host.slots[slot].machine
			m.mu.Lock()
			s := string(m.common(nil))
			var ids []uint64
			for id := range m.streams {
				ids = append(ids, id)
			}
			slices.Sort(ids)
			for _, id := range ids {
				q := m.streams[id]
				s += fmt.Sprintf("%d %x %+v", id, q.record(nil), q.log.Segments())
			}
			m.mu.Unlock()
			states[s] = true
		}
		return len(states) == 1
	})
}

// cut has a node let go of the Raft log of a slot.
func (n *node) cut(slot int) {
	n.Helper()
	s := n.host.slots[slot]
	index, err := s.machine.checkpoint()
	if err == nil {
		err = s.shard.CutLog(index, s.quit)
	}
	if err != nil {
		n.Fatal(err)
	}
}

func sequence(from, to int) (list, got []string) {
	for i := from; i < to; i++ {
		list = append(list, fmt.Sprintf("message %d", i))
		got = append(got, fmt.Sprintf("%d message %d", i, i))
	}
	return list, got
}

// TestMembers: clients of any node publish to a stream and read it, what one commits all know, and a node that leads and is cut off
// takes nothing along that was confirmed.
func TestMembers(t *testing.T) {
	t.Parallel()
	c := newMembers(t)
	qs := c.declare(3)
	first, got := sequence(0, 30)
	if n := c.nodes[2].publish(qs[2], first...); n != 30 {
		t.Fatalf("%d confirmed", n)
	}
	r := c.nodes[3].mustConsume(qs[3], 1000, map[string]any{"x-stream-offset": "first"})
	r.wants(got...)

	named := map[string]any{"x-stream-consumer-name": "n", "x-stream-offset-reset": "first"}
	old := c.nodes[1].mustConsume(qs[1], 10, named)
	old.wants(got[:10]...)
	qs[1].Settle(old.id, []queue.Range{{First: 0, Last: 6}}, queue.Ack, &queue.Wake{})
	old.wants(got[10:17]...)
	until(t, "the offset on another node", func() bool {
		x := qs[3].Offsets(false)
		return len(x) == 1 && x[0].Next == 7
	})
	fresh := c.nodes[3].mustConsume(qs[3], 3, named)
	fresh.wants(got[7:10]...)
	old.wants("cancelled")

	leader := c.leader(qs, 1, 2, 3)
	other := leader%3 + 1
	c.wire.unplug(leader, true)
	alone := make(chan int, 1)
	more, _ := sequence(30, 40)
	go func() { alone <- c.nodes[leader].publish(qs[leader], more...) }()
	if n := c.nodes[other].publish(qs[other], more...); n != 10 {
		t.Fatalf("%d confirmed while the leader was cut off", n)
	}
	if new := c.leader(qs, other, other%3+1); new == leader {
		t.Fatal("nobody else leads")
	}
	c.wire.unplug(leader, false)
	if n := <-alone; n != 10 {
		t.Fatalf("%d confirmed of those of the node that was cut off", n)
	}
	c.agree(0)
	if next := qs[1].Status().Next; next != 50 {
		t.Fatalf("the stream ends at %d", next)
	}
}

// TestCopy: a member that cannot catch up from the log takes the files of another, and its readers go on, unless newer ones of their
// names have come. One that was away altogether does, too, and after a start it has what it had.
func TestCopy(t *testing.T) {
	t.Parallel()
	c := newMembers(t)
	qs := c.declare(3)
	first, got := sequence(0, 100)
	c.nodes[1].spread(qs[1], first...)
	r := c.nodes[3].mustConsume(qs[3], 10_000, map[string]any{"x-stream-offset": "first"})
	r.wants(got...)
	named := map[string]any{"x-stream-consumer-name": "n", "x-stream-offset-reset": "first"}
	old := c.nodes[3].mustConsume(qs[3], 10, named)
	old.wants(got[:10]...)
	until(t, "the name on another node", func() bool { return len(qs[1].Offsets(false)) == 1 })

	c.wire.unplug(3, true)
	c.leader(qs, 1, 2)
	fresh := c.nodes[1].mustConsume(qs[1], 10, named)
	fresh.wants(got[:10]...)
	more, then := sequence(100, 300)
	if n := c.nodes[1].spread(qs[1], more...); n != 200 {
		t.Fatalf("%d confirmed", n)
	}
	c.nodes[1].cut(0)
	c.nodes[2].cut(0)
	c.wire.unplug(3, false)
	old.wants("cancelled")
	r.wants(then...)
	c.agree(0)
	if n := c.nodes[3].host.Counters.Copied.Load(); n == 0 {
		t.Fatal("it has caught up from the log, and should not have been able to")
	} else if all := c.nodes[3].host.slots[0].machine.streams[3].log.Size(); n > uint64(all)*3/4 {
		t.Fatalf("%d octets of %d were copied: what it had was not left", n, all)
	}

	c.stop(3)
	last, _ := sequence(300, 350)
	c.nodes[2].spread(qs[2], last...)
	c.nodes[1].cut(0)
	c.nodes[2].cut(0)
	for range 2 {
		n := c.start(3)
		qs[3] = n.host.NewQueue(3, Config{Name: "s", Limits: noLimits, SegmentBytes: 2000})
		c.agree(0)
		_, all := sequence(0, 350)
		n.mustConsume(qs[3], 10_000, map[string]any{"x-stream-offset": "first"}).wants(all...)
		c.stop(3)
	}
}

// TestJoinMember: a node that comes later gets a replica, without a vote first, and one that leaves has none.
func TestJoinMember(t *testing.T) {
	t.Parallel()
	c := newMembers(t)
	qs := c.declare(3)
	first, got := sequence(0, 50)
	c.nodes[1].spread(qs[1], first...)
	for i := range c.nodes {
		c.nodes[i].cut(0)
	}
	n := c.start(4)
	if err := n.raft.JoinSlots(1); err != nil {
		t.Fatal(err)
	}
	if err := n.host.MakeSlots(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, s := range c.nodes[2].raft.Slots() {
		index := s.Applied
		caughtUp := func() bool {
			i := slices.IndexFunc(n.raft.Slots(), func(x quorum.SlotStatus) bool { return x.Shard == s.Shard })
			return n.raft.Slots()[i].Applied >= index
		}
		if err := c.nodes[2].raft.Place(ctx, quorum.Replica{Shard: s.Shard, Member: 4, Votes: true}, caughtUp); err != nil {
			t.Fatal(err)
		}
	}
	qs[4] = n.host.NewQueue(3, Config{Name: "s", Limits: noLimits, SegmentBytes: 2000})
	n.mustConsume(qs[4], 1000, map[string]any{"x-stream-offset": "first"}).wants(got...)
	until(t, "four members", func() bool { return slices.Equal(qs[4].Members(), []uint64{1, 2, 3, 4}) })
	c.agree(0)
	for _, s := range n.raft.Slots() {
		if err := n.raft.Remove(ctx, s.Shard, 1); err != nil {
			t.Fatal(err)
		}
	}
	c.stop(1)
	until(t, "three members", func() bool { return slices.Equal(qs[4].Members(), []uint64{2, 3, 4}) })
	if n.publish(qs[4], "one more") != 1 {
		t.Fatal("it is not confirmed")
	}
}

// TestSlotsBeforeStreams: members that have slots of quorum queues, and were made before there were any of streams, get those when
// they start, and streams can be there.
func TestSlotsBeforeStreams(t *testing.T) {
	t.Parallel()
	c := noMembers(t)
	for i := range uint64(3) {
		if err := c.start(i+1).raft.MakeSlots(1, []uint64{1, 2, 3}, 0); err != nil {
			t.Fatal(err)
		}
	}
	for i := range uint64(3) {
		c.stop(i + 1)
	}
	for i := range uint64(3) {
		n := c.start(i + 1)
		if n.host.SlotCount() != 0 {
			t.Fatal("there are slots of streams")
		}
		if err := n.raft.MakeSlots(1, []uint64{1, 2, 3}, 0); err != nil {
			t.Fatal(err)
		}
		if err := n.host.MakeSlots(); err != nil {
			t.Fatal(err)
		}
	}
	qs := c.declare(3)
	list, got := sequence(0, 20)
	if n := c.nodes[2].publish(qs[2], list...); n != 20 {
		t.Fatalf("%d confirmed", n)
	}
	for i, n := range c.nodes {
		n.mustConsume(qs[i], 100, map[string]any{"x-stream-offset": "first"}).wants(got...)
	}
}

// TestShrinkMember: the member that leads loses its vote, and follows with what it has. It publishes and reads as before, also after
// another start, and gets its vote back.
func TestShrinkMember(t *testing.T) {
	t.Parallel()
	c := newMembers(t)
	qs := c.declare(3)
	first, got := sequence(0, 50)
	c.nodes[1].spread(qs[1], first...)
	until(t, "a leader", func() bool { return qs[1].Leader() != 0 && qs[1].Leader() == qs[2].Leader() })
	leader := qs[1].Leader()
	other := leader%3 + 1
	n := c.nodes[leader]
	k := n.mustConsume(qs[leader], 1000, map[string]any{"x-stream-offset": "first"})
	k.wants(got...)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	i := slices.IndexFunc(n.raft.Slots(), func(x quorum.SlotStatus) bool { return x.Stream })
	at := quorum.Replica{Shard: n.raft.Slots()[i].Shard, Member: leader}
	if err := c.nodes[other].raft.Place(ctx, at, nil); !errors.Is(err, quorum.ErrSpent) {
		t.Fatal(err)
	}
	at.Generation = 1
	if err := n.raft.Renew(at.Shard, 1); err != nil {
		t.Fatal(err)
	}
	if err := c.nodes[other].raft.Place(ctx, at, nil); err != nil {
		t.Fatal(err)
	}
	if n.publish(qs[leader], "one more") != 1 {
		t.Fatal("it is not confirmed")
	}
	c.agree(0)
	until(t, "two voters", func() bool { return len(qs[leader].Members()) == 2 && !slices.Contains(qs[leader].Members(), leader) })
	c.stop(leader)
	n = c.start(leader)
	qs[leader] = n.host.NewQueue(3, Config{Name: "s", Limits: noLimits, SegmentBytes: 2000})
	if n.publish(qs[leader], "and another") != 1 {
		t.Fatal("it is not confirmed")
	}
	c.agree(0)
	index := c.nodes[other].raft.Slots()[i].Applied
	at.Votes = true
	if err := c.nodes[other].raft.Place(ctx, at, func() bool { return n.raft.Slots()[i].Applied >= index }); err != nil {
		t.Fatal(err)
	}
	until(t, "three voters", func() bool { return len(qs[leader].Members()) == 3 })
}

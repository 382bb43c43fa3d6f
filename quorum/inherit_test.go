package quorum

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"

	"github.com/warrenmq/warren/queue"
)

// unsure is a transport by which a node does not hear, while on is set, what a majority has.
type unsure struct {
	config.TransportFactory
	on *atomic.Bool
}

func (u unsure) Create(c config.NodeHostConfig, m raftio.MessageHandler, k raftio.ChunkHandler) raftio.ITransport {
	return u.TransportFactory.Create(c, func(b raftpb.MessageBatch) {
		if u.on.Load() {
			b.Requests = slices.Clone(b.Requests)
			for i := range b.Requests {
				b.Requests[i].Commit = 0
			}
		}
		m(b)
	}, k)
}

// TestInherits: of three members one is left. It goes on with all that was confirmed: what it has written down, what only its log has,
// and what it had not even heard to be agreed on. What consumers of the others held returns, and new members get everything.
func TestInherits(t *testing.T) {
	t.Parallel()
	var survivor uint64
	var quiet atomic.Bool
	var inherits bool
	c := newClusterWith(t, 1, func(number uint64, o *Options) {
		switch {
		case inherits && number == survivor:
			o.Transport = StandIns()
		default:
			o.Transport = unsure{o.Transport, &quiet}
		}
	})
	qs := c.declare(1, noLimits, nil)
	leader := c.leader(0, 1, 2, 3)
	survivor = others(leader)[0]
	third := others(leader)[1]

	p := c.nodes[leader].publisher()
	p.publish(qs[leader], 100, 1000)
	p.wait()
	k := c.nodes[leader].consume(qs[leader], queue.ConsumerSpec{Prefetch: 20})
	_, ds := k.wait(20)
	k.settle(queue.Ack, ds[:10]...)
	c.nodes[leader].settled(qs[leader])
	c.agree()
	m := c.nodes[survivor].host.slots[0].machine
	written, err := m.checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	p.publish(qs[leader], 100, 1000)
	p.wait()
	c.agree()
	c.kill(third)
	quiet.Store(true)
	p.publish(qs[leader], 100, 1000)
	p.wait()
	m.mu.Lock()
	applied := m.applied
	m.mu.Unlock()
	c.kill(leader)
	c.kill(survivor)

	n := &node{TB: t, dir: c.dirs[survivor]}
	n.openDB()
	ends, err := LogEnds(n.options().Dir, n.db, survivor, nil, testLog(), nil)
	n.db.Close()
	if err != nil || len(ends) != 1 || ends[0].Name != "slot 0" || ends[0].Agreed != applied || ends[0].Last <= applied || applied <= written {
		t.Fatalf("%v %+v; %d are written down, %d were applied", err, ends, written, applied)
	}

	inherits = true
	n = c.start(survivor)
	q := n.host.NewQueue(1, noLimits, nil)
	var gone []uint64
	waitFor(t, func(ctx context.Context) (err error) { gone, err = n.host.Inherit(ctx, []uint64{9}); return err })
	if want := append(others(survivor), 9); !slices.Equal(gone, want) {
		t.Fatal(gone)
	}
	if st := q.Stats(); st.Ready != 290 || st.Unacked != 0 {
		t.Fatalf("%+v", st)
	}
	c.kill(survivor) // before anything is written down
	inherits = false
	quiet.Store(false)
	n = c.start(survivor)
	until(t, "it leads alone", func() bool {
		s := n.host.Slots()[0]
		return s.Leader == survivor && slices.Equal(s.Members, []uint64{survivor})
	})
	q = n.host.NewQueue(1, noLimits, nil)
	waitFor(t, func(ctx context.Context) error { _, err := n.host.Reconcile(ctx, nil); return err })

	// A new member gets a copy.
	c.dirs[4] = t.TempDir()
	joins := c.start(4)
	if err := joins.host.JoinSlots(1); err != nil {
		t.Fatal(err)
	}
	q4 := joins.host.NewQueue(1, noLimits, nil)
	waitFor(t, func(ctx context.Context) error {
		return c.place(ctx, survivor, Replica{Shard: shardOf(0), Member: 4, Votes: true})
	})
	c.agree()
	got, _ := joins.consume(q4, queue.ConsumerSpec{}).wait(290)
	if !slices.Equal(got, numbers(11, 300)) {
		t.Fatal(got)
	}
	if q.Stats().Ready != 0 {
		t.Fatalf("%+v", q.Stats())
	}
}

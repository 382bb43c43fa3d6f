package quorum

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/warrenmq/warren/queue"
)

// TestAFollowerInherits: of five members one is left that has no vote, in one slot because it never had one, and in another because that was
// taken. It goes on with all that its logs have, a change of members among it that it had not heard to be agreed on, and has the vote from
// then on.
func TestAFollowerInherits(t *testing.T) {
	t.Parallel()
	const survivor, newcomer = 1, 6
	members := []uint64{1, 2, 3, 4, 5}
	var quiet atomic.Bool
	var inherits bool
	c := newClusterOf(t, members, testSlots, 3, func(number uint64, o *Options) {
		if o.Transport = (unsure{o.Transport, &quiet}); inherits {
			o.Transport = StandIns()
		}
	})
	place := func(slot uint16, votes bool) {
		waitFor(t, func(ctx context.Context) error {
			return c.place(ctx, 3, Replica{Shard: shardOf(slot), Member: survivor, Votes: votes})
		})
	}
	place(0, false)
	place(1, true)
	c.shrink(3, 1, survivor, 1)
	slots := [testSlots]map[uint64]*Queue{c.declare(8, noLimits, nil), c.declare(9, noLimits, nil)}
	last := func(number uint64, slot int) uint64 {
		log, err := c.nodes[number].host.engine.GetLogReader(shardOf(uint16(slot)))
		if err != nil {
			t.Fatal(err)
		}
		_, last := log.GetRange()
		return last
	}
	for slot, qs := range slots {
		leader := c.leader(slot, FirstVoters(members, 3, shardOf(uint16(slot)))...)
		p := c.nodes[leader].publisher()
		p.publish(qs[leader], 100, 1000)
		p.wait()
		k := c.nodes[leader].consume(qs[leader], queue.ConsumerSpec{Prefetch: 20})
		_, ds := k.wait(20)
		k.settle(queue.Ack, ds[:10]...)
		c.nodes[leader].settled(qs[leader])
		until(t, "what follows has it all", func() bool {
			return stateOf(c.nodes[survivor].host.slots[slot].machine) == stateOf(c.nodes[leader].host.slots[slot].machine)
		})
		quiet.Store(true)
		p.publish(qs[leader], 100, 1000)
		p.wait()
		waitFor(t, func(ctx context.Context) error {
			return c.nodes[leader].host.Place(ctx, Replica{Shard: shardOf(uint16(slot)), Member: newcomer}, nil)
		})
		until(t, "its log is as long", func() bool { return last(survivor, slot) == last(leader, slot) })
		quiet.Store(false)
	}
	for _, m := range members {
		c.kill(m)
	}

	inherits = true
	n := c.start(survivor)
	qs := [testSlots]*Queue{n.host.NewQueue(8, noLimits, nil), n.host.NewQueue(9, noLimits, nil)}
	var gone []uint64
	waitFor(t, func(ctx context.Context) (err error) { gone, err = n.host.Inherit(ctx, nil); return err })
	if !slices.Equal(gone, []uint64{2, 3, 4, 5, newcomer}) {
		t.Fatal(gone)
	}
	for slot, q := range qs {
		if st := q.Stats(); st.Ready != 190 || st.Unacked != 0 {
			t.Fatalf("slot %d: %+v", slot, st)
		}
	}
	c.kill(survivor) // before anything is written down
	inherits = false
	n = c.start(survivor)
	qs = [testSlots]*Queue{n.host.NewQueue(8, noLimits, nil), n.host.NewQueue(9, noLimits, nil)}
	for slot, q := range qs {
		until(t, "it leads alone", func() bool {
			s := n.host.Slots()[slot]
			return s.Leader == survivor && slices.Equal(s.Members, []uint64{survivor})
		})
		p := n.publisherFrom(1000)
		p.publish(q, 10, 100)
		p.wait()
		got, _ := n.consume(q, queue.ConsumerSpec{}).wait(200)
		if slices.Sort(got); !slices.Equal(got, slices.Concat(numbers(11, 200), numbers(1001, 1010))) {
			t.Fatal(got)
		}
	}
}

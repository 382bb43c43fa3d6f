package quorum

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/warrenmq/warren/queue"
)

// place has a replica be as is wanted, commanded at a node. It has caught up when it has what that node has applied before.
func (c *cluster) place(ctx context.Context, at uint64, want Replica) error {
	slot := int(want.Shard - firstShard)
	applied := func(number uint64) uint64 { return c.nodes[number].host.Slots()[slot].Applied }
	index := applied(at)
	return c.nodes[at].host.Place(ctx, want, func() bool { return applied(want.Member) >= index })
}

// shrink takes the vote of a member in a slot, and has it follow, with the replica of a generation.
func (c *cluster) shrink(at uint64, slot uint16, member, generation uint64) {
	c.Helper()
	want := Replica{Shard: shardOf(slot), Member: member, Generation: generation - 1}
	waitFor(c, func(ctx context.Context) error {
		if err := c.place(ctx, at, want); !errors.Is(err, ErrSpent) {
			return fmt.Errorf("the vote is not taken: %v", err)
		}
		return nil
	})
	if n := c.nodes[member]; n != nil {
		if err := n.host.Renew(want.Shard, generation); err != nil {
			c.Fatal(err)
		}
	}
	want.Generation = generation
	waitFor(c, func(ctx context.Context) error { return c.place(ctx, at, want) })
}

// voters waits until all nodes that are up agree who has a vote in a slot.
func (c *cluster) voters(slot int, want ...uint64) {
	c.Helper()
	until(c, fmt.Sprintf("the voters %d", want), func() bool {
		for number, n := range c.nodes {
			if s := n.host.Slots()[slot]; !slices.Equal(s.Members, want) || s.Voting != slices.Contains(want, number) {
				return false
			}
		}
		return true
	})
}

// TestFirstVoters: votes are spread evenly, and who had them from the start does not change with the program.
func TestFirstVoters(t *testing.T) {
	members := []uint64{1, 2, 4, 7, 9}
	votes := map[uint64]int{}
	for shard := uint64(16); shard < 26; shard++ {
		for _, m := range FirstVoters(members, 3, shard) {
			votes[m]++
		}
	}
	for _, m := range members {
		if votes[m] != 6 {
			t.Fatal(votes)
		}
	}
	if v := FirstVoters(members, 3, 19); !slices.Equal(v, []uint64{1, 2, 9}) {
		t.Fatal(v)
	}
	for _, size := range []int{0, 5, 7} {
		if v := FirstVoters(members, size, 17); !slices.Equal(v, members) {
			t.Fatal(size, v)
		}
	}
}

// TestThreeOfFiveVote: clients of a node whose replica has no vote are served as all others are; nobody needs it, and what
// the slot needs is two of those that have one.
func TestThreeOfFiveVote(t *testing.T) {
	t.Parallel()
	members := []uint64{1, 2, 3, 4, 5}
	c := newClusterOf(t, members, testSlots, 3, func(uint64, *Options) {})
	for slot := range testSlots {
		shard := shardOf(uint16(slot))
		for _, m := range members {
			if voters := FirstVoters(members, 3, shard); !slices.Contains(voters, m) {
				waitFor(t, func(ctx context.Context) error { return c.place(ctx, voters[0], Replica{Shard: shard, Member: m}) })
			}
		}
	}
	c.voters(0, 2, 3, 4)
	c.voters(1, 3, 4, 5)
	qs := c.declare(8, noLimits, nil) // in slot 0
	follower := c.nodes[1]
	p := follower.publisher()
	p.publish(qs[1], 100, 100)
	p.wait()
	k := follower.consume(qs[1], queue.ConsumerSpec{Prefetch: 10})
	got, ds := k.wait(10)
	if !slices.Equal(got, numbers(1, 10)) {
		t.Fatal(got)
	}
	k.settle(queue.Ack, ds...)
	k.wait(10)
	c.agree()

	if err := c.nodes[2].host.TransferLeader(0, 1); err == nil {
		t.Fatal("one without a vote is to lead")
	}
	c.kill(1)
	c.kill(5)
	c.down(1)
	c.down(5)
	p = c.nodes[2].publisherFrom(1000)
	p.publish(qs[2], 10, 100)
	p.wait()
	c.kill(4)
	c.down(4)
	c.leader(0, 2, 3)
	p.publish(qs[2], 10, 100)
	p.wait()
	k = c.nodes[3].consume(qs[3], queue.ConsumerSpec{})
	all, _ := k.wait(110)
	slices.Sort(all)
	if want := slices.Concat(numbers(11, 100), numbers(1001, 1020)); !slices.Equal(all, want) {
		t.Fatal(all)
	}
}

// TestLeaderIsShrunk: the member that leads loses its vote while all members publish and consume. Nothing is lost, nothing comes
// twice or out of order, and its consumers go on. It counts no more then; and when it has its vote again, it does.
func TestLeaderIsShrunk(t *testing.T) {
	t.Parallel()
	c := newCluster(t, testSlots)
	qs := c.declare(6, noLimits, nil)
	leader := c.leader(0, 1, 2, 3)
	rest := others(leader)
	var ps []*publisher
	var ks []*eater
	for number, n := range c.nodes {
		ps = append(ps, n.publisherFrom(number<<32))
		ks = append(ks, n.eat(qs[number], queue.ConsumerSpec{Prefetch: 20}))
	}
	total := 0
	publish := func() {
		for _, p := range ps {
			p.publish(qs[p.base>>32], 10, 100)
		}
		total += 30
	}
	consumed := func() {
		t.Helper()
		until(t, "everything is consumed", func() bool {
			n := 0
			for _, k := range ks {
				n += k.count()
			}
			return n >= total
		})
	}
	work := func(while func()) {
		done := make(chan struct{})
		go func() { defer close(done); while() }()
		for working := true; working; publish() {
			select {
			case <-done:
				working = false
			default:
				for _, p := range ps { // as clients that wait for confirms now and then
					if p.base>>32 != leader {
						p.wait()
					}
				}
			}
		}
		for _, p := range ps {
			p.wait()
		}
		consumed()
	}
	work(func() { c.shrink(rest[0], 0, leader, 1) })
	c.voters(0, rest...)
	if now := c.leader(0, rest...); now == leader {
		t.Fatal("it leads without a vote")
	}
	work(func() {
		waitFor(t, func(ctx context.Context) error {
			return c.place(ctx, rest[1], Replica{Shard: shardOf(0), Member: leader, Generation: 1, Votes: true})
		})
	})
	c.voters(0, 1, 2, 3)
	seen := map[uint64]int{}
	for _, k := range ks {
		last := map[uint64]uint64{}
		if k.cancelled {
			t.Fatal("a consumer was cancelled")
		}
		for i, n := range k.numbers {
			if seen[n]++; k.got[i].Redelivered || seen[n] > 1 || n <= last[n>>32] {
				t.Fatalf("message %x behind %x, redelivered: %v", n, last[n>>32], k.got[i].Redelivered)
			}
			last[n>>32] = n
		}
	}
	if len(seen) != total {
		t.Fatalf("%d of %d messages", len(seen), total)
	}
	c.agree()

	c.kill(rest[0])
	c.down(rest[0])
	p := c.nodes[leader].publisherFrom(9 << 32)
	p.publish(qs[leader], 10, 100)
	p.wait()
}

// TestShrunkWhileDown: a member loses its vote while it is down. It comes back with what it had, hears of it, and follows, from a
// copy of the slot, since the log is cut; its consumer is given what it held before anyone else was. After another start it still
// follows, and no log of the replica before is left on its disk.
func TestShrunkWhileDown(t *testing.T) {
	t.Parallel()
	c := newCluster(t, testSlots)
	qs := c.declare(6, noLimits, nil)
	p := c.nodes[1].publisher()
	p.publish(qs[1], 50, 100)
	p.wait()
	c.agree()
	c.kill(3)
	c.down(3)
	c.shrink(1, 0, 3, 1)
	p.publish(qs[1], 50, 100)
	p.wait()
	for _, n := range []uint64{1, 2} {
		m := c.nodes[n].host.slots[0].machine
		m.keepLog = 0
		if _, err := m.checkpoint(); err != nil {
			t.Fatal(err)
		}
		if err := c.nodes[n].host.slots[0].cutLog(m.applied); err != nil {
			t.Fatal(err)
		}
	}
	c.start(3)
	q := c.nodes[3].host.NewQueue(6, noLimits, nil)
	k := c.nodes[3].eat(q, queue.ConsumerSpec{Prefetch: 10})
	if err := c.nodes[3].host.Renew(shardOf(0), 1); err != nil {
		t.Fatal(err)
	}
	until(t, "its consumer gets everything", func() bool { return k.count() == 100 })
	if !slices.Equal(k.numbers, numbers(1, 100)) {
		t.Fatal(k.numbers)
	}
	c.voters(0, 1, 2)
	c.agree()

	c.kill(3)
	c.start(3)
	q = c.nodes[3].host.NewQueue(6, noLimits, nil)
	p = c.nodes[3].publisherFrom(1000)
	p.publish(q, 10, 100)
	p.wait()
	c.voters(0, 1, 2)
	c.agree()
	if s := c.nodes[3].host.Slots(); s[0].Replica != 1 || s[1].Replica != 0 {
		t.Fatalf("%+v", s)
	}
	if left := logsOf(t, c.dirs[3], shardOf(0)); len(left) != 1 {
		t.Fatal(left)
	}
}

// TestLastVote: it is not taken.
func TestLastVote(t *testing.T) {
	t.Parallel()
	c := newCluster(t, testSlots)
	c.shrink(1, 1, 3, 1)
	c.shrink(1, 1, 2, 1)
	c.voters(1, 1)
	waitFor(t, func(ctx context.Context) error {
		err := c.place(ctx, 2, Replica{Shard: shardOf(1), Member: 1})
		if err == nil || errors.Is(err, ErrSpent) || ctx.Err() != nil {
			return fmt.Errorf("the last vote is taken: %v", err)
		}
		return nil
	})
	qs := c.declare(7, noLimits, nil)
	p := c.nodes[3].publisher()
	p.publish(qs[3], 10, 100)
	p.wait()
}

// logsOf are the directories of the logs that a node's replicas of a shard have.
func logsOf(t *testing.T, dir string, shard uint64) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(path), fmt.Sprintf("node-%d-", shard)) {
			list = append(list, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

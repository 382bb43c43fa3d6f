package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/quorum"
)

const (
	// placeTime is how long the replicas of one slot may take to become what they shall be before the next slot has its turn.
	placeTime = 5 * time.Second
	// spareTime is for how long it is looked whether enough others have what this node has, before a vote is taken.
	spareTime = 2 * time.Second
	// shownTime is how long the change of a vote is waited for.
	shownTime = 15 * time.Second
)

// replicaAt is a member's replica of a shard.
type replicaAt struct{ shard, member uint64 }

// replicas are what metadata says of them.
func (m *membership) replicas() map[replicaAt]broker.Replica {
	all := map[replicaAt]broker.Replica{}
	for _, r := range m.rooms.broker.Replicas() {
		all[replicaAt{r.Shard, r.Member}] = r
	}
	return all
}

// renew has this node go on with new replicas where metadata says that those it has were removed.
func (m *membership) renew() (errs error) {
	for _, r := range m.rooms.broker.Replicas() {
		if r.Member == m.identity.Number && r.Generation > 0 {
			errs = errors.Join(errs, m.rooms.quorum.Renew(r.Shard, r.Generation))
		}
	}
	return errs
}

// fitReplicas has the slots that this node leads have the replicas that metadata says, and no others: who leads has a vote, which
// not every member has in every slot.
func (m *membership) fitReplicas(ctx context.Context, members []uint64) (errs error) {
	replicas := m.replicas()
	for _, s := range m.rooms.quorum.Slots() {
		if s.Leader == m.identity.Number {
			errs = errors.Join(errs, m.fitSlot(ctx, s, members, replicas))
		}
	}
	return errs
}

func (m *membership) fitSlot(ctx context.Context, s quorum.SlotStatus, members []uint64, replicas map[replicaAt]broker.Replica) (errs error) {
	ctx, cancel := context.WithTimeout(ctx, placeTime)
	defer cancel()
	q := m.rooms.quorum
	have, err := q.Replicas(ctx, s.Shard)
	if err != nil {
		return err
	}
	strange := func(x quorum.Replica) bool { return !slices.Contains(members, x.Member) }
	if slices.ContainsFunc(have, strange) { // or this node has not heard of a new one yet
		if err := m.meta.CaughtUp(ctx); err != nil {
			return err
		}
		members = m.numbers()
	}
	for _, x := range have { // first: until they are gone they count for a majority
		if strange(x) {
			q.Down(x.Member, 0)
			if err := q.Remove(ctx, s.Shard, x.Member); err != nil {
				errs = errors.Join(errs, fmt.Errorf("former member %d: %w", x.Member, err))
			}
		}
	}
	for _, n := range members {
		r, decided := replicas[replicaAt{s.Shard, n}]
		if want := (quorum.Replica{Shard: s.Shard, Member: n, Generation: r.Generation, Votes: r.Vote == broker.Votes}); decided && !slices.Contains(have, want) {
			if err := m.placeReplica(ctx, s, want); err != nil {
				errs = errors.Join(errs, fmt.Errorf("%s: %w", m.nodeName(n), err))
			}
		}
	}
	return errs
}

// decide says of replicas of which nothing was said whether they have a vote, and gives the votes of former members to others,
// as long as a slot has fewer voters than a group has. It returns when that is metadata. The node that leads metadata calls it.
func (m *membership) decide(members []uint64) error {
	_, first, size := m.rooms.broker.Slots()
	group := m.rooms.cfg.QuorumGroupSize
	all := m.replicas()
	votes := map[uint64]int{}
	for at, r := range all {
		if r.Vote == broker.Votes {
			votes[at.member]++
		}
	}
	var waiting []chan error
	say := func(shard, member uint64, vote broker.Vote) {
		at := replicaAt{shard, member}
		r := all[at]
		r.Shard, r.Member, r.Vote = shard, member, vote
		if all[at] = r; vote == broker.Votes {
			votes[member]++
		}
		done := make(chan error, 1)
		m.rooms.broker.PutReplica(r, func(err error) { done <- err })
		waiting = append(waiting, done)
	}
	for _, s := range m.rooms.quorum.Slots() {
		voters := quorum.FirstVoters(first, int(size), s.Shard)
		for _, n := range members {
			if all[replicaAt{s.Shard, n}].Vote == broker.Undecided && (slices.Contains(voters, n) || slices.Contains(s.Members, n)) {
				say(s.Shard, n, broker.Votes)
			}
		}
		count := 0
		for _, n := range members {
			if all[replicaAt{s.Shard, n}].Vote == broker.Votes {
				count++
			}
		}
		least := slices.SortedFunc(slices.Values(members), func(a, b uint64) int { return cmp.Or(cmp.Compare(votes[a], votes[b]), cmp.Compare(a, b)) })
		for _, n := range least {
			switch {
			case all[replicaAt{s.Shard, n}].Vote != broker.Undecided:
			case count < group:
				count++
				say(s.Shard, n, broker.Votes)
			default:
				say(s.Shard, n, broker.Follows)
			}
		}
		for at, r := range all {
			if at.shard != s.Shard || slices.Contains(members, at.member) {
				continue
			}
			i := slices.IndexFunc(least, func(n uint64) bool { return all[replicaAt{s.Shard, n}].Vote == broker.Follows && m.isUp(n) })
			switch {
			case r.Vote != broker.Votes || count >= group:
				say(s.Shard, at.member, broker.Follows) // and it is forgotten
				delete(all, at)
			case i >= 0: // at the next look there are as many as there were
				count++
				say(s.Shard, least[i], broker.Votes)
			}
		}
	}
	for _, done := range waiting {
		if err := <-done; err != nil {
			return fmt.Errorf("who has a vote: %w", err)
		}
	}
	return nil
}

// placeReplica has a replica be as metadata says. Who cannot catch up now gets no vote.
func (m *membership) placeReplica(ctx context.Context, s quorum.SlotStatus, want quorum.Replica) error {
	switch {
	case want.Votes && !m.isUp(want.Member):
		return nil
	case !want.Votes && slices.Contains(s.Members, want.Member):
		if err := m.spares(s, want.Member); err != nil {
			return err
		}
	}
	index := uint64(0) // that it has caught up with
	lacks := false     // something that takes as long as it takes
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := m.rooms.quorum.Place(ctx, want, func() bool {
		if index == 0 {
			index = max(1, m.replicaOf(m.identity.Number, s.Shard).Applied)
		}
		r := m.replicaOf(want.Member, s.Shard)
		if lacks = r.Lacks; lacks {
			cancel()
		}
		return !lacks && r.Generation == want.Generation && r.Applied >= index
	})
	switch {
	case err != nil && lacks: // it is looked at again
		return nil
	case errors.Is(err, quorum.ErrOthersTurn): // its keeper hears of it
		return nil
	case errors.Is(err, quorum.ErrSpent):
		done := make(chan error, 1)
		m.rooms.broker.PutReplica(broker.Replica{Shard: want.Shard, Member: want.Member, Generation: want.Generation + 1}, func(err error) { done <- err })
		if err = <-done; err == nil {
			m.log.Info("a member has no vote in a slot any more, and follows", "node", m.nodeName(want.Member), "slot", slotName(s))
		}
	}
	return err
}

// spared are the members that are left when one is forgotten, or why it may not be: what votes it and others forgotten before
// have had must be fewer than half of those of each shard, or there is no majority of it any more, ever.
func (m *membership) spared(number uint64) (rest []uint64, err error) {
	for _, x := range m.rooms.broker.Members() {
		if x.Number != number {
			rest = append(rest, x.Number)
		}
	}
	ctx, cancel := context.WithTimeout(m.context, placeTime)
	defer cancel()
	voters, _, err := m.meta.Members(ctx)
	if err == nil {
		err = m.outvotes("metadata", voters, rest, number)
	}
	for _, s := range m.rooms.quorum.Slots() {
		if err != nil {
			break
		}
		if voters, err = m.votersOf(ctx, s.Shard); err == nil {
			err = m.outvotes("slot "+slotName(s), voters, rest, number)
		}
	}
	if err != nil {
		return nil, &management.Refusal{Code: 406, Text: fmt.Sprintf("%s is not forgotten: %v", m.nodeName(number), err)}
	}
	return rest, nil
}

// votersOf are the members that have a vote in a shard, as soon as it has a leader.
func (m *membership) votersOf(ctx context.Context, shard uint64) (voters []uint64, err error) {
	for {
		have, err := m.rooms.quorum.Replicas(ctx, shard)
		for _, x := range have {
			if x.Votes {
				voters = append(voters, x.Member)
			}
		}
		if err == nil {
			return voters, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(lookAgain / 40):
		}
	}
}

// outvotes says why a shard cannot do without a voter.
func (m *membership) outvotes(name string, voters, rest []uint64, number uint64) error {
	left := 0
	for _, n := range voters {
		if slices.Contains(rest, n) {
			left++
		}
	}
	if !slices.Contains(voters, number) || left > len(voters)/2 {
		return nil
	}
	return fmt.Errorf("%s has %d votes, of which %d would be left: that is no majority. Wait until other members have their votes ('warren cluster status')", name, len(voters), left)
}

// slotName is the name of a slot.
func slotName(s quorum.SlotStatus) string {
	if s.Stream {
		return streamSlot(s.Slot)
	}
	return fmt.Sprint(s.Slot)
}

// spares says why a member must keep its vote: without it there were none, or most of the others were not there, or not up to date.
func (m *membership) spares(s quorum.SlotStatus, member uint64) error {
	index := max(1, m.replicaOf(m.identity.Number, s.Shard).Applied)
	rest := slices.DeleteFunc(slices.Clone(s.Members), func(n uint64) bool { return n == member })
	if len(rest) == 0 {
		return fmt.Errorf("last_node: nobody else has a vote in slot %s", slotName(s))
	}
	for end := time.Now().Add(spareTime); ; time.Sleep(spareTime / 40) {
		there := 0
		for _, n := range rest {
			if r := m.replicaOf(n, s.Shard); m.isUp(n) && !r.Lacks && r.Applied >= index {
				there++
			}
		}
		switch {
		case there > len(rest)/2:
			return nil
		case time.Now().After(end) || m.context.Err() != nil:
			return fmt.Errorf("of the others that have a vote in slot %s only %d of %d are up and have what this node has: most of them must", slotName(s), there, len(rest))
		}
	}
}

// reportedReplica is what a member says of one of its replicas.
type reportedReplica struct {
	Shard, Generation, Applied uint64
	Lacks                      bool // something that lies before it
}

// reportReplicas is the answer to askReplicas.
func (m *membership) reportReplicas() (list []reportedReplica) {
	for _, s := range m.rooms.quorum.Slots() {
		list = append(list, reportedReplica{s.Shard, s.Replica, s.Applied, s.Lacks})
	}
	return list
}

// replicaOf asks a member how its replica of a shard is, and which one it is. Applied is 0 if it does not say.
func (m *membership) replicaOf(member, shard uint64) reportedReplica {
	var list []reportedReplica
	if member == m.identity.Number {
		list = m.reportReplicas()
	} else if b, err := m.call(member, askReplicas, nil, placeTime/5); err != nil || json.Unmarshal(b, &list) != nil {
		return reportedReplica{}
	}
	for _, r := range list {
		if r.Shard == shard {
			return r
		}
	}
	return reportedReplica{}
}

// Vote implements management.Cluster.
func (m *membership) Vote(name string, votes bool, in func(management.Slot) bool) ([]management.Voted, error) {
	n := m.numberOf(name)
	switch {
	case n == 0:
		return nil, &management.Refusal{Code: 404, Text: fmt.Sprintf("no member is called %s", name)}
	case votes && !m.isUp(n):
		return nil, &management.Refusal{Code: 406, Text: fmt.Sprintf("node_not_running: %s is not up, and cannot catch up", name)}
	}
	var list []management.Voted
	replicas := m.replicas()
	for _, s := range m.rooms.quorum.Slots() {
		if slices.Contains(s.Members, n) != votes && in(management.Slot{Shard: s.Shard, Name: slotName(s), Members: s.Members}) {
			list = append(list, management.Voted{Slot: slotName(s), Size: len(s.Members), Err: m.vote(s, replicas[replicaAt{s.Shard, n}], n, votes)})
		}
	}
	m.stir()
	for end := time.Now().Add(shownTime); ; time.Sleep(lookAgain / 40) {
		late := false
		for _, s := range m.rooms.quorum.Slots() {
			i := slices.IndexFunc(list, func(x management.Voted) bool { return x.Slot == slotName(s) })
			if i < 0 || list[i].Err != nil {
				continue
			}
			list[i].Size = len(s.Members)
			if slices.Contains(s.Members, n) == votes {
				continue
			}
			if late = true; time.Now().After(end) {
				list[i].Err = errors.New("timeout: it is wanted, and will be done when it can")
			}
		}
		if !late || time.Now().After(end) || m.context.Err() != nil {
			return list, nil
		}
	}
}

// vote says in metadata what a member shall have in a slot.
func (m *membership) vote(s quorum.SlotStatus, r broker.Replica, n uint64, votes bool) error {
	if r.Vote == broker.Undecided {
		return errors.New("it is not decided yet who has a vote from the start: try again in a moment")
	}
	want := broker.Replica{Shard: s.Shard, Member: n, Vote: broker.Votes}
	if !votes {
		if err := m.spares(s, n); err != nil {
			return err
		}
		want.Vote = broker.Follows
	}
	done := make(chan error, 1)
	m.rooms.broker.PutReplica(want, func(err error) { done <- err })
	return <-done
}

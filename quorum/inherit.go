package quorum

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lni/dragonboat/v4"
)

// ErrNoVote is why a member does not come to lead although all others agree.
var ErrNoVote = errors.New("this node has no vote, and does not come to lead: one that was only about to become a member cannot be restored. Restore another member")

// Inherit has the shards of this node be its own alone, on a host whose transport is StandIns: all that their logs have is applied,
// every other member is removed for ever, those included that somebody else has heard of, and what consumers of theirs held
// returns. It returns who they were, ascending. It may be called again after an error, or in a later start.
func (h *Host) Inherit(ctx context.Context, heard []uint64) (gone []uint64, err error) {
	engine, err := h.raft()
	if err != nil {
		return nil, err
	}
	gone = slices.Clone(heard)
	for _, s := range h.shards() {
		if err := h.enfranchise(ctx, engine, &s); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		if err := h.leads(ctx, &s); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		known, err := insistMembership(ctx, engine, s.id)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		gone = append(gone, membersBut(h.o.Node, known)...)
	}
	slices.Sort(gone)
	gone = slices.Compact(gone)
	for _, n := range gone {
		for _, s := range h.shards() {
			if err := h.Remove(ctx, s.id, n); err != nil { // what is before that in the log is applied then
				return nil, err
			}
		}
		h.Down(n, 0)
	}
	h.mu.Lock()
	slots := slices.Clone(h.slots)
	h.mu.Unlock()
	for _, s := range slots { // what Down has proposed
		if err := s.catchUp(ctx); err != nil {
			return nil, fmt.Errorf("slot %d: %w", s.number, err)
		}
	}
	return gone, nil
}

// insistMembership is the membership of a shard that this node leads: just after its election the Raft engine may not be ready to say.
func insistMembership(ctx context.Context, engine *dragonboat.NodeHost, shard uint64) (*dragonboat.Membership, error) {
	ctx, cancel := context.WithTimeout(ctx, inheritPatience)
	defer cancel()
	for {
		m, err := engine.SyncGetShardMembership(ctx, shard)
		if err == nil || !dragonboat.IsTempError(err) {
			return m, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(changePause):
		}
	}
}

// inheritPatience is how long a replica may take to lead when all others agree. One that has no vote never does.
const inheritPatience = 2 * time.Minute

// leads returns when this node leads a shard, and carries out what is done once.
func (h *Host) leads(ctx context.Context, s *shard) error {
	ctx, cancel := context.WithTimeout(ctx, inheritPatience)
	defer cancel()
	for {
		leader, _ := s.leader()
		leads := leader == h.o.Node
		if leads && s.id >= firstShard {
			h.mu.Lock()
			m := h.slots[s.id-firstShard].machine
			h.mu.Unlock()
			m.mu.Lock()
			leads = m.leading()
			m.mu.Unlock()
		}
		if leads {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrNoVote, ctx.Err())
		case <-time.After(aloneTick * time.Millisecond / 10):
		}
	}
}

// Follows reports whether this member has no vote on metadata yet. It is not known before the log is read.
func (m *Meta) Follows() bool {
	info := shardInfo(m.host, metaShard)
	_, votes := info.Replicas[info.ReplicaID]
	return !votes && info.IsNonVoting
}

// Inherit is Host.Inherit for metadata.
func (m *Meta) Inherit(ctx context.Context) (gone []uint64, err error) {
	known, err := m.membership(ctx)
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	gone = membersBut(m.node, known)
	for _, n := range gone {
		if err := m.RemoveMember(ctx, n); err != nil {
			return nil, fmt.Errorf("metadata, member %d: %w", n, err)
		}
	}
	return gone, nil
}

// membersBut are the others, with a vote or without.
func membersBut(own uint64, m *dragonboat.Membership) (list []uint64) {
	for _, part := range []map[uint64]string{m.Nodes, m.NonVotings, m.Witnesses} {
		for id := range part {
			if n := memberOf(id); n != own {
				list = append(list, n)
			}
		}
	}
	return list
}

package quorum

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/lni/dragonboat/v4"
	sm "github.com/lni/dragonboat/v4/statemachine"

	"github.com/warrenmq/warren/storage"
)

// Every member has a replica of every slot. Some have a vote: what most of them have on their disks is decided, and one of them
// leads. The others follow: they get the log and serve their own clients, and nobody waits for them.
//
// The Raft engine gives a vote to a follower, but does not take one back: it removes the replica, and its number never comes
// back. So a member's replicas of a slot have generations. Of all but the first the higher half of the replica's number is the
// generation, and the lower half the member's. Taking a vote is
//
//  1. another one leads, if this one did;
//  2. the replica is removed. From here on it does not count, whatever it still does;
//  3. that is written down, as the next generation, where the member reads it;
//  4. the member ends the old replica and goes on with the next one: its state is as it was, its log is empty, and
//  5. the new replica is added as a follower, and gets what it lacks.
//
// Origins are members, not replicas, so that consumers and batches on their way do not notice.

// replicaID is what the Raft engine knows a member's replica by.
func replicaID(member, generation uint64) uint64 { return generation<<32 | member }

// memberOf is the member that a replica belongs to.
func memberOf(replica uint64) uint64 { return replica & math.MaxUint32 }

// FirstVoters are those of the members that slots are made with that have had a vote in a shard from the start: size of them, or
// all if there are not more, or size is 0. Shards that follow each other have others, so that each member has about as many votes. What it returns is
// the same for ever.
func FirstVoters(members []uint64, size int, shard uint64) []uint64 {
	if size < 1 || size >= len(members) {
		return members
	}
	voters := make([]uint64, size)
	for i := range voters {
		voters[i] = members[(int(shard)+i)%len(members)]
	}
	slices.Sort(voters)
	return voters
}

// keyReplica is where the generation of this node's replica of a shard is kept, if it is not the first.
func keyReplica(shard uint64) []byte {
	return binary.BigEndian.AppendUint16([]byte(replicaPrefix), uint16(shard))
}

const replicaPrefix = "k/replica"

// writeReplica writes down the generation of this node's replica, and whether anything has come to its log.
func (h *Host) writeReplica(shard, generation uint64, begun bool) error {
	var batch storage.Batch
	value := append(binary.LittleEndian.AppendUint64(nil, generation), 0)
	if begun {
		value[8] = 1
	}
	batch.Set(keyReplica(shard), value)
	return h.o.DB.Commit(&batch, true)
}

func (h *Host) readReplicas() error {
	return h.o.DB.Iterate([]byte(replicaPrefix), func(key, value []byte) error {
		if len(key) != len(replicaPrefix)+2 || len(value) != 9 {
			return fmt.Errorf("%w: %q", errFormat, key)
		}
		shard := uint64(binary.BigEndian.Uint16(key[len(replicaPrefix):]))
		h.generations[shard] = binary.LittleEndian.Uint64(value)
		h.renewed[shard] = h.renew(shard, h.generations[shard], value[8] != 0)
		return nil
	})
}

// renew is what stands between the Raft engine and the state of a shard under a replica that is not the first.
func (h *Host) renew(shard, generation uint64, begun bool) *renewed {
	return &renewed{begun: begun, begin: func() error { return h.writeReplica(shard, generation, true) }}
}

// state is the state of a shard as the Raft engine shall see it.
func (h *Host) state(shard uint64, m sm.IOnDiskStateMachine) sm.IOnDiskStateMachine {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.renewed[shard]; r != nil {
		r.IOnDiskStateMachine = m
		return r
	}
	return m
}

// replica is the number of this node's replica of a shard, and those that it was made with; none: it came to them later.
func (h *Host) replica(shard uint64) (id uint64, voters []uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	node, generation := h.o.Node, h.generations[shard]
	if voters = FirstVoters(h.members, int(h.size), shard); generation > 0 || !slices.Contains(voters, node) {
		voters = nil
	}
	return replicaID(node, generation), voters
}

// sweep removes what is left of the logs of replicas that others took the place of. The Raft engine does not run: while it does,
// it gives back no room.
func (h *Host) sweep(dir string) error {
	for shard, generation := range h.generations {
		for old := range generation {
			for _, where := range []string{"*/*/tandb/node-%d-%d", "*/*/tandb/bootstrap/*-%d-%d"} {
				files, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf(where, shard, replicaID(h.o.Node, old))))
				if err != nil {
					return err
				}
				for _, f := range files {
					if err := os.RemoveAll(f); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// Renew has this node go on with a replica of a shard of a higher generation: the one before was removed from the shard. It
// does nothing if the replica has it, and may be called again after an error.
func (h *Host) Renew(shard, generation uint64) error {
	engine, err := h.raft()
	if err != nil {
		return err
	}
	h.building.Lock()
	defer h.building.Unlock()
	h.mu.Lock()
	old, closed := h.generations[shard], h.closed
	h.mu.Unlock()
	if generation <= old || closed {
		return nil
	}
	if err := h.writeReplica(shard, generation, false); err != nil {
		return err
	}
	if err := unload(engine, shard, replicaID(h.o.Node, old)); err != nil {
		return err
	}
	begin := h.successor(engine, shard, replicaID(h.o.Node, generation))
	if begin == nil {
		return fmt.Errorf("quorum: there is no shard %d", shard)
	}
	return begin(func() {
		h.mu.Lock()
		h.generations[shard], h.renewed[shard] = generation, h.renew(shard, generation, false)
		h.mu.Unlock()
	})
}

// successor finds what goes on with a shard's state in a new replica; with is called when that is on disk: a copy that is not newer is
// passed over, and must not be needed after a crash.
func (h *Host) successor(engine *dragonboat.NodeHost, shard, id uint64) func(with func()) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.slots {
		if shardOf(s.number) == shard {
			return func(with func()) error {
				if _, err := s.machine.checkpoint(); err != nil {
					return err
				}
				s.machine.mu.Lock()
				s.machine.tail = tail{}
				s.machine.mu.Unlock()
				with()
				return h.startReplica(engine, s)
			}
		}
	}
	for _, s := range h.streams {
		if s.shard() == shard {
			return func(with func()) error {
				if err := s.machine.Sync(); err != nil {
					return err
				}
				s.mu.Lock()
				s.tail = tail{}
				s.mu.Unlock()
				with()
				return s.begin(engine, id, nil)
			}
		}
	}
	return nil
}

// unload stops a replica that was removed from its shard, and returns when the Raft engine has let go of it and of its log.
func unload(engine *dragonboat.NodeHost, shard, id uint64) error {
	if err := engine.StopReplica(shard, id); err != nil && !errors.Is(err, dragonboat.ErrShardNotFound) {
		return err // not found: it knew by itself, or an earlier attempt has stopped it
	}
	err := engine.RemoveData(shard, id)
	for begun := time.Now(); errors.Is(err, dragonboat.ErrShardNotStopped) && time.Since(begun) < restartPatience; {
		time.Sleep(time.Millisecond)
		err = engine.RemoveData(shard, id)
	}
	return err
}

// Replica says what a member's replica of a shard shall be.
type Replica struct {
	Shard, Member uint64
	Generation    uint64 // how many of its replicas were removed
	Votes         bool   // or it follows
}

var (
	// errNever is what errors wrap that trying again does not help against.
	errNever = errors.New("quorum")
	// ErrSpent is that a replica of this generation was removed. The next one may come.
	ErrSpent = fmt.Errorf("%w: the replica was removed, and does not come back under its number", errNever)
	// ErrOthersTurn is that a member does not remove its own replica, which would never hear of it. Another one leads now, or is about
	// to, and may do it.
	ErrOthersTurn = fmt.Errorf("%w: who leads now removes the replica", errNever)
)

// Place has a replica be one that votes, or one that follows. It returns ErrSpent when it has taken a vote, or found it taken:
// the caller writes down the next generation, the member renews its replica, and that one follows. One that gets a vote must be
// running, and caughtUp, which is called again and again, says when it has what the log had when it came. Place may be called
// on any member that has a vote or follows, for one replica of a shard at a time, and again after an error, which is that of ctx or one that
// does not pass. A member that shall lose its own vote has another one lead, and returns ErrOthersTurn.
func (h *Host) Place(ctx context.Context, want Replica, caughtUp func() bool) error {
	id := replicaID(want.Member, want.Generation)
	return h.change(ctx, want.Shard, want.Member, func(ctx context.Context, engine *dragonboat.NodeHost, s *shard, m *dragonboat.Membership) (bool, error) {
		for _, old := range replicasOf(m, want.Member) {
			if old != id {
				return false, h.remove(ctx, engine, s, m, old)
			}
		}
		_, votes := m.Nodes[id]
		_, follows := m.NonVotings[id]
		_, removed := m.Removed[id]
		switch {
		case removed:
			return false, fmt.Errorf("member %d: %w", want.Member, ErrSpent)
		case want.Votes && votes, !want.Votes && follows:
			return true, nil
		case votes:
			return false, h.remove(ctx, engine, s, m, id)
		case !follows:
			return false, engine.SyncRequestAddNonVoting(ctx, s.id, id, address(want.Member), m.ConfigChangeID)
		case !caughtUp():
			return false, nil
		}
		return false, engine.SyncRequestAddReplica(ctx, s.id, id, address(want.Member), m.ConfigChangeID)
	})
}

// Remove takes a member out of a shard, for ever. It is called on another one that has a vote.
func (h *Host) Remove(ctx context.Context, at, number uint64) error {
	if number == h.o.Node {
		return errors.New("quorum: a member cannot remove itself")
	}
	return h.change(ctx, at, number, func(ctx context.Context, engine *dragonboat.NodeHost, s *shard, m *dragonboat.Membership) (bool, error) {
		for _, id := range replicasOf(m, number) {
			return false, h.remove(ctx, engine, s, m, id)
		}
		return true, nil
	})
}

// Replicas are those that a shard has, as most of its voters know it. Who has not been added to it is told nothing.
func (h *Host) Replicas(ctx context.Context, shard uint64) (list []Replica, err error) {
	engine, err := h.raft()
	if err != nil {
		return nil, err
	}
	m, err := engine.SyncGetShardMembership(ctx, shard)
	if err != nil {
		return nil, fmt.Errorf("who has a replica of shard %d: %w", shard, err)
	}
	for id := range m.Nodes {
		list = append(list, Replica{shard, memberOf(id), id >> 32, true})
	}
	for id := range m.NonVotings {
		list = append(list, Replica{shard, memberOf(id), id >> 32, false})
	}
	return list, nil
}

// replicasOf are the replicas of a member.
func replicasOf(m *dragonboat.Membership, number uint64) (list []uint64) {
	for _, some := range []map[uint64]string{m.Nodes, m.NonVotings} {
		for id := range some {
			if memberOf(id) == number {
				list = append(list, id)
			}
		}
	}
	return list
}

// remove takes one step to remove a replica: as long as it leads, another one shall.
func (h *Host) remove(ctx context.Context, engine *dragonboat.NodeHost, s *shard, m *dragonboat.Membership, id uint64) error {
	_, votes := m.Nodes[id]
	if votes && len(m.Nodes) == 1 {
		return fmt.Errorf("%w: the last vote is not taken", errNever)
	}
	if leader, _ := s.leader(); memberOf(id) == h.o.Node && leader != h.o.Node {
		return ErrOthersTurn
	} else if !votes || leader != memberOf(id) {
		return engine.SyncRequestDeleteReplica(ctx, s.id, id, m.ConfigChangeID)
	}
	h.mu.Lock()
	to := uint64(0)
	for other := range m.Nodes {
		if _, down := h.downs[memberOf(other)]; other != id && (to == 0 || !down) {
			to = other
		}
	}
	h.mu.Unlock()
	return engine.RequestLeaderTransfer(s.id, to)
}

// transferTo asks that a member lead a shard.
func transferTo(engine *dragonboat.NodeHost, shard, number uint64) error {
	if info := engine.GetNodeHostInfo(dragonboat.NodeHostInfoOption{SkipLogInfo: true}); info != nil {
		for i := range info.ShardInfoList {
			if info.ShardInfoList[i].ShardID != shard {
				continue
			}
			for id := range info.ShardInfoList[i].Replicas {
				if memberOf(id) == number {
					return engine.RequestLeaderTransfer(shard, id)
				}
			}
		}
	}
	return fmt.Errorf("quorum: member %d has no vote in shard %d, and cannot lead it", number, shard)
}

// change takes one step after the other in a shard, until that says that it is done.
func (h *Host) change(ctx context.Context, number, member uint64, step func(context.Context, *dragonboat.NodeHost, *shard, *dragonboat.Membership) (bool, error)) error {
	engine, err := h.raft()
	if err != nil {
		return err
	}
	shards := h.shards()
	i := slices.IndexFunc(shards, func(s shard) bool { return s.id == number })
	if i < 0 {
		return fmt.Errorf("quorum: there is no shard %d", number)
	}
	s := &shards[i]
	for {
		done := false
		err := func() error {
			ctx, cancel := context.WithTimeout(ctx, changeTimeout)
			defer cancel()
			m, err := engine.SyncGetShardMembership(ctx, s.id)
			if err == nil {
				done, err = step(ctx, engine, s, m)
			}
			return err
		}()
		switch {
		case done:
			return nil
		case errors.Is(err, errNever):
			return fmt.Errorf("%s: %w", s.name, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s, member %d: %w", s.name, member, errors.Join(ctx.Err(), err))
		case <-time.After(changePause):
		}
	}
}

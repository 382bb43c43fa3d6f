package broker

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/warrenmq/warren/amqp"
)

// Replica is what a member's replica of a shard, by its number in the Raft engine, shall be.
type Replica struct {
	Shard, Member uint64
	Vote          Vote
	Generation    uint64 // how many replicas of the member were removed: the next one has a number of its own
}

type replicaOf struct{ Shard, Member uint64 }

// Vote says whether a replica has one.
type Vote uint64

const (
	Undecided Vote = iota
	Follows        // it has none
	Votes
)

func (x Replica) of() replicaOf { return replicaOf{x.Shard, x.Member} }

func replicaKey(of replicaOf) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64([]byte("m/w"), of.Shard), of.Member)
}

// Replicas lists the replicas of which something was said, by shard and member. There may be some of former members, who had a
// vote.
func (b *Broker) Replicas() []Replica {
	b.mu.RLock()
	defer b.mu.RUnlock()
	list := make([]Replica, 0, len(b.replicas))
	for _, r := range b.replicas {
		list = append(list, r)
	}
	slices.SortFunc(list, func(x, y Replica) int { return cmp.Or(cmp.Compare(x.Shard, y.Shard), cmp.Compare(x.Member, y.Member)) })
	return list
}

// PutReplica says what a replica shall be, as the command does. The last vote of a shard is not taken.
func (b *Broker) PutReplica(x Replica, done func(error)) {
	b.commit(PutReplica{x}, func(r result) { b.synced(done)(orNil(r.refused)) })
}

// putReplica applies PutReplica. It returns what the replica is now, nothing if it is none any more. b.mu is held.
func (b *Broker) putReplica(x Replica) (Replica, *amqp.Error) {
	was, known := b.replicas[x.of()]
	if _, member := b.members[x.Member]; !member {
		if !known || x.Vote != Follows {
			return was, amqp.Errorf(amqp.NotFound, "no member %d", x.Member)
		}
		delete(b.replicas, x.of())
		return Replica{}, nil
	}
	if x.Vote == Follows && was.Vote == Votes && !b.othersVote(x.of()) {
		return was, amqp.Errorf(amqp.PreconditionFailed, "last_node: nobody else has a vote in shard %d", x.Shard)
	}
	was.Shard, was.Member = x.Shard, x.Member
	was.Vote, was.Generation = cmp.Or(x.Vote, was.Vote), max(x.Generation, was.Generation)
	b.replicas[x.of()] = was
	return was, nil
}

// othersVote reports whether a shard has a vote besides that of one member. b.mu is held.
func (b *Broker) othersVote(than replicaOf) bool {
	for of, r := range b.replicas {
		if _, member := b.members[of.Member]; member && of.Shard == than.Shard && of.Member != than.Member && r.Vote == Votes {
			return true
		}
	}
	return false
}

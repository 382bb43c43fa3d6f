package quorum

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/raftpb"
)

// ErrNothing is why a shard cannot be inherited: this node has neither a vote nor any part of the log.
var ErrNothing = errors.New("this node has nothing of it: it was only about to get it")

const (
	// knownPatience is how long a replica may take to say what it knows of its shard's members.
	knownPatience = 5 * time.Second
	// voteTime is how long it may take to apply all that its log has, and the entry that gives it a vote.
	voteTime = 10 * time.Second
	// maxVotes is how often it is given one. Each time but the last was one of the shard's last changes of members.
	maxVotes = 8
)

// enfranchise gives this node a vote in a shard, if it has none: whoever follows never leads, although all others agree. On a transport
// of StandIns one of those who are gone leads in a term of its own, only for as long as it takes to say two things: that all of the
// follower's log is agreed on, which counts for a voter's, too, and one entry more, by which the follower has a vote. What the follower
// has is as much as any replica has that was late, so that nothing is made up, and where its log ended is kept.
func (h *Host) enfranchise(ctx context.Context, engine *dragonboat.NodeHost, s *shard) error {
	stand, ok := h.o.Transport.(*standIns)
	if !ok {
		return nil
	}
	begun := time.Now()
	for attempt := uint64(1); ; {
		info := shardInfo(engine, s.id)
		_, votes := info.Replicas[info.ReplicaID]
		switch {
		case votes:
			return nil
		case attempt > maxVotes:
			return ErrNoVote
		case len(info.Replicas) > 0 && info.IsNonVoting:
			if err := h.sayVote(engine, stand, info, attempt); err != nil {
				return err
			}
			attempt++
			if err := waitForVote(ctx, engine, info); err != nil {
				return err
			}
		case time.Since(begun) > knownPatience:
			return ErrNothing
		default:
			if err := rest(ctx); err != nil {
				return err
			}
		}
	}
}

// sayVote has one who is gone say that this node has a vote. If the membership was another one when that is applied, as something
// behind its known end was in the log, it has no effect, and is said again.
func (h *Host) sayVote(engine *dragonboat.NodeHost, stand *standIns, info dragonboat.ShardInfo, attempt uint64) error {
	log, err := engine.GetLogReader(info.ShardID)
	if err != nil {
		return err
	}
	_, last := log.GetRange()
	term, err := log.Term(last)
	if err != nil {
		return fmt.Errorf("entry %d of its log: %w", last, err)
	}
	change := raftpb.ConfigChange{ConfigChangeId: info.ConfigChangeIndex, Type: raftpb.AddNode, ReplicaID: info.ReplicaID, Address: address(h.o.Node)}
	cmd, err := change.Marshal()
	if err != nil {
		return err
	}
	state, _ := log.NodeState() // as it was found at the start
	now := max(state.Term, info.Term, term) + attempt
	for voter := range info.Replicas {
		stand.say(raftpb.Message{Type: raftpb.Replicate, ShardID: info.ShardID, From: voter, To: info.ReplicaID, Term: now, LogIndex: last, LogTerm: term, Commit: last + 1,
			Entries: []raftpb.Entry{{Type: raftpb.ConfigChangeEntry, Index: last + 1, Term: now, Cmd: cmd}}})
		break
	}
	return nil
}

// waitForVote returns when the members have changed, or have not for long.
func waitForVote(ctx context.Context, engine *dragonboat.NodeHost, was dragonboat.ShardInfo) error {
	for begun := time.Now(); time.Since(begun) < voteTime; {
		if shardInfo(engine, was.ShardID).ConfigChangeIndex != was.ConfigChangeIndex {
			return nil
		}
		if err := rest(ctx); err != nil {
			return err
		}
	}
	return nil
}

// rest waits for a moment.
func rest(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(tick * time.Millisecond / 10):
		return nil
	}
}

// shardInfo is what the Raft engine knows of a shard's members.
func shardInfo(engine *dragonboat.NodeHost, shard uint64) dragonboat.ShardInfo {
	if info := engine.GetNodeHostInfo(dragonboat.NodeHostInfoOption{SkipLogInfo: true}); info != nil {
		for _, one := range info.ShardInfoList {
			if one.ShardID == shard {
				return one
			}
		}
	}
	return dragonboat.ShardInfo{}
}

package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	sm "github.com/lni/dragonboat/v4/statemachine"

	"github.com/warrenmq/warren/amqp"
)

// metaShard is the shard of metadata.
const metaShard = 1

const (
	// metaSnapshot is after how many entries the log is cut, but for the metaKept last ones.
	metaSnapshot = 10000
	metaKept     = 2000
	// metaFlight is how many batches may be proposed and not applied.
	metaFlight = 8
	// metaLook is how often a proposer looks who leads, and who has waited for too long.
	metaLook = 100 * time.Millisecond
	// metaOnce is how long one try takes at most: what is lost between nodes is lost without a word.
	metaOnce = time.Second
	// foundPatience is how long a founder may take to elect itself and cut its log.
	foundPatience = 30 * time.Second
)

// MetaStore is metadata, as broker.Broker keeps it. ApplyEntry, Capture and Restore are called one at a time.
type MetaStore interface {
	// Applied is the index of the last entry that the store has, and the numbering that came with it. After a crash both may
	// be those of an earlier one.
	Applied() (index uint64, numbering []byte)
	// ApplyEntry applies the commands of an entry, and keeps its index and numbering, all in one change. It returns a result
	// for each. An error ends the process.
	ApplyEntry(index uint64, numbering []byte, commands [][]byte) (results []any, err error)
	// SyncEntries returns when what was applied will survive a power cut.
	SyncEntries() error
	// Capture is everything, as of the last entry, Restore takes it in, durably.
	Capture() ([]byte, error)
	Restore(r io.Reader) error
}

// MetaOptions are what a member's part of the metadata is run with.
type MetaOptions struct {
	Node  uint64 // number of this member
	Boot  uint64 // number of this start of it: higher than those before
	Join  bool   // a new member, which the others have added; otherwise the founder. Of no account when it starts again
	Store MetaStore
	Log   *slog.Logger // is told when nobody leads; nil: nobody is
	// LeaderPatience is for how long nobody may lead until commands are refused, AnswerPatience for how long one may be without
	// an outcome until whoever gave it is told. 0: 5 s, 15 s.
	LeaderPatience, AnswerPatience time.Duration

	pace pace // of elections; zero: ten ticks, and a sign of life in each
}

// Meta is this member's part of the metadata: a replica of shard 1, and the way of its commands there. It implements
// broker.Log. Its methods may be called concurrently.
type Meta struct {
	host  *dragonboat.NodeHost
	node  uint64
	store MetaStore
	p     *metaProposer
}

// StartMeta starts this member's replica on a host whose transport reaches the others. What the store of a founder has is
// not in the log: before StartMeta returns, the log has begun and is cut, so that whoever joins gets a snapshot.
func StartMeta(host *dragonboat.NodeHost, o MetaOptions) (*Meta, error) {
	_, numbering := o.Store.Applied()
	if _, err := readMetaOrigins(numbering); err != nil {
		return nil, err
	}
	if o.pace == (pace{}) {
		o.pace = pace{10, 1}
	}
	p := newMetaProposer(host, o)
	machine := &metaMachine{store: o.Store, p: p}
	var members map[uint64]string
	join := false
	if !host.HasNodeInfo(metaShard, o.Node) {
		if join = o.Join; !join {
			members = map[uint64]string{o.Node: address(o.Node)}
		}
	}
	err := host.StartOnDiskReplica(members, join, func(uint64, uint64) sm.IOnDiskStateMachine { return machine }, config.Config{
		ReplicaID: o.Node, ShardID: metaShard, IsNonVoting: o.Join, // until it is told that it votes
		ElectionRTT: o.pace.election, HeartbeatRTT: o.pace.heartbeat, PreVote: true, CheckQuorum: true, OrderedConfigChange: true,
		SnapshotEntries: metaSnapshot, CompactionOverhead: metaKept,
		EntryCompressionType: config.NoCompression, SnapshotCompressionType: config.NoCompression,
	})
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	m := &Meta{host: host, node: o.Node, store: o.Store, p: p}
	if err := m.found(o.Join); err != nil {
		_ = host.StopShard(metaShard)
		return nil, fmt.Errorf("metadata: %w", err)
	}
	p.seen = time.Now()
	p.look(p.seen)
	go p.run()
	return m, nil
}

// found begins the log and cuts it, if that was not done before.
func (m *Meta) found(join bool) error {
	reader, err := m.host.GetLogReader(metaShard)
	if err != nil {
		return err
	}
	if first, _ := reader.GetRange(); join || first > 1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), foundPatience)
	defer cancel()
	err = m.again(ctx, func(ctx context.Context) error {
		_, err := m.host.SyncPropose(ctx, m.host.GetNoOPSession(metaShard), metaHeader{}.append(nil))
		return err
	})
	if err != nil {
		return err
	}
	return m.again(ctx, func(ctx context.Context) error {
		_, err := m.host.SyncRequestSnapshot(ctx, metaShard, dragonboat.SnapshotOption{OverrideCompactionOverhead: true})
		if first, _ := reader.GetRange(); first > 1 { // it is cut some time after
			return nil
		}
		return cmp.Or(err, errNotCut)
	})
}

var errNotCut = errors.New("the log is not cut")

// again does something until it succeeds, or fails in a way that more tries do not mend. When the time is over the error is that of the
// last try that had time.
func (m *Meta) again(ctx context.Context, do func(context.Context) error) error {
	var why error
	for {
		once, cancel := context.WithTimeout(ctx, metaOnce)
		err := do(once)
		cancel()
		if err == nil || errors.Is(err, dragonboat.ErrClosed) || errors.Is(err, dragonboat.ErrShardNotFound) || errors.Is(err, dragonboat.ErrInvalidAddress) {
			return err
		}
		if ctx.Err() == nil || why == nil {
			why = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), why)
		case <-time.After(metaLook / 2):
		}
	}
}

// Propose implements broker.Log.
func (m *Meta) Propose(command []byte, keep bool, done func(result any, err *amqp.Error)) {
	m.p.add(command, keep, done)
}

// Refuses implements broker.Log.
func (m *Meta) Refuses() *amqp.Error {
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	return m.p.refusal(time.Now())
}

// CaughtUp returns when everything that a majority had agreed on before is applied here.
func (m *Meta) CaughtUp(ctx context.Context) error {
	return m.again(ctx, func(ctx context.Context) error {
		_, err := m.host.SyncRead(ctx, metaShard, nil)
		return err
	})
}

// Members lists the numbers of those that vote, and of those that follow without a vote.
func (m *Meta) Members(ctx context.Context) (voters, followers []uint64, err error) {
	members, err := m.membership(ctx)
	if err != nil {
		return nil, nil, err
	}
	return slices.Sorted(maps.Keys(members.Nodes)), slices.Sorted(maps.Keys(members.NonVotings)), nil
}

func (m *Meta) membership(ctx context.Context) (members *dragonboat.Membership, err error) {
	err = m.again(ctx, func(ctx context.Context) (err error) {
		members, err = m.host.SyncGetShardMembership(ctx, metaShard)
		return err
	})
	return members, err
}

// Admit lets a new member, whose number was never used, have a replica that follows. It has no vote, so that the others can
// go on if it never comes. One that is there is no error.
func (m *Meta) Admit(ctx context.Context, number uint64) error {
	return m.change(ctx, func(ctx context.Context, members *dragonboat.Membership) error {
		_, votes := members.Nodes[number]
		_, follows := members.NonVotings[number]
		if votes || follows {
			return nil
		}
		return m.host.SyncRequestAddNonVoting(ctx, metaShard, number, address(number), members.ConfigChangeID)
	})
}

// AddMember gives a member a vote that was admitted and has proposed something, by which it is seen that it runs and has
// caught up; with others there is nothing to do yet. added says that it has a vote.
func (m *Meta) AddMember(ctx context.Context, number uint64) (added bool, err error) {
	err = m.change(ctx, func(ctx context.Context, members *dragonboat.Membership) error {
		if _, added = members.Nodes[number]; added || !m.heard(number) {
			return nil
		}
		added = true
		return m.host.SyncRequestAddReplica(ctx, metaShard, number, address(number), members.ConfigChangeID)
	})
	return added && err == nil, err
}

// heard reports whether a member has proposed something that was applied here.
func (m *Meta) heard(number uint64) bool {
	_, numbering := m.store.Applied()
	origins, err := readMetaOrigins(numbering)
	return err == nil && origins.Of(number) != nil
}

// RemoveMember takes a member and its vote away, for ever. One that is not there is no error.
func (m *Meta) RemoveMember(ctx context.Context, number uint64) error {
	return m.change(ctx, func(ctx context.Context, members *dragonboat.Membership) error {
		_, votes := members.Nodes[number]
		_, follows := members.NonVotings[number]
		if !votes && !follows {
			return nil
		}
		return m.host.SyncRequestDeleteReplica(ctx, metaShard, number, members.ConfigChangeID)
	})
}

// change changes who the members are by what step makes of who they are now, as often as it takes.
func (m *Meta) change(ctx context.Context, step func(context.Context, *dragonboat.Membership) error) error {
	return m.again(ctx, func(once context.Context) error {
		members, err := m.membership(once)
		if err == nil {
			err = step(once, members)
		}
		return err
	})
}

// Leader is the number of the member that leads, as far as this one knows.
func (m *Meta) Leader() (number uint64, ok bool) {
	number, _, ok, err := m.host.GetLeaderID(metaShard)
	return number, ok && err == nil
}

// TransferLeader asks that another member leads. It does not wait.
func (m *Meta) TransferLeader(number uint64) error {
	return m.host.RequestLeaderTransfer(metaShard, number)
}

// Close stops the replica. Who waits for an outcome is told that there is none.
func (m *Meta) Close() error {
	m.p.stop()
	return m.host.StopShard(metaShard)
}

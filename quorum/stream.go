package quorum

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/client"
	"github.com/lni/dragonboat/v4/config"
	sm "github.com/lni/dragonboat/v4/statemachine"
)

// firstStream is the shard of the first slot of streams, and maxStreams how many there can be below the slots of queues.
const (
	firstStream = 4
	maxStreams  = firstShard - firstStream
)

// StreamMachine is the replicated state of a shard of streams, which another room keeps. The Raft engine never calls Apply
// and Sync at the same time; the others that it calls may come beside them.
type StreamMachine interface {
	// Applied is the last entry whose effects are durable. It is asked once, before anything is applied.
	Applied() uint64
	// Apply applies an entry. entry is good until it returns. The value goes to whoever proposed it. An error ends the
	// process: replicas must not differ.
	Apply(index uint64, entry []byte) (value uint64, err error)
	// Rest says that nothing more waits to be applied just now.
	Rest()
	// Sync makes what was applied durable. An error ends the process.
	Sync() error
	// Prepare takes down what is there, for Save to write it beside what is applied, for a replica that the log does not bring
	// up to date. Whatever is prepared is saved. Save ends early when stop is closed; after any error it is tried again later.
	Prepare() any
	Save(prepared any, to io.Writer, stop <-chan struct{}) error
	// Recover replaces everything by what another replica saved. Apply goes on behind that. An error ends the process, unless
	// stop was closed.
	Recover(from io.Reader, stop <-chan struct{}) error
	// Close ends the machine.
	Close() error
}

// StreamShard is a Raft shard for streams, run by the same engine as the slots of quorum queues. Its methods may be called
// concurrently; Propose and CutLog when Start has returned.
type StreamShard struct {
	host    *Host
	number  uint16
	machine StreamMachine

	engine atomic.Pointer[dragonboat.NodeHost] // nil before Start has returned
	user   dragonboat.INodeUser
	noop   *client.Session
}

// Outcome is what became of a proposal.
type Outcome = dragonboat.RequestResult

// Proposal is an entry that was handed to the Raft engine.
type Proposal struct{ state *dragonboat.RequestState }

// C has the outcome when it is known, or never will be.
func (p Proposal) C() <-chan Outcome { return p.state.ResultC() }

// Release lets go of a proposal whose outcome was read.
func (p Proposal) Release() { p.state.Release() }

// Applied is what Apply returned for a proposal. ok is false if it was not applied, or nobody knows.
func Applied(o Outcome) (value uint64, ok bool) { return o.GetResult().Value, o.Completed() }

// Identity is the number of this node, and how many times it has started: what tells its proposals from all others.
func (h *Host) Identity() (node, boot uint64) { return h.o.Node, h.boot }

// PressStreams has publishers rest, or go on, because of streams. Every true is followed by one false.
func (h *Host) PressStreams(on bool) { h.press(on) }

// StreamShard is shard number number of streams, of which there are 12 at the most. Nothing happens before Start.
func (h *Host) StreamShard(number uint16, m StreamMachine) *StreamShard {
	if number >= maxStreams {
		panic("quorum: there are not so many shards of streams")
	}
	return &StreamShard{host: h, number: number, machine: m}
}

// Start starts the shard's replica on this node, and the Raft engine if it does not run yet. It takes as long as that takes.
func (s *StreamShard) Start() error {
	h := s.host
	h.mu.Lock()
	if h.opening == nil && !h.closed {
		h.alone()
	}
	h.mu.Unlock()
	engine, err := h.raft()
	if err != nil {
		return err
	}
	shard := firstStream + uint64(s.number)
	if s.machine.Applied() > 0 && !engine.HasNodeInfo(shard, h.o.Node) {
		return fmt.Errorf("the Raft log of shard %d is gone, but there are streams", s.number)
	}
	err = engine.StartOnDiskReplica(map[uint64]dragonboat.Target{h.o.Node: address(h.o.Node)}, false,
		func(uint64, uint64) sm.IOnDiskStateMachine { return &streamReplica{s.machine, h.o.Log} },
		config.Config{
			ReplicaID: h.o.Node, ShardID: shard,
			ElectionRTT: aloneElection, HeartbeatRTT: 1, PreVote: true, CheckQuorum: true, OrderedConfigChange: true,
			EntryCompressionType: config.NoCompression, SnapshotCompressionType: config.NoCompression,
		})
	if err != nil {
		return err
	}
	if s.user, err = engine.GetNodeUser(shard); err != nil {
		return err
	}
	s.noop = engine.GetNoOPSession(shard)
	s.engine.Store(engine)
	return nil
}

// Propose hands an entry to the Raft engine. b may be used again when it returns. An error says that it was not taken.
func (s *StreamShard) Propose(b []byte, timeout time.Duration) (Proposal, error) {
	state, err := s.user.Propose(s.noop, b, timeout)
	return Proposal{state}, err
}

// Leads reports whether this node leads the shard, as far as it knows.
func (s *StreamShard) Leads() bool { return s.Leader() == s.host.o.Node }

// Leader is the number of the node that leads, as far as this one knows; 0: none.
func (s *StreamShard) Leader() uint64 {
	engine := s.engine.Load()
	if engine == nil {
		return 0
	}
	leader, _, known, err := engine.GetLeaderID(firstStream + uint64(s.number))
	if err != nil || !known {
		return 0
	}
	return leader
}

// CutLog lets go of the Raft log before an entry whose effects are durable. It waits for the engine, or for quit.
func (s *StreamShard) CutLog(index uint64, quit <-chan struct{}) error {
	if index < 2 {
		return nil
	}
	o := dragonboat.SnapshotOption{OverrideCompactionOverhead: true, CompactionIndex: index - 1}
	state, err := s.engine.Load().RequestSnapshot(firstStream+uint64(s.number), o, time.Minute)
	if err != nil {
		return err
	}
	defer state.Release()
	select {
	case r := <-state.ResultC():
		if !r.Completed() && !r.Rejected() && !r.Aborted() { // rejected: there is one of this index
			return errors.New("no snapshot was made")
		}
	case <-quit:
	}
	return nil
}

// streamReplica is a StreamMachine as the Raft engine knows it.
type streamReplica struct {
	m   StreamMachine
	log *slog.Logger
}

func (r *streamReplica) Open(<-chan struct{}) (uint64, error) { return r.m.Applied(), nil }

func (r *streamReplica) Update(entries []sm.Entry) ([]sm.Entry, error) {
	for i := range entries {
		value, err := r.m.Apply(entries[i].Index, entries[i].Cmd)
		if err != nil {
			return nil, err
		}
		entries[i].Result.Value = value
	}
	r.m.Rest()
	return entries, nil
}

func (r *streamReplica) Lookup(any) (any, error) { return nil, nil }
func (r *streamReplica) Sync() error             { return r.m.Sync() }
func (r *streamReplica) Close() error            { return r.m.Close() }

func (r *streamReplica) PrepareSnapshot() (any, error) { return r.m.Prepare(), nil }
func (r *streamReplica) SaveSnapshot(prepared any, to io.Writer, stop <-chan struct{}) error {
	err := stopped(r.m.Save(prepared, to, stop), stop)
	if err != nil && !errors.Is(err, sm.ErrSnapshotStopped) && !errors.Is(err, sm.ErrSnapshotStreaming) {
		r.log.Warn("streams were not copied to another node", "error", err.Error())
		return sm.ErrSnapshotAborted
	}
	return err
}
func (r *streamReplica) RecoverFromSnapshot(from io.Reader, stop <-chan struct{}) error {
	return stopped(r.m.Recover(from, stop), stop)
}

// stopped is err, or what the Raft engine wants to hear if it had that stopped.
func stopped(err error, stop <-chan struct{}) error {
	select {
	case <-stop:
		if err != nil {
			return sm.ErrSnapshotStopped
		}
	default:
	}
	return err
}

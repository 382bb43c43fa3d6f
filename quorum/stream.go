package quorum

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/raftio"
	sm "github.com/lni/dragonboat/v4/statemachine"

	"github.com/warrenmq/warren/quorum/propose"
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
	// Close ends the machine.
	Close() error
	// Index is the last entry that was applied.
	Index() uint64
	// Whole reports whether this node lacks nothing that another one may have.
	Whole() bool

	// View is the state as it is, for Save. Nothing is applied meanwhile. It may never be saved.
	View() any
	// Save writes a view, as frames.
	Save(view any, frame FrameWriter) error
	// Restore makes what Save wrote the state, durably, or leaves it as it was. Nothing is applied meanwhile. An error ends the
	// process, unless it is one of frame's that says that the node stops.
	Restore(frame FrameReader) error
}

// FrameWriter writes a part of a state: its kind, and what is in it.
type FrameWriter func(kind byte, payload []byte) error

// FrameReader reads the next part, which is valid until the one after.
type FrameReader func() (kind byte, payload []byte, err error)

// StreamShard is a Raft shard for streams, run by the same engine as the slots of quorum queues. Its methods may be called
// concurrently; Propose and CutLog when Start has returned.
type StreamShard struct {
	// Keep is how many octets of the log stay behind what is durable, for members that are a little behind: a copy of all streams
	// costs more. It is set before Start.
	Keep uint64
	// Elected is called when there is a new leader, and does not wait. It is set before Start; nil: nobody is told.
	Elected func()

	host    *Host
	number  uint16
	machine StreamMachine

	replica atomic.Pointer[raftReplica] // nil before Start has returned
	joined  bool                        // among those that were there; otherwise it is one of the first

	leader atomic.Pointer[raftio.LeaderInfo] // as the Raft engine said last; nil: nothing yet

	mu   sync.Mutex // guards what follows
	tail tail       // of the log
}

// streamTail is what a StreamShard keeps if nothing else is said.
const streamTail = 64 << 20

// Outcome is what became of a proposal.
type Outcome = dragonboat.RequestResult

// Proposal is an entry that was handed to the Raft engine.
type Proposal = propose.Proposal[Outcome]

// Applied is what Apply returned for a proposal. ok is false if it was not applied, or nobody knows.
func Applied(o Outcome) (value uint64, ok bool) { return o.GetResult().Value, o.Completed() }

// Identity is the number of this node, and how many times it has started: what tells its proposals from all others.
func (h *Host) Identity() (node, boot uint64) { return h.o.Node, h.boot }

// PressStreams has publishers rest, or go on, because of streams: see queue.Press.
func (h *Host) PressStreams(on bool) { h.pressed.Set(on) }

// StreamShard is shard number number of streams, of which there are 12 at the most. Nothing happens before Start.
func (h *Host) StreamShard(number uint16, m StreamMachine) *StreamShard {
	if number >= maxStreams {
		panic("quorum: there are not so many shards of streams")
	}
	return &StreamShard{Keep: streamTail, host: h, number: number, machine: m}
}

// Clustered reports whether there are, or will be, other members.
func (h *Host) Clustered() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.o.Clustered
}

// Joined reports whether this node came when the shard was there. It is known when Start has returned.
func (s *StreamShard) Joined() bool { return s.joined }

func (s *StreamShard) shard() uint64 { return firstStream + uint64(s.number) }

// leaderUpdated is told by the Raft engine who leads. It does not wait.
func (s *StreamShard) leaderUpdated(info raftio.LeaderInfo) {
	s.leader.Store(&info)
	if info.LeaderID != 0 && s.Elected != nil {
		s.Elected()
	}
}

func (s *StreamShard) raftLeader() (node, term uint64) {
	if info := s.leader.Load(); info != nil {
		return info.LeaderID, info.Term
	}
	return 0, 0
}

// Start starts the shard's replica on this node, and the Raft engine if it does not run yet. It takes as long as that takes. In
// a cluster it comes after MakeSlots or JoinSlots, and has the members that they have.
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
	h.building.Lock()
	defer h.building.Unlock()
	id, voters := h.replica(s.shard())
	if s.machine.Applied() > 0 && id == h.o.Node && !engine.HasNodeInfo(s.shard(), id) {
		return fmt.Errorf("the Raft log of shard %d is gone, but there are streams", s.number)
	}
	h.watch(s.shard(), s.leaderUpdated)
	s.joined = len(voters) == 0
	if err := s.begin(engine, id, voters); err != nil {
		return err
	}
	h.mu.Lock()
	h.streams = append(h.streams, s)
	h.mu.Unlock()
	return nil
}

// begin starts a replica of this node, and has proposals go to it.
func (s *StreamShard) begin(engine *dragonboat.NodeHost, id uint64, voters []uint64) error {
	h := s.host
	err := startReplica(engine, h.state(s.shard(), &streamReplica{s.machine, s, h.o.Log}), s.shard(), id, voters, h.pace())
	if err != nil {
		return err
	}
	user, err := engine.GetNodeUser(s.shard())
	if err != nil {
		return err
	}
	s.replica.Store(&raftReplica{host: engine, user: user, noop: engine.GetNoOPSession(s.shard())})
	return nil
}

// Propose hands an entry to the Raft engine. b may be used again when it returns. An error says that it was not taken.
func (s *StreamShard) Propose(b []byte, timeout time.Duration) (Proposal, error) {
	r := s.replica.Load()
	return r.user.Propose(r.noop, b, timeout)
}

// Leads reports whether this node leads the shard, as far as it knows.
func (s *StreamShard) Leads() bool { return s.Leader() == s.host.o.Node }

// Leader is the number of the node that leads, as far as this one knows; 0: none.
func (s *StreamShard) Leader() uint64 {
	leader, _ := s.raftLeader()
	return leader
}

// Members are the members that have a vote, ascending.
func (s *StreamShard) Members() []uint64 {
	for _, x := range s.host.Slots() {
		if x.Stream && x.Slot == int(s.number) {
			return x.Members
		}
	}
	return nil
}

// CutLog lets go of the Raft log before an entry whose effects are durable, less what a member that is a little behind may still
// ask for. It waits for the engine, or for quit.
func (s *StreamShard) CutLog(index uint64, quit <-chan struct{}) error {
	if s.host.Clustered() && s.Keep > 0 {
		s.mu.Lock()
		index = min(index, s.tail.begins())
		s.mu.Unlock()
	}
	if index < 2 {
		return nil
	}
	o := dragonboat.SnapshotOption{OverrideCompactionOverhead: true, CompactionIndex: index - 1}
	state, err := s.replica.Load().host.RequestSnapshot(s.shard(), o, time.Minute)
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
	s   *StreamShard
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
	r.s.mu.Lock()
	for i := range entries {
		r.s.tail.add(entries[i].Index, len(entries[i].Cmd), r.s.Keep)
	}
	r.s.mu.Unlock()
	r.m.Rest()
	return entries, nil
}

func (r *streamReplica) Lookup(any) (any, error) { return nil, nil }
func (r *streamReplica) Sync() error             { return r.m.Sync() }
func (r *streamReplica) Close() error            { return nil } // the host does it: another replica may go on with the machine

// A copy of a shard of streams is an octet that says its format, and frames as those of slots.
const streamFormat = 2

func (r *streamReplica) PrepareSnapshot() (any, error) { return r.m.View(), nil }

func (r *streamReplica) SaveSnapshot(view any, to io.Writer, stop <-chan struct{}) error {
	w := &frameWriter{w: to, stop: stop}
	if err := w.raw([]byte{streamFormat}); err != nil {
		return err
	}
	return r.m.Save(view, w.frame)
}

func (r *streamReplica) RecoverFromSnapshot(from io.Reader, stop <-chan struct{}) error {
	b := bufio.NewReaderSize(from, 64<<10)
	version, err := b.ReadByte()
	if err == nil && version != streamFormat {
		err = fmt.Errorf("%w: a copy of version %d, this node knows %d", errFormat, version, streamFormat)
	}
	if err == nil {
		var x received
		err = r.m.Restore(func() (byte, []byte, error) {
			select {
			case <-stop:
				return 0, nil, sm.ErrSnapshotStopped
			default:
				return x.frame(b)
			}
		})
	}
	if err != nil && !errors.Is(err, sm.ErrSnapshotStopped) {
		return fmt.Errorf("slot %d of streams: copy: %w", r.s.number, err)
	}
	if err == nil {
		r.s.mu.Lock()
		r.s.tail = tail{}
		r.s.mu.Unlock()
		return nil
	}
	return sm.ErrSnapshotStopped
}

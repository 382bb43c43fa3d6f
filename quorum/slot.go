package quorum

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/client"
	"github.com/lni/dragonboat/v4/raftio"

	"github.com/warrenmq/warren/queue"
)

const (
	// checkpointAge is how long something may stay in the log only, while nothing else calls for a checkpoint.
	checkpointAge = 5 * time.Minute
	// checkpointRetry is for how long a checkpoint rests that failed.
	checkpointRetry = time.Second
)

// slot is one Raft shard with its queues, and this node's way into it and out of it.
type slot struct {
	number     uint16
	pool       *queue.Pool
	clock      *queue.Clock
	log        *slog.Logger
	machine    *machine
	proposer   *proposer
	dispatcher *dispatcher

	appointment queue.Appointment // guarded by machine.mu
	keep        chan struct{}     // the keeper has something to look at; one slot
	swept       chan struct{}     // the compactor has; one slot
	quit        chan struct{}
	running     sync.WaitGroup

	replica atomic.Pointer[raftReplica]       // what start was given last
	leader  atomic.Pointer[raftio.LeaderInfo] // as the Raft engine said last; nil: nothing yet
	several atomic.Bool                       // the slot has, or may have, other members
	elected chan struct{}                     // it has said so; one slot
	downs   func() []down                     // the nodes that are down
}

// raftReplica is the way to a replica that was started.
type raftReplica struct {
	host   *dragonboat.NodeHost
	user   dragonboat.INodeUser
	noop   *client.Session
	joined bool // among those that were there; otherwise it is one of the first
}

var errNotStarted = errors.New("quorum: the replica was not started")

// newSlot makes a slot that gathers commands until it is started. block is told when publishers shall rest.
func newSlot(m *machine, clock *queue.Clock, block func(bool)) *slot {
	s := &slot{number: m.slot, pool: m.pool, clock: clock, log: m.log, machine: m, keep: make(chan struct{}, 1), swept: make(chan struct{}, 1), quit: make(chan struct{}), elected: make(chan struct{}, 1)}
	m.ring = newRing()
	m.due = func(at queue.Time) { clock.Set(&s.appointment, s, at) }
	m.full = s.wakeKeeper
	m.quit = s.quit
	s.proposer = newProposer(m.node, m.boot, m.pool, clock.Now, sabotaged(s), block)
	s.dispatcher = newDispatcher(m, s.proposer)
	s.proposer.Add(nil, func(b *batch) { b.Buf = appendCommand(b.Buf, cmdBegin, 0) }) // the first of this start
	return s
}

func (s *slot) wakeKeeper() {
	select {
	case s.keep <- struct{}{}:
	default:
	}
}

// start begins to propose, or goes on. The replica has been started.
func (s *slot) start(host *dragonboat.NodeHost, joined bool) error {
	user, err := host.GetNodeUser(shardOf(s.number))
	if err != nil {
		return err
	}
	if s.replica.Swap(&raftReplica{host, user, host.GetNoOPSession(shardOf(s.number)), joined}) != nil {
		s.proposer.NewLeader()
		return nil
	}
	s.running.Add(5)
	go func() { defer s.running.Done(); s.proposer.Run(s.quit) }()
	go func() { defer s.running.Done(); s.follow(joined) }()
	go func() { defer s.running.Done(); s.dispatcher.run(s.quit) }()
	go func() { defer s.running.Done(); s.keeper() }()
	go func() { defer s.running.Done(); s.compactor() }()
	return nil
}

// propose implements engine.
func (s *slot) propose(b []byte, timeout time.Duration) (Proposal, error) {
	r := s.replica.Load()
	if r == nil {
		return nil, errNotStarted
	}
	return r.user.Propose(r.noop, b, timeout)
}

// leaderUpdated is told by the Raft engine who leads. It does not wait.
func (s *slot) leaderUpdated(info raftio.LeaderInfo) {
	s.leader.Store(&info)
	select {
	case s.elected <- struct{}{}:
	default:
	}
}

// raftLeader is the number of the node that leads the slot's shard, and its term; 0 if none is known to.
func (s *slot) raftLeader() (node, term uint64) {
	if info := s.leader.Load(); info != nil {
		return info.LeaderID, info.Term
	}
	return 0, 0
}

// follow does what a change of leader calls for.
func (s *slot) follow(joined bool) {
	m := s.machine
	if joined || s.several.Load() {
		s.show()
	}
	for {
		select {
		case <-s.quit:
			return
		case <-s.elected:
		}
		leader, term := s.raftLeader()
		if leader == 0 {
			continue
		}
		s.proposer.NewLeader()
		if leader != m.node {
			continue
		}
		s.proposer.Add(nil, func(b *batch) { b.Buf = binary.AppendUvarint(appendCommand(b.Buf, cmdLead, 0), term) })
		for _, x := range s.downs() {
			s.end(x)
		}
	}
}

// show has the others see how far this member is: by a second batch, that the first was applied here, with all that lies before it.
func (s *slot) show() {
	s.proposer.Add(nil, func(b *batch) {
		b.nothing(func() {
			s.proposer.Add(nil, func(b *batch) { b.Buf = appendCommand(b.Buf, cmdBegin, 0) })
		})
	})
}

// end has the consumers of a node ended that is down. It counts only while this node leads.
func (s *slot) end(x down) {
	m := s.machine
	m.mu.Lock()
	known := m.origins.Of(x.node) != nil
	m.mu.Unlock()
	if !known {
		return
	}
	s.proposer.Add(nil, func(b *batch) {
		b.Buf = binary.AppendUvarint(binary.AppendUvarint(appendCommand(b.Buf, cmdDown, 0), x.node), x.boot)
	})
}

// clustered says whether the slot has, or may have, other members.
func (s *slot) clustered(on bool) {
	s.several.Store(on)
	s.proposer.Clustered(on)
}

// Tick implements queue.Ticker: something in some queue is due.
func (s *slot) Tick(now queue.Time) {
	m := s.machine
	var due []*Queue
	next := queue.Time(0)
	m.mu.Lock()
	if !m.leading() {
		m.mu.Unlock()
		return
	}
	for _, q := range m.queues {
		switch {
		case q.due == 0 || q.local == nil || q.ticking:
		case q.due <= now:
			q.ticking = true
			due = append(due, q.local)
		case next == 0 || q.due < next:
			next = q.due
		}
	}
	s.clock.Set(&s.appointment, s, next)
	m.mu.Unlock()
	for _, q := range due {
		q.propose(cmdTick)
	}
}

// keeper makes checkpoints and has the log cut behind them.
func (s *slot) keeper() {
	timer := time.NewTicker(checkpointAge)
	defer timer.Stop()
	shown := uint64(0)
	for {
		select {
		case <-s.quit:
			return
		case <-s.keep:
		case <-timer.C:
		}
		index, err := s.machine.checkpoint()
		for ; err != nil; index, err = s.machine.checkpoint() {
			s.log.Error("messages of quorum queues could not be moved to disk; it will be tried again", "error", err.Error())
			select {
			case <-s.quit:
				return
			case <-time.After(checkpointRetry):
			}
		}
		s.machine.mu.Lock()
		octets := s.machine.tail.octets
		s.machine.mu.Unlock()
		if s.several.Load() && octets-shown >= showOctets { // unsigned: it begins anew with a snapshot
			shown = octets
			s.show()
		}
		if err := s.cutLog(index); err != nil {
			s.log.Warn("the log of a slot was not cut", "slot", s.number, "error", err.Error())
		}
		select {
		case s.swept <- struct{}{}:
		default:
		}
	}
}

// compactor copies runs forward, beside the keeper, which must not wait for it.
func (s *slot) compactor() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { <-s.quit; cancel() }()
	for {
		select {
		case <-s.quit:
			return
		case <-s.swept:
		}
		if err := s.machine.compact(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("a run of a slot was not copied", "slot", s.number, "error", err.Error())
		}
	}
}

// members are the slot's, as of when its log was cut last.
func (s *slot) members() (members []uint64, err error) {
	log, err := s.replica.Load().host.GetLogReader(shardOf(s.number))
	if err != nil {
		return nil, err
	}
	_, of := log.NodeState()
	return slices.Concat(slices.Collect(maps.Keys(of.Addresses)), slices.Collect(maps.Keys(of.NonVotings))), nil
}

// cutLog lets go of the log up to an index that a checkpoint has included, less what a member that is a little behind may
// still ask for.
func (s *slot) cutLog(index uint64) error {
	if s.several.Load() {
		members, err := s.members()
		if err != nil {
			return err
		}
		s.machine.mu.Lock()
		if len(members) == 0 { // it was not
			members = slices.Collect(maps.Keys(s.machine.others))
		}
		index = s.machine.mayCut(index, members, time.Now())
		s.machine.mu.Unlock()
	}
	if index < 2 {
		return nil
	}
	state, err := s.replica.Load().host.RequestSnapshot(shardOf(s.number), dragonboat.SnapshotOption{OverrideCompactionOverhead: true, CompactionIndex: index - 1}, time.Minute)
	if err != nil {
		return err
	}
	defer state.Release()
	select {
	case r := <-state.ResultC():
		if !r.Completed() && !r.Rejected() && !r.Aborted() { // rejected: there is one of this index
			return errors.New("no snapshot was made")
		}
	case <-s.quit:
	}
	return nil
}

// stop ends the goroutines of the slot, when what was commanded has been done or it takes too long.
func (s *slot) stop(patience time.Duration) {
	if s.replica.Load() == nil {
		return
	}
	if !s.proposer.Drain(patience) {
		s.log.Warn("a slot stops with commands that were not applied: they were not confirmed", "slot", s.number)
	}
	close(s.quit)
	s.running.Wait()
}

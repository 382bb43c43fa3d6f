package slots

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/quorum"
	"github.com/warrenmq/warren/stream"
)

const (
	// checkpointAge is how long something may stay in the log only, while nothing else calls for a checkpoint.
	checkpointAge = 5 * time.Minute
	// checkpointRetry is for how long a checkpoint rests that failed.
	checkpointRetry = time.Second
	// retainEvery is how often it is looked whether segments have become too old.
	retainEvery = time.Minute
)

// slot is one Raft shard with its streams, and this node's way into it and out of it.
type slot struct {
	host       *Host
	log        *slog.Logger
	machine    *machine
	proposer   *proposer
	dispatcher *dispatcher
	shard      *quorum.StreamShard
	keep       chan struct{} // the keeper has something to look at; one slot
	grew       chan struct{} // retention has; one slot
	elected    chan struct{} // there is a new leader; one slot
	quit       chan struct{}
	running    sync.WaitGroup
	started    bool
}

// newSlot makes a slot that gathers commands until it is started.
func newSlot(h *Host, m *machine) *slot {
	s := &slot{host: h, log: h.o.Log, machine: m, keep: make(chan struct{}, 1), grew: make(chan struct{}, 1), elected: make(chan struct{}, 1), quit: make(chan struct{})}
	m.ring = newRing()
	m.full = func() { wake(s.keep) }
	m.grew = func() { wake(s.grew) }
	m.lacking, m.mends = h.mender.wake, h.mends
	s.proposer = newProposer(m.node, m.boot, h.o.Pool, h.now, h.press)
	s.dispatcher = &dispatcher{ring: m.ring, proposer: s.proposer}
	s.shard = h.o.Quorum.StreamShard(m.number, m)
	s.proposer.Propose = s.shard.Propose
	s.proposer.Clustered(h.o.Quorum.Clustered())
	if h.o.keepNone {
		s.shard.Keep = 0
	}
	s.shard.Elected = func() {
		s.proposer.NewLeader()
		wake(s.elected)
	}
	s.proposer.urgent(cmdBegin, 0, nil) // the first of this start
	return s
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// start starts the replica, and begins to propose.
func (s *slot) start() error {
	if err := s.shard.Start(); err != nil {
		return err
	}
	s.started = true
	s.running.Go(func() { s.proposer.Run(s.quit) })
	s.running.Go(func() { s.dispatcher.run(s.quit) })
	s.running.Go(s.keeper)
	s.running.Go(s.retention)
	return nil
}

// keeper makes checkpoints and has the log cut behind them.
func (s *slot) keeper() {
	timer := time.NewTicker(checkpointAge)
	defer timer.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-s.keep:
		case <-timer.C:
		}
		index, err := s.machine.checkpoint()
		for ; err != nil; index, err = s.machine.checkpoint() {
			if errors.Is(err, stream.ErrBroken) { // nobody knows what of it is on the disk
				s.host.fatal(err)
				return
			}
			s.log.Error("streams could not be made durable; it will be tried again", "error", err.Error())
			select {
			case <-s.quit:
				return
			case <-time.After(checkpointRetry):
			}
		}
		if err := s.shard.CutLog(s.machine.needs(index), s.quit); err != nil {
			s.log.Warn("the log of a slot of streams was not cut", "slot", s.machine.number, "error", err.Error())
		}
	}
}

// retention proposes to remove what the limits of streams call for, where this node leads.
func (s *slot) retention() {
	timer := time.NewTicker(retainEvery)
	defer timer.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-s.grew:
		case <-s.elected:
			s.configure()
		case <-timer.C:
		}
		s.retain()
	}
}

// configure gives the streams of the slot the limits that this node knows, if it leads others and knows all.
func (s *slot) configure() {
	if !s.host.isComplete() || !s.host.o.Quorum.Clustered() || !s.shard.Leads() {
		return
	}
	m := s.machine
	m.mu.Lock()
	locals := slices.Collect(maps.Values(m.locals))
	m.mu.Unlock()
	for _, q := range locals {
		q.mu.Lock()
		config := q.config
		q.mu.Unlock()
		q.create(cmdCreate, config)
	}
}

func (s *slot) retain() {
	if !s.shard.Leads() {
		return
	}
	type limited struct {
		id     uint64
		first  uint64
		log    *stream.Log
		limits stream.Limits
	}
	var list []limited
	m := s.machine
	m.mu.Lock()
	for _, q := range m.streams {
		if q.limits != (stream.Limits{}) && q.broken == nil && q.log.Count() > 1 {
			list = append(list, limited{q.id, q.first, q.log, q.limits})
		}
	}
	m.mu.Unlock()
	for _, q := range list {
		if first := stream.Retain(q.log.Segments(), q.limits, s.host.now()); first > q.first {
			s.proposer.urgent(cmdCut, q.id, func(dst []byte) []byte { return appendUvarint(dst, first) })
		}
	}
}

// catchUp returns when everything commanded up to now has been applied.
func (s *slot) catchUp(ctx context.Context) error {
	done := make(chan struct{})
	s.proposer.AddBehind(func(b *batch) { // of no stream: it does nothing
		b.command(cmdAsk, 0, nil, func(*result, *queue.Wake) { close(done) })
	})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stop ends the goroutines of the slot, when what was commanded has been done or it takes too long.
func (s *slot) stop(patience time.Duration) {
	if !s.started {
		return
	}
	if !s.proposer.drain(patience) {
		s.log.Warn("a slot of streams stops with messages that were not applied: they were not confirmed", "slot", s.machine.number)
	}
	close(s.quit)
	s.running.Wait()
}

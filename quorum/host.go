package quorum

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/storage"
)

const (
	// slotsAlone is how many slots a node is made with that has no peers.
	slotsAlone = 4
	// stopPatience is how long a stop waits for what was commanded.
	stopPatience = 5 * time.Second
	// startPause is how long the first start of the Raft engine on a node that runs rests when it failed.
	startPause = time.Second
	// restartPatience is how long a replica may take to end before it is started again.
	restartPatience = time.Minute
)

// Options say what a Host works with.
type Options struct {
	FS    storage.FS  // of the runs; the Raft engine uses the operating system's
	Dir   string      // is made when there is the first quorum queue
	DB    *storage.DB // the keys below k/ are the host's
	Pool  *queue.Pool
	Clock *queue.Clock
	Log   *slog.Logger
	// Fatal is told, with an *EngineError, when the Raft engine cannot go on, and ends the process: nothing more may be
	// confirmed. It does not return. nil panics. The first one given in a process counts.
	Fatal func(error)
	// LetterRetry is after how long dead letters that must arrive, and have not, are sent again. 0 is 30 s.
	LetterRetry time.Duration
	Node        uint64 // this member's number, from 1 and below 1<<32; 0 is 1
	// Clustered says that there are, or will be, other members; see Host.Cluster.
	Clustered bool
	// ClusterID is the number under which the Raft engines of all members know each other; 0 is that of the directory, or a
	// new one.
	ClusterID uint64
	// Transport takes messages to other members, whose addresses are warren-NUMBER:25672. nil reaches nobody. A node that may
	// become clustered while it runs is given it from the start.
	Transport config.TransportFactory
	// Led is told when this node has come to lead a shard. It does not wait; nil: nobody is told.
	Led func()
}

// Host has the slots of a node. It costs nothing until there is a quorum queue. Its methods may be called concurrently.
//
//	h, err := Open(...)
//	q := h.NewQueue(...)  // for each queue that metadata knows, and later for new ones
//	h.Recover()           // all of the former were made
//	h.Close()
//
// In a cluster MakeSlots or JoinSlots come before the first NewQueue, and Reconcile follows when metadata has caught up.
type Host struct {
	o       Options
	boot    uint64
	pressed queue.Press // has a reason for each slot with too much on its way

	building sync.Mutex // held while the engine or replicas are started; taken before mu

	mu      sync.Mutex // guards what follows, and of o Node, Clustered and ClusterID
	slots   []*slot
	streams []*StreamShard // that were started
	engine  *dragonboat.NodeHost
	tick    uint64        // of the engine, in milliseconds
	opening chan struct{} // closed when the start is over; nil: there was none
	err     error         // of the start
	closed  bool
	members []uint64 // that the slots were made with; none: this node joined them later
	size    uint64   // how many of them have had a vote in each from the start; 0: all
	// generations are of this node's replicas, by shard; those that are not there have the first, 0.
	generations map[uint64]uint64
	renewed     map[uint64]*renewed // these
	complete    bool                // metadata is: what it says of limits counts
	downs       map[uint64]uint64
	listeners   map[uint64]func(raftio.LeaderInfo) // by shard
}

var (
	keySlots   = []byte("k/slots")
	keyBoot    = []byte("k/boot")
	keyCluster = []byte("k/cluster")
	keyMembers = []byte("k/members")
	keySize    = []byte("k/size")
)

// Open opens what there is of quorum queues. Without any, on a node that is not clustered, it does no more than note that the
// node has started.
func Open(o Options) (*Host, error) {
	if o.Node == 0 {
		o.Node = 1
	}
	if o.Transport == nil {
		o.Transport = alone{}
	}
	h := &Host{o: o, pressed: queue.Press{Pool: o.Pool, Why: queue.BlockedBySlots}, complete: !o.Clustered, downs: map[uint64]uint64{}, generations: map[uint64]uint64{}, renewed: map[uint64]*renewed{}, listeners: map[uint64]func(raftio.LeaderInfo){}}
	slots, err := h.number(keySlots)
	if err != nil {
		return nil, err
	}
	if h.boot, err = h.number(keyBoot); err != nil {
		return nil, err
	}
	h.boot++
	if slots == 0 && !o.Clustered { // nobody has heard of this start
		return h, nil
	}
	if slots > 1<<16-1 {
		return nil, fmt.Errorf("%w: %d slots", errFormat, slots)
	}
	if h.members, err = h.readMembers(); err != nil {
		return nil, err
	}
	if h.size, err = h.number(keySize); err != nil {
		return nil, err
	}
	if err = h.readReplicas(); err != nil {
		return nil, err
	}
	h.opening = make(chan struct{})
	h.make(int(slots))
	if h.start(); h.err != nil {
		return nil, h.err
	}
	return h, nil
}

// readMembers are the members that the slots were made with: this node, where nothing else is written down.
func (h *Host) readMembers() (members []uint64, err error) {
	v, err := h.o.DB.Get(keyMembers)
	if err != nil {
		return nil, err
	}
	if v == nil {
		return []uint64{h.o.Node}, nil
	}
	for r := newReader(v); len(r.B) > 0; {
		members = append(members, uint64(r.U32()))
		if r.Bad {
			return nil, fmt.Errorf("%w: %s", errFormat, keyMembers)
		}
	}
	return members, nil
}

func (h *Host) number(key []byte) (uint64, error) {
	v, err := h.o.DB.Get(key)
	if err != nil || v == nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, fmt.Errorf("%w: %s", errFormat, key)
	}
	return binary.LittleEndian.Uint64(v), nil
}

// make makes the slots. Commands can be given to them at once.
func (h *Host) make(n int) {
	for i := range n {
		m := newMachine(uint16(i))
		m.fs, m.dir = h.o.FS, filepath.Join(h.o.Dir, fmt.Sprintf("slot-%d", i))
		m.db, m.pool, m.log, m.node, m.boot = h.o.DB, h.o.Pool, h.o.Log, h.o.Node, h.boot
		m.retry = cmp.Or(h.o.LetterRetry, retryLetters)
		s := newSlot(m, h.o.Clock, h.pressed.Set)
		s.downs = h.whoIsDown
		s.dispatcher.leads = func() { h.configure(s) }
		s.clustered(h.o.Clustered)
		h.listeners[shardOf(s.number)] = s.leaderUpdated
		h.slots = append(h.slots, s)
	}
}

// start starts the Raft engine and the slots' replicas. It reports whether that failed and may be tried again.
func (h *Host) start() (again bool) {
	defer close(h.opening)
	return h.attempt()
}

// attempt is one try to start.
func (h *Host) attempt() (again bool) {
	h.building.Lock()
	defer h.building.Unlock()
	h.mu.Lock()
	closed := h.closed
	h.mu.Unlock()
	if closed {
		return false
	}
	engine, err := h.open()
	h.mu.Lock()
	h.engine, h.err = engine, err
	h.mu.Unlock()
	if err == nil {
		return false
	}
	h.o.Log.Error("quorum queues cannot be run", "error", err.Error())
	return !slices.ContainsFunc(h.slots, func(s *slot) bool { return s.replica.Load() != nil }) // those were stopped
}

func (h *Host) open() (*dragonboat.NodeHost, error) {
	cluster, err := h.number(keyCluster)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(h.o.Dir, "log")
	switch {
	case cluster == 0:
		cluster = cmp.Or(h.o.ClusterID, rand.Uint64()|1)
	case h.o.ClusterID != 0 && h.o.ClusterID != cluster:
		return nil, fmt.Errorf("the log in %s is of cluster %x, not of %x", dir, cluster, h.o.ClusterID)
	default:
		if err := h.checkLog(dir); err != nil {
			return nil, err
		}
	}
	var batch storage.Batch
	for _, x := range []struct {
		key   []byte
		value uint64
	}{{keySlots, uint64(len(h.slots))}, {keyBoot, h.boot}, {keyCluster, cluster}} {
		batch.Set(x.key, binary.LittleEndian.AppendUint64(nil, x.value))
	}
	if err := h.o.DB.Commit(&batch, true); err != nil {
		return nil, err
	}
	for _, s := range h.slots {
		if s.machine.disk.runs != nil { // by an attempt that failed later
			continue
		}
		if _, err := s.machine.load(); err != nil {
			return nil, err
		}
	}
	if err := h.sweep(dir); err != nil {
		return nil, err
	}
	h.mu.Lock()
	if h.tick = aloneTick; h.o.Clustered {
		h.tick = tick
	}
	ms := h.tick
	h.mu.Unlock()
	engine, err := openEngine(engineOptions{dir, h.o.Node, cluster, ms, sieve{h.o.Transport, h.choked}, listener{h}, h.o.Log, h.o.Fatal})
	if err != nil {
		return nil, fmt.Errorf("the Raft log in %s: %w", dir, err)
	}
	h.mu.Lock()
	h.o.ClusterID = cluster
	h.mu.Unlock()
	if err := h.startReplicas(engine); err != nil {
		for _, s := range h.slots {
			s.stop(0)
		}
		engine.Close()
		return nil, err
	}
	return engine, nil
}

// startReplicas starts the replicas of all slots.
func (h *Host) startReplicas(engine *dragonboat.NodeHost) error {
	for _, s := range h.slots {
		if err := h.startReplica(engine, s); err != nil {
			return fmt.Errorf("slot %d: %w", s.number, err)
		}
	}
	return nil
}

func (h *Host) startReplica(engine *dragonboat.NodeHost, s *slot) error {
	id, voters := h.replica(shardOf(s.number))
	err := startReplica(engine, h.state(shardOf(s.number), s.machine), shardOf(s.number), id, voters, h.pace())
	for begun := time.Now(); errors.Is(err, dragonboat.ErrShardAlreadyExist) && time.Since(begun) < restartPatience; {
		time.Sleep(time.Millisecond) // one that was stopped is still being unloaded
		err = startReplica(engine, h.state(shardOf(s.number), s.machine), shardOf(s.number), id, voters, h.pace())
	}
	if err != nil {
		return err
	}
	return s.start(engine, len(voters) == 0)
}

// checkLog refuses to go on without the log of slots that have applied something: what it had was confirmed, and a
// replica that lost it must not vote.
func (h *Host) checkLog(dir string) error {
	_, err := os.Stat(filepath.Join(dir, "dragonboat.ds"))
	if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, s := range h.slots {
		if v, err := h.o.DB.Get(s.machine.key('a', 0)); err != nil || v != nil {
			return errors.Join(fmt.Errorf("the log in %s is gone, but there are quorum queues", dir), err)
		}
	}
	return nil
}

// alone makes the slots of a node that has no peers, and starts the Raft engine. h.mu is held.
func (h *Host) alone() {
	h.members = []uint64{h.o.Node}
	h.opening = make(chan struct{})
	if h.make(slotsAlone); !h.closed {
		go func() { // what the queues are told meanwhile waits
			for again := h.start(); again; again = h.attempt() {
				time.Sleep(startPause)
			}
		}()
	}
}

// NewQueue makes the queue behind a declared one, or finds it again after a start. id is never given out twice. It touches
// memory only. In a cluster every node calls it for every queue, when there are slots.
func (h *Host) NewQueue(id uint64, config queue.Config, dead queue.DeadLetters) *Queue {
	h.mu.Lock()
	if len(h.slots) == 0 {
		if h.o.Clustered {
			panic("quorum: a queue, and no slots yet")
		}
		h.alone()
	}
	s := h.slots[id%uint64(len(h.slots))]
	complete := h.complete
	h.mu.Unlock()
	q := &Queue{id: id, host: h, slot: s, dead: dead, config: config}
	s.machine.mu.Lock()
	s.machine.locals[id] = q
	s.machine.mu.Unlock()
	if complete {
		q.create(cmdCreate, config)
	} else {
		q.create(cmdDeclare, config)
	}
	return q
}

// Report says what a start found.
type Report struct {
	Queues   int
	Messages uint64
	Unknown  int // queues that metadata does not know; they are deleted
}

// Recover waits until the slots have caught up with what they were told before the node stopped, and deletes queues that
// metadata no longer knows. An error means that they cannot. In a cluster, where others may have to come first, it waits only
// until the replicas have been started, and deletes nothing: see Reconcile.
func (h *Host) Recover(ctx context.Context) (report Report, err error) {
	h.mu.Lock()
	slots := slices.Clone(h.slots)
	opening, clustered := h.opening, h.o.Clustered
	h.mu.Unlock()
	if opening == nil {
		return report, nil
	}
	<-opening
	h.mu.Lock()
	err = h.err
	h.mu.Unlock()
	if err != nil {
		return report, err
	}
	for _, s := range slots {
		if !clustered {
			if err := s.catchUp(ctx); err != nil {
				return report, fmt.Errorf("slot %d: %w", s.number, err)
			}
		}
		unknown := s.unknown()
		m := s.machine
		m.mu.Lock()
		report.Queues += len(m.queues) - len(unknown)
		for id, q := range m.queues {
			if m.locals[id] != nil {
				report.Messages += q.state.Stats().Ready
			}
		}
		m.mu.Unlock()
		if clustered {
			continue
		}
		report.Unknown += len(unknown)
		for _, id := range unknown {
			s.forget(id)
		}
	}
	return report, nil
}

// unknown are the queues that metadata does not know.
func (s *slot) unknown() (ids []uint64) {
	m := s.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.queues {
		if m.locals[id] == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// forget deletes a queue that metadata does not know, before anything else is said of its id.
func (s *slot) forget(id uint64) {
	s.proposer.Add(nil, func(b *batch) { b.Buf = appendCommand(b.Buf, cmdDelete, id) })
}

// Reconcile says that this node's metadata is complete, and has the slots agree with it where this node leads: the limits of
// queues are what it says from now on, and queues that it does not know are deleted; it returns how many. current returns
// when metadata has caught up with everything that was committed anywhere before it was called: what is unknown then really
// is. nil: it always has.
func (h *Host) Reconcile(ctx context.Context, current func(context.Context) error) (deleted int, err error) {
	h.mu.Lock()
	slots := slices.Clone(h.slots)
	h.complete = true
	h.mu.Unlock()
	unknown := make([][]uint64, len(slots))
	for i, s := range slots {
		if err := s.catchUp(ctx); err != nil {
			return 0, fmt.Errorf("slot %d: %w", s.number, err)
		}
		unknown[i] = s.unknown()
	}
	if current != nil {
		if err := current(ctx); err != nil {
			return 0, err
		}
	}
	for i, s := range slots {
		h.configure(s)
		m := s.machine
		m.mu.Lock()
		unknown[i] = slices.DeleteFunc(unknown[i], func(id uint64) bool { return m.locals[id] != nil || !m.leading() })
		m.mu.Unlock()
		for _, id := range unknown[i] {
			s.forget(id)
		}
		deleted += len(unknown[i])
	}
	return deleted, nil
}

// configure gives the queues of a slot the limits that this node knows, if it leads and knows all.
func (h *Host) configure(s *slot) {
	h.mu.Lock()
	ready := h.complete && h.o.Clustered
	h.mu.Unlock()
	m := s.machine
	m.mu.Lock()
	if ready = ready && m.leading(); !ready {
		m.mu.Unlock()
		return
	}
	locals := slices.Collect(maps.Values(m.locals))
	m.mu.Unlock()
	for _, q := range locals {
		q.mu.Lock()
		config := q.config
		q.mu.Unlock()
		q.create(cmdCreate, config)
	}
}

// catchUp returns when everything commanded up to now has been applied.
func (s *slot) catchUp(ctx context.Context) error {
	done := make(chan struct{})
	s.proposer.AddBehind(func(b *batch) { b.nothing(func() { close(done) }) })
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends the host, when what was commanded has been done: what is in memory is on disk then. Nobody may use the queues
// any more.
func (h *Host) Close() error {
	if engine, err := h.raft(); err == nil && engine != nil {
		h.handOver()
	}
	return h.close(stopPatience, true)
}

// close ends the host, after at most the time given, and with a checkpoint or without.
func (h *Host) close(patience time.Duration, save bool) error {
	h.mu.Lock()
	opening := h.opening
	h.closed = true
	h.mu.Unlock()
	if opening == nil {
		return nil
	}
	<-opening
	h.building.Lock()
	defer h.building.Unlock()
	if h.engine == nil {
		return nil
	}
	var stopping sync.WaitGroup
	for _, s := range h.slots {
		stopping.Go(func() { s.stop(patience) })
	}
	stopping.Wait()
	var errs []error
	for _, s := range h.slots {
		if save {
			_, err := s.machine.checkpoint()
			errs = append(errs, err)
		}
	}
	h.engine.Close()
	for _, s := range h.slots {
		s.machine.shut()
	}
	for _, s := range h.streams {
		errs = append(errs, s.machine.Close())
	}
	return errors.Join(errs...)
}

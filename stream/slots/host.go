package slots

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/quorum"
	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/stream"
)

const (
	// slotsAlone is how many slots of streams a node is made with.
	slotsAlone = 3
	// stopPatience is how long a stop waits for what was commanded.
	stopPatience = 5 * time.Second
)

// Options say what a Host works with.
type Options struct {
	FS     storage.FS
	Dir    string // of the segments; is made when there is the first stream
	DB     *storage.DB
	Pool   *queue.Pool
	Log    *slog.Logger
	Quorum *quorum.Host // runs the Raft shards; is closed after the Host
	Memory int64        // for readers of all streams, octets; 0: stream.DefaultMemory
	// Network reaches other members for what a replica lacks; nil: there are none.
	Network Network
	// Fatal is told when what was appended could not be made durable, and ends the process. nil panics.
	Fatal func(error)
	// Now is the time in milliseconds since 1970; nil: the system's.
	Now func() int64

	keepNone bool // of the Raft log for members that are a little behind
}

// Counters are totals since the start.
type Counters struct {
	Jumped     atomic.Uint64 // records that retention removed before a consumer came to them
	Skipped    atomic.Uint64 // records in damage that consumers passed over, as an operator has told them to
	Damaged    atomic.Uint64 // times that a reader met damage
	Unreadable atomic.Uint64 // entries that AMQP 0-9-1 cannot carry
	Mended     atomic.Uint64 // times that a replica was given by another member what it lacked
	Copied     atomic.Uint64 // octets that other members gave
	Fenced     atomic.Uint64 // consumers that were cancelled because a newer one of their name came, or an operator moved its offset
}

// Host has the streams of a node. It costs nothing until there is one. Its methods may be called concurrently.
//
//	h, err := Open(...)
//	q := h.NewQueue(...)  // for each stream that metadata knows, and later for new ones
//	h.Recover()           // all of the former were made
//	h.Close()
type Host struct {
	Counters Counters

	o       Options
	memory  *stream.Memory
	files   *stream.Files
	workers *workers
	mender  *mender
	serving sync.WaitGroup // connections of members that copy

	consumers atomic.Int64 // how many there are

	mu      sync.Mutex // guards what follows
	slots   []*slot
	opening chan struct{} // closed when the start is over; nil: there was none
	err     error         // of the start
	closed  bool
	giving  map[net.Conn]struct{} // connections of members that copy
	// complete says that metadata is: what it says of limits counts, and what it does not know is gone.
	complete bool
}

var keyStreams = []byte("k/streams")

// Open opens what there is of streams. Without any it does nothing.
func Open(o Options) (*Host, error) {
	h := &Host{o: o, memory: stream.NewMemory(o.Memory), files: stream.NewFiles(o.FS, 0), workers: newWorkers(o.Pool), giving: map[net.Conn]struct{}{}, complete: !o.Quorum.Clustered()}
	h.mender = newMender(h)
	v, err := o.DB.Get(keyStreams)
	if err != nil || v == nil {
		return h, err
	}
	if len(v) != 8 {
		return nil, fmt.Errorf("%w: %s", errFormat, keyStreams)
	}
	h.make(int(binary.LittleEndian.Uint64(v)))
	if h.start(); h.err != nil {
		return nil, h.err
	}
	return h, nil
}

func (h *Host) now() int64 {
	if h.o.Now != nil {
		return h.o.Now()
	}
	return storage.Wall().UnixMilli()
}

func (h *Host) press(on bool) { h.o.Quorum.PressStreams(on) }

func (h *Host) fatal(err error) {
	if h.o.Fatal == nil {
		panic(err)
	}
	h.o.Fatal(err)
}

// make makes the slots. Commands can be given to them at once.
func (h *Host) make(n int) {
	h.opening = make(chan struct{})
	node, boot := h.o.Quorum.Identity()
	for i := range n {
		m := newMachine(uint16(i))
		m.fs, m.dir = h.o.FS, filepath.Join(h.o.Dir, fmt.Sprintf("slot-%d", i))
		m.db, m.log, m.node, m.boot, m.memory, m.files = h.o.DB, h.o.Log, node, boot, h.memory, h.files
		h.slots = append(h.slots, newSlot(h, m))
	}
}

// start starts the slots.
func (h *Host) start() {
	defer close(h.opening)
	err := h.open()
	h.mu.Lock()
	h.err = err
	h.mu.Unlock()
	if err != nil {
		h.o.Log.Error("streams cannot be run", "error", err.Error())
		return
	}
	h.mender.start()
}

// mends reports whether there are other members that may have what a replica lacks.
func (h *Host) mends() bool { return h.o.Network != nil && len(h.o.Network.Others()) > 0 }

func (h *Host) open() error {
	for _, s := range h.slots {
		if err := s.machine.load(); err != nil {
			return err
		}
	}
	var batch storage.Batch
	batch.Set(keyStreams, binary.LittleEndian.AppendUint64(nil, uint64(len(h.slots))))
	if err := h.o.DB.Commit(&batch, true); err != nil {
		return err
	}
	for _, s := range h.slots {
		if err := s.start(); err != nil {
			for _, s := range h.slots {
				s.stop(0)
			}
			return fmt.Errorf("slot %d of streams: %w", s.machine.number, err)
		}
	}
	return nil
}

// SlotCount is how many slots there are, 0 before they are made.
func (h *Host) SlotCount() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.slots)
}

// MakeSlots makes the slots of a cluster, if they are not there. Every member does it, when it has those of quorum queues: they have
// the same members. It returns when they take commands, though they may not lead yet.
func (h *Host) MakeSlots() error {
	h.mu.Lock()
	made := len(h.slots) > 0
	if !made {
		h.make(slotsAlone)
	}
	opening := h.opening
	h.mu.Unlock()
	if !made {
		h.start()
	}
	<-opening
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

func (h *Host) isComplete() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.complete
}

// Config is what a stream is made from.
type Config struct {
	Name         string // of the queue
	Limits       queue.Config
	SegmentBytes int64 // 0: stream.DefaultSegmentBytes
	FilterSize   uint8 // 0: 16
}

// NewQueue makes the stream behind a declared queue, or finds it again after a start. id is never given out twice. It touches
// memory only. In a cluster every node calls it for every stream, when there are slots.
func (h *Host) NewQueue(id uint64, c Config) *Queue {
	h.mu.Lock()
	if len(h.slots) == 0 {
		if h.o.Quorum.Clustered() {
			panic("stream: a stream, and no slots yet")
		}
		if h.make(slotsAlone); !h.closed {
			go h.start()
		}
	}
	s := h.slots[id%uint64(len(h.slots))]
	how := cmdDeclare
	if h.complete {
		how = cmdCreate
	}
	h.mu.Unlock()
	q := &Queue{id: id, slot: s, host: h, name: c.Name, key: []byte(c.Name), filter: max(c.FilterSize, 16), segment: c.SegmentBytes,
		consumers: map[queue.ConsumerID]*consumer{}, config: c.Limits}
	s.machine.mu.Lock()
	s.machine.locals[id] = q
	s.machine.mu.Unlock()
	q.create(how, c.Limits)
	return q
}

// Report says what a start found.
type Report struct {
	Streams int
	Records uint64
	Unknown int // streams that metadata does not know; they are deleted
}

// Recover waits until the slots have caught up with what they were told before the node stopped, and deletes streams that
// metadata no longer knows. An error means that they cannot. In a cluster, where others may have to come first, it waits only until
// the replicas have been started, and deletes nothing: see Reconcile.
func (h *Host) Recover(ctx context.Context) (report Report, err error) {
	h.mu.Lock()
	list := slices.Clone(h.slots)
	opening := h.opening
	h.mu.Unlock()
	if opening == nil {
		return report, nil
	}
	<-opening
	if h.err != nil {
		return report, h.err
	}
	clustered := h.o.Quorum.Clustered()
	for _, s := range list {
		if !clustered {
			if err := s.catchUp(ctx); err != nil {
				return report, fmt.Errorf("slot %d of streams: %w", s.machine.number, err)
			}
		}
		unknown := s.unknown()
		m := s.machine
		m.mu.Lock()
		for id, q := range m.streams {
			if m.locals[id] != nil {
				report.Streams++
				report.Records += q.next - q.first
			}
		}
		m.mu.Unlock()
		if clustered {
			continue
		}
		report.Unknown += len(unknown)
		for _, id := range unknown {
			s.proposer.urgent(cmdDelete, id, nil)
		}
		if err := m.clean(); err != nil {
			h.o.Log.Warn("files of deleted streams stay until the next start", "error", err.Error())
		}
	}
	return report, nil
}

// unknown are the streams that metadata does not know.
func (s *slot) unknown() (ids []uint64) {
	m := s.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.streams {
		if m.locals[id] == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// Reconcile says that this node's metadata is complete, and has the slots agree with it where this node leads: the limits of streams
// are what it says from now on, and streams that it does not know are deleted; it returns how many. current returns when metadata
// has caught up with everything that was committed anywhere before it was called: what is unknown then really is.
func (h *Host) Reconcile(ctx context.Context, current func(context.Context) error) (deleted int, err error) {
	h.mu.Lock()
	list := slices.Clone(h.slots)
	h.complete = true
	h.mu.Unlock()
	unknown := make([][]uint64, len(list))
	for i, s := range list {
		if err := s.catchUp(ctx); err != nil {
			return 0, fmt.Errorf("slot %d of streams: %w", s.machine.number, err)
		}
		unknown[i] = s.unknown()
	}
	if err := current(ctx); err != nil {
		return 0, err
	}
	for i, s := range list {
		s.configure()
		if err := s.machine.clean(); err != nil {
			h.o.Log.Warn("files of deleted streams stay until the next start", "error", err.Error())
		}
		if !s.shard.Leads() {
			continue
		}
		for _, id := range unknown[i] {
			s.machine.mu.Lock()
			known := s.machine.locals[id] != nil
			s.machine.mu.Unlock()
			if !known {
				s.proposer.urgent(cmdDelete, id, nil)
				deleted++
			}
		}
	}
	return deleted, nil
}

// Close ends the host, when what was commanded has been done: everything is durable then. Nobody may use the streams any
// more. The Raft engine still runs, and has to be closed next.
func (h *Host) Close() error {
	h.mu.Lock()
	opening := h.opening
	h.closed = true
	h.mu.Unlock()
	if opening == nil {
		return nil
	}
	<-opening
	h.mender.close()
	h.mu.Lock()
	for c := range h.giving {
		c.Close()
	}
	h.mu.Unlock()
	h.serving.Wait()
	var stopping sync.WaitGroup
	for _, s := range h.slots {
		stopping.Go(func() { s.stop(stopPatience) })
	}
	stopping.Wait()
	h.workers.close()
	var errs []error
	for _, s := range h.slots {
		if s.started {
			_, err := s.machine.checkpoint()
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func appendUvarint(dst []byte, v uint64) []byte { return binary.AppendUvarint(dst, v) }

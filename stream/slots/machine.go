package slots

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/quorum/propose"
	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/stream"
)

// machine is the replicated state of a slot: its streams, and the origins whose batches it has applied. It implements
// quorum.StreamMachine. The state depends on the entries alone; what is marked as local does not belong to it.
type machine struct {
	number    uint16
	fs        storage.FS
	dir       string
	db        *storage.DB
	log       *slog.Logger
	node      uint64         // this node, and
	boot      uint64         // this start of it
	memory    *stream.Memory // local, as all of what follows
	files     *stream.Files
	ring      *ring         // what is to be done
	full      func()        // called without locks when it is time for a checkpoint
	grew      func()        // the same when a segment was begun
	lacking   func()        // called, with locks, when a replica lacks something; it does not wait
	mends     func() bool   // other members may have what a replica lacks
	pause     time.Duration // between tries to append
	anyBroken atomic.Bool   // some replica is

	mu      sync.Mutex // guards what follows
	streams map[uint64]*replica
	origins origins
	now     int64             // of the last batch; never goes back
	applied uint64            // index of the last entry
	lastDir uint64            // directory given out last
	gone    []*replica        // streams deleted since the last checkpoint
	locals  map[uint64]*Queue // local: those that metadata knows
	skips   map[uint64]uint64 // local: up to which offset readers pass over damage
	copies  uint64            // local: which directory is the slot's
	live    bool              // local: entries are no longer those of earlier starts, which were carried out then
	since   int64             // local: octets applied since the last checkpoint
	begun   bool              // local: a segment was begun
	closed  bool

	saving saving
}

// replica is one stream. Its directory has a name of its own, counted by the slot: the id of a stream may come again, when a
// crash took from metadata that it was given out.
type replica struct {
	id      uint64
	dir     uint64
	path    string // local: of the directory
	segment int64
	limits  stream.Limits
	offsets stream.Offsets
	first   uint64 // the oldest offset, and
	next    uint64 // the one that comes next, as the commands say: the log may be ahead, after a crash
	changed bool   // since the last checkpoint

	log   *stream.Log
	local *Queue // nil: metadata does not know it
	// Local: this replica lacks something at its end, since an entry; and what of it is held until it does not.
	broken   error
	since    uint64
	held     *held
	unmended string // why the last try to mend it failed,
	verdict  verdict
}

func newMachine(number uint16) *machine {
	return &machine{number: number, pause: appendPause, streams: map[uint64]*replica{}, locals: map[uint64]*Queue{}, skips: map[uint64]uint64{}, lacking: func() {}, mends: func() bool { return false }}
}

// Apply implements quorum.StreamMachine: it applies a batch, if it is the next one of its origin, and returns the number up to
// which that origin's batches are applied.
func (m *machine) Apply(index uint64, entry []byte) (last uint64, err error) {
	m.mu.Lock()
	last, err = m.apply(index, entry)
	full := m.since >= checkpointOctets
	m.mu.Unlock()
	if err != nil {
		return 0, fmt.Errorf("slot %d of streams, entry %d: %w", m.number, index, err)
	}
	if full {
		m.full()
	}
	return last, nil
}

// Rest implements quorum.StreamMachine.
func (m *machine) Rest() {
	m.mu.Lock()
	begun := m.begun
	m.begun = false
	m.mu.Unlock()
	m.ring.wake()
	if begun {
		m.grew()
	}
}

func (m *machine) apply(index uint64, entry []byte) (last uint64, err error) {
	h, commands, err := propose.ReadHeader(entry)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errFormat, err)
	}
	m.applied = index
	m.since += int64(len(entry))
	mine := h.Node == m.node && h.Boot == m.boot
	o, next := m.origins.Next(h)
	switch {
	case next:
	case o == nil:
		return 0, nil
	default:
		if h.Number <= o.Last && mine && m.live {
			m.answerAgain(o, h.Number)
		}
		return o.Last, nil
	}
	m.now = max(m.now, h.At)
	m.live = m.live || mine
	var r *round
	if m.live {
		r = m.ring.get()
		r.mine, r.number = mine, h.Number
	}
	results, err := m.run(r, commands)
	if len(results) > 0 {
		o.Keep(h.Number, results)
	}
	if r != nil {
		r.results = append(r.results[:0], results...)
		m.ring.put(r)
	}
	return o.Last, err
}

// answerAgain gives the answer to a batch that was applied before.
func (m *machine) answerAgain(o *propose.Origin[[]result], number uint64) {
	r := m.ring.get()
	r.mine, r.number = true, number
	results, _ := o.Answer(number)
	r.results = append(r.results[:0], results...)
	m.ring.put(r)
}

// run runs the commands of a batch. r is nil where nothing is carried out.
func (m *machine) run(r *round, commands []byte) (results []result, err error) {
	in := newReader(commands)
	result := func(x result) {
		x.ordinal = uint32(len(results))
		results = append(results, x)
	}
	for len(in.B) > 0 {
		k, id := in.command()
		q := m.streams[id]
		switch k {
		case cmdBegin:
		case cmdCreate, cmdDeclare:
			segment, limits := in.Uvarint(), in.limits()
			if in.Bad {
				break
			}
			if known := q != nil; known && k == cmdDeclare {
				q.local = m.locals[id]
				q.show()
				break
			} else if !known {
				if q, err = m.create(id, int64(min(segment, stream.MaxSegmentBytes)), limits); err != nil {
					return results, err
				}
			}
			q.limits, q.local, q.changed = limits, m.locals[id], true
			q.show()
			m.begun = true // there may be more now than the limits allow
		case cmdChunk:
			chunk := in.Take(in.Uvarint())
			if in.Bad || q == nil { // it is gone, and that counts as taken care of
				break
			}
			if err := m.append(r, q, chunk); err != nil {
				return results, err
			}
		case cmdCut:
			if first := in.Uvarint(); q != nil && first > q.first && first <= q.next {
				q.first, q.changed = first, true
				q.log.Cut(first)
				q.show()
			}
		case cmdAsk:
			result(resultFor(q))
		case cmdAttach:
			name, how, offset, reset := in.name(), in.Octet(), in.Uvarint(), in.Octet()
			if how > startNext || reset > byte(stream.ResetNext) {
				in.Fail()
			}
			if !in.Bad {
				result(m.attach(r, q, name, how, offset, stream.Reset(reset)))
			}
		case cmdCommit:
			name, generation, next := in.name(), in.Uvarint(), in.Uvarint()
			if !in.Bad && q != nil && q.offsets.Commit(name, generation, min(next, q.next), m.now) == nil {
				q.changed = true // a fenced consumer is told elsewhere
			}
		case cmdSet:
			name, how, offset := in.name(), in.Octet(), in.Uvarint()
			if how > startNext || how == startStored {
				in.Fail()
			}
			if !in.Bad {
				result(m.set(r, q, name, how, offset))
			}
		case cmdForget:
			name := in.name()
			if in.Bad {
				break
			}
			x := resultFor(q)
			if q != nil {
				if !q.offsets.Delete(name) {
					x.code = codeUnknown
				}
				q.changed = true
				r.fence(q.local, name, 0)
			}
			result(x)
		case cmdRewind:
			next := in.Uvarint()
			if in.Bad {
				break
			}
			x, err := m.rewind(q, next)
			if err != nil {
				return results, err
			}
			result(x)
		case cmdDelete:
			if q != nil {
				m.delete(r, q)
			}
		default:
			return results, fmt.Errorf("%w: a command of kind %d", errFormat, k)
		}
		if in.Bad {
			return results, fmt.Errorf("%w: a command of kind %d makes no sense", errFormat, k)
		}
	}
	return results, nil
}

func resultFor(q *replica) result {
	if q == nil {
		return result{code: codeDeleted}
	}
	return result{}
}

// create makes a stream. Its directory may have what was appended before a crash.
func (m *machine) create(id uint64, segment int64, limits stream.Limits) (*replica, error) {
	m.lastDir++
	q := &replica{id: id, dir: m.lastDir, path: m.pathOf(m.lastDir), segment: segment, limits: limits}
	if err := m.open(q); err != nil {
		return nil, err
	}
	m.streams[id] = q
	return q, nil
}

// home is the directory of the slot after so many copies.
func (m *machine) home(copies uint64) string {
	if copies == 0 {
		return m.dir
	}
	return m.dir + "." + strconv.FormatUint(copies, 10)
}

// pathOf is the directory of a new stream.
func (m *machine) pathOf(dir uint64) string {
	return filepath.Join(m.home(m.copies), strconv.FormatUint(dir, 10))
}

// Index implements quorum.StreamMachine.
func (m *machine) Index() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.applied
}

// Whole implements quorum.StreamMachine. What nobody has is not waited for.
func (m *machine) Whole() bool {
	if !m.anyBroken.Load() || !m.mends() {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, q := range m.streams {
		if q.broken != nil && q.verdict != nowhere {
			return false
		}
	}
	return true
}

// open opens the log of a stream, and compares it with what the stream's record says.
func (m *machine) open(q *replica) error {
	log, report, err := stream.Open(m.fs, q.path, m.logOptions(q))
	if err != nil {
		return err
	}
	q.log = log
	next := log.Next()
	switch {
	case next < q.next:
		m.breaks(q, &lacksError{next, q.next})
	case report.Lost: // the Raft log has what is missing
		if err := log.Rewind(next); err != nil {
			return err
		}
	}
	if report.Torn > 0 {
		m.log.Info("a stream ends in something that was not written to its end, and is dropped: the Raft log has it", "directory", q.path, "octets", report.Torn)
	}
	for _, d := range report.Damage {
		m.log.Error("a stream is damaged", "file", d.File, "reason", d.Reason, "from", d.From, "to", d.To)
	}
	switch {
	case len(report.Damage) > 0:
		m.lacking()
	case q.broken != nil && m.mends():
		m.log.Warn("a stream lacks something on this node, and is copied from other members", "directory", q.path, "why", q.broken.Error())
	case q.broken != nil:
		m.log.Error("a stream lacks its end, and takes nothing until 'warren stream recover' has it go on without", "directory", q.path, "error", q.broken.Error())
	}
	return nil
}

func (m *machine) logOptions(q *replica) stream.Options {
	return stream.Options{SegmentBytes: q.segment, Memory: m.memory, Files: m.files}
}

// appendTries and appendPause say how an append that failed is tried again. The slot stands still meanwhile.
const (
	appendTries = 50
	appendPause = 100 * time.Millisecond
)

// append appends a chunk, unless an earlier start has done it.
func (m *machine) append(r *round, q *replica, chunk []byte) error {
	h, err := stream.ParseHeader(chunk)
	if err != nil || h.Size() != int64(len(chunk)) {
		return fmt.Errorf("%w: a chunk", errFormat)
	}
	have := q.log.Next()
	at := q.next
	q.next += uint64(h.Records)
	q.changed = true
	defer q.show()
	switch {
	case q.broken != nil:
		q.keep(chunk)
		return nil
	case have > at && have < q.next || have < at:
		m.breaks(q, fmt.Errorf("its files end at offset %d, which is not where the chunk from %d to %d begins or ends", have, at, q.next))
		m.log.Error("a stream is not what the Raft log says, and takes nothing any more", "directory", q.path, "error", q.broken.Error())
		return nil
	case have > at:
		return nil
	}
	segments := q.log.Count()
	for try := 1; ; try++ {
		if _, err = q.log.Append(chunk); err == nil {
			break
		}
		if errors.Is(err, stream.ErrBroken) || try == appendTries {
			return err
		}
		time.Sleep(m.pause)
	}
	m.begun = m.begun || q.log.Count() > segments
	if r != nil && q.local != nil {
		r.grown = append(r.grown, q.local)
	}
	return nil
}

// attach begins a generation of a named consumer, and says where it starts.
func (m *machine) attach(r *round, q *replica, name string, how byte, offset uint64, reset stream.Reset) result {
	if q == nil {
		return result{code: codeDeleted}
	}
	if how != startStored {
		return m.set(r, q, name, how, offset)
	}
	c, _ := q.offsets.Get(name)
	offset, lost, err := c.Start(q.first, q.next, reset)
	if err != nil {
		return result{code: codeRemoved, offset: c.Next, lost: q.first}
	}
	if c, err = q.offsets.Attach(name); err != nil {
		return result{code: codeNames}
	}
	if !c.Known || lost > 0 {
		_ = q.offsets.Commit(name, c.Generation, offset, m.now) // it is the newest
	}
	q.changed = true
	r.fence(q.local, name, c.Generation)
	return result{offset: offset, generation: c.Generation, lost: lost}
}

// set moves the committed offset of a name.
func (m *machine) set(r *round, q *replica, name string, how byte, offset uint64) result {
	switch {
	case q == nil:
		return result{code: codeDeleted}
	case how == startFirst:
		offset = q.first
	case how == startNext:
		offset = q.next
	default:
		offset = max(offset, q.first)
	}
	c, err := q.offsets.Set(name, offset, m.now)
	if err != nil {
		return result{code: codeNames}
	}
	q.changed = true
	r.fence(q.local, name, c.Generation)
	return result{offset: offset, generation: c.Generation}
}

// rewind has a stream go on at an offset, without what was behind it. Offsets are given again then: it is for a stream that
// has lost its end.
func (m *machine) rewind(q *replica, next uint64) (result, error) {
	if q == nil {
		return result{code: codeDeleted}, nil
	}
	if next < q.first || next >= q.next {
		return result{code: codeOutside}, nil
	}
	q.next, q.changed = next, true
	q.show()
	for _, name := range q.offsets.Names() {
		if c, _ := q.offsets.Get(name); c.Next > next {
			_, _ = q.offsets.Set(name, next, m.now) // the name is there
		}
	}
	if q.log.Next() < next {
		return result{}, nil // this replica has lost even more
	}
	if err := q.log.Rewind(next); err != nil {
		return result{}, err
	}
	q.broken = nil
	return result{}, nil
}

// delete ends a stream. Its files go with the next checkpoint.
func (m *machine) delete(r *round, q *replica) {
	q.log.Close()
	delete(m.streams, q.id)
	// What an earlier start deleted may still be declared, since the node did not live to say so: then it is made again.
	if r != nil && q.local != nil && m.locals[q.id] == q.local {
		delete(m.locals, q.id)
	}
	m.gone = append(m.gone, q)
	if r != nil && q.local != nil {
		q.local.vanish()
		r.ended = append(r.ended, q.local)
	}
}

// vanish shows that there is nothing.
func (q *Queue) vanish() {
	q.first.Store(0)
	q.next.Store(0)
	q.log.Store(nil)
}

// show lets the Queue see which offsets there are.
func (q *replica) show() {
	if l := q.local; l != nil {
		l.next.Store(q.next)
		l.first.Store(q.first)
		l.log.Store(q.log)
	}
}

// Close implements quorum.StreamMachine.
func (m *machine) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	for _, q := range m.streams {
		q.log.Close()
	}
	return nil
}

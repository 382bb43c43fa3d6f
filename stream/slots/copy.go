package slots

import (
	"encoding/binary"
	"fmt"

	"github.com/warrenmq/warren/quorum"
	"github.com/warrenmq/warren/quorum/propose"
	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/stream"
)

// A member that is new, or lags behind the log, gets a slot as it is at one index, as frames:
//
//	slot     index u64 | what a checkpoint has of the slot as a whole
//	stream   id uvarint | what a checkpoint has of it
//	end      how many streams uvarint
//
// The segments are not among them. The receiver keeps those that it has, and asks other members for what its logs lack, while
// it goes on (mend.go).
const (
	frameSlot = iota + 1
	frameStream
	frameEnd
)

// view is a slot as it was at one index.
type view struct {
	index   uint64
	common  []byte
	streams map[uint64][]byte // records
}

// View implements quorum.StreamMachine.
func (m *machine) View() any {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := &view{index: m.applied, common: m.common(nil), streams: map[uint64][]byte{}}
	for id, q := range m.streams {
		v.streams[id] = q.record(nil)
	}
	return v
}

// Save implements quorum.StreamMachine.
func (m *machine) Save(x any, frame quorum.FrameWriter) error {
	v := x.(*view)
	if err := frame(frameSlot, append(binary.LittleEndian.AppendUint64(nil, v.index), v.common...)); err != nil {
		return err
	}
	for id, record := range v.streams {
		if err := frame(frameStream, append(binary.AppendUvarint(nil, id), record...)); err != nil {
			return err
		}
	}
	return frame(frameEnd, binary.AppendUvarint(nil, uint64(len(v.streams))))
}

// restored is a state that is being read.
type restored struct {
	state   machine // of which the index, the clock, the counter of directories and the origins count
	common  []byte
	streams map[uint64]*replica
	records map[uint64][]byte
}

// Restore implements quorum.StreamMachine.
func (m *machine) Restore(frame quorum.FrameReader) error {
	s := &m.saving
	s.mu.Lock()
	defer s.mu.Unlock()
	x := &restored{streams: map[uint64]*replica{}, records: map[uint64][]byte{}}
	if err := x.read(frame); err != nil {
		return err
	}
	var batch storage.Batch
	batch.DeletePrefix(m.key('s', 0)[:keyPrefixLen])
	for id, record := range x.records {
		batch.Set(m.key('s', id), record)
	}
	batch.Set(m.key('o', 0), x.common)
	batch.Set(m.key('a', 0), appliedRecord(x.state.applied))
	if err := m.db.Commit(&batch, true); err != nil { // a start goes on from here: it finds that the logs lack something
		return err
	}
	return m.replace(x)
}

// read reads everything.
func (x *restored) read(frame quorum.FrameReader) error {
	for {
		kind, payload, err := frame()
		if err != nil {
			return err
		}
		if (x.common == nil) != (kind == frameSlot) {
			return fmt.Errorf("%w: a frame of kind %d where it makes no sense", errFormat, kind)
		}
		r := newReader(payload)
		switch kind {
		case frameSlot:
			if x.state.applied = r.U64(); r.Bad {
				break
			}
			x.common = append([]byte{}, r.B...)
			err = x.state.readCommon(x.common)
		case frameStream:
			id := r.Uvarint()
			if r.Bad {
				break
			}
			record := append([]byte{}, r.B...)
			x.records[id] = record
			x.streams[id], err = decode(id, record)
		case frameEnd:
			if n := r.Uvarint(); r.Bad || n != uint64(len(x.streams)) {
				return fmt.Errorf("%w: a copy of %d streams has %d", errFormat, n, len(x.streams))
			}
			return nil
		default:
			r.Fail()
		}
		if err == nil && r.Bad {
			err = fmt.Errorf("%w: a frame of kind %d makes no sense", errFormat, kind)
		}
		if err != nil {
			return err
		}
	}
}

// replace has the machine go on with a state that is in the database. Logs of streams that it has stay, and lack what they have
// missed. Called with saving.mu held.
func (m *machine) replace(x *restored) error {
	m.mu.Lock()
	defer m.ring.wake()
	defer m.mu.Unlock()
	had := m.streams
	m.now, m.lastDir, m.origins, m.applied, m.since = x.state.now, x.state.lastDir, x.state.origins, x.state.applied, 0
	m.saving.index = m.applied
	m.streams = map[uint64]*replica{}
	for id, q := range x.streams {
		if old := had[id]; old != nil && old.dir == q.dir {
			delete(had, id)
			old.limits, old.offsets, old.first, old.next = q.limits, q.offsets, q.first, q.next
			q = old
			q.log.Cut(q.first)
			if next := q.log.Next(); next < q.next && q.broken == nil {
				m.breaks(q, &lacksError{next, q.next})
			}
			q.stopHolding()
		} else {
			q.path = m.pathOf(q.dir)
			if err := m.open(q); err != nil {
				return err
			}
		}
		m.streams[id] = q
		q.changed, q.local = true, m.locals[id]
		q.show()
	}
	for _, q := range had { // before their readers are told
		q.log.Close()
		m.gone = append(m.gone, q)
	}
	o := m.origins.Of(m.node)
	mine := o != nil && o.Boot == m.boot
	m.live = m.live || mine
	if !m.live {
		return nil
	}
	if mine { // what is not in flight any more is nobody's
		for n := o.Last - min(o.Last, propose.MaxFlight) + 1; n <= o.Last; n++ {
			m.answerAgain(o, n)
		}
	}
	r := m.ring.get()
	for id, local := range m.locals {
		if m.streams[id] == nil && had[id] != nil {
			delete(m.locals, id)
			local.vanish()
			r.ended = append(r.ended, local)
			continue
		}
		r.replaced = append(r.replaced, local)
	}
	m.ring.put(r)
	return nil
}

// lacksError says that a log has less than was applied.
type lacksError struct{ from, to uint64 }

func (e *lacksError) Error() string {
	return fmt.Sprintf("offsets from %d to %d are missing", e.from, e.to)
}

// breaks notes that a replica lacks something at its end, and takes nothing more until it has that. Called with m.mu held.
func (m *machine) breaks(q *replica, err error) {
	q.broken, q.since = err, m.applied
	m.anyBroken.Store(true)
	m.lacking()
}

// held are chunks that were applied while the log lacked what is before them.
type held struct {
	from   uint64 // the offset of the first one
	chunks [][]byte
	octets int
}

// maxHeld is how many octets of chunks are held for one stream; with more, what is missing is fetched once more.
const maxHeldOctets = 16 << 20

// hold has a replica that is broken hold what is applied from now on. Called with m.mu held.
func (q *replica) hold() {
	if q.held == nil {
		q.held = &held{from: q.next}
	}
}

func (q *replica) stopHolding() { q.held = nil }

// keep holds a chunk.
func (q *replica) keep(chunk []byte) {
	h := q.held
	if h == nil {
		return
	}
	if h.octets += len(chunk); h.octets > maxHeldOctets {
		q.stopHolding()
		return
	}
	h.chunks = append(h.chunks, append([]byte(nil), chunk...))
}

// join appends what was held behind what the log has now, and reports whether nothing is missing any more. Called with m.mu held.
func (q *replica) join() (whole bool, err error) {
	if next := q.log.Next(); q.held != nil && next >= q.held.from {
		at := q.held.from
		for _, chunk := range q.held.chunks {
			h, err := stream.ParseHeader(chunk)
			if err != nil {
				return false, err
			}
			if at == next {
				if _, err := q.log.Append(chunk); err != nil {
					return false, err
				}
				next += uint64(h.Records)
			}
			at += uint64(h.Records)
		}
	}
	return q.log.Next() >= q.next, nil
}

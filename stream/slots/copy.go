package slots

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/warrenmq/warren/quorum"
	"github.com/warrenmq/warren/quorum/propose"
	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/stream"
)

// A member that is new, or lags behind the log, gets a slot as it is at one index, as frames:
//
//	slot     index u64 | what a checkpoint has of the slot as a whole
//	stream   id, first offset of its log uvarints | what a checkpoint has of it
//	segment  the offset at which one of the last stream begins, u64
//	octets   what follows in the file of the last segment
//	end      how many streams, how many octets of files: uvarints
//
// What the receiver makes of it is a new directory beside its own; one batch of the database makes it the slot's.
const (
	frameSlot = iota + 1
	frameStream
	frameSegment
	frameOctets
	frameEnd
)

// view is a slot as it was at one index.
type view struct {
	m       *machine
	index   uint64
	common  []byte
	streams []viewed
	err     error // why it cannot be copied
	done    bool  // released; guarded by the machine's lock
}

type viewed struct {
	id     uint64
	record []byte
	log    *stream.View
}

// View implements quorum.StreamMachine.
func (m *machine) View() any {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := &view{m: m, index: m.applied, common: m.common(nil)}
	for _, q := range m.streams {
		x := viewed{q.id, q.record(nil), q.log.View()}
		v.streams = append(v.streams, x)
		switch {
		case q.broken != nil:
			v.err = fmt.Errorf("%w: %s: %w", quorum.ErrUncopied, q.path, q.broken)
		case x.log.Next != q.next:
			v.err = fmt.Errorf("%w: %s has more than was applied yet", quorum.ErrUncopied, q.path)
		}
	}
	m.views++
	runtime.SetFinalizer(v, (*view).release) // the engine may change its mind before it saves it
	return v
}

// release lets the files go.
func (v *view) release() {
	v.m.mu.Lock()
	defer v.m.mu.Unlock()
	if v.done {
		return
	}
	v.done = true
	v.m.views--
	for i := range v.streams {
		v.streams[i].log.Release()
	}
}

// Save implements quorum.StreamMachine.
func (m *machine) Save(x any, frame quorum.FrameWriter) error {
	v := x.(*view)
	defer v.release()
	if v.err != nil {
		return v.err
	}
	if err := frame(frameSlot, append(binary.LittleEndian.AppendUint64(nil, v.index), v.common...)); err != nil {
		return err
	}
	total := uint64(0)
	var sending error
	for i := range v.streams {
		q := &v.streams[i]
		head := binary.AppendUvarint(binary.AppendUvarint(nil, q.id), q.log.First)
		if err := frame(frameStream, append(head, q.record...)); err != nil {
			return err
		}
		err := q.log.Copy(func(base uint64) error {
			sending = frame(frameSegment, binary.LittleEndian.AppendUint64(nil, base))
			return sending
		}, func(b []byte) error {
			total += uint64(len(b))
			sending = frame(frameOctets, b)
			return sending
		})
		if sending != nil {
			return sending
		}
		if err != nil {
			return fmt.Errorf("%w: %w", quorum.ErrUncopied, err)
		}
	}
	return frame(frameEnd, binary.AppendUvarint(binary.AppendUvarint(nil, uint64(len(v.streams))), total))
}

// restored is a copy that is being read.
type restored struct {
	m       *machine
	home    string
	state   machine // of which the index, the clock, the counter of directories and the origins count
	common  []byte
	streams map[uint64]*replica
	records map[uint64][]byte
	last    *replica       // whose files come now
	files   *stream.Copied // of last
	octets  uint64
}

// Restore implements quorum.StreamMachine.
func (m *machine) Restore(frame quorum.FrameReader) error {
	s := &m.saving
	s.mu.Lock()
	defer s.mu.Unlock()
	copies := m.copies + 1
	x := &restored{m: m, home: m.home(copies), streams: map[uint64]*replica{}, records: map[uint64][]byte{}}
	err := m.removeHome(x.home)
	if err == nil {
		err = m.fs.MkdirAll(x.home)
	}
	if err == nil {
		err = x.read(frame)
	}
	if err == nil {
		err = errors.Join(m.fs.SyncDir(x.home), m.fs.SyncDir(filepath.Dir(x.home)))
	}
	if err != nil {
		x.discard()
		return err
	}
	var batch storage.Batch
	batch.DeletePrefix(m.key('s', 0)[:keyPrefixLen])
	for id, record := range x.records {
		batch.Set(m.key('s', id), record)
	}
	batch.Set(m.key('o', 0), x.common)
	batch.Set(m.key('c', 0), binary.LittleEndian.AppendUint64(nil, copies))
	batch.Set(m.key('a', 0), appliedRecord(x.state.applied))
	if err := m.db.Commit(&batch, true); err != nil { // the next start knows which directory counts
		return err
	}
	old := m.replace(x, copies)
	if err := m.removeHome(old); err != nil {
		m.log.Warn("files of a slot of streams stay until the next start", "directory", old, "error", err.Error())
	}
	return nil
}

// discard deletes what was read.
func (x *restored) discard() {
	if x.files != nil {
		_ = x.files.Close()
	}
	for _, q := range x.streams {
		if q.log != nil {
			q.log.Close()
		}
	}
	_ = x.m.removeHome(x.home) // the next start deletes what stays
}

// read reads everything, and opens the streams.
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
			if err := x.finish(); err != nil {
				return err
			}
			err = x.begin(&r)
		case frameSegment:
			base := r.U64()
			if r.Bad || x.files == nil {
				r.Fail()
				break
			}
			err = x.files.Segment(base)
		case frameOctets:
			if x.files == nil {
				r.Fail()
				break
			}
			x.octets += uint64(len(payload))
			err = x.files.Write(payload)
		case frameEnd:
			n, octets := r.Uvarint(), r.Uvarint()
			if r.Bad || n != uint64(len(x.streams)) || octets != x.octets {
				return fmt.Errorf("%w: a copy of %d streams and %d octets has %d and %d", errFormat, n, octets, len(x.streams), x.octets)
			}
			return x.finish()
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

// begin begins a stream.
func (x *restored) begin(r *reader) error {
	id, first := r.Uvarint(), r.Uvarint()
	if r.Bad {
		return nil
	}
	record := append([]byte{}, r.B...)
	q, err := decode(id, record)
	if err != nil {
		return err
	}
	q.path = filepath.Join(x.home, strconv.FormatUint(q.dir, 10))
	if x.files, err = stream.NewCopied(x.m.fs, q.path, first); err != nil {
		return err
	}
	x.last, x.streams[id], x.records[id] = q, q, record
	return nil
}

// finish makes the files of the last stream durable, and opens it, which reads and checks all of it.
func (x *restored) finish() error {
	if x.last == nil {
		return nil
	}
	q, files := x.last, x.files
	x.last, x.files = nil, nil
	if err := files.Close(); err != nil {
		return err
	}
	log, report, err := stream.Open(x.m.fs, q.path, stream.Options{SegmentBytes: q.segment, Memory: x.m.memory, Files: x.m.files})
	if err != nil {
		return err
	}
	q.log = log
	if log.Next() != q.next || report.Torn > 0 || report.Lost || len(report.Damage) > 0 {
		return fmt.Errorf("%w: a stream that should end at offset %d has come to %d", errFormat, q.next, log.Next())
	}
	return log.Sync() // writes the index
}

// replace has the machine go on with what was received and is on disk, and returns the directory that it had. Readers go on in the
// new logs. Called with saving.mu held.
func (m *machine) replace(x *restored, copies uint64) (old string) {
	m.mu.Lock()
	defer m.ring.wake()
	defer m.mu.Unlock()
	had := m.streams
	old = m.home(m.copies)
	m.copies, m.streams, m.gone, m.doomed = copies, x.streams, nil, nil
	m.now, m.lastDir, m.origins, m.applied, m.since = x.state.now, x.state.lastDir, x.state.origins, x.state.applied, 0
	m.saving.index = m.applied
	m.anyBroken.Store(false)
	for id, q := range m.streams {
		q.local = m.locals[id]
		q.show()
	}
	for _, q := range had { // before their readers are told
		q.log.Close()
	}
	o := m.origins.Of(m.node)
	mine := o != nil && o.Boot == m.boot
	m.live = m.live || mine
	if !m.live {
		return old
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
	return old
}

package slots

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"

	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/stream"
)

// A copy of a slot is what another replica gets that the log does not bring up to date any more: the state, and the segments
// of all streams up to where they were when it was begun.
//
//	version u8 | length uvarint, state | streams uvarint | for each: id uvarint | length uvarint, record |
//	    segments uvarint | for each: first offset, length uvarints | octets
//
// The state is what a checkpoint has, behind the index of the last entry. Segments only grow, and a file that retention removes
// meanwhile stays readable for who has it open.
const copyVersion = 1

// copied is a copy that is about to be written.
type copied struct {
	state   []byte
	streams []copiedStream
	err     error // why it cannot be made
}

type copiedStream struct {
	id       uint64
	record   []byte
	segments []copiedSegment
}

type copiedSegment struct {
	first, octets uint64
	file          storage.File
}

// errStoppedCopy is of a copy that the Raft engine does not want any more.
var errStoppedCopy = errors.New("stream: the copy was stopped")

// Prepare implements quorum.StreamMachine. Nothing is applied meanwhile. What goes wrong Save tells.
func (m *machine) Prepare() any {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &copied{state: m.origins.append(binary.AppendUvarint(binary.AppendVarint(binary.AppendUvarint(nil, m.applied), m.now), m.lastDir))}
	for _, q := range m.streams {
		if q.broken != nil {
			c.err = fmt.Errorf("stream %d cannot be copied: %w", q.id, q.broken)
			return c
		}
		x := copiedStream{id: q.id, record: q.record(nil)}
		for _, s := range q.log.Segments() {
			f, err := m.fs.Open(filepath.Join(m.dirOf(q), stream.SegmentFile(s.First)))
			if err != nil {
				c.err = err
				break
			}
			x.segments = append(x.segments, copiedSegment{s.First, uint64(s.Size), f})
		}
		c.streams = append(c.streams, x)
	}
	return c
}

func (c *copied) close() {
	for _, q := range c.streams {
		for _, s := range q.segments {
			_ = s.file.Close() // it was read only
		}
	}
}

// Save implements quorum.StreamMachine: it writes a copy, beside what is applied.
func (m *machine) Save(prepared any, to io.Writer, stop <-chan struct{}) error {
	c := prepared.(*copied)
	defer c.close()
	if c.err != nil {
		return c.err
	}
	w := bufio.NewWriterSize(to, 256<<10)
	number := func(n uint64) { _, _ = w.Write(binary.AppendUvarint(nil, n)) } // Flush tells
	octets := func(b []byte) {
		number(uint64(len(b)))
		_, _ = w.Write(b)
	}
	_ = w.WriteByte(copyVersion)
	octets(c.state)
	number(uint64(len(c.streams)))
	for _, q := range c.streams {
		number(q.id)
		octets(q.record)
		number(uint64(len(q.segments)))
		for _, s := range q.segments {
			number(s.first)
			number(s.octets)
			if err := pump(w, io.NewSectionReader(s.file, 0, int64(s.octets)), int64(s.octets), stop); err != nil {
				return err
			}
		}
	}
	return w.Flush()
}

// pump copies n octets, unless it is stopped.
func pump(w io.Writer, r io.Reader, n int64, stop <-chan struct{}) error {
	for n > 0 {
		select {
		case <-stop:
			return errStoppedCopy
		default:
		}
		k, err := io.CopyN(w, r, min(n, 1<<20))
		if err != nil {
			return err
		}
		n -= k
	}
	return nil
}

// taking reads a copy.
type taking struct {
	*bufio.Reader
	stop <-chan struct{}
}

func (t *taking) number() (uint64, error) { return binary.ReadUvarint(t) }

func (t *taking) octets(most uint64) ([]byte, error) {
	n, err := t.number()
	if err != nil || n > most {
		return nil, errors.Join(errFormat, err)
	}
	b := make([]byte, n)
	_, err = io.ReadFull(t, b)
	return b, err
}

// maxState is the greatest length of a state or a record in a copy, in octets.
const maxState = 256 << 20

// Recover implements quorum.StreamMachine: it replaces everything by a copy of another replica. Until the database says so, what
// was there counts; the streams get directories of their own.
func (m *machine) Recover(from io.Reader, stop <-chan struct{}) error {
	m.saving.mu.Lock()
	defer m.saving.mu.Unlock()
	t := &taking{bufio.NewReaderSize(from, 256<<10), stop}
	next := &machine{number: m.number, fs: m.fs, dir: m.dir, log: m.log, memory: m.memory, files: m.files, streams: map[uint64]*replica{}}
	written := false
	if err := m.take(t, next, &written); err != nil {
		for _, q := range next.streams {
			if q.log != nil {
				q.log.Close()
			}
			if !written { // or the database may say that they count
				_ = m.remove(next.dirOf(q)) // the next start does it
			}
		}
		return fmt.Errorf("slot %d of streams: taking a copy: %w", m.number, err)
	}
	if next.applied > m.saving.index {
		m.replace(next)
	}
	return nil
}

// take reads a copy into next, and makes it durable. written: the database may have it, whatever the error.
func (m *machine) take(t *taking, next *machine, written *bool) error {
	version, err := t.ReadByte()
	if err != nil || version != copyVersion {
		return errors.Join(fmt.Errorf("%w: a copy of version %d", errFormat, version), err)
	}
	state, err := t.octets(maxState)
	if err != nil {
		return err
	}
	r := reader{b: state}
	next.applied, next.now, next.lastDir = r.uvarint(), r.varint(), r.uvarint()
	next.origins = r.origins()
	if r.bad || len(r.b) > 0 {
		return errFormat
	}
	if next.applied <= m.saving.index { // it is here already, and durable: directories would get the names of those in use
		return nil
	}
	n, err := t.number()
	for ; err == nil && n > 0; n-- {
		err = next.takeStream(t)
	}
	if err != nil {
		return err
	}
	if err := m.fs.SyncDir(m.dir); err != nil {
		return err
	}
	var batch storage.Batch
	m.mu.Lock()
	for id := range m.streams {
		batch.Delete(m.key('s', id))
	}
	for _, q := range m.gone {
		batch.Delete(m.key('s', q.id))
	}
	m.mu.Unlock()
	next.write(&batch)
	for _, q := range next.streams {
		batch.Set(m.key('s', q.id), q.record(nil))
	}
	*written = true
	return m.db.Commit(&batch, true)
}

// takeStream takes one stream.
func (m *machine) takeStream(t *taking) error {
	id, err := t.number()
	if err != nil {
		return err
	}
	record, err := t.octets(maxState)
	if err != nil {
		return err
	}
	q, err := readReplica(id, record)
	if err != nil {
		return err
	}
	q.taken = m.applied
	m.streams[id] = q
	dir := m.dirOf(q)
	if err := m.remove(dir); err != nil { // of a copy of the same place that was not taken to its end
		return err
	}
	segments, err := t.number()
	if err == nil {
		err = m.fs.MkdirAll(dir)
	}
	if err != nil {
		return err
	}
	for i := range segments {
		first, err := t.number()
		if err != nil {
			return err
		}
		size, err := t.number()
		if err != nil {
			return err
		}
		if i == 0 && first > 0 {
			if err := stream.Begin(m.fs, dir, first); err != nil {
				return err
			}
		}
		f, err := m.fs.Create(filepath.Join(dir, stream.SegmentFile(first)))
		if err != nil {
			return err
		}
		err = pump(&at{f: f}, t, int64(size), t.stop)
		if err == nil {
			err = f.SyncData()
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	if segments > 0 {
		if err := m.fs.SyncDir(dir); err != nil {
			return err
		}
	}
	if err := m.open(q); err != nil {
		return err
	}
	if q.broken != nil || len(q.log.Damage()) > 0 {
		return fmt.Errorf("%w: stream %d came damaged", errFormat, id)
	}
	return nil
}

// at writes to a file from its start on.
type at struct {
	f   storage.File
	pos int64
}

func (w *at) Write(b []byte) (int, error) {
	n, err := w.f.WriteAt(b, w.pos)
	w.pos += int64(n)
	return n, err
}

// replace goes on with what was taken. Consumers are cancelled, as what they read is closed; those who publish hear what became
// of what is in the copy.
func (m *machine) replace(next *machine) {
	m.mu.Lock()
	old := append(m.gone, mapValues(m.streams)...)
	for _, q := range m.streams {
		q.log.Close()
	}
	m.streams, m.origins, m.now, m.applied, m.lastDir, m.gone = next.streams, next.origins, next.now, next.applied, next.lastDir, nil
	m.saving.index = m.applied
	r := m.ring.get()
	for id, q := range m.streams {
		if q.local = m.locals[id]; q.local != nil {
			q.show()
			r.grown = append(r.grown, q.local)
		}
	}
	m.ring.put(r)
	if _, o := m.origins.find(m.node); o != nil && o.boot == m.boot {
		m.live = true
		for n := o.last - min(o.last, maxFlight) + 1; n <= o.last; n++ {
			m.answerAgain(o, n)
		}
	}
	m.mu.Unlock()
	m.ring.wake()
	for _, q := range old {
		if err := m.remove(m.dirOf(q)); err != nil {
			m.log.Warn("files of a stream that came anew stay until the next start", "directory", m.dirOf(q), "error", err.Error())
		}
	}
}

func mapValues(from map[uint64]*replica) (list []*replica) {
	for _, q := range from {
		list = append(list, q)
	}
	return list
}

// dirName is the name of a stream's directory. One that came from another replica is named for where that was, too: it must not
// be taken for what was there before.
func (q *replica) dirName() string {
	name := strconv.FormatUint(q.dir, 10)
	if q.taken > 0 {
		name += "-" + strconv.FormatUint(q.taken, 10)
	}
	return name
}

package slots

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/warrenmq/warren/quorum/propose"
	"github.com/warrenmq/warren/storage"
)

const (
	// checkpointOctets is how many octets of entries are applied before a slot makes durable what it has appended.
	checkpointOctets = 64 << 20
	// checkpointRecord is the format of what a checkpoint writes into the database.
	checkpointRecord = 1
)

// saving is what checkpoints know from one to the next.
type saving struct {
	mu    sync.Mutex // guards what follows; held through a checkpoint, taken before the machine's
	index uint64     // the entry that the last one included
}

const keyPrefixLen = len("k/stream/") + 2 + 2

// key is a key of the database of slot m.number.
func (m *machine) key(what byte, id uint64) []byte {
	k := binary.BigEndian.AppendUint16([]byte("k/stream/"), m.number)
	k = append(k, '/', what)
	if what == 's' || what == 'd' {
		k = binary.BigEndian.AppendUint64(k, id)
	}
	return k
}

// Applied implements quorum.StreamMachine.
func (m *machine) Applied() uint64 {
	m.saving.mu.Lock()
	defer m.saving.mu.Unlock()
	return m.saving.index
}

// Sync implements quorum.StreamMachine.
func (m *machine) Sync() error {
	_, err := m.checkpoint()
	return err
}

// checkpoint makes durable what was applied: the Raft log up to the index that it returns is not needed any more. A stream's
// files may have more than its record says, never less.
func (m *machine) checkpoint() (index uint64, err error) {
	s := &m.saving
	s.mu.Lock()
	defer s.mu.Unlock()

	m.mu.Lock()
	if m.applied == s.index || m.closed {
		m.mu.Unlock()
		return s.index, nil
	}
	index = m.applied
	var batch storage.Batch
	for _, q := range m.gone { // first, since there may be another of its id
		batch.Delete(m.key('s', q.id))
		batch.Delete(m.key('d', q.id))
	}
	var saved []*replica
	for _, q := range m.streams {
		if q.changed {
			saved = append(saved, q)
			batch.Set(m.key('s', q.id), q.record(nil))
			q.changed = false
		}
	}
	batch.Set(m.key('o', 0), m.common(nil))
	batch.Set(m.key('a', 0), appliedRecord(index))
	gone, since := m.gone, m.since
	m.gone, m.since = nil, 0
	m.mu.Unlock()

	for _, q := range saved {
		if err = m.syncLog(q); err != nil {
			break
		}
	}
	if err == nil {
		err = m.db.Commit(&batch, true)
	}
	if err != nil {
		m.mu.Lock()
		for _, q := range saved {
			q.changed = true
		}
		m.gone = append(gone, m.gone...)
		m.since += since
		m.mu.Unlock()
		return 0, fmt.Errorf("slot %d of streams: checkpoint: %w", m.number, err)
	}
	s.index = index
	for _, q := range gone {
		if err := m.remove(q.path); err != nil {
			m.log.Warn("files of a deleted stream stay until the next start", "directory", q.path, "error", err.Error())
		}
	}
	return index, nil
}

// common appends what the database has of the slot as a whole. Called with m.mu held.
func (m *machine) common(dst []byte) []byte {
	dst = binary.AppendVarint(append(dst, checkpointRecord), m.now)
	return m.origins.Append(binary.AppendUvarint(dst, m.lastDir), appendResults)
}

// readCommon is the reverse.
func (m *machine) readCommon(b []byte) error {
	r := newReader(b)
	version := r.Octet()
	m.now, m.lastDir = r.Varint(), r.Uvarint()
	m.origins = propose.ReadOrigins(&r.Reader, readResults)
	if version != checkpointRecord || r.Bad || len(r.B) > 0 {
		return errFormat
	}
	return nil
}

func appliedRecord(index uint64) []byte {
	return binary.LittleEndian.AppendUint64([]byte{checkpointRecord}, index)
}

// syncLog makes durable what a stream's log has.
func (m *machine) syncLog(q *replica) error {
	m.mu.Lock()
	skip := q.broken != nil || m.streams[q.id] != q // it lacks something, and appends nothing; or it was deleted meanwhile
	m.mu.Unlock()
	if skip {
		return nil
	}
	err := q.log.Sync()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.streams[q.id] != q {
		return nil
	}
	return err
}

// record appends what the database has of a stream.
//
//	version u8 | directory, segment size uvarints | limits | first, next uvarints | offsets, to the end
func (q *replica) record(dst []byte) []byte {
	dst = binary.AppendUvarint(append(dst, checkpointRecord), q.dir)
	dst = binary.AppendUvarint(dst, uint64(q.segment))
	dst = appendLimits(dst, q.limits)
	dst = binary.AppendUvarint(dst, q.first)
	dst = binary.AppendUvarint(dst, q.next)
	return q.offsets.Append(dst)
}

// load reads the last checkpoint, and opens the streams.
func (m *machine) load() error {
	s := &m.saving
	s.mu.Lock()
	defer s.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	fail := func(what string, err error) error {
		return fmt.Errorf("slot %d of streams: %s: %w", m.number, what, err)
	}
	copies, err := m.db.Get(m.key('c', 0))
	switch {
	case err != nil:
		return fail("copies", err)
	case len(copies) == 8:
		m.copies = binary.LittleEndian.Uint64(copies)
	case copies != nil:
		return fail("copies", errFormat)
	}
	if err := m.fs.MkdirAll(m.home(m.copies)); err != nil {
		return err
	}
	if err := m.tidy(); err != nil {
		return err
	}
	above := filepath.Dir(m.dir)
	if err := errors.Join(m.fs.SyncDir(above), m.fs.SyncDir(filepath.Dir(above))); err != nil {
		return err
	}
	state, err := m.db.Get(m.key('a', 0))
	if err != nil {
		return fail("state", err)
	}
	if state != nil {
		if len(state) != 9 || state[0] != checkpointRecord {
			return fail("state", errFormat)
		}
		s.index = binary.LittleEndian.Uint64(state[1:])
	}
	m.applied = s.index
	o, err := m.db.Get(m.key('o', 0))
	if err != nil {
		return fail("origins", err)
	}
	if o != nil {
		if err := m.readCommon(o); err != nil {
			return fail("origins", err)
		}
	}
	err = m.db.Iterate(m.key('s', 0)[:keyPrefixLen], func(key, value []byte) error {
		if len(key) != keyPrefixLen+8 {
			return errFormat
		}
		return m.restore(binary.BigEndian.Uint64(key[keyPrefixLen:]), value)
	})
	if err != nil {
		return fail("streams", err)
	}
	return m.db.Iterate(m.key('d', 0)[:keyPrefixLen], func(key, value []byte) error {
		if len(key) != keyPrefixLen+8 || len(value) != 8 {
			return fail("skips", errFormat)
		}
		m.skips[binary.BigEndian.Uint64(key[keyPrefixLen:])] = binary.LittleEndian.Uint64(value)
		return nil
	})
}

// decode is a stream of which the database has this, without its log.
func decode(id uint64, value []byte) (*replica, error) {
	r := newReader(value)
	version := r.Octet()
	q := &replica{id: id, dir: r.Uvarint(), segment: int64(r.Uvarint()), limits: r.limits(), first: r.Uvarint(), next: r.Uvarint()}
	if version != checkpointRecord || r.Bad || q.first > q.next {
		return nil, fmt.Errorf("stream %d: %w", id, errFormat)
	}
	if err := q.offsets.Decode(r.B); err != nil {
		return nil, fmt.Errorf("stream %d: %w", id, err)
	}
	return q, nil
}

// restore makes a stream of what the database has of it.
func (m *machine) restore(id uint64, value []byte) error {
	q, err := decode(id, value)
	if err != nil {
		return err
	}
	q.path, q.local = m.pathOf(q.dir), m.locals[id]
	if err := m.open(q); err != nil {
		return fmt.Errorf("stream %d: %w", id, err)
	}
	m.streams[id] = q
	return nil
}

// remove deletes a stream's directory.
func (m *machine) remove(dir string) error {
	names, err := m.fs.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, name := range names {
		err = errors.Join(err, m.fs.Remove(filepath.Join(dir, name)))
	}
	if err == nil {
		err = m.fs.Remove(dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// removeHome deletes a directory of the slot.
func (m *machine) removeHome(dir string) error {
	names, err := m.fs.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, name := range names {
		err = errors.Join(err, m.remove(filepath.Join(dir, name)))
	}
	if err == nil {
		err = m.fs.Remove(dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// tidy deletes what is left of directories that the slot has had, or was about to have.
func (m *machine) tidy() error {
	above, name := filepath.Split(m.dir)
	names, err := m.fs.List(filepath.Clean(above))
	if err != nil {
		return err
	}
	for _, n := range names {
		if dir := filepath.Join(above, n); (n == name || strings.HasPrefix(n, name+".")) && dir != m.home(m.copies) {
			if err := m.removeHome(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// clean deletes directories that no stream has: a node stopped before it could. Everything must have been applied that the
// Raft log has.
func (m *machine) clean() error {
	m.saving.mu.Lock()
	defer m.saving.mu.Unlock()
	m.mu.Lock()
	known := map[string]bool{}
	for _, q := range m.streams {
		known[strconv.FormatUint(q.dir, 10)] = true
	}
	for _, q := range m.gone {
		known[strconv.FormatUint(q.dir, 10)] = true
	}
	last, home := m.lastDir, m.home(m.copies)
	m.mu.Unlock()
	names, err := m.fs.List(home)
	if err != nil {
		return err
	}
	for _, name := range names {
		if n, e := strconv.ParseUint(name, 10, 64); e == nil && !known[name] && n <= last {
			err = errors.Join(err, m.remove(filepath.Join(home, name)))
		}
	}
	return err
}

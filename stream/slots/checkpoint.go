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
	m.write(&batch)
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
		if err := m.remove(m.dirOf(q)); err != nil {
			m.log.Warn("files of a deleted stream stay until the next start", "directory", m.dirOf(q), "error", err.Error())
		}
	}
	return index, nil
}

// write sets what the database has of a slot beside its streams. Called with m.mu held.
func (m *machine) write(batch *storage.Batch) {
	state := binary.AppendVarint([]byte{checkpointRecord}, m.now)
	state = binary.AppendUvarint(state, m.lastDir)
	batch.Set(m.key('o', 0), m.origins.append(state))
	batch.Set(m.key('a', 0), binary.LittleEndian.AppendUint64([]byte{checkpointRecord}, m.applied))
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
//	version u8 | taken, directory, segment size uvarints | limits | first, next uvarints | offsets, to the end
func (q *replica) record(dst []byte) []byte {
	dst = binary.AppendUvarint(append(dst, checkpointRecord), q.taken)
	dst = binary.AppendUvarint(dst, q.dir)
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
	if err := m.fs.MkdirAll(m.dir); err != nil {
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
		r := reader{b: o}
		version := r.octet()
		m.now, m.lastDir = r.varint(), r.uvarint()
		m.origins = r.origins()
		if version != checkpointRecord || r.bad || len(r.b) > 0 {
			return fail("origins", errFormat)
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

// restore makes a stream of what the database has of it.
func (m *machine) restore(id uint64, value []byte) error {
	q, err := readReplica(id, value)
	if err != nil {
		return err
	}
	q.local = m.locals[id]
	if err := m.open(q); err != nil {
		return fmt.Errorf("stream %d: %w", id, err)
	}
	m.streams[id] = q
	return nil
}

// readReplica is the inverse of record.
func readReplica(id uint64, record []byte) (*replica, error) {
	r := reader{b: record}
	version := r.octet()
	q := &replica{id: id, taken: r.uvarint(), dir: r.uvarint(), segment: int64(r.uvarint()), limits: r.limits(), first: r.uvarint(), next: r.uvarint()}
	if version != checkpointRecord || r.bad || q.first > q.next {
		return nil, fmt.Errorf("stream %d: %w", id, errFormat)
	}
	if err := q.offsets.Decode(r.b); err != nil {
		return nil, fmt.Errorf("stream %d: %w", id, err)
	}
	return q, nil
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

// clean deletes directories that no stream has: a node stopped before it could. Everything must have been applied that the
// Raft log has.
func (m *machine) clean() error {
	m.saving.mu.Lock()
	defer m.saving.mu.Unlock()
	m.mu.Lock()
	known := map[string]bool{}
	for _, q := range m.streams {
		known[q.dirName()] = true
	}
	for _, q := range m.gone {
		known[q.dirName()] = true
	}
	last := m.lastDir
	m.mu.Unlock()
	names, err := m.fs.List(m.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		number, _, _ := strings.Cut(name, "-")
		if n, e := strconv.ParseUint(number, 10, 64); e == nil && !known[name] && n <= last {
			err = errors.Join(err, m.remove(filepath.Join(m.dir, name)))
		}
	}
	return err
}

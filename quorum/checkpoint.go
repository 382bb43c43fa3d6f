package quorum

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/warrenmq/warren/octet"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/quorum/propose"
	"github.com/warrenmq/warren/storage"
)

const (
	// checkpointOctets is how many octets of entries are applied before a slot writes down its state.
	checkpointOctets = 64 << 20
	// checkpointRecord is the format of what a checkpoint writes into the database.
	checkpointRecord = 1
	// originsRecord is the format of its record of origins. The one before knew no leader.
	originsRecord = 2
	// compactRate is how many octets a second are read for copying runs forward.
	compactRate = 64 << 20
	// compactMost is how many octets are copied before the old ones go: for so long they are there twice.
	compactMost = 64 << 20
)

// saving is what checkpoints know from one to the next.
type saving struct {
	mu      sync.Mutex // guards what follows; held through a checkpoint, taken before the machine's
	index   uint64     // the entry that the last one included
	nextRun storage.RunID
	// alive are the places that were alive at the last checkpoint. The log behind it is replayed on top of what it wrote
	// down, so that nothing may go that was alive then, whatever has become of it since.
	alive map[storage.LogID]queue.Living
	views int // snapshots that are being written: no run may go, nor be copied
}

// key is a key of the database of slot m.slot.
func (m *machine) key(what byte, id uint64) []byte {
	k := binary.BigEndian.AppendUint16([]byte("k/"), m.slot)
	k = append(k, '/', what)
	if what == 'q' || what == 'r' {
		k = binary.BigEndian.AppendUint64(k, id)
	}
	return k
}

const keyPrefixLen = 2 + 2 + 2

// wantsCheckpoint reports whether it is time for one. Called with m.mu held.
func (m *machine) wantsCheckpoint() bool {
	return m.since >= checkpointOctets || m.wastes() || m.held >= m.pool.Bound()/16 && m.pool.InUse() > m.pool.Bound()/2
}

// kept is a message on its way to a run. It holds a reference.
type keptMessage struct {
	seq queue.Seq
	resident
}

// savedQueue is what a checkpoint has of one queue.
type savedQueue struct {
	q        *replica
	messages []keptMessage
	record   []byte
	living   queue.Living
	stored   int64 // octets of the messages
}

// checkpoint writes down the state as it is now, and what of the messages is alive and only in memory: the log up to the
// index that it returns is not needed any more.
func (m *machine) checkpoint() (index uint64, err error) {
	m.saving.mu.Lock()
	defer m.saving.mu.Unlock()
	return m.checkpointLocked()
}

// checkpointLocked is checkpoint, called with saving.mu held.
func (m *machine) checkpointLocked() (index uint64, err error) {
	s := &m.saving
	m.mu.Lock()
	if m.applied == s.index {
		m.mu.Unlock()
		return s.index, nil
	}
	index = m.applied
	var saved []savedQueue
	for _, q := range m.queues {
		if q.changed {
			saved = append(saved, m.save(q))
		}
	}
	origins := m.common(nil)
	gone := m.gone
	since, held, waste := m.since, m.held, m.waste
	m.gone, m.since, m.held, m.waste = nil, 0, 0, 0
	m.mu.Unlock()

	slices.SortFunc(saved, func(a, b savedQueue) int { return cmp.Compare(a.q.log.id, b.q.log.id) })
	run, err := m.writeRun(saved)
	if err == nil {
		var batch storage.Batch
		for _, q := range gone { // first, since there may be another of its id
			batch.Delete(m.key('q', q.id))
		}
		for i := range saved {
			batch.Set(m.key('q', saved[i].q.id), saved[i].record)
		}
		if run != nil {
			batch.Set(m.key('r', uint64(run.ID())), nil)
		}
		batch.Set(m.key('o', 0), origins)
		batch.Set(m.key('a', 0), appendApplied(nil, index, s.nextRun))
		err = m.db.Commit(&batch, true)
	}
	if err != nil {
		m.mu.Lock()
		for i := range saved {
			saved[i].q.changed = true
		}
		m.gone = append(gone, m.gone...)
		m.since += since
		m.held += held
		m.waste += waste
		m.mu.Unlock()
		return 0, fmt.Errorf("slot %d: checkpoint: %w", m.slot, err)
	}
	if run != nil {
		m.disk.runs.Add(run)
	}
	s.index = index
	for i := range saved {
		s.alive[saved[i].q.log.id] = saved[i].living
	}
	for _, q := range gone {
		delete(s.alive, q.log.id)
	}
	m.unload(saved)
	return index, m.sweep()
}

// appendApplied appends what the database has of where a slot is.
func appendApplied(dst []byte, index uint64, nextRun storage.RunID) []byte {
	dst = binary.LittleEndian.AppendUint64(append(dst, checkpointRecord), index)
	return binary.LittleEndian.AppendUint64(dst, uint64(nextRun))
}

// common appends what the database has of the slot as a whole: equal states give equal bytes. Called with m.mu held.
//
//	version u8 | now varint | name of the last log | node, boot and term of who leads uvarints | origins, to the end
func (m *machine) common(dst []byte) []byte {
	dst = binary.AppendVarint(append(dst, originsRecord), int64(m.now))
	for _, n := range [...]uint64{m.lastLog, m.leads.node, m.leads.boot, m.leads.term} {
		dst = binary.AppendUvarint(dst, n)
	}
	return m.origins.Append(dst, appendAnswer)
}

// readCommon is the inverse of common.
func (m *machine) readCommon(b []byte) error {
	r := newReader(b)
	version := r.Octet()
	m.now, m.lastLog = queue.Time(r.Varint()), r.Uvarint()
	if version > 1 {
		m.leads = leader{r.Uvarint(), r.Uvarint(), r.Uvarint()}
	}
	m.origins = propose.ReadOrigins(&r.Reader, readAnswer)
	if version == 0 || version > originsRecord || r.Bad || len(r.B) > 0 {
		return errFormat
	}
	return nil
}

// save takes down a queue. Called with m.mu held.
func (m *machine) save(q *replica) savedQueue {
	x := savedQueue{q: q, living: q.state.Living(nil), record: q.record(nil), stored: q.log.stored}
	q.changed = false
	if n := q.log.len(); n > 0 {
		x.messages = make([]keptMessage, 0, n)
	}
	for i, lv := range q.log.levels.All() {
		lv.flushing = 0
		for place, r := range lv.recent.Range(0, 1<<placeBits-1) {
			m.pool.Hold(r.message.Ref.Slab, 1)
			x.messages = append(x.messages, keptMessage{seqOf(uint8(i), place), *r})
			lv.flushing = place
		}
	}
	return x
}

// record appends what the database has of a queue.
//
//	version u8 | log uvarint | due varint | more u8 | taken, gotTaken uvarints | config | snapshot of the State, to the end
func (q *replica) record(dst []byte) []byte {
	dst = binary.AppendUvarint(append(dst, checkpointRecord), uint64(q.log.id))
	dst = binary.AppendVarint(dst, int64(q.due))
	dst = append(dst, octet.Of(q.more))
	dst = binary.AppendUvarint(dst, q.taken)
	dst = binary.AppendUvarint(dst, q.gotTaken)
	dst = appendConfig(dst, &q.config)
	return q.state.AppendSnapshot(dst)
}

// writeRun writes the messages of queues, sorted by their logs' names, into a run, nil if there are none, and releases them.
func (m *machine) writeRun(saved []savedQueue) (run *storage.Run, err error) {
	release := queue.Releaser{Pool: m.pool}
	defer release.Flush()
	var w *storage.RunWriter
	for i := range saved {
		for j := range saved[i].messages {
			x := &saved[i].messages[j]
			release.Add(x.message.Ref.Slab)
			if err != nil {
				continue
			}
			if w == nil {
				id := m.saving.nextRun
				m.saving.nextRun++
				if w, err = storage.CreateRun(m.fs, m.dir, id, storage.RunOptions{SyncEvery: 8 << 20}); err != nil {
					continue
				}
			}
			err = w.Add(saved[i].q.log.id, storage.Record{
				Seq: uint64(x.seq), Expiry: int64(x.expiry), Size: x.message.Size, Flags: uint8(x.message.Flags),
				Priority: x.message.Priority, Bytes: m.pool.Bytes(x.message.Ref),
			})
		}
		saved[i].messages = nil
	}
	if w == nil {
		return nil, err
	}
	if err == nil {
		run, err = w.Finish()
	}
	if err != nil {
		_ = w.Abort() // a file that stays is deleted by the next start
		return nil, err
	}
	return run, nil
}

// unload lets what is on disk now leave memory.
func (m *machine) unload(saved []savedQueue) {
	release := queue.Releaser{Pool: m.pool}
	waiting := 0
	m.mu.Lock()
	for i := range saved {
		q := saved[i].q
		m.waste += saved[i].stored // less what leaves memory only now
		if m.queues[q.id] != q {   // deleted meanwhile
			continue
		}
		before := q.log.stored
		for _, lv := range q.log.levels.All() {
			if lv.flushing > 0 {
				q.log.change -= lv.recent.RemoveRange(0, lv.flushing, func(_ uint64, r *resident) {
					m.memory -= int64(r.message.Ref.Len)
					q.log.stored -= storedOctets(1, uint64(r.message.Size))
					release.Add(r.message.Ref.Slab)
				})
				lv.cold, lv.flushing = lv.flushing, 0
			}
		}
		waiting += q.log.changed()
		m.waste -= before - q.log.stored
		m.countDisk(q)
	}
	m.mu.Unlock()
	release.Flush()
	m.pool.ChargeMessages(waiting)
}

// stillAlive says what of a log may still be needed. Called with saving.mu held.
func (m *machine) stillAlive(log storage.LogID, first, last uint64) iter.Seq2[uint64, uint64] {
	living := m.saving.alive[log]
	return func(yield func(uint64, uint64) bool) {
		for r := range living.Within(queue.Seq(first), queue.Seq(last)) {
			if !yield(uint64(r.First), uint64(r.Last)) {
				return
			}
		}
	}
}

// sweep deletes runs that nobody needs. Called with saving.mu held.
func (m *machine) sweep() error {
	if m.saving.views > 0 {
		return nil
	}
	m.disk.runs.Sweep(m.stillAlive)
	dead := m.disk.runs.Dead()
	if len(dead) == 0 {
		return nil
	}
	var batch storage.Batch
	for _, id := range dead {
		batch.Delete(m.key('r', uint64(id)))
	}
	if err := m.db.Commit(&batch, true); err != nil {
		return err
	}
	return m.disk.runs.Remove(dead...)
}

// compact copies runs forward of which less than half is alive.
func (m *machine) compact(ctx context.Context) error {
	s := &m.saving
	for ctx.Err() == nil {
		s.mu.Lock()
		if s.views > 0 {
			s.mu.Unlock()
			return nil
		}
		alive := maps.Clone(s.alive) // what is not alive never is again: an older look keeps too much
		look := func(log storage.LogID, first, last uint64) iter.Seq2[uint64, uint64] {
			return func(yield func(uint64, uint64) bool) {
				for r := range alive[log].Within(queue.Seq(first), queue.Seq(last)) {
					if !yield(uint64(r.First), uint64(r.Last)) {
						return
					}
				}
			}
		}
		victims := m.disk.runs.Victims(look, storage.VictimOptions{Most: compactMost})
		id := s.nextRun
		if len(victims) > 0 {
			s.nextRun++
		}
		s.mu.Unlock()
		if len(victims) == 0 {
			return nil
		}
		run, err := m.disk.runs.Compact(ctx, victims, id, look, storage.CompactOptions{Rate: compactRate})
		if err != nil {
			return err
		}
		s.mu.Lock()
		if s.views > 0 || !m.disk.runs.Has(victims) { // a view needs them, or they were replaced by those of another member
			s.mu.Unlock()
			if run == nil {
				return nil
			}
			return m.disk.runs.Discard(run)
		}
		var batch storage.Batch
		for _, old := range victims {
			batch.Delete(m.key('r', uint64(old)))
		}
		if run != nil {
			batch.Set(m.key('r', uint64(id)), nil)
		}
		err = m.db.Commit(&batch, true)
		if err == nil {
			err = m.disk.runs.Replace(run, victims)
		}
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// Sync implements sm.IOnDiskStateMachine.
func (m *machine) Sync() error {
	_, err := m.checkpoint()
	return err
}

// Open implements sm.IOnDiskStateMachine: the state is that of the last checkpoint.
func (m *machine) Open(<-chan struct{}) (uint64, error) {
	if m.disk.runs != nil { // loaded before the Raft engine was started, which would end the process for an error
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.applied, nil
	}
	return m.load()
}

// load reads the last checkpoint.
func (m *machine) load() (uint64, error) {
	s := &m.saving
	s.mu.Lock()
	defer s.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.release.Pool = m.pool
	s.alive = map[storage.LogID]queue.Living{}
	s.nextRun = 1
	fail := func(what string, err error) (uint64, error) {
		return 0, fmt.Errorf("slot %d: %s: %w", m.slot, what, err)
	}
	state, err := m.db.Get(m.key('a', 0))
	if err != nil {
		return fail("state", err)
	}
	if state != nil {
		if len(state) != 17 || state[0] != checkpointRecord {
			return fail("state", errFormat)
		}
		s.index = binary.LittleEndian.Uint64(state[1:])
		s.nextRun = storage.RunID(binary.LittleEndian.Uint64(state[9:]))
	}
	m.applied = s.index
	if err := m.openRuns(); err != nil {
		return fail("runs", err)
	}
	o, err := m.db.Get(m.key('o', 0))
	if err != nil {
		return fail("origins", err)
	}
	if o != nil {
		if err := m.readCommon(o); err != nil {
			return fail("origins", err)
		}
	}
	err = m.db.Iterate(m.key('q', 0)[:keyPrefixLen], func(key, value []byte) error {
		if len(key) != keyPrefixLen+8 {
			return errFormat
		}
		return m.restore(binary.BigEndian.Uint64(key[keyPrefixLen:]), value)
	})
	if err != nil {
		return fail("queues", err)
	}
	return s.index, nil
}

func (m *machine) openRuns() error {
	if err := m.fs.MkdirAll(m.dir); err != nil {
		return err
	}
	var registered []storage.RunID
	err := m.db.Iterate(m.key('r', 0)[:keyPrefixLen], func(key, _ []byte) error {
		if len(key) == keyPrefixLen+8 {
			registered = append(registered, storage.RunID(binary.BigEndian.Uint64(key[keyPrefixLen:])))
		}
		return nil
	})
	if err != nil {
		return err
	}
	runs, report, err := storage.OpenRunSet(m.fs, m.dir, registered, storage.RunSetOptions{})
	if err != nil {
		return err
	}
	for _, lost := range report.Lost {
		runs.Close()
		return fmt.Errorf("run %d: %w", lost.Run, lost.Err)
	}
	for _, id := range registered {
		m.saving.nextRun = max(m.saving.nextRun, id+1)
	}
	m.disk.runs = runs
	return nil
}

// restore makes a queue of what the database has of it, and has it be one of the slot.
func (m *machine) restore(id uint64, value []byte) error {
	q, err := m.decode(id, value)
	if err != nil {
		return err
	}
	m.queues[id] = q
	m.place(q)
	return nil
}

// place tells a queue what of it is on disk, and who it is here.
func (m *machine) place(q *replica) {
	q.local = m.locals[q.id]
	for _, e := range m.disk.runs.Extents(q.log.id) {
		last := queue.Seq(e.Last)
		lv := q.log.level(last.Level())
		lv.cold = max(lv.cold, placeOf(last))
	}
	m.saving.alive[q.log.id] = q.state.Living(nil)
	m.countDisk(q)
}

// decode makes a queue of what the database has of it.
func (m *machine) decode(id uint64, value []byte) (*replica, error) {
	r := newReader(value)
	version := r.Octet()
	q := &replica{id: id, log: newSlotLog(r.Uvarint(), &m.disk, &m.memory)}
	q.due = queue.Time(r.Varint())
	q.more = r.Octet() != 0
	q.taken, q.gotTaken = r.Uvarint(), r.Uvarint()
	q.config = r.config()
	if version != checkpointRecord || r.Bad {
		return nil, fmt.Errorf("queue %d: %w", id, errFormat)
	}
	var err error
	if q.state, err = queue.RestoreSnapshot(queue.QuorumRules(), q.config, &q.log, r.B); err != nil {
		return nil, fmt.Errorf("queue %d: %w", id, err)
	}
	return q, nil
}

package quorum

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"runtime"
	"slices"
	"time"

	sm "github.com/lni/dragonboat/v4/statemachine"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/quorum/propose"
	"github.com/warrenmq/warren/storage"
)

// A member that is new, or lags behind the log, gets a slot as it is at one index:
//
//	snapshot   version u8 | frames, to the end
//	frame      kind u8 | length u32 | CRC-32C u32 of kind and payload | payload
//	  slot       index u64 | what a checkpoint has of the slot as a whole
//	  queue      id uvarint | what a checkpoint has of it
//	  messages   log uvarint | for each: Seq, expiry, size uvarints | flags, priority u8 | length uvarint | its bytes
//	  end        how many queues, how many messages: uvarints
//
// in this order, the messages ascending by log and Seq. What the receiver makes of it are runs of its own and the same keys.
const (
	snapshotFormat = 1
	frameHeader    = 1 + 4 + 4
	// frameOctets is how long a frame of messages is, unless one message is longer.
	frameOctets = 256 << 10
	// maxFrame is how long a frame may be at most.
	maxFrame = 1 << 30
	// runOctets is after how many octets the receiver begins another run.
	runOctets = 64 << 20
)

const (
	frameSlot = iota + 1
	frameQueue
	frameMessages
	frameEnd
)

// view is a slot as it was at one index. The runs stay until release.
type view struct {
	m      *machine
	index  uint64
	common []byte
	queues []viewedQueue // ascending by log
	hold   *logHold
	done   bool // released; guarded by saving.mu
}

type viewedQueue struct {
	id       uint64
	log      storage.LogID
	record   []byte
	living   queue.Living
	messages uint64
}

// PrepareSnapshot implements sm.IOnDiskStateMachine. Nothing is applied meanwhile. What is in memory goes to disk first, so
// that the view is records and runs.
func (m *machine) PrepareSnapshot() (any, error) {
	s := &m.saving
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := m.checkpointLocked(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v := &view{m: m, index: s.index, hold: &logHold{index: s.index, octets: m.tail.octets, made: time.Now()}}
	m.holds = append(m.holds, v.hold)
	v.common = m.common(nil)
	for _, q := range m.queues {
		st := q.state.Stats()
		v.queues = append(v.queues, viewedQueue{q.id, q.log.id, q.record(nil), s.alive[q.log.id], st.Ready + st.Unacked + st.Delayed + st.Kept})
	}
	slices.SortFunc(v.queues, func(a, b viewedQueue) int { return int(int64(a.log - b.log)) })
	s.views++
	runtime.SetFinalizer(v, (*view).release) // the engine may change its mind before it saves it
	return v, nil
}

// release lets the runs go.
func (v *view) release() {
	s := &v.m.saving
	s.mu.Lock()
	defer s.mu.Unlock()
	if !v.done {
		v.done = true
		s.views--
		v.m.mu.Lock()
		v.hold.sent(time.Now())
		v.m.mu.Unlock()
	}
}

// SaveSnapshot implements sm.IOnDiskStateMachine.
func (m *machine) SaveSnapshot(ctx any, to io.Writer, stop <-chan struct{}) error {
	v := ctx.(*view)
	defer v.release()
	err := v.save(&frameWriter{w: to, stop: stop})
	var broken *unreadable
	if errors.As(err, &broken) { // the process is none the worse for it; the other one will ask again
		m.log.Error("a slot cannot be copied to another member", "slot", m.slot, "error", err.Error())
		return sm.ErrSnapshotStreaming
	}
	return err
}

// unreadable is why a view cannot be saved.
type unreadable struct{ error }

func (v *view) save(w *frameWriter) error {
	if err := w.raw([]byte{snapshotFormat}); err != nil {
		return err
	}
	if err := w.frame(frameSlot, append(binary.LittleEndian.AppendUint64(nil, v.index), v.common...)); err != nil {
		return err
	}
	total := uint64(0)
	for i := range v.queues {
		q := &v.queues[i]
		total += q.messages
		if err := w.frame(frameQueue, append(binary.AppendUvarint(nil, q.id), q.record...)); err != nil {
			return err
		}
	}
	for i := range v.queues {
		if err := v.messages(w, &v.queues[i]); err != nil {
			return err
		}
	}
	return w.frame(frameEnd, binary.AppendUvarint(binary.AppendUvarint(nil, uint64(len(v.queues))), total))
}

// messages writes the messages of a queue.
func (v *view) messages(w *frameWriter, q *viewedQueue) error {
	cursor := v.m.disk.runs.Cursor(q.log)
	var chunks [][]byte
	used := 0
	alloc := func(n int) []byte {
		if used == len(chunks) {
			chunks = append(chunks, nil)
		}
		if cap(chunks[used]) < n {
			chunks[used] = make([]byte, n)
		}
		used++
		return chunks[used-1][:n]
	}
	buf := binary.AppendUvarint(nil, uint64(q.log))
	head := len(buf)
	written := uint64(0)
	for _, l := range q.living {
		for from := uint64(l.First); from <= uint64(l.Last); {
			used = 0
			n, err := cursor.Read(from, uint64(l.Last), frameOctets, alloc, func(_, _ int, r storage.Record) {
				from = r.Seq + 1
				buf = binary.AppendUvarint(buf, r.Seq)
				buf = binary.AppendUvarint(buf, uint64(r.Expiry))
				buf = binary.AppendUvarint(buf, uint64(r.Size))
				buf = append(buf, r.Flags, r.Priority)
				buf = binary.AppendUvarint(buf, uint64(len(r.Bytes)))
				buf = append(buf, r.Bytes...)
			})
			if err != nil {
				return &unreadable{fmt.Errorf("queue %d: %w", q.id, err)}
			}
			if n == 0 {
				break
			}
			written += uint64(n)
			if len(buf) >= frameOctets {
				if err := w.frame(frameMessages, buf); err != nil {
					return err
				}
				buf = buf[:head]
			}
		}
	}
	if written != q.messages {
		return &unreadable{fmt.Errorf("queue %d: %d messages on disk, and there should be %d", q.id, written, q.messages)}
	}
	if len(buf) == head {
		return nil
	}
	return w.frame(frameMessages, buf)
}

// frameWriter writes frames.
type frameWriter struct {
	w    io.Writer
	stop <-chan struct{}
}

func (w *frameWriter) raw(b []byte) error {
	_, err := w.w.Write(b)
	return err
}

func (w *frameWriter) frame(kind byte, payload []byte) error {
	select {
	case <-w.stop:
		return sm.ErrSnapshotStopped
	default:
	}
	if len(payload) > maxFrame {
		return &unreadable{fmt.Errorf("a frame of %d octets", len(payload))}
	}
	var h [frameHeader]byte
	h[0] = kind
	binary.LittleEndian.PutUint32(h[1:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(h[5:], pieceSum(kind, payload))
	if err := w.raw(h[:]); err != nil {
		return err
	}
	return w.raw(payload)
}

func pieceSum(kind byte, payload []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte{kind}, castagnoli), castagnoli, payload)
}

// received is a snapshot that is being read: its messages are in runs that nobody knows yet.
type received struct {
	m        *machine
	index    uint64
	common   []byte
	ids      []uint64
	records  [][]byte
	runs     []*storage.Run
	writer   *storage.RunWriter
	nextRun  storage.RunID
	messages uint64
	buf      []byte
}

// RecoverFromSnapshot implements sm.IOnDiskStateMachine. Until the one batch that makes the new state this slot's, a crash
// leaves the old one, and runs that the next start deletes.
func (m *machine) RecoverFromSnapshot(from io.Reader, stop <-chan struct{}) error {
	s := &m.saving
	s.mu.Lock()
	defer s.mu.Unlock()
	x := &received{m: m, nextRun: s.nextRun}
	queues, err := x.read(bufio.NewReaderSize(from, 64<<10), stop)
	if err != nil {
		x.discard()
		if errors.Is(err, sm.ErrSnapshotStopped) {
			return err
		}
		return fmt.Errorf("slot %d: snapshot: %w", m.slot, err)
	}
	var batch storage.Batch
	batch.DeletePrefix(m.key('q', 0)[:keyPrefixLen])
	batch.DeletePrefix(m.key('r', 0)[:keyPrefixLen])
	for i, id := range x.ids {
		batch.Set(m.key('q', id), x.records[i])
	}
	for _, run := range x.runs {
		batch.Set(m.key('r', uint64(run.ID())), nil)
	}
	batch.Set(m.key('o', 0), x.common)
	batch.Set(m.key('a', 0), appendApplied(nil, x.index, x.nextRun))
	if err := m.db.Commit(&batch, true); err != nil {
		x.discard()
		return fmt.Errorf("slot %d: snapshot: %w", m.slot, err)
	}
	return m.replace(x, queues)
}

// replace has the machine go on with what was received and is on disk. Called with saving.mu held.
func (m *machine) replace(x *received, queues map[uint64]*replica) error {
	s := &m.saving
	release := queue.Releaser{Pool: m.pool}
	m.mu.Lock()
	waiting := 0
	for _, q := range m.queues {
		q.log.each(func(msg *queue.Message) { release.Add(msg.Ref.Slab) })
		waiting -= q.log.len()
	}
	var old []storage.RunID
	for _, info := range m.disk.runs.Runs() {
		old = append(old, info.ID)
	}
	for _, run := range x.runs { // first: who reads meanwhile finds everything once or twice
		m.disk.runs.Add(run)
	}
	removed := m.disk.runs.Remove(old...)
	m.disk.cursor = nil
	if err := m.readCommon(x.common); err != nil {
		m.mu.Unlock()
		return err
	}
	before := m.queues
	m.queues, m.gone = queues, nil
	m.applied, m.since, m.held, m.memory, m.onDisk, m.waste = x.index, 0, 0, 0, 0, 0
	m.tail, m.holds, m.others, m.cut = tail{}, nil, nil, 0
	s.index, s.nextRun, s.alive = x.index, x.nextRun, map[storage.LogID]queue.Living{}
	for _, q := range m.queues {
		m.place(q)
	}
	o := m.origins.Of(m.node)
	if o != nil && o.Boot == m.boot {
		m.live = true
	}
	if m.live {
		m.goOnWith(o, before)
	}
	m.mu.Unlock()
	release.Flush()
	m.pool.ChargeMessages(waiting)
	if removed != nil { // the next start deletes what is left
		m.log.Warn("runs of a slot were not deleted", "slot", m.slot, "error", removed.Error())
	}
	return nil
}

// goOnWith puts into a round what a snapshot says of this node's clients: what became of their commands, and what their
// consumers hold. o is this node's origin, nil if the slot has not heard of it; before are the queues as they were. Called with
// m.mu held.
func (m *machine) goOnWith(o *propose.Origin[answer], before map[uint64]*replica) {
	r := m.ring.get()
	x := &reload{}
	if o != nil && o.Boot == m.boot {
		x.last = o.Last
		for _, a := range o.Answers {
			x.answers = append(x.answers, propose.Answered[answer]{Number: a.Number, Answer: a.Answer.kept()})
		}
	}
	mine := session(m.node, m.boot)
	for id, local := range m.locals {
		h := holdings{queue: local, held: map[queue.ConsumerID]holding{}}
		if q := m.queues[id]; q != nil {
			h.before = holders(before[id], mine)
			h.single, h.active = q.config.SingleActive, q.state.Stats().Active
			for c := range q.state.Holders() {
				if c.Session != mine {
					continue
				}
				k := holding{late: slices.Clone(c.Late), overdue: c.Overdue}
				for d := range q.state.Held(c.ID) {
					k.deliveries = append(k.deliveries, pending{d.Seq, d.ID, d.Acquired, d.Failed, d.Redelivered})
				}
				h.held[c.ID] = k
			}
		}
		x.queues = append(x.queues, h)
	}
	r.reload = x
	r.ops = append(r.ops, op{kind: opReload})
	if m.leading() {
		m.takeOver(r)
	}
	m.ring.put(r)
}

// holders are the consumers and getters of a session that hold something of a queue, which may be nil.
func holders(q *replica, session uint64) map[queue.ConsumerID]bool {
	held := map[queue.ConsumerID]bool{}
	if q == nil {
		return held
	}
	for c := range q.state.Holders() {
		if c.Session == session {
			for range q.state.Held(c.ID) {
				held[c.ID] = true
				break
			}
		}
	}
	return held
}

// discard deletes the runs.
func (x *received) discard() {
	if x.writer != nil {
		_ = x.writer.Abort() // the next start deletes what stays
	}
	for _, run := range x.runs {
		_ = x.m.disk.runs.Discard(run)
	}
}

// read reads everything, and makes the queues, without the places where their messages are.
func (x *received) read(from io.Reader, stop <-chan struct{}) (map[uint64]*replica, error) {
	var version [1]byte
	if _, err := io.ReadFull(from, version[:]); err != nil {
		return nil, err
	}
	if version[0] != snapshotFormat {
		return nil, fmt.Errorf("%w: a snapshot of version %d, this node knows %d", errFormat, version[0], snapshotFormat)
	}
	queues := map[uint64]*replica{}
	for {
		select {
		case <-stop:
			return nil, sm.ErrSnapshotStopped
		default:
		}
		kind, payload, err := x.frame(from)
		if err != nil {
			return nil, err
		}
		r := newReader(payload)
		switch kind {
		case frameSlot:
			x.index = r.U64()
			x.common = slices.Clone(r.B)
			var check machine
			if err := check.readCommon(x.common); err != nil {
				return nil, err
			}
			continue
		case frameQueue:
			id := r.Uvarint()
			q, err := x.m.decode(id, r.B)
			if err != nil {
				return nil, err
			}
			queues[id] = q
			x.ids, x.records = append(x.ids, id), append(x.records, slices.Clone(r.B))
			continue
		case frameMessages:
			if err := x.add(&r); err != nil {
				return nil, err
			}
		case frameEnd:
			n, messages := r.Uvarint(), r.Uvarint()
			if r.Bad || x.common == nil || n != uint64(len(queues)) || messages != x.messages {
				return nil, fmt.Errorf("%w: a snapshot of %d queues and %d messages has %d and %d", errFormat, n, messages, len(queues), x.messages)
			}
			return queues, x.endRun()
		default:
			return nil, fmt.Errorf("%w: a frame of kind %d", errFormat, kind)
		}
		if r.Bad {
			return nil, fmt.Errorf("%w: a frame of kind %d makes no sense", errFormat, kind)
		}
	}
}

// frame reads a frame, whose payload is valid until the next.
func (x *received) frame(from io.Reader) (kind byte, payload []byte, err error) {
	var h [frameHeader]byte
	if _, err := io.ReadFull(from, h[:]); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(h[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("%w: a frame of %d octets", errFormat, n)
	}
	x.buf = slices.Grow(x.buf[:0], int(n))[:n]
	if _, err := io.ReadFull(from, x.buf); err != nil {
		return 0, nil, err
	}
	if pieceSum(h[0], x.buf) != binary.LittleEndian.Uint32(h[5:]) {
		return 0, nil, fmt.Errorf("%w: wrong checksum", errFormat)
	}
	return h[0], x.buf, nil
}

// add adds messages to the run that is being written.
func (x *received) add(r *reader) error {
	log := storage.LogID(r.Uvarint())
	for len(r.B) > 0 {
		rec := storage.Record{Seq: r.Uvarint(), Expiry: int64(r.Most(1<<63 - 1)), Size: r.U32(), Flags: r.Octet(), Priority: r.Octet()}
		rec.Bytes = r.Take(uint64(r.U32()))
		if r.Bad {
			return nil
		}
		if x.writer != nil && x.writer.Size() > runOctets {
			if err := x.endRun(); err != nil {
				return err
			}
		}
		if x.writer == nil {
			var err error
			x.writer, err = storage.CreateRun(x.m.fs, x.m.dir, x.nextRun, storage.RunOptions{SyncEvery: 8 << 20})
			if err != nil {
				return err
			}
			x.nextRun++
		}
		if err := x.writer.Add(log, rec); err != nil {
			return err
		}
		x.messages++
	}
	return nil
}

func (x *received) endRun() error {
	if x.writer == nil {
		return nil
	}
	run, err := x.writer.Finish()
	if err != nil {
		return err
	}
	x.writer, x.runs = nil, append(x.runs, run)
	return nil
}

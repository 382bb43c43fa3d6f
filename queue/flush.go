package queue

import (
	"cmp"
	"context"
	"encoding/binary"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/warrenmq/warren/storage"
)

const (
	// maxEpoch is how many octets are admitted into memory before a new epoch begins, unless memory is small.
	maxEpoch = 16 << 20
	// maxEpochAge is how long something may stay in the journal while nothing else calls for a flush.
	maxEpochAge = 5 * time.Minute
	// flushRetry is for how long a flush rests that failed.
	flushRetry = time.Second
	// flushStep is how many messages of a queue are looked at under its lock at a time.
	flushStep = 4096
	// syncMuch and syncLittle are how many octets of a run are synced at a time: the journal's syncs wait for the disk behind them.
	syncMuch, syncLittle = 8 << 20, 2 << 20
)

func (s *Store) epochOctets() int64 { return min(maxEpoch, s.o.FlushAt/4) }

// wakeFlusher has the flusher look whether there is something to do.
func (s *Store) wakeFlusher() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// flusher cuts epochs and flushes the oldest when memory or journal ask for it.
func (s *Store) flusher(ctx context.Context) {
	defer s.running.Done()
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	admitted := s.pool.Admitted()
	cut := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
		case <-tick.C:
		}
		if now := s.pool.Admitted(); now-admitted >= s.epochOctets() || time.Since(cut) >= maxEpochAge {
			s.journal.Rotate()
			admitted, cut = now, time.Now()
		}
		for s.flushDue() && ctx.Err() == nil {
			first, last := s.journal.First(), s.journal.Epoch()
			if first == last {
				last = s.journal.Rotate()
			}
			upTo := first + (last-1-first)/4
			moved, err := s.flush(upTo)
			if err != nil {
				s.o.Log.Error("messages could not be moved to disk; it will be tried again", "error", err.Error())
				select {
				case <-ctx.Done():
				case <-time.After(flushRetry):
				}
				break
			}
			if moved == 0 && upTo == last-1 { // nothing to gain: what is left is in use, or was read ahead
				s.dropAhead()
				break
			}
		}
		select {
		case s.flushes <- struct{}{}:
		default:
		}
	}
}

// compactor copies runs forward, beside the flusher, which must not wait for it.
func (s *Store) compactor(ctx context.Context) {
	defer s.running.Done()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.flushes:
			s.compact(ctx)
		}
	}
}

// dropAhead has all queues let go of what was read ahead for them.
func (s *Store) dropAhead() {
	s.mu.Lock()
	queues := slices.Collect(maps.Values(s.queues))
	s.mu.Unlock()
	for _, q := range queues {
		q.dropAhead()
	}
}

// flushDue reports whether memory or journal have passed their marks.
func (s *Store) flushDue() bool {
	return s.pool.InUse() > s.o.FlushAt || s.journal.Size() > s.o.JournalMax
}

// flush moves what is still alive of the epochs up to upTo from memory to runs, and cuts the journal behind them.
func (s *Store) flush(upTo storage.Epoch) (moved int, err error) {
	begun := time.Now()
	moved, err = s.flushEpochs(upTo)
	if err == nil {
		s.flushTimes.Add(time.Since(begun))
	} else {
		s.flushFailures.Add(1)
	}
	return moved, err
}

func (s *Store) flushEpochs(upTo storage.Epoch) (moved int, err error) {
	s.mu.Lock()
	queues := make([]*Classic, 0, len(s.dirty))
	for q := range s.dirty {
		queues = append(queues, q)
	}
	gone := s.gone
	s.gone = nil
	s.mu.Unlock()
	slices.SortFunc(queues, func(a, b *Classic) int { return cmp.Compare(a.id, b.id) })

	f := flush{store: s}
	if err := f.write(queues, upTo); err != nil {
		f.abort()
		s.mu.Lock()
		s.gone = append(s.gone, gone...)
		s.mu.Unlock()
		return 0, err
	}
	var batch storage.Batch
	var value []byte
	for _, q := range queues {
		if value = q.record(value[:0]); value != nil {
			batch.Set(queueKey(q.id), value)
		}
	}
	for _, id := range gone {
		batch.Delete(queueKey(id))
	}
	if f.durable.run != nil {
		batch.Set(runKey(f.durable.run.ID()), nil)
	}
	s.mu.Lock()
	next := s.nextRun
	s.mu.Unlock()
	s.reached.mark = s.journal.Synced()
	batch.Set(keyReached, s.reached.encode())
	batch.Set(keyEpoch, binary.LittleEndian.AppendUint64(nil, uint64(upTo+1)))
	batch.Set(keyNextRun, binary.LittleEndian.AppendUint64(nil, uint64(next)))
	if err := s.settleJournal(); err != nil {
		f.abort()
		s.mu.Lock()
		s.gone = append(s.gone, gone...)
		s.mu.Unlock()
		return 0, err
	}
	if err := s.o.DB.Commit(&batch, true); err != nil {
		return 0, err // the run stays: nobody knows whether it is registered
	}
	for _, part := range []*flushPart{&f.durable, &f.transient} {
		if part.run != nil {
			s.runs.Add(part.run)
		}
	}
	for _, q := range queues {
		for more := true; more; {
			s.step(func(many int) {
				var n int
				n, more = q.flushed(many)
				moved += n
			})
		}
	}
	if err := s.journal.Release(upTo + 1); err != nil {
		s.o.Log.Warn("journal files were not removed", "error", err.Error())
	}
	return moved, s.sweep()
}

// step runs a step of a flush, which is told how many messages it may look at, and returns how many octets are to be synced
// at a time. While queues drop or dead-letter a great many messages it is one of the background, as long as there is room:
// publishers, who fill memory at other times or are about to wait, shall not wait for rests.
func (s *Store) step(f func(many int)) (syncEvery int) {
	if !s.background.busy() || s.pool.InUse() > s.pool.Bound()/4*3 || s.journal.Size() > s.o.JournalMax/4*5 {
		f(flushStep)
		return syncMuch
	}
	s.background.wait(func() { f(stepFlush) })
	return syncLittle
}

// settleJournal returns when everything is synced that has been appended. What tells the database of the state of queues
// calls it first: a message that the database knows to be gone may have gone to another queue, and be nowhere but in what
// the journal has not written yet.
func (s *Store) settleJournal() error {
	mark := s.journal.Appended()
	s.journal.Commit(mark)
	for s.journal.Synced() < mark {
		if err := s.journal.Err(); err != nil {
			return err
		}
		time.Sleep(100 * time.Microsecond)
	}
	return nil
}

// flush is one flush on its way: a run for what must survive, and one for what need not.
type flush struct {
	store              *Store
	durable, transient flushPart
}

type flushPart struct {
	writer *storage.RunWriter
	run    *storage.Run
}

// write writes the messages of all queues, which are sorted by id.
func (f *flush) write(queues []*Classic, upTo storage.Epoch) error {
	var batch []flushed
	for _, q := range queues {
		for level := range q.beginFlush() {
			for after := uint64(0); ; {
				var done bool
				var err error
				every := f.store.step(func(many int) {
					batch, after, done = q.collect(batch[:0], uint8(level), after, upTo, many)
					err = f.add(q, batch)
				})
				if w := f.durable.writer; err == nil && w != nil {
					err = w.Sync(every) // outside of the step: others have theirs meanwhile
				}
				if err != nil {
					return err
				}
				if done {
					break
				}
			}
		}
	}
	for _, part := range []*flushPart{&f.durable, &f.transient} {
		if part.writer == nil {
			continue
		}
		run, err := part.writer.Finish()
		if err != nil {
			return err
		}
		part.run = run
	}
	return nil
}

// flushed is a message on its way to a run. It holds a reference.
type flushed struct {
	seq Seq
	resident
}

func (f *flush) add(q *Classic, batch []flushed) (err error) {
	release := Releaser{Pool: f.store.pool}
	defer release.Flush()
	for i := range batch {
		r := &batch[i]
		release.Add(r.message.Ref.Slab)
		if err != nil {
			continue
		}
		part, transient := &f.transient, true
		if q.durable && r.message.Flags&Persistent != 0 {
			part, transient = &f.durable, false
		}
		if part.writer == nil {
			s := f.store
			s.mu.Lock()
			id := s.nextRun
			s.nextRun++
			s.mu.Unlock()
			if part.writer, err = storage.CreateRun(s.o.FS, s.o.Dir+"/runs", id, storage.RunOptions{Transient: transient}); err != nil {
				continue
			}
		}
		m := &r.message
		err = part.writer.Add(q.id, storage.Record{
			Seq: uint64(r.seq), Expiry: int64(r.expiry), Size: m.Size, Flags: uint8(m.Flags), Priority: m.Priority, Bytes: f.store.pool.Bytes(m.Ref),
		})
	}
	return err
}

// abort removes the files of a flush that failed.
func (f *flush) abort() {
	for _, part := range []*flushPart{&f.durable, &f.transient} {
		if part.writer != nil {
			_ = part.writer.Abort() // a file that stays is deleted by the next start
		}
	}
}

// beginFlush notes that nothing of the queue has been seen yet, and returns how many levels there are to see.
func (q *Classic) beginFlush() (levels int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.log.levels {
		q.log.levels[i].flushing = 0
	}
	q.leftBefore = q.lastLeft
	return len(q.log.levels)
}

// collect appends the next messages behind a place of a level that are of epochs up to upTo, with a reference each. They
// stay where they are until flushed.
func (q *Classic) collect(dst []flushed, level uint8, after uint64, upTo storage.Epoch, many int) (_ []flushed, last uint64, done bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.deleted {
		return dst, after, true
	}
	lv := &q.log.levels[level]
	n := 0
	for place, r := range lv.recent.Range(after+1, maxPlace) {
		if r.epoch > upTo {
			return dst, after, true
		}
		if n++; n > many {
			return dst, after, false
		}
		q.pool.Hold(r.message.Ref.Slab, 1)
		dst = append(dst, flushed{seqOf(level, place), *r})
		after, lv.flushing = place, place
	}
	return dst, after, true
}

// record appends the queue's consumption record behind the journal's position that it speaks of; nil if the queue has
// none.
func (q *Classic) record(dst []byte) []byte {
	if !q.durable {
		return nil
	}
	q.awaitLimbo()
	defer q.mu.Unlock()
	if q.deleted {
		return nil
	}
	q.changed = false
	dst = binary.LittleEndian.AppendUint64(dst, uint64(q.store.journal.Appended()))
	return q.state.encode(dst, q.inLimbo())
}

// flushed is told that what collect returned is on disk: it leaves memory, at most many messages of a level at a time.
func (q *Classic) flushed(many int) (moved int, more bool) {
	release := Releaser{Pool: q.pool}
	q.mu.Lock()
	if q.deleted {
		q.mu.Unlock()
		return 0, false
	}
	clean := !q.changed
	for i := range q.log.levels {
		lv := &q.log.levels[i]
		if lv.flushing > 0 {
			to := lv.flushing
			if first, r := lv.recent.First(); r != nil && first < to && to-first > uint64(many) {
				to = first + uint64(many)
				more = true
			}
			n := lv.recent.RemoveRange(0, to, func(_ uint64, r *resident) { release.Add(r.message.Ref.Slab) })
			q.log.change -= n
			moved += n
			lv.cold = to
		}
		clean = clean && lv.recent.Len() == 0
	}
	q.state.Unloaded()
	waiting := q.log.changed()
	if clean {
		q.dirty = false
		q.store.mu.Lock()
		delete(q.store.dirty, q)
		q.store.mu.Unlock()
	}
	q.mu.Unlock()
	release.Flush()
	q.pool.chargeWaiting(waiting)
	return moved, more
}

// alive says which places of a log may still be needed.
func (s *Store) alive(log storage.LogID, first, last uint64) iter.Seq2[uint64, uint64] {
	s.mu.Lock()
	q := s.queues[log]
	s.mu.Unlock()
	var living Living
	if q != nil {
		living = q.living()
	}
	return func(yield func(uint64, uint64) bool) {
		for r := range living.Within(Seq(first), Seq(last)) {
			if !yield(uint64(r.First), uint64(r.Last)) {
				return
			}
		}
	}
}

func (q *Classic) living() Living {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.deleted {
		return nil
	}
	return q.state.living(nil, q.inLimbo())
}

// sweep deletes runs that nobody needs.
func (s *Store) sweep() error {
	s.runs.Sweep(s.alive)
	dead := s.runs.Dead()
	if len(dead) == 0 {
		return nil
	}
	var batch storage.Batch
	for _, id := range dead {
		batch.Delete(runKey(id))
	}
	if err := s.settleJournal(); err != nil {
		return err
	}
	if err := s.o.DB.Commit(&batch, true); err != nil {
		return err
	}
	return s.runs.Remove(dead...)
}

// compactRate is how many octets a second are read for copying runs forward.
const compactRate = 64 << 20

// compact copies runs forward of which less than half is alive.
func (s *Store) compact(ctx context.Context) {
	for ctx.Err() == nil {
		victims := s.runs.Victims(s.alive, storage.VictimOptions{})
		if len(victims) == 0 {
			return
		}
		s.mu.Lock()
		id := s.nextRun
		s.nextRun++
		s.mu.Unlock()
		run, err := s.runs.Compact(ctx, victims, id, s.alive, storage.CompactOptions{
			Rate: compactRate, Step: s.background.wait,
		})
		if err != nil {
			if ctx.Err() == nil {
				s.o.Log.Warn("a run was not copied", "error", err.Error())
			}
			return
		}
		var batch storage.Batch
		for _, old := range victims {
			batch.Delete(runKey(old))
		}
		if run != nil && !run.Transient() {
			batch.Set(runKey(id), nil)
		}
		if err := s.settleJournal(); err != nil {
			if run != nil {
				_ = s.runs.Discard(run) // the next start deletes it
			}
			return
		}
		if err := s.o.DB.Commit(&batch, true); err != nil { // the run stays: nobody knows whether it is registered
			s.o.Log.Error("a run was not registered", "error", err.Error())
			return
		}
		if err := s.runs.Replace(run, victims); err != nil {
			s.o.Log.Warn("old runs were not removed", "error", err.Error())
		}
	}
}

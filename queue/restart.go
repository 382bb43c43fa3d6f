package queue

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/warrenmq/warren/storage"
)

// RecoveryReport says what a start found.
type RecoveryReport struct {
	Journal  storage.Report
	Queues   int
	Messages uint64
	Unknown  int // records of queues that are no longer declared
	Damaged  int // consumption records and journal records that could not be read
}

// replayed is a message of the journal, on its way back into its queue. It holds a reference.
type replayed struct {
	seq   Seq
	epoch storage.Epoch
	resident
}

// comeback is what a queue gathers while it gets back what it had.
type comeback struct {
	recovery *Recovery
	position storage.Mark // of the consumption record
	config   Config
	replayed []replayed
	damaged  bool // the consumption record could not be read
	gone     bool // the journal says what is gone since
}

// restore begins the recovery of a queue that its Store has just made.
func (q *Classic) restore(rules Rules, config Config, value []byte) {
	b := &comeback{config: config}
	var err error
	if len(value) >= 8 {
		b.position = storage.Mark(binary.LittleEndian.Uint64(value))
		b.recovery, err = Restore(rules, value[8:])
	}
	if b.recovery == nil {
		b.damaged = err != nil
		b.recovery, _ = Restore(rules, nil)
	}
	q.back = b
}

// Recover gives the queues that were made their messages back and starts the store's work. What it lost, and why, is in
// the log and in the report; an error means that nothing can be kept.
func (s *Store) Recover() (RecoveryReport, error) {
	var report RecoveryReport
	after := s.reached.mark
	for id, value := range s.records {
		after = max(after, storage.Mark(binary.LittleEndian.Uint64(value)))
		if q := s.queues[id]; q == nil {
			s.gone = append(s.gone, id)
		} else if q.back != nil && q.back.damaged {
			report.Damaged++
			s.o.Log.Error("a queue's consumption record is damaged: what it told was settled comes back", "queue", id)
		}
	}
	s.records = nil
	var err error
	s.journal, report.Journal, err = storage.OpenJournal(s.o.FS, s.o.Dir+"/journal", storage.JournalOptions{After: after, Synced: s.synced, FileSize: min(64<<20, s.o.JournalMax/4), NoSpace: s.o.NoSpace}, s.firstEpoch,
		func(epoch storage.Epoch, at storage.Mark, kind uint8, record []byte) error {
			s.replay(epoch, at, kind, record, &report)
			return nil
		})
	if err != nil {
		return report, fmt.Errorf("the journal cannot be opened: %w", err)
	}
	s.reached.check(&report.Journal)
	s.reached = journalEnd{s.journal.Synced(), s.journal.Epoch()}
	var batch storage.Batch
	batch.Set(keyReached, s.reached.encode())
	if err := s.o.DB.Commit(&batch, true); err != nil {
		return report, err
	}
	unclean := !report.Journal.Clean
	cursor := s.runs.Cursor(0)
	queues := make([]*Classic, 0, len(s.queues))
	for _, q := range s.queues {
		queues = append(queues, q)
	}
	for _, q := range queues {
		if q.back == nil {
			continue
		}
		n, err := q.comeBack(cursor, unclean)
		if err != nil {
			s.o.Log.Error("a queue did not get all its messages back", "queue", q.id, "error", err.Error())
		}
		report.Queues++
		report.Messages += n
	}
	s.recovered = true
	if err := s.sweep(); err != nil {
		return report, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	s.loads.start(ctx, &s.running)
	s.background.start(ctx, &s.running, s.runs.Cursor(0))
	s.pool.OnAdmitted(s.epochOctets(), s.wakeFlusher)
	s.running.Add(2)
	go s.flusher(ctx)
	go s.compactor(ctx)
	for _, q := range queues { // not before all are back: what expires may go from one to another
		if q.durable {
			q.Tick(0)
		}
	}
	if s.flushDue() {
		s.wakeFlusher()
	}
	return report, nil
}

// replay takes one record of the journal.
func (s *Store) replay(epoch storage.Epoch, at storage.Mark, kind uint8, record []byte, report *RecoveryReport) {
	id, rest, err := recordQueue(record)
	q := s.queues[id]
	switch {
	case err != nil:
	case sabotageSkip && at%7 == 0:
	case q == nil || q.back == nil:
		report.Unknown++
	case kind == recordEnqueue:
		err = readEnqueued(rest, func(seq Seq, expiry Time, m Message, bytes []byte) {
			ref, dst := s.pool.Room(len(bytes), 1)
			copy(dst, bytes)
			m.Ref = ref
			q.back.replayed = append(q.back.replayed, replayed{seq, epoch, resident{expiry: expiry, message: m, epoch: epoch}})
		})
	case kind == recordGone && at > q.back.position:
		q.back.gone = true
		err = readGone(rest, func(r SeqRange) {
			if e := q.back.recovery.Gone(r); e != nil {
				err = e
			}
		})
	}
	if err != nil {
		report.Damaged++
		s.o.Log.Error("a record of the journal makes no sense", "epoch", epoch, "error", err.Error())
	}
}

// comeBack puts the queue together: what its consumption record and the journal leave of what lies in runs and journal.
func (q *Classic) comeBack(cursor *storage.Cursor, unclean bool) (messages uint64, err error) {
	b := q.back
	q.back = nil
	s := q.store
	cursor.Reset(q.id)
	for _, e := range s.runs.Extents(q.id) {
		seqs := SeqRange{Seq(e.First), Seq(e.Last)}
		switch b.recovery.Found(Extent{SeqRange: seqs, Count: uint64(e.Records), Octets: e.Octets, Expiring: uint64(e.Expiring)}) {
		case Dead:
			continue // the sweep drops it
		case Mixed:
			if e := q.foundOneByOne(cursor, b.recovery, e); e != nil {
				err = e
			}
		}
		if int(seqs.Last.Level()) < len(q.log.levels) {
			lv := &q.log.levels[seqs.Last.Level()]
			lv.cold = max(lv.cold, seqs.Last.place())
		}
	}
	release := Releaser{Pool: q.pool}
	slices.SortStableFunc(b.replayed, func(a, b replayed) int {
		switch {
		case a.seq < b.seq:
			return -1
		case a.seq > b.seq:
			return 1
		}
		return 0
	})
	var before Seq
	for i := range b.replayed {
		r := &b.replayed[i]
		m := &r.message
		if r.seq == before || int(r.seq.Level()) >= len(q.log.levels) || q.log.cold(r.seq) || // told of already, by its run
			!b.recovery.FoundMessage(Meta{Seq: r.seq, Expiry: r.expiry, Size: m.Size, Flags: m.Flags}) {
			release.Add(m.Ref.Slab)
			continue
		}
		before = r.seq
		q.log.Put(r.seq, r.expiry, m)
		q.log.levels[r.seq.Level()].recent.Find(r.seq.place()).epoch = r.epoch
	}
	release.Flush()
	q.log.fresh = q.log.fresh[:0]
	q.journaled = true
	q.mu.Lock()
	q.state = b.recovery.State(b.config, &q.log, unclean)
	messages = q.state.Stats().Ready
	if q.log.len() > 0 || len(b.replayed) > 0 || b.gone { // its journal must not be cut without a new record
		q.changed = true
		s.soil(q)
	}
	q.mu.Unlock()
	return messages, err
}

// foundOneByOne tells the recovery of each message of an extent, and of no other that lies between them. Damaged pages are
// passed over; the first damage is returned.
func (q *Classic) foundOneByOne(cursor *storage.Cursor, r *Recovery, e storage.Extent) (damaged error) {
	var metas []storage.Meta
	for from := e.First; from <= e.Last; {
		var err error
		metas, err = cursor.AppendMetaOf(e.Run, metas[:0], from, e.Last, 4096)
		var damage *storage.RunDamage
		switch {
		case errors.As(err, &damage):
			damaged = cmp.Or(damaged, err)
			continue
		case err != nil:
			return err
		case len(metas) == 0:
			return damaged
		}
		for i := range metas {
			m := &metas[i]
			r.FoundMessage(Meta{Seq: Seq(m.Seq), Expiry: Time(m.Expiry), Size: m.Size, Flags: Flags(m.Flags)})
			from = m.Seq + 1
		}
	}
	return damaged
}

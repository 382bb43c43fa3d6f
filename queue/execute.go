package queue

import (
	"sync"

	"github.com/warrenmq/warren/storage"
)

// What the machine asks for in its Effects is carried out here: under the queue's lock what touches memory only, after it
// the rest.

// aftermath is what a command leaves to be done when the lock is released.
type aftermath struct {
	letters   []DeadLetter
	ranges    []SeqRange // theirs
	ticket    uint64     // of ranges, in limbo
	cold      []coldLetters
	cancelled []Outlet
	release   Releaser
	waiting   int // change in the number of messages in memory
	more      bool
	load      bool
}

var aftermaths = sync.Pool{New: func() any { return new(aftermath) }}

// do runs one command of the machine: command is called under the lock, its effects are carried out.
func (q *Classic) do(w *Wake, batch []Message, command func(now Time, fx *Effects)) {
	now := q.clock.Now()
	q.mu.Lock()
	if q.deleted {
		q.mu.Unlock()
		return
	}
	q.fx.Reset()
	command(now, &q.fx)
	after := q.carryOut(batch, w)
	q.mu.Unlock()
	q.finish(after, w)
}

// carryOut executes the effects in q.fx. Called with q.mu held; finish must follow without it.
func (q *Classic) carryOut(batch []Message, w *Wake) *aftermath {
	after := aftermaths.Get().(*aftermath)
	after.release.Pool = q.pool
	fx := &q.fx
	if len(q.log.fresh) > 0 { // before the effects, by which a message may leave in the command that brought it
		q.store.soil(q) // before the journal: a flush that cuts the record sees the queue
		q.journalEnqueued()
	}
	q.gone = q.gone[:0]
	if q.got != 0 {
		q.goes(q.got)
		q.got = 0
	}
	q.deliver(fx.Deliver, batch, w)
	for _, r := range fx.Removed {
		q.log.remove(r, func(_ Seq, m *Message) { after.release.Add(m.Ref.Slab) })
		q.gone = append(q.gone, r)
	}
	if len(fx.Discards) > 0 {
		q.discardUnder(after, batch)
	}
	for _, c := range fx.Cancel {
		if out := q.consumers[c]; out != nil {
			after.cancelled = append(after.cancelled, out)
			delete(q.consumers, c)
		}
	}

	for _, a := range fx.Activity {
		if out := q.consumers[a.Consumer]; out != nil {
			out.Activity(a.Active)
		}
	}
	after.waiting = q.log.changed()
	q.clock.Set(&q.appointment, q, fx.Due)
	if fx.More && !q.continuing {
		q.continuing, after.more = true, true
	}
	if q.store != nil {
		q.keep(after)
	}
	return after
}

// deadLetter is a message that leaves as d says.
func deadLetter(m Message, d *Discarded) DeadLetter {
	m.Flags = m.Flags.WithFailures(d.Failures)
	return DeadLetter{m, d.Reason, d.Failed}
}

// discardUnder takes the messages that leave unacknowledged out of the log. Where nobody wants dead letters they are gone
// at once. Called with q.mu held.
func (q *Classic) discardUnder(after *aftermath, batch []Message) {
	wanted := q.dead != nil && q.dead.Wanted()
	for _, d := range q.fx.Discards {
		if d.Direct >= 0 {
			after.letters = append(after.letters, deadLetter(batch[d.Direct], &d))
			continue
		}
		if !wanted {
			q.log.remove(d.SeqRange, func(_ Seq, m *Message) { after.letters = append(after.letters, deadLetter(*m, &d)) })
			q.gone = append(q.gone, d.SeqRange)
			continue
		}
		next := d.First // what lies on disk only is passed over
		q.log.remove(d.SeqRange, func(seq Seq, m *Message) {
			after.letters = append(after.letters, deadLetter(*m, &d))
			if seq > next {
				after.cold = append(after.cold, coldLetters{SeqRange: SeqRange{next, seq - 1}, reason: d.Reason, failed: d.Failed})
			}
			next = seq + 1
			if n := len(after.ranges); n > 0 && after.ranges[n-1].Last+1 == seq {
				after.ranges[n-1].Last = seq
			} else {
				after.ranges = append(after.ranges, SeqRange{seq, seq})
			}
		})
		if next <= d.Last {
			after.cold = append(after.cold, coldLetters{SeqRange: SeqRange{next, d.Last}, reason: d.Reason, failed: d.Failed})
		}
	}
	if q.store == nil {
		after.cold, after.ranges = after.cold[:0], after.ranges[:0]
	}
}

// keep does what a store is there for: what is gone enters the journal, what goes to other queues first is remembered, and
// what the machine waits for will be read. Called with q.mu held.
func (q *Classic) keep(after *aftermath) {
	q.journalGone(q.gone)
	for i := range after.cold {
		after.cold[i].ticket = q.leave(after.cold[i].SeqRange)
	}
	if len(after.ranges) > 0 {
		after.ticket = q.leave(after.ranges...)
	}
	if !q.loading && q.state.Cold() {
		q.loading, after.load = true, true
	}
}

// deliver hands messages to outlets, one Offer for each run of one consumer.
func (q *Classic) deliver(ds []Delivery, batch []Message, w *Wake) {
	for len(ds) > 0 {
		c := ds[0].Consumer
		offers := q.offers[:0]
		var slab uint32 // run of messages that stay in the queue and need a reference more
		var held int
		n := 0
		for ; n < len(ds) && ds[n].Consumer == c; n++ {
			d := &ds[n]
			var m Message
			switch {
			case d.Direct >= 0:
				m = batch[d.Direct]
			case d.Settled:
				m = q.log.take(d.Seq)
				q.goes(d.Seq)
			default:
				var kept bool
				if m, kept = q.log.lend(d.Seq); !kept {
					break
				}
				if m.Ref.Slab != slab && held > 0 {
					q.pool.Hold(slab, held)
					held = 0
				}
				slab = m.Ref.Slab
				held++
			}
			offers = append(offers, Offered{Message: m, ID: d.ID, Redelivered: d.Redelivered, Acquired: d.Acquired, Failed: d.Failed})
		}
		if held > 0 {
			q.pool.Hold(slab, held)
		}
		q.offers = offers
		if !q.consumers[c].Offer(offers, w) {
			q.state.Block(c)
		}
		ds = ds[n:]
	}
}

// goes notes that a message was settled by being handed over. Called with q.mu held.
func (q *Classic) goes(seq Seq) {
	if q.store == nil {
		return
	}
	if n := len(q.gone); n > 0 && q.gone[n-1].Last+1 == seq {
		q.gone[n-1].Last = seq
		return
	}
	q.gone = append(q.gone, SeqRange{seq, seq})
}

// finish does what carryOut left. Called without locks.
func (q *Classic) finish(after *aftermath, w *Wake) {
	after.release.Flush()
	q.pool.chargeWaiting(after.waiting)
	if len(after.cold) > 0 {
		cold := append([]coldLetters(nil), after.cold...)
		letters, ticket := append([]DeadLetter(nil), after.letters...), after.ticket
		q.store.loads.do(func(c *storage.Cursor) {
			q.readLetters(c, cold)
			var w Wake
			q.send(letters, ticket, &w)
			w.Flush()
		})
	} else if len(after.letters) > 0 || after.ticket != 0 {
		q.send(after.letters, after.ticket, w)
	}
	after.ticket = 0
	after.cold, after.letters, after.ranges = after.cold[:0], after.letters[:0], after.ranges[:0]
	for i, out := range after.cancelled {
		out.Cancelled(w)
		after.cancelled[i] = nil
	}
	after.cancelled = after.cancelled[:0]
	if after.more {
		after.more = false
		if q.store == nil {
			go q.goOn()
		} else {
			q.goOn()
		}
	}
	if after.load {
		after.load = false
		q.store.loads.do(q.load)
	}
	aftermaths.Put(after)
}

// send hands messages on to where dead letters go. The journal learns that they are gone when they have arrived there.
func (q *Classic) send(letters []DeadLetter, ticket uint64, w *Wake) {
	switch {
	case q.dead == nil:
		release := Releaser{Pool: q.pool}
		for i := range letters {
			release.Add(letters[i].Message.Ref.Slab)
		}
		release.Flush()
		q.arrived(ticket)
	case ticket == 0:
		q.dead.Discard(letters, w, nil)
	default:
		q.dead.Discard(letters, w, func() { q.arrived(ticket) })
	}
}

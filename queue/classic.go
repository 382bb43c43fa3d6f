package queue

import (
	"errors"
	"sync"

	"github.com/warrenmq/warren/storage"
)

// Errors of queue operations. Whoever speaks to a client turns them into its words.
var (
	ErrDeleted  = errors.New("queue: deleted")
	ErrNotEmpty = errors.New("queue: not empty")
	ErrInUse    = errors.New("queue: in use")
)

// ClassicRules are the rules of a classic queue with the given highest priority (0: none).
func ClassicRules(maxPriority int) Rules {
	return Rules{Levels: maxPriority + 1, Requeue: Original, ExclusiveConsumers: true, RejectBefore: true, DropBefore: true}
}

// DeadLetter is a message that left its queue without being acknowledged. It comes with a reference.
type DeadLetter struct {
	Message Message
	Reason  Reason
	Failed  bool
}

// DeadLetters takes what leaves a queue without being acknowledged: it routes it on, or drops it, and releases the
// references. Called without locks. The slice is the caller's.
type DeadLetters interface {
	// Discard may hand the messages on later. arrived, if not nil, is called when they are where they go, without locks.
	Discard(ds []DeadLetter, w *Wake, arrived func())
	// Wanted reports whether they go anywhere. It is called under the queue's lock and touches memory only.
	Wanted() bool
}

// Classic is a queue of this node: the consumption machine under one lock, its messages in memory.
//
// Under the lock only memory is touched: the machine runs, deliveries go into outlets. What may take other locks
// (confirms, dead letters, cancellations, released references) is gathered and done after it.
type Classic struct {
	pool  *Pool
	clock *Clock
	dead  DeadLetters

	mu          sync.Mutex // guards what follows; outlets lock under it
	state       *State
	log         messageLog
	consumers   map[ConsumerID]Outlet
	fx          Effects
	offers      []Offered
	deleted     bool
	continuing  bool
	appointment Appointment
	pressure    pressure

	// With a Store. The first three are set when the queue is made.
	store      *Store
	id         storage.LogID
	durable    bool
	back       *comeback    // until it has come back
	mark       storage.Mark // of what the last command journaled
	journaled  bool         // something of the queue may be in the journal
	changed    bool         // since the last consumption record
	dirty      bool         // in store.dirty
	loading    bool         // a worker reads for it
	ahead      int          // octets read at a time
	drops      int          // times that what was read ahead was let go
	limbo      []leaving    // dead letters that have left and not arrived
	lastLeft   uint64       // ticket given out last in limbo
	leftBefore uint64       // the same, when the running flush began
	gone       []SeqRange   // of the last command
	got        Seq          // settled by a Get
	waiting    []func()     // gets that wait for what is read
}

// maxLocked is how many messages are handled before the lock is given to others.
const maxLocked = 256

// NewClassic makes an empty queue. dead may be nil: what is discarded is dropped.
func NewClassic(rules Rules, config Config, pool *Pool, clock *Clock, dead DeadLetters) *Classic {
	q := &Classic{pool: pool, clock: clock, dead: dead, consumers: map[ConsumerID]Outlet{}}
	q.log = newMessageLog(levelsOf(rules))
	q.state = New(rules, config, &q.log)
	return q
}

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

// discardUnder takes the messages that leave unacknowledged out of the log. Where nobody wants dead letters they are gone
// at once. Called with q.mu held.
func (q *Classic) discardUnder(after *aftermath, batch []Message) {
	wanted := q.dead != nil && q.dead.Wanted()
	for _, d := range q.fx.Discards {
		if d.Direct >= 0 {
			after.letters = append(after.letters, DeadLetter{batch[d.Direct], d.Reason, d.Failed})
			continue
		}
		if !wanted {
			q.log.remove(d.SeqRange, func(_ Seq, m *Message) { after.letters = append(after.letters, DeadLetter{*m, d.Reason, d.Failed}) })
			q.gone = append(q.gone, d.SeqRange)
			continue
		}
		next := d.First // what lies on disk only is passed over
		q.log.remove(d.SeqRange, func(seq Seq, m *Message) {
			after.letters = append(after.letters, DeadLetter{*m, d.Reason, d.Failed})
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
		go q.goOn()
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

// goOn continues a command that stopped at its limit of effects, step by step, so that others get the lock in between.
func (q *Classic) goOn() {
	var w Wake
	for more := true; more; {
		more = false
		q.do(&w, nil, func(now Time, fx *Effects) {
			q.state.Continue(now, fx)
			more = fx.More
			q.continuing = more
		})
		w.Flush()
	}
}

// Tick is called by the clock when something is due.
func (q *Classic) Tick(Time) {
	var w Wake
	q.do(&w, nil, q.state.Tick)
	w.Flush()
}

// Publish implements Queue.
func (q *Classic) Publish(b *Batch, w *Wake) {
	for from := 0; from < len(b.Messages); from += maxLocked {
		to := min(from+maxLocked, len(b.Messages))
		var numbers []uint64
		if b.Confirms != nil {
			numbers = b.Numbers[from:to]
		}
		b.Pressed = q.publish(b.Messages[from:to], numbers, b.Confirms, w)
	}
}

func (q *Classic) publish(batch []Message, numbers []uint64, confirms Confirms, w *Wake) (pressed bool) {
	now := q.clock.Now()
	q.mu.Lock()
	if q.deleted { // a message for a queue that is gone counts as taken care of
		q.mu.Unlock()
		release := Releaser{Pool: q.pool}
		for i := range batch {
			release.Add(batch[i].Ref.Slab)
		}
		release.Flush()
		q.confirm(0, confirms, numbers, nil, w)
		return false
	}
	q.fx.Reset()
	q.state.Publish(now, batch, &q.fx)
	after := q.carryOut(batch, w)
	refused := q.refused(batch, after)
	mark := q.mark
	q.mark = 0
	pressed = q.pressure.look(now, &q.state.stats)
	q.mu.Unlock()
	q.finish(after, w)
	q.confirm(mark, confirms, numbers, refused, w)
	return pressed
}

// refused are the indexes of the messages that the queue did not take, ascending. Those that are not dead-lettered are
// released. Called with q.mu held.
func (q *Classic) refused(batch []Message, after *aftermath) (indexes []uint32) {
	for _, i := range q.fx.Refused {
		after.release.Add(batch[i].Ref.Slab)
		indexes = append(indexes, i)
	}
	for _, d := range q.fx.Discards {
		if d.Direct >= 0 {
			indexes = append(indexes, uint32(d.Direct))
		}
	}
	return indexes
}

// Attach implements Queue. Errors: ErrDeleted, ErrExclusive.
func (q *Classic) Attach(spec ConsumerSpec, out Outlet, w *Wake, done func(ConsumerID, error)) {
	id, err := ConsumerID(0), ErrDeleted
	now := q.clock.Now()
	q.mu.Lock()
	if q.deleted {
		q.mu.Unlock()
		done(0, err)
		return
	}
	q.fx.Reset()
	id, err = q.state.Attach(now, spec, &q.fx)
	if err == nil {
		q.consumers[id] = out
	}
	if err != nil {
		q.mu.Unlock()
		done(0, err)
		return
	}
	done(id, nil) // under the lock: consume-ok enters the outbox before the first delivery
	after := q.carryOut(nil, w)
	q.mu.Unlock()
	q.finish(after, w)
}

// Detach implements Queue.
func (q *Classic) Detach(c ConsumerID, how Detachment, w *Wake, done func()) {
	q.do(w, nil, func(now Time, fx *Effects) {
		q.state.Detach(now, c, how, fx)
		delete(q.consumers, c)
	})
	done()
}

// Ready implements Queue.
func (q *Classic) Ready(c ConsumerID, w *Wake) {
	q.do(w, nil, func(now Time, fx *Effects) { q.state.Ready(now, c, fx) })
}

// Settle implements Queue.
func (q *Classic) Settle(c ConsumerID, ids []Range, o Outcome, w *Wake) {
	q.do(w, nil, func(now Time, fx *Effects) { q.state.Settle(now, c, ids, o, fx) })
}

// Get implements Queue. Where messages have to be read from disk first, done runs later, on another goroutine.
func (q *Classic) Get(c ConsumerID, noAck bool, w *Wake, done func(Offered, uint64, bool)) {
	var o Offered
	var ok, cold bool
	var ready uint64
	q.do(w, nil, func(now Time, fx *Effects) {
		var d Delivery
		if d, ok = q.state.Get(now, c, noAck, fx); !ok {
			if cold = q.store != nil && q.state.Cold(); cold {
				q.waiting = append(q.waiting, func() {
					var w Wake
					q.Get(c, noAck, &w, done)
					w.Flush()
				})
			}
			return
		}
		o = Offered{ID: d.ID, Redelivered: d.Redelivered, Acquired: d.Acquired, Failed: d.Failed}
		if d.Settled {
			o.Message = q.log.take(d.Seq)
			q.got = d.Seq
		} else {
			var kept bool
			if o.Message, kept = q.log.lend(d.Seq); kept {
				q.pool.Hold(o.Message.Ref.Slab, 1)
			}
		}
		ready = q.state.Stats().Ready
	})
	if !cold {
		done(o, ready, ok)
	}
}

// Purge implements Queue.
func (q *Classic) Purge(w *Wake, done func(uint64)) {
	var n uint64
	q.do(w, nil, func(now Time, fx *Effects) { n = q.state.Purge(now, fx) })
	done(n)
}

// Configure implements Queue.
func (q *Classic) Configure(c Config, w *Wake) {
	q.do(w, nil, func(now Time, fx *Effects) { q.state.Configure(now, c, fx) })
}

// Delete implements Queue.
func (q *Classic) Delete(ifUnused, ifEmpty bool, w *Wake, done func(uint64, error)) {
	q.mu.Lock()
	var ready uint64
	var err error
	switch {
	case q.deleted:
	case ifEmpty && q.state.Stats().Ready > 0:
		err = ErrNotEmpty
	case ifUnused && q.state.Stats().Consumers > 0:
		err = ErrInUse
	default:
		ready = q.state.Stats().Ready
		q.deleted = true
	}
	if !q.deleted || err != nil {
		q.mu.Unlock()
		done(0, err)
		return
	}
	consumers := q.consumers
	q.consumers = nil
	log := q.log
	q.log.levels = nil
	q.clock.Drop(&q.appointment)
	waiting := q.waiting
	q.waiting = nil
	q.mu.Unlock()
	if q.store != nil {
		q.store.forget(q)
	}

	release := Releaser{Pool: q.pool}
	log.each(func(m *Message) { release.Add(m.Ref.Slab) })
	release.Flush()
	q.pool.chargeWaiting(-log.len())
	for _, retry := range waiting {
		retry()
	}
	done(ready, nil)
	for _, out := range consumers {
		out.Cancelled(w)
	}
}

// Stats implements Queue.
func (q *Classic) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state.Stats()
}

// confirm reports a batch of which the publishes at the indexes in refused were refused; the others when what the journal
// has up to mark is synced, 0: at once.
func (q *Classic) confirm(mark storage.Mark, confirms Confirms, numbers []uint64, refused []uint32, w *Wake) {
	if mark > 0 && q.store.journal.Backlog() > maxUnsynced {
		q.pool.Block(BlockedByBacklog, true)
		q.store.journal.Commit(mark)
	}
	if confirms == nil || len(numbers) == 0 {
		return
	}
	var taken, nacked [16]Range
	ok, not := taken[:0], nacked[:0]
	for i, n := range numbers {
		if len(refused) > 0 && int(refused[0]) == i {
			refused = refused[1:]
			not = appendNumber(not, n)
		} else {
			ok = appendNumber(ok, n)
		}
	}
	switch {
	case len(ok) == 0:
	case mark > 0:
		q.store.confirms.add(mark, confirms, ok, w)
	default:
		confirms.Settled(ok, true, w)
	}
	if len(not) > 0 {
		confirms.Settled(not, false, w)
	}
}

func appendNumber(rs []Range, n uint64) []Range {
	if k := len(rs); k > 0 && rs[k-1].Last+1 == n {
		rs[k-1].Last = n
		return rs
	}
	return append(rs, Range{n, n})
}

package queue

import (
	"errors"
	"sync"
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
	Discard(ds []DeadLetter, w *Wake)
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
	log         memoryLog
	consumers   map[ConsumerID]Outlet
	fx          Effects
	offers      []Offered
	deleted     bool
	continuing  bool
	appointment Appointment
}

// maxLocked is how many messages are handled before the lock is given to others.
const maxLocked = 256

// NewClassic makes an empty queue. dead may be nil: what is discarded is dropped.
func NewClassic(rules Rules, config Config, pool *Pool, clock *Clock, dead DeadLetters) *Classic {
	q := &Classic{pool: pool, clock: clock, dead: dead, consumers: map[ConsumerID]Outlet{}}
	q.log.levels = make([]Window[resident], rules.Levels)
	q.state = New(rules, config, &q.log)
	return q
}

// aftermath is what a command leaves to be done when the lock is released.
type aftermath struct {
	letters   []DeadLetter
	cancelled []Outlet
	release   Releaser
	more      bool
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
	q.deliver(fx.Deliver, batch, w)
	for _, r := range fx.Removed {
		q.log.remove(r, func(m *Message) { after.release.Add(m.Ref.Slab) })
	}
	for _, d := range fx.Discards {
		if d.Direct >= 0 {
			after.letters = append(after.letters, DeadLetter{batch[d.Direct], d.Reason, d.Failed})
			continue
		}
		q.log.remove(d.SeqRange, func(m *Message) {
			after.letters = append(after.letters, DeadLetter{*m, d.Reason, d.Failed})
		})
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
	q.clock.Set(&q.appointment, q, fx.Due)
	if fx.More && !q.continuing {
		q.continuing, after.more = true, true
	}
	return after
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
			default:
				m = q.log.find(d.Seq).message
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

// finish does what carryOut left. Called without locks.
func (q *Classic) finish(after *aftermath, w *Wake) {
	after.release.Flush()
	if len(after.letters) > 0 {
		q.discard(after.letters, w)
		after.letters = after.letters[:0]
	}
	for i, out := range after.cancelled {
		out.Cancelled(w)
		after.cancelled[i] = nil
	}
	after.cancelled = after.cancelled[:0]
	if after.more {
		after.more = false
		go q.goOn()
	}
	aftermaths.Put(after)
}

func (q *Classic) discard(letters []DeadLetter, w *Wake) {
	if q.dead != nil {
		q.dead.Discard(letters, w)
		return
	}
	release := Releaser{Pool: q.pool}
	for i := range letters {
		release.Add(letters[i].Message.Ref.Slab)
	}
	release.Flush()
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
		q.publish(b.Messages[from:to], numbers, b.Confirms, w)
	}
}

func (q *Classic) publish(batch []Message, numbers []uint64, confirms Confirms, w *Wake) {
	now := q.clock.Now()
	q.mu.Lock()
	if q.deleted { // a message for a queue that is gone counts as taken care of
		q.mu.Unlock()
		release := Releaser{Pool: q.pool}
		for i := range batch {
			release.Add(batch[i].Ref.Slab)
		}
		release.Flush()
		confirm(confirms, numbers, nil, w)
		return
	}
	q.fx.Reset()
	q.state.Publish(now, batch, &q.fx)
	after := q.carryOut(batch, w)
	refused := q.refused(batch, after)
	q.mu.Unlock()
	q.finish(after, w)
	confirm(confirms, numbers, refused, w)
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

// Get implements Queue.
func (q *Classic) Get(c ConsumerID, noAck bool, w *Wake, done func(Offered, uint64, bool)) {
	var o Offered
	var ok bool
	var ready uint64
	q.do(w, nil, func(now Time, fx *Effects) {
		var d Delivery
		if d, ok = q.state.Get(now, c, noAck, fx); !ok {
			return
		}
		o = Offered{ID: d.ID, Redelivered: d.Redelivered, Acquired: d.Acquired, Failed: d.Failed}
		if d.Settled {
			o.Message = q.log.take(d.Seq)
		} else {
			o.Message = q.log.find(d.Seq).message
			q.pool.Hold(o.Message.Ref.Slab, 1)
		}
		ready = q.state.Stats().Ready
	})
	done(o, ready, ok)
}

// Purge implements Queue.
func (q *Classic) Purge(w *Wake, done func(uint64)) {
	var n uint64
	q.do(w, nil, func(now Time, fx *Effects) { n = q.state.Purge(now, fx) })
	done(n)
}

// Configure changes the limits.
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
	q.mu.Unlock()

	release := Releaser{Pool: q.pool}
	log.each(func(m *Message) { release.Add(m.Ref.Slab) })
	release.Flush()
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

// confirm reports a batch of which the publishes at the indexes in refused were refused.
func confirm(confirms Confirms, numbers []uint64, refused []uint32, w *Wake) {
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
	if len(ok) > 0 {
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

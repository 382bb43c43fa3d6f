package queue

import (
	"errors"
	"sync"
	"time"

	"github.com/warrenmq/warren/storage"
)

// Errors of queue operations. Whoever speaks to a client turns them into its words.
var (
	ErrNoReplica = errors.New("queue: no sound replica on this node")
	ErrDeleted   = errors.New("queue: deleted")
	ErrNotEmpty  = errors.New("queue: not empty")
	ErrInUse     = errors.New("queue: in use")
	// ErrDown: it lives on another node, which cannot be reached.
	ErrDown = errors.New("queue: its home node is down or inaccessible")
)

// ClassicRules are the rules of a classic queue with the given highest priority (0: none).
func ClassicRules(maxPriority int) Rules {
	return Rules{Levels: maxPriority + 1, Requeue: Original, ExclusiveConsumers: true, RejectBefore: true, DropBefore: true}
}

// DeadLetter is a message that left its queue without being acknowledged. It comes with a reference. Its Flags tell how
// often it failed there, where that is counted (Discarded.Failures).
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
	closing     bool // to be deleted: nobody attaches any more
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
	parting    func(*Wake)  // runs when the letters up to lastParted have arrived; nil: nobody waits
	lastParted uint64
	gone       []SeqRange // of the last command
	got        Seq        // settled by a Get
	waiting    []func()   // gets that wait for what is read
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

// goOn continues a command that stopped at its limit of effects, step by step, so that others get the lock in between.
func (q *Classic) goOn() {
	if q.store == nil {
		for q.goOnOnce(MaxEffects) {
			time.Sleep(time.Millisecond)
		}
		return
	}
	q.store.background.do(q.continueStep)
}

func (q *Classic) continueStep(*storage.Cursor) {
	if q.goOnOnce(stepMessages) {
		q.store.background.after(q.strain(), q.continueStep)
	}
}

// goOnOnce does so for at most limit messages, and reports whether there are more.
func (q *Classic) goOnOnce(limit int) (more bool) {
	var w Wake
	q.do(&w, nil, func(now Time, fx *Effects) {
		q.state.maxEffects = limit
		q.state.Continue(now, fx)
		q.state.maxEffects = MaxEffects
		more = fx.More
		q.continuing = more
	})
	w.Flush()
	return more
}

// strainedRest is the rest while dead letters come faster than memory and journal get rid of them.
const strainedRest = 10 * time.Millisecond

// strain is for how long a queue that expires or drops a great many messages should do nothing, lest its dead letters take
// the room that publishers need.
func (q *Classic) strain() time.Duration {
	if q.pool.InUse() > q.pool.Bound()/8*5 || q.store.journal.Backlog() > maxUnsynced/4 {
		return strainedRest
	}
	return 0
}

// Tick is called by the clock when something is due.
func (q *Classic) Tick(Time) {
	var w Wake
	q.do(&w, nil, q.state.Tick)
	w.Flush()
}

// Publish implements Queue.
func (q *Classic) Publish(b *Batch, w *Wake) {
	b.Refused = 0
	for from := 0; from < len(b.Messages); from += maxLocked {
		to := min(from+maxLocked, len(b.Messages))
		var numbers []uint64
		if b.Confirms != nil {
			numbers = b.Numbers[from:to]
		}
		pressed, refused := q.publish(b.Messages[from:to], numbers, b.Confirms, w)
		b.Pressed = pressed
		b.Refused += refused
	}
}

func (q *Classic) publish(batch []Message, numbers []uint64, confirms Confirms, w *Wake) (pressed bool, lost int) {
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
		return false, 0
	}
	q.fx.Reset()
	q.state.Publish(now, batch, &q.fx)
	after := q.carryOut(batch, w)
	lost = len(q.fx.Refused)
	refused := q.refused(batch, after)
	mark := q.mark
	q.mark = 0
	pressed = q.pressure.look(now, &q.state.stats)
	q.mu.Unlock()
	q.finish(after, w)
	q.confirm(mark, confirms, numbers, refused, w)
	return pressed, lost
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
	if q.closing {
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

// Gate implements Gated.
func (q *Classic) Gate(c ConsumerID, g Gate) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state.Gate(c, g)
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

// Delete implements Queue. Errors: ErrNotEmpty, ErrInUse, ErrDeleted.
func (q *Classic) Delete(ifUnused, ifEmpty bool, w *Wake, done func(uint64, error)) {
	q.mu.Lock()
	ready := q.state.Stats().Ready
	var err error
	switch {
	case q.closing:
		err = ErrDeleted
	case ifEmpty && ready > 0:
		err = ErrNotEmpty
	case ifUnused && q.state.Stats().Consumers > 0:
		err = ErrInUse
	}
	if err != nil {
		q.mu.Unlock()
		done(0, err)
		return
	}
	q.closing = true
	q.mu.Unlock()
	if q.store == nil || !q.durable {
		consumers := q.end()
		done(ready, nil)
		for _, out := range consumers {
			out.Cancelled(w)
		}
		return
	}
	q.whenSettled(w, func(w *Wake) {
		q.store.confirms.add(q.store.journal.Appended(), whenSynced(func() { done(ready, nil) }), []Range{{1, 1}}, w)
	})
}

// Forget implements Queue.
func (q *Classic) Forget(w *Wake) {
	for _, out := range q.end() {
		out.Cancelled(w)
	}
}

// end drops what the queue has and returns its consumers.
func (q *Classic) end() map[ConsumerID]Outlet {
	q.mu.Lock()
	if q.deleted {
		q.mu.Unlock()
		return nil
	}
	q.deleted, q.closing = true, true
	consumers := q.consumers
	q.consumers = nil
	log := q.log
	q.log.levels = nil
	q.clock.Drop(&q.appointment)
	waiting := q.waiting
	q.waiting = nil
	parting := q.parting
	q.parting = nil
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
	if parting != nil {
		var w Wake
		parting(&w)
		w.Flush()
	}
	return consumers
}

// whenSynced is called, as a publisher's channel would be, when the journal is synced.
type whenSynced func()

// Settled implements Confirms.
func (f whenSynced) Settled([]Range, bool, *Wake) { f() }

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
		q.store.caughtUp() // which may have been before it was said
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

package quorum

import (
	"encoding/binary"
	"sync"

	"github.com/warrenmq/warren/queue"
)

// Queue is a quorum queue as this node's connections see it. It implements queue.Queue: commands go into the log, and what
// becomes of them is reported when they have been applied, on another goroutine.
type Queue struct {
	id   uint64
	host *Host
	slot *slot
	dead queue.DeadLetters
	lane lane

	mu        sync.Mutex                     // guards what follows; outlets lock under it
	consumers map[queue.ConsumerID]*consumer // nil: none
	config    queue.Config                   // as metadata says
}

// consumer is a consumer or getter of this node.
type consumer struct {
	queue  *Queue
	id     queue.ConsumerID
	out    queue.Outlet
	noAck  bool
	getter bool

	// Guarded by queue.mu.
	pending []pending        // handed out by the machine, not offered yet
	taken   []queue.Range    // offered, to be settled for it
	blocked bool             // its outlet is full, until Ready
	posted  bool             // the dispatcher will look at it
	gone    bool             // gets nothing more; it may hold something that its owner settles
	empty   bool             // it was ended, and holds nothing
	last    queue.DeliveryID // handed out by the machine last
	active  bool             // what its outlet was told last
}

// pending is a delivery that waits for room, without the message.
type pending struct {
	seq              queue.Seq
	id               queue.DeliveryID
	acquired, failed uint32
	redelivered      bool
}

func pendingOf(d *delivery) pending {
	return pending{d.seq, d.id, d.acquired, d.failed, d.redelivered}
}

func (p *pending) delivery() delivery {
	return delivery{seq: p.seq, id: p.id, acquired: p.acquired, failed: p.failed, redelivered: p.redelivered}
}

// Publish implements queue.Queue.
func (q *Queue) Publish(b *queue.Batch, w *queue.Wake) {
	ms := b.Messages
	b.Refused, b.Pressed = 0, false
	release := queue.Releaser{Pool: q.slot.pool}
	for from := 0; from < len(ms); {
		to, octets := from, 0
		for ; to < len(ms) && (to == from || octets+int(ms[to].Ref.Len) <= maxBatch); to++ {
			octets += int(ms[to].Ref.Len)
		}
		part := ms[from:to]
		taken := q.slot.proposer.Add(&q.lane, func(x *batch) {
			if free := cap(x.Buf) - len(x.Buf); free < publishLen(len(part))+octets {
				grown := make([]byte, len(x.Buf), max(2*cap(x.Buf), len(x.Buf)+publishLen(len(part))+octets))
				copy(grown, x.Buf)
				x.Buf = grown
			}
			x.Buf = appendPublish(x.Buf, q.id, part, q.slot.pool)
			p := published{confirms: b.Confirms, from: len(x.numbers)}
			if sabotageConfirm {
				p.confirms = nil
			}
			if b.Confirms != nil {
				for i := from; i < to; i++ {
					n := queue.Range{First: b.Numbers[i], Last: b.Numbers[i]}
					if k := len(x.numbers); k > p.from {
						x.numbers = appendRange(x.numbers, n)
					} else {
						x.numbers = append(x.numbers, n)
					}
				}
			}
			p.to = len(x.numbers)
			x.publishes = append(x.publishes, p)
		})
		if sabotageConfirm && taken && b.Confirms != nil {
			b.Confirms.Settled(rangesOf(b.Numbers[from:to]), true, w)
		}
		if !taken && b.Confirms != nil {
			b.Confirms.Settled(rangesOf(b.Numbers[from:to]), false, w)
		}
		from = to
	}
	for i := range ms {
		release.Add(ms[i].Ref.Slab)
	}
	release.Flush()
}

func rangesOf(numbers []uint64) (rs []queue.Range) {
	for _, n := range numbers {
		rs = appendRange(rs, queue.Range{First: n, Last: n})
	}
	return rs
}

// Full implements queue.Bounded.
func (q *Queue) Full() bool { return q.lane.Full() }

// WaitForRoom implements queue.Bounded.
func (q *Queue) WaitForRoom(wake func()) { q.slot.proposer.WaitForRoom(&q.lane, wake) }

// ask adds a command that has an answer. When the node is going down there is none.
func (q *Queue) ask(k kind, rest func(dst []byte) []byte, answer func(*dispatcher, *result)) {
	q.slot.proposer.Add(&q.lane, func(b *batch) {
		b.Buf = appendCommand(b.Buf, k, q.id)
		if rest != nil {
			b.Buf = rest(b.Buf)
		}
		b.waiters = append(b.waiters, answer)
	})
}

// propose adds a command that has nothing more to say and no answer.
func (q *Queue) propose(k kind) {
	q.slot.proposer.Add(&q.lane, func(b *batch) { b.Buf = appendCommand(b.Buf, k, q.id) })
}

// Attach implements queue.Queue. Errors: queue.ErrDeleted, queue.ErrExclusive.
func (q *Queue) Attach(spec queue.ConsumerSpec, out queue.Outlet, w *queue.Wake, done func(queue.ConsumerID, error)) {
	var flags byte
	if spec.Getter {
		flags |= attachGetter
	}
	if spec.Exclusive {
		flags |= attachExclusive
	}
	prefetch, timeout := spec.Prefetch, spec.Timeout
	if spec.NoAck { // it has no deadline for what it does not acknowledge
		prefetch, timeout = 0, -1
	}
	q.ask(cmdAttach, func(dst []byte) []byte {
		dst = append(dst, flags)
		dst = binary.AppendUvarint(dst, uint64(prefetch))
		dst = binary.AppendVarint(dst, int64(spec.Priority))
		return binary.AppendVarint(dst, timeout)
	}, func(d *dispatcher, r *result) {
		id := queue.ConsumerID(r.count)
		if err := r.code.err(); err != nil {
			done(0, err)
			return
		}
		q.mu.Lock()
		if q.consumers == nil {
			q.consumers = map[queue.ConsumerID]*consumer{}
		}
		q.consumers[id] = &consumer{queue: q, id: id, out: out, noAck: spec.NoAck, getter: spec.Getter}
		q.mu.Unlock()
		done(id, nil)
	})
}

// Detach implements queue.Queue.
func (q *Queue) Detach(id queue.ConsumerID, how queue.Detachment, w *queue.Wake, done func()) {
	q.ask(cmdDetach, func(dst []byte) []byte {
		return append(binary.AppendUvarint(dst, uint64(id)), byte(how))
	}, func(d *dispatcher, _ *result) {
		if c := q.leave(id, how); c != nil {
			d.settleTaken(c)
			var back []queue.Range
			q.mu.Lock()
			for i := range c.pending {
				back = appendRange(back, queue.Range{First: c.pending[i].id, Last: c.pending[i].id})
			}
			c.pending = nil
			q.mu.Unlock()
			if how == queue.Cancel { // nobody will ever see them
				q.settle(id, back, queue.Return)
			}
		}
		done()
	})
}

// leave has nothing more offered to a consumer. One that is cancelled stays known until it holds nothing: should the machine take that
// back, its owner hears of it. It returns nil if there is none.
func (q *Queue) leave(id queue.ConsumerID, how queue.Detachment) *consumer {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.consumers[id]
	if c != nil {
		c.gone = true
		if how == queue.Remove || c.empty {
			q.drop(id)
		}
	}
	return c
}

// left says that the machine has forgotten a consumer, which was ended and holds nothing.
func (q *Queue) left(id queue.ConsumerID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c := q.consumers[id]; c != nil {
		c.empty = true
		if c.gone {
			q.drop(id)
		}
	}
}

// forget takes a consumer out: nothing more is offered to it. It returns nil if there is none.
func (q *Queue) forget(id queue.ConsumerID) *consumer {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.consumers[id]
	if c != nil {
		c.gone = true
		q.drop(id)
	}
	return c
}

// drop takes a consumer out. A queue that nobody uses keeps no room for them. Called with mu.
func (q *Queue) drop(id queue.ConsumerID) {
	if delete(q.consumers, id); len(q.consumers) == 0 {
		q.consumers = nil
	}
}

// end takes all consumers out, and returns those that are not getters.
func (q *Queue) end() (cs []*consumer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for id, c := range q.consumers {
		c.gone = true
		q.drop(id)
		if c.out != nil {
			cs = append(cs, c)
		}
	}
	return cs
}

// activity tells a consumer whether it is the active one.
func (q *Queue) activity(id queue.ConsumerID, active bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c := q.consumers[id]; c != nil && c.out != nil && c.active != active {
		c.active = active
		c.out.Activity(active)
	}
}

// Ready implements queue.Queue.
func (q *Queue) Ready(id queue.ConsumerID, w *queue.Wake) {
	q.mu.Lock()
	c := q.consumers[id]
	if c == nil {
		q.mu.Unlock()
		return
	}
	c.blocked = false
	post := len(c.pending) > 0 && !c.posted
	c.posted = c.posted || post
	q.mu.Unlock()
	if post {
		q.slot.machine.ring.post(c)
	}
}

// Get implements queue.Queue.
func (q *Queue) Get(id queue.ConsumerID, noAck bool, w *queue.Wake, done func(queue.Offered, uint64, bool)) {
	q.ask(cmdGet, func(dst []byte) []byte { return binary.AppendUvarint(dst, uint64(id)) }, func(d *dispatcher, r *result) {
		if r.got.Seq == 0 {
			done(queue.Offered{}, 0, false)
			return
		}
		x := delivery{
			seq: r.got.Seq, id: r.got.ID, acquired: r.got.Acquired, failed: r.got.Failed, redelivered: r.got.Redelivered,
			message: r.body, held: r.body.Ref.Len > 0,
		}
		if !x.held {
			ds, _, err := d.fetch(q, []pending{pendingOf(&x)})
			if err != nil {
				q.settle(id, []queue.Range{{First: x.id, Last: x.id}}, queue.Return)
				done(queue.Offered{}, 0, false)
				return
			}
			x = ds[0]
		}
		if noAck || !x.held { // a message that is damaged goes, too
			q.settle(id, []queue.Range{{First: x.id, Last: x.id}}, outcomeGot)
		}
		if x.held {
			x.message = d.outward(x.message)
		}
		done(queue.Offered{Message: x.message, ID: x.id, Redelivered: x.redelivered, Acquired: x.acquired, Failed: x.failed}, r.count, x.held)
	})
}

// Settle implements queue.Queue.
func (q *Queue) Settle(id queue.ConsumerID, ids []queue.Range, o queue.Outcome, w *queue.Wake) {
	q.settle(id, ids, o)
}

func (q *Queue) settle(id queue.ConsumerID, ids []queue.Range, o queue.Outcome) {
	if len(ids) == 0 {
		return
	}
	q.slot.proposer.Add(&q.lane, func(b *batch) { b.Buf = appendSettle(b.Buf, q.id, id, o, ids) })
}

// Purge implements queue.Queue.
func (q *Queue) Purge(w *queue.Wake, done func(uint64)) {
	q.ask(cmdPurge, nil, func(_ *dispatcher, r *result) { done(r.count) })
}

// Configure implements queue.Queue. In a cluster every node does it, and what the leading one says counts.
func (q *Queue) Configure(c queue.Config, w *queue.Wake) {
	q.mu.Lock()
	q.config = c
	q.mu.Unlock()
	q.host.mu.Lock()
	complete := q.host.complete
	q.host.mu.Unlock()
	if complete {
		q.create(cmdCreate, c)
	}
}

// create has the queue made (cmdDeclare), or given other limits if it is there (cmdCreate).
func (q *Queue) create(k kind, c queue.Config) {
	q.slot.proposer.Add(&q.lane, func(b *batch) {
		b.Buf = appendConfig(append(appendCommand(b.Buf, k, q.id), rulesVersion), &c)
	})
}

// Delete implements queue.Queue: the queue stays as it is until Forget.
func (q *Queue) Delete(ifUnused, ifEmpty bool, w *queue.Wake, done func(uint64, error)) {
	var flags byte
	if ifUnused {
		flags |= deleteIfUnused
	}
	if ifEmpty {
		flags |= deleteIfEmpty
	}
	q.ask(cmdMayDelete, func(dst []byte) []byte { return append(dst, flags) }, func(_ *dispatcher, r *result) {
		done(r.count, r.code.err())
	})
}

// Forget implements queue.Queue.
func (q *Queue) Forget(*queue.Wake) { q.propose(cmdDelete) }

// Stats implements queue.Queue.
func (q *Queue) Stats() queue.Stats {
	m := q.slot.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.queues[q.id]; r != nil {
		return r.stats()
	}
	return queue.Stats{}
}

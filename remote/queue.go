package remote

import (
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/warrenmq/warren/cluster"
	"github.com/warrenmq/warren/octet"
	"github.com/warrenmq/warren/queue"
)

// ID names a queue on all nodes. What the two numbers mean is for those who give them out.
type ID struct{ Scope, Number uint64 }

// Queue is a queue of another node as this node's connections see it. It implements queue.Queue.
//
// While its home is down, or when it goes down before it has answered: publishes are refused, or dropped where no confirms
// are wanted; consumers are cancelled; Attach, Delete and Ask fail with ErrDown; Get finds nothing, and Purge drops nothing.
// A ConsumerSpec's Gate is not asked.
type Queue struct {
	id      ID
	lane    *lane
	pressed atomic.Int64 // its consumers cannot keep up, until this Time
	watched atomic.Int64 // when the home was asked last to tell the counts

	mu    sync.Mutex // guards what follows; a leaf
	stats queue.Stats
}

// Home is the node where the queue lives.
func (q *Queue) Home() cluster.NodeID { return q.lane.peer.id }

// Down says that the queue's home cannot be reached: what is asked of the queue fails.
func (q *Queue) Down() bool {
	q.lane.mu.Lock()
	defer q.lane.mu.Unlock()
	return !q.lane.up
}

// Publish implements queue.Queue.
func (q *Queue) Publish(b *queue.Batch, w *queue.Wake) {
	b.Refused, b.Pressed = 0, false
	if len(b.Messages) == 0 {
		return
	}
	l := q.lane
	l.mu.Lock()
	if !l.up {
		l.mu.Unlock()
		releaseAll(l.host.o.Pool, b.Messages)
		if b.Confirms == nil {
			l.host.dropped.Add(uint64(len(b.Messages)))
			return
		}
		var some [16]queue.Range
		b.Confirms.Settled(rangesOf(some[:0], b.Numbers), false, w)
		return
	}
	it := item{kind: itemPublish, n: len(b.Messages), id: q.id}
	if b.Confirms != nil {
		it.first = l.firstOpen + uint64(l.open.len())
		for _, n := range b.Numbers {
			l.open.add(open{b.Confirms, n})
		}
	}
	l.items.add(it)
	l.messages.add(b.Messages...)
	for i := range b.Messages {
		l.bodies += int(b.Messages[i].Ref.Len)
	}
	l.weigh()
	l.wake(w)
	b.Pressed = l.weight > pressedOctets
	l.mu.Unlock()
	b.Pressed = b.Pressed || q.pressed.Load() > int64(l.host.o.Clock.Now())
}

func rangesOf(dst []queue.Range, numbers []uint64) []queue.Range {
	for _, n := range numbers {
		dst = appendNumber(dst, n)
	}
	return dst
}

func appendNumber(rs []queue.Range, n uint64) []queue.Range {
	if k := len(rs); k > 0 && rs[k-1].Last+1 == n {
		rs[k-1].Last = n
		return rs
	}
	return append(rs, queue.Range{First: n, Last: n})
}

// command adds one that has no answer. It does nothing when the home is down.
func (q *Queue) command(c command, w *queue.Wake, rest func(dst []byte) []byte) {
	l := q.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.up {
		l.write(func(dst []byte) []byte { return rest(appendCommand(dst, c, q.id)) })
		l.wake(w)
	}
}

// ask adds a command that has an answer. It returns false when the home is down.
func (q *Queue) ask(c command, w *queue.Wake, a ask, rest func(dst []byte) []byte) bool {
	l := q.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.up {
		return false
	}
	l.lastAsk++
	l.asks[l.lastAsk] = a
	l.write(func(dst []byte) []byte {
		dst = binary.AppendUvarint(appendCommand(dst, c, q.id), uint64(l.lastAsk))
		if rest != nil {
			dst = rest(dst)
		}
		return dst
	})
	l.wake(w)
	return true
}

// Attach implements queue.Queue. Errors: those of the queue, ErrDown, ErrFailed.
func (q *Queue) Attach(spec queue.ConsumerSpec, out queue.Outlet, w *queue.Wake, done func(queue.ConsumerID, error)) {
	l := q.lane
	c := &consumer{queue: q, out: out, noAck: spec.NoAck, getter: spec.Getter, window: int(spec.Window), done: done}
	if c.window == 0 {
		c.window = queue.DefaultWindow
	}
	c.room = c.window
	flags := octet.Of(spec.NoAck)*attachNoAck | octet.Of(spec.Exclusive)*attachExclusive | octet.Of(spec.Getter)*attachGetter
	l.mu.Lock()
	if !l.up {
		l.mu.Unlock()
		done(0, ErrDown)
		return
	}
	l.lastHandle++
	c.handle = l.lastHandle
	l.consumers[c.handle] = c
	l.write(func(dst []byte) []byte {
		dst = binary.AppendUvarint(appendCommand(dst, cmdAttach, q.id), uint64(c.handle))
		dst = binary.AppendUvarint(append(dst, flags), uint64(spec.Prefetch))
		dst = binary.AppendVarint(dst, int64(spec.Priority))
		dst = binary.AppendUvarint(dst, uint64(spec.Window))
		dst = binary.AppendVarint(dst, spec.Timeout)
		return binary.AppendUvarint(dst, spec.Session)
	})
	l.wake(w)
	l.mu.Unlock()
}

// Detach implements queue.Queue.
func (q *Queue) Detach(id queue.ConsumerID, how queue.Detachment, w *queue.Wake, done func()) {
	l := q.lane
	l.mu.Lock()
	if c := l.consumers[uint32(id)]; c != nil {
		c.detaching = true
	}
	l.mu.Unlock()
	if !q.ask(cmdDetach, w, ask{answer: repDetached, detached: done, handle: uint32(id)}, func(dst []byte) []byte {
		return append(binary.AppendUvarint(dst, uint64(id)), byte(how))
	}) {
		done()
	}
}

// Ready implements queue.Queue.
func (q *Queue) Ready(id queue.ConsumerID, w *queue.Wake) {
	l := q.lane
	l.mu.Lock()
	c := l.consumers[uint32(id)]
	l.mu.Unlock()
	if c == nil {
		return
	}
	c.mu.Lock()
	c.full, c.room = false, c.window
	c.pass(w)
	c.mu.Unlock()
}

// Get implements queue.Queue.
func (q *Queue) Get(id queue.ConsumerID, noAck bool, w *queue.Wake, done func(queue.Offered, uint64, bool)) {
	if !q.ask(cmdGet, w, ask{answer: repGot, got: done}, func(dst []byte) []byte {
		return append(binary.AppendUvarint(dst, uint64(id)), octet.Of(noAck))
	}) {
		done(queue.Offered{}, 0, false)
	}
}

// Settle implements queue.Queue.
func (q *Queue) Settle(id queue.ConsumerID, ids []queue.Range, o queue.Outcome, w *queue.Wake) {
	if len(ids) == 0 {
		return
	}
	l := q.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.up { // without a closure: they are as frequent as messages
		from := len(l.text.list)
		dst := binary.AppendUvarint(appendCommand(l.text.list, cmdSettle, q.id), uint64(id))
		l.text.list = queue.AppendRanges(append(dst, byte(o)), ids)
		l.wrote(from)
		l.wake(w)
	}
}

// Purge implements queue.Queue.
func (q *Queue) Purge(w *queue.Wake, done func(uint64)) {
	if !q.ask(cmdPurge, w, ask{answer: repPurged, purged: done}, nil) {
		done(0)
	}
}

// Configure implements queue.Queue. A home that is down finds out by itself what the limits are.
func (q *Queue) Configure(c queue.Config, w *queue.Wake) {
	q.command(cmdConfigure, w, func(dst []byte) []byte { return queue.AppendConfig(dst, &c) })
}

// Delete implements queue.Queue. Errors: those of the queue, ErrDown, ErrFailed.
func (q *Queue) Delete(ifUnused, ifEmpty bool, w *queue.Wake, done func(uint64, error)) {
	flags := octet.Of(ifUnused)*deleteIfUnused | octet.Of(ifEmpty)*deleteIfEmpty
	if !q.ask(cmdDelete, w, ask{answer: repDeleted, deleted: done}, func(dst []byte) []byte { return append(dst, flags) }) {
		done(0, ErrDown)
	}
}

// Forget implements queue.Queue. The home forgets it too.
func (q *Queue) Forget(w *queue.Wake) {
	q.command(cmdForget, w, func(dst []byte) []byte { return dst })
	l := q.lane
	l.mu.Lock()
	if l.queues[q.id] == q {
		delete(l.queues, q.id)
	}
	var gone []*consumer
	for handle, c := range l.consumers {
		if c.queue == q && c.attached && !c.detaching { // the others wait for an answer
			gone = append(gone, c)
			delete(l.consumers, handle)
		}
	}
	l.mu.Unlock()
	for _, c := range gone {
		c.cancelled(w)
	}
}

// Stats implements queue.Queue: what the home told last. It tells when they were asked for, and then what has changed, at
// most once a second, as long as somebody asks; those asked for after a while are old.
func (q *Queue) Stats() queue.Stats {
	l := q.lane
	now := int64(l.host.o.Clock.Now())
	if last := q.watched.Load(); (last == 0 || now-last > watchRenewed) && q.watched.CompareAndSwap(last, now) {
		l.mu.Lock()
		if l.up {
			l.write(func(dst []byte) []byte { return appendCommand(dst, cmdWatch, q.id) })
			l.later()
		}
		l.mu.Unlock()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.stats
}

// Ask asks the home for the counts of now, behind everything asked of the queue before. Errors: ErrDown, queue.ErrDeleted.
func (q *Queue) Ask(w *queue.Wake, done func(queue.Stats, error)) {
	if !q.ask(cmdStats, w, ask{answer: repStats, stats: done}, nil) {
		done(queue.Stats{}, ErrDown)
	}
}

// told takes counts.
func (q *Queue) told(s queue.Stats) {
	q.mu.Lock()
	q.stats = s
	q.mu.Unlock()
}

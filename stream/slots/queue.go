package slots

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/stream"
	"github.com/warrenmq/warren/stream/message"
)

// Queue is a stream as this node's connections see it. It implements queue.Queue: what is published goes into the log, and is
// confirmed when it has been applied; consumers read this node's replica.
type Queue struct {
	id      uint64
	slot    *slot
	host    *Host
	name    string
	key     []byte // name, as a routing key
	filter  uint8
	segment int64
	lane    lane

	// What the machine shows of the replica, so that nobody waits for its lock where connections are served.
	first, next atomic.Uint64
	log         atomic.Pointer[stream.Log] // nil: there is none

	grown                       atomic.Bool // the dispatcher has it in hand
	published, delivered, acked atomic.Uint64

	mu        sync.Mutex // guards what follows
	consumers map[queue.ConsumerID]*consumer
	last      queue.ConsumerID
	over      bool // it was deleted
	config    queue.Config
	parked    []parked
}

// errGetter is of who wants single messages: that is refused before it comes here.
var errGetter = errors.New("stream: no single messages")

// converted are messages as a stream's entries.
type converted struct {
	buf     []byte
	entries []entry
}

type entry struct {
	end    int // in buf
	number uint64
	filter []byte
}

var conversions = sync.Pool{New: func() any { return new(converted) }}

// Publish implements queue.Queue. Messages that cannot be entries are refused, and all are while this node's replica lacks
// something.
func (q *Queue) Publish(b *queue.Batch, w *queue.Wake) {
	m := conversions.Get().(*converted)
	m.buf, m.entries = m.buf[:0], m.entries[:0]
	b.Refused, b.Pressed = 0, false
	var refused []queue.Range
	broken := q.isBroken() && !q.host.mends()
	pool := q.host.o.Pool
	for i := range b.Messages {
		msg := &b.Messages[i]
		e := entry{}
		if b.Confirms != nil {
			e.number = b.Numbers[i]
		}
		err := errBroken
		if !broken {
			m.buf, e.filter, err = message.Append(m.buf, queue.ParseStored(pool.Bytes(msg.Ref)), msg.Flags&queue.HasHistory != 0)
		}
		if err != nil {
			b.Refused++
			refused = appendRange(refused, queue.Range{First: e.number, Last: e.number})
			continue
		}
		e.end = len(m.buf)
		m.entries = append(m.entries, e)
	}
	confirms := b.Confirms
	if sabotageConfirm && confirms != nil {
		confirms.Settled(rangesOf(b.Numbers), true, w)
		confirms = nil
	}
	if len(m.entries) > 0 && !q.slot.proposer.publish(q, m, confirms) {
		for _, e := range m.entries {
			refused = appendRange(refused, queue.Range{First: e.number, Last: e.number})
		}
	} else {
		q.published.Add(uint64(len(m.entries)))
	}
	release := queue.Releaser{Pool: pool}
	for i := range b.Messages {
		release.Add(b.Messages[i].Ref.Slab)
	}
	release.Flush()
	if len(refused) > 0 && confirms != nil {
		slices.SortFunc(refused, func(a, b queue.Range) int { return int(a.First) - int(b.First) })
		b.Confirms.Settled(refused, false, w)
	}
	clear(m.entries)
	if cap(m.buf) <= maxBatch {
		conversions.Put(m)
	}
}

// Full implements queue.Bounded.
func (q *Queue) Full() bool { return q.lane.Full() }

// WaitForRoom implements queue.Bounded.
func (q *Queue) WaitForRoom(wake func()) { q.slot.proposer.WaitForRoom(&q.lane, wake) }

func rangesOf(numbers []uint64) (rs []queue.Range) {
	for _, n := range numbers {
		rs = appendRange(rs, queue.Range{First: n, Last: n})
	}
	return rs
}

var errBroken = errors.New("stream: this node lacks something of it")

func (q *Queue) isBroken() bool {
	m := q.slot.machine
	if !m.anyBroken.Load() {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.streams[q.id]
	return r != nil && r.broken != nil
}

// Attach implements queue.Queue. out is a queue.FrameOutlet. Errors: queue.ErrDeleted, *queue.RefusedError, *stream.ArgumentError.
func (q *Queue) Attach(spec queue.ConsumerSpec, out queue.Outlet, w *queue.Wake, done func(queue.ConsumerID, error)) {
	parsed, err := stream.ParseConsumer(spec.Arguments, time.Now())
	if spec.Getter {
		err = errGetter
	}
	if err != nil {
		done(0, err)
		return
	}
	c := &consumer{queue: q, out: out.(queue.FrameOutlet), spec: parsed, prefetch: int(spec.Prefetch)}
	c.head, c.frameMax = c.out.Form()
	q.slot.proposer.command(cmdAsk, q, nil, func(x *result, _ *queue.Wake) {
		if x.code != codeDone {
			done(0, queue.ErrDeleted)
			return
		}
		q.host.workers.push(taskFunc(func(*worker) { c.find(done) }), false)
	})
}

// find looks up where the consumer wants to start. It reads the disk.
func (c *consumer) find(done func(queue.ConsumerID, error)) {
	q := c.queue
	m := q.slot.machine
	m.mu.Lock()
	r := m.streams[q.id]
	var broken error
	if r != nil {
		c.log, broken = r.log, r.broken
	}
	m.mu.Unlock()
	switch {
	case r == nil:
		done(0, queue.ErrDeleted)
		return
	case broken != nil && q.host.mends():
		q.park(c, done)
		return
	case broken != nil:
		done(0, queue.ErrNoReplica)
		return
	}
	how, offset, err := c.place()
	switch {
	case errors.Is(err, stream.ErrClosed):
		done(0, queue.ErrDeleted)
		return
	case err != nil:
		done(0, err)
		return
	case c.spec.Name == "":
		c.start(offset, done)
		return
	}
	q.slot.proposer.command(cmdAttach, q, func(dst []byte) []byte {
		dst = append(appendName(dst, c.spec.Name), how)
		return append(binary.AppendUvarint(dst, offset), byte(c.spec.Reset))
	}, func(x *result, _ *queue.Wake) {
		if err := x.err(c.spec.Name); err != nil {
			done(0, err)
			return
		}
		q.host.Counters.Jumped.Add(x.lost)
		c.generation = x.generation
		c.start(x.offset, done)
	})
}

// place is where the consumer wants to start, as commands say it, and if it has no name as an offset.
func (c *consumer) place() (how byte, offset uint64, err error) {
	switch c.spec.Start.Kind {
	case stream.Stored:
		return startStored, 0, nil
	case stream.First:
		how = startFirst
	case stream.Next:
		how = startNext
	default:
		how = startAt
	}
	offset, err = c.log.Resolve(c.spec.Start)
	return how, offset, err
}

// err is what a result says went wrong.
func (x *result) err(name string) error {
	switch x.code {
	case codeDone:
		return nil
	case codeRemoved:
		return &queue.RefusedError{Why: fmt.Sprintf("offset %d, which is stored for '%s', was removed by retention, and the first one is %d; "+
			"x-stream-offset-reset says what to do then", x.offset, name, x.lost)}
	case codeNames:
		return &queue.RefusedError{Why: fmt.Sprintf("there are %d names with stored offsets, and no more are taken", stream.MaxNames)}
	case codeUnknown:
		return ErrUnknownName
	case codeOutside:
		return ErrOutside
	}
	return queue.ErrDeleted
}

// start begins at an offset.
func (c *consumer) start(offset uint64, done func(queue.ConsumerID, error)) {
	q := c.queue
	c.reader = c.log.Read(offset, c.spec.Filter)
	c.progress.Begin(offset)
	q.mu.Lock()
	if q.over {
		q.mu.Unlock()
		c.reader.Close()
		done(0, queue.ErrDeleted)
		return
	}
	q.last++
	c.id = q.last
	q.consumers[c.id] = c
	q.host.consumers.Add(1)
	done(c.id, nil)
	c.mu.Lock()
	c.schedule(false)
	c.mu.Unlock()
	q.mu.Unlock()
}

// Detach implements queue.Queue. What is in flight of a consumer that is cancelled still counts as read when it is
// acknowledged.
func (q *Queue) Detach(id queue.ConsumerID, how queue.Detachment, w *queue.Wake, done func()) {
	q.mu.Lock()
	if c := q.consumers[id]; c != nil {
		c.mu.Lock()
		c.leave()
		if how == queue.Remove || c.inFlight == 0 {
			delete(q.consumers, id)
		}
		c.mu.Unlock()
	}
	q.mu.Unlock()
	done()
}

// cancel ends a consumer, which is told.
func (q *Queue) cancel(c *consumer, w *queue.Wake) {
	q.mu.Lock()
	c.mu.Lock()
	was := c.gone
	c.leave()
	c.mu.Unlock()
	delete(q.consumers, c.id)
	q.mu.Unlock()
	if !was {
		c.out.Cancelled(w)
	}
}

// fence ends the consumers of a name that came before a generation, or all for 0.
func (q *Queue) fence(name string, generation uint64, w *queue.Wake) {
	var old []*consumer
	q.mu.Lock()
	for _, c := range q.consumers {
		if c.spec.Name == name && (generation == 0 || c.generation < generation) {
			old = append(old, c)
		}
	}
	q.mu.Unlock()
	for _, c := range old {
		q.host.Counters.Fenced.Add(1)
		q.cancel(c, w)
	}
}

// end ends all consumers: the stream was deleted.
func (q *Queue) end(w *queue.Wake) {
	q.mu.Lock()
	q.over = true
	var all []*consumer
	for _, c := range q.consumers {
		all = append(all, c)
	}
	q.mu.Unlock()
	for _, c := range all {
		q.cancel(c, w)
	}
}

// replaced has consumers read on in other files, and ends those that have missed a newer one of their name.
func (q *Queue) replaced(w *queue.Wake) {
	var all, old []*consumer
	q.mu.Lock()
	for _, c := range q.consumers {
		all = append(all, c)
	}
	q.mu.Unlock()
	m := q.slot.machine
	m.mu.Lock()
	if r := m.streams[q.id]; r != nil {
		for _, c := range all {
			if c.spec.Name == "" {
				continue
			}
			if now, ok := r.offsets.Get(c.spec.Name); !ok || c.generation < now.Generation {
				old = append(old, c)
			}
		}
	}
	m.mu.Unlock()
	for _, c := range old {
		q.host.Counters.Fenced.Add(1)
		q.cancel(c, w)
	}
	for _, c := range all {
		c.mu.Lock()
		c.waiting = false
		c.schedule(false)
		c.mu.Unlock()
	}
}

// Leader is the number of the member that leads the stream's slot, 0 if none is known to, and Members are those that have a vote in
// it, ascending.
func (q *Queue) Leader() uint64    { return q.slot.shard.Leader() }
func (q *Queue) Members() []uint64 { return q.slot.shard.Members() }

// Slot is the number of the stream's slot.
func (q *Queue) Slot() int { return int(q.slot.machine.number) }

// grew wakes consumers that wait at the end.
func (q *Queue) grew() {
	q.grown.Store(false)
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range q.consumers {
		c.mu.Lock()
		if c.waiting {
			c.waiting = false
			c.schedule(true)
		}
		c.mu.Unlock()
	}
}

// Ready implements queue.Queue.
func (q *Queue) Ready(id queue.ConsumerID, w *queue.Wake) {
	q.mu.Lock()
	c := q.consumers[id]
	q.mu.Unlock()
	if c == nil {
		return
	}
	c.mu.Lock()
	if c.blocked {
		c.blocked = false
		if c.room() > 0 {
			c.schedule(false)
		}
	}
	c.mu.Unlock()
}

// Get implements queue.Queue: a stream gives no single messages.
func (q *Queue) Get(_ queue.ConsumerID, _ bool, _ *queue.Wake, done func(queue.Offered, uint64, bool)) {
	done(queue.Offered{}, 0, false)
}

// Settle implements queue.Queue.
func (q *Queue) Settle(id queue.ConsumerID, ids []queue.Range, o queue.Outcome, w *queue.Wake) {
	q.mu.Lock()
	c := q.consumers[id]
	q.mu.Unlock()
	if c == nil {
		return
	}
	over, stuck := c.settled(ids, o)
	switch {
	case over:
		q.mu.Lock()
		delete(q.consumers, id)
		q.mu.Unlock()
	case stuck:
		q.host.o.Log.Warn("a consumer of a stream is cancelled: it goes on without a message that it has not acknowledged", "queue", q.name, "name", c.spec.Name)
		q.cancel(c, w)
	}
}

// Purge implements queue.Queue: nothing can be taken out of a stream.
func (q *Queue) Purge(_ *queue.Wake, done func(uint64)) { done(0) }

// Configure implements queue.Queue.
func (q *Queue) Configure(c queue.Config, _ *queue.Wake) {
	q.mu.Lock()
	q.config = c
	q.mu.Unlock()
	if q.host.isComplete() { // or it will be said when it is
		q.create(cmdCreate, c)
	}
}

// create has the stream made, and with cmdCreate given other limits if it is there.
func (q *Queue) create(k kind, c queue.Config) {
	q.slot.proposer.command(k, q, func(dst []byte) []byte {
		return appendLimits(binary.AppendUvarint(dst, uint64(q.segment)), limitsOf(c))
	}, nil)
}

// limitsOf are the limits of a stream. One of 0 octets keeps what one of 1 does: the newest segment.
func limitsOf(c queue.Config) (l stream.Limits) {
	if c.MaxBytes >= 0 {
		l.Bytes = max(c.MaxBytes, 1)
	}
	l.Age = max(c.TTL, 0)
	return l
}

// Delete implements queue.Queue: the stream stays as it is until Forget. No condition is looked at, and no messages are
// counted (RabbitMQ docs: streams).
func (q *Queue) Delete(_, _ bool, _ *queue.Wake, done func(uint64, error)) { done(0, nil) }

// Forget implements queue.Queue.
func (q *Queue) Forget(*queue.Wake) { q.slot.proposer.command(cmdDelete, q, nil, nil) }

// Stats implements queue.Queue.
func (q *Queue) Stats() (s queue.Stats) {
	first := q.first.Load()
	s.Ready = max(q.next.Load(), first) - first // it may be deleted just now
	if log := q.log.Load(); log != nil {
		s.ReadyBytes = uint64(log.Size())
	}
	s.Published, s.Delivered, s.Acked = q.published.Load(), q.delivered.Load(), q.acked.Load()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, c := range q.consumers {
		c.mu.Lock()
		if !c.gone {
			s.Consumers++
		}
		c.mu.Unlock()
	}
	return s
}

// skip is up to which offset this node's readers pass over damage.
func (q *Queue) skip() uint64 {
	m := q.slot.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.skips[q.id]
}

// damaged notes what a consumer could not read. It reports whether the consumer waits until that is made good; otherwise it is
// to be cancelled.
func (q *Queue) damaged(c *consumer, e *stream.DamageError) (waits bool) {
	q.host.Counters.Damaged.Add(1)
	waits = q.host.mends()
	told := "a stream is damaged; the consumer is cancelled. 'warren stream skip' has readers pass over it"
	if waits {
		told = "a stream is damaged; the consumer waits until another member has given what is"
	}
	if c.log.Note(e.Damage) {
		q.host.o.Log.Error(told, "queue", q.name, "from", e.From, "to", e.To, "file", e.File, "reason", e.Reason)
	}
	if waits {
		c.mu.Lock()
		c.stuck = true
		c.mu.Unlock()
		q.host.mender.wake()
	}
	return waits
}

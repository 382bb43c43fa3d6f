package broker

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/queue"
)

// QueueID is a number of a queue that is never given to another, so that a queue declared anew under an old name
// inherits nothing.
type QueueID uint64

// softQueue marks the ids of soft queues, which are counted apart.
const softQueue QueueID = 1 << 63

// QueueDeclaration is what queue.declare says of a queue.
type QueueDeclaration struct {
	Name                           string
	Durable, Exclusive, AutoDelete bool
	Arguments                      amqp.Table // valid
}

// NewQueue is what the queue behind a Queue is made from.
type NewQueue struct {
	Type        string // Classic, Quorum, Stream
	Name        string
	ID          QueueID
	Durable     bool
	MaxPriority int
	Config      queue.Config
	DeadLetters queue.DeadLetters
	Home        uint64 // number of the member on which a classic queue lives; 0: the first one
	VHost       string
	// Of streams, fixed when they are made.
	SegmentBytes int64 // 0: the default
	FilterSize   uint8 // 0: the default
}

// Queue is a declared queue: the queue that runs, and what the broker knows of it. Publish, Ready, Get, Settle, Purge and
// Stats are those of the queue that runs; consumers come and go, and the queue ends, through the methods here.
type Queue struct {
	queue.Queue
	VHost               *VHost
	Name                string
	ID                  QueueID
	Type                string
	Durable, AutoDelete bool
	Owner               uint64     // the only connection that may use an exclusive queue; 0: not exclusive
	Arguments           amqp.Table // as declared, and x-queue-type
	Home                uint64     // number of the member on which a classic queue lives; 0: the first one

	number   exchange.Queue // guarded by VHost.mu
	settings atomic.Pointer[Settings]
	letters  letterbox

	mu        sync.Mutex // guards what follows; a leaf but for the Clock's
	consumers []Consumer
	attaching int  // consumers on their way in
	used      bool // has had a consumer
	state     life
	waiting   []func() // to be run when it is known whether the queue ends
	lastUsed  queue.Time
	expiry    queue.Appointment
}

type life uint8

const (
	live life = iota
	ending
	gone
)

// Consumer is a consumer of a queue, for those who list them.
type Consumer struct {
	ID         queue.ConsumerID
	Tag        string
	Connection uint64
	Channel    uint16
	Spec       queue.ConsumerSpec
	Arguments  amqp.Table // kept as it is: a copy, if it was a view
	elsewhere  bool       // of a client of another node
}

// newQueue makes a queue. v.mu is held.
func newQueue(v *VHost, id QueueID, c PutQueue) *Queue {
	q := &Queue{
		VHost: v, ID: id, Owner: c.Owner, Home: c.Home,
		Name: c.Queue.Name, Durable: c.Queue.Durable, AutoDelete: c.Queue.AutoDelete,
		Arguments: slices.Clone(c.Queue.Arguments),
	}
	q.Type, _ = text(q.Arguments, "x-queue-type")
	s := v.effective(q.Type, q.Arguments, v.policies[0].match(q.Type, q.Name), v.policies[1].match(q.Type, q.Name))
	q.settings.Store(s)
	q.letters.q = q
	q.Queue = v.broker.NewQueue(NewQueue{
		Type: q.Type, ID: id, Durable: q.Durable, MaxPriority: s.MaxPriority, Config: s.Config, DeadLetters: &q.letters,
		Home: c.Home, VHost: v.Name, Name: q.Name, SegmentBytes: s.SegmentBytes, FilterSize: s.FilterSize,
	})
	if q.Queue != nil && s.Expires >= 0 {
		q.touch()
		q.mu.Lock()
		q.makeAppointment(s.Expires)
		q.mu.Unlock()
	}
	return q
}

// Settings are the effective settings, not to be changed.
func (q *Queue) Settings() *Settings { return q.settings.Load() }

// reconfigure works out the settings anew and lets them take effect. One at a time does so.
func (q *Queue) reconfigure(w *queue.Wake) {
	v := q.VHost
	v.mu.RLock()
	user, operator := v.policies[0].match(q.Type, q.Name), v.policies[1].match(q.Type, q.Name)
	v.mu.RUnlock()
	s, old := v.effective(q.Type, q.Arguments, user, operator), q.settings.Load()
	q.settings.Store(s)
	if s.Config != old.Config {
		q.Queue.Configure(s.Config, w)
	}
	if s.Expires != old.Expires && s.Expires >= 0 {
		q.touch()
		q.mu.Lock()
		if q.state != gone {
			q.makeAppointment(s.Expires)
		}
		q.mu.Unlock()
	}
}

// Counts are what declare-ok tells: how many messages are ready, and how many consumers there are. A quorum queue with a single
// active consumer has no others, and a stream none, as RabbitMQ counts.
func (q *Queue) Counts() (messages, consumers uint64) {
	s := q.Stats()
	if q.Type == Stream {
		return s.Ready, 0
	}
	if q.Type == Quorum && q.Settings().Config.SingleActive {
		return s.Ready, min(s.Consumers, 1)
	}
	return s.Ready, s.Consumers
}

// Exclusive reports whether the queue belongs to one connection.
func (q *Queue) Exclusive() bool { return q.Owner != 0 }

func (q *Queue) accessible(connection uint64) bool { return q.Owner == 0 || q.Owner == connection }

// Consumers lists the consumers of this node's clients, getters left out.
func (q *Queue) Consumers() []Consumer {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(q.consumers), func(c Consumer) bool { return c.elsewhere })
}

// Consuming is how many Consumers there are.
func (q *Queue) Consuming() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.consumers {
		if !q.consumers[i].elsewhere {
			n++
		}
	}
	return n
}

// Attach adds a consumer; see queue.Queue. c.ID is filled in. Errors: the queue is gone (404), in exclusive use (403), allows
// no getters (405), or cannot be reached (541).
func (q *Queue) Attach(c Consumer, out queue.Outlet, w *queue.Wake, done func(queue.ConsumerID, *amqp.Error)) {
	if c.Spec.Getter && q.Type == Quorum && q.Settings().Config.SingleActive {
		done(0, amqp.Errorf(amqp.ResourceLocked, "cannot obtain access to locked %s. basic.get operations are not supported by quorum queues with single active consumer", q.VHost.queueResource(q.Name)))
		return
	}
	if c.Spec.Getter {
		q.Queue.Attach(c.Spec, out, w, func(id queue.ConsumerID, err error) { done(id, q.attachError(err)) })
		return
	}
	q.attach(c, out, w, func(id queue.ConsumerID, err error) { done(id, q.attachError(err)) })
}

// attach adds a consumer that is no getter.
func (q *Queue) attach(c Consumer, out queue.Outlet, w *queue.Wake, done func(queue.ConsumerID, error)) {
	q.mu.Lock()
	if q.state == gone {
		q.mu.Unlock()
		done(0, queue.ErrDeleted)
		return
	}
	q.attaching++
	q.mu.Unlock()
	q.Queue.Attach(c.Spec, out, w, func(id queue.ConsumerID, err error) {
		q.mu.Lock()
		q.attaching--
		if err == nil {
			c.ID = id
			q.consumers = append(q.consumers, c)
			q.used = true
		}
		q.mu.Unlock()
		if err != nil {
			q.unused(func() { done(0, err) })
			return
		}
		done(id, nil)
	})
}

// unreachable returns the error for using a queue whose home node cannot be reached.
func (q *Queue) unreachable() *amqp.Error {
	if far, ok := q.Queue.(interface{ Down() bool }); ok && far.Down() {
		return q.homeDown()
	}
	return nil
}

func (q *Queue) homeDown() *amqp.Error {
	return amqp.Errorf(amqp.NotFound, "home node '%s' of durable %s is down or inaccessible", q.VHost.broker.memberName(max(q.Home, 1)), q.VHost.queueResource(q.Name))
}

func (q *Queue) attachError(err error) *amqp.Error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, queue.ErrExclusive):
		return amqp.Errorf(amqp.AccessRefused, "%s in exclusive use", q.VHost.queueResource(q.Name))
	case errors.Is(err, queue.ErrDeleted):
		return q.VHost.noQueue(q.Name)
	case errors.Is(err, queue.ErrDown):
		return q.homeDown()
	case errors.Is(err, queue.ErrNoReplica):
		return amqp.Errorf(amqp.PreconditionFailed, "stream %s does not have a running replica on the local node", q.VHost.queueResource(q.Name))
	}
	var refused *queue.RefusedError
	if errors.As(err, &refused) {
		return amqp.Errorf(amqp.PreconditionFailed, "failed consuming from %s %s: %s", q.Type, q.VHost.queueResource(q.Name), refused.Why)
	}
	return amqp.Errorf(amqp.InternalError, "failed consuming from %s %s: %v", q.Type, q.VHost.queueResource(q.Name), err)
}

// Detach ends a consumer; see queue.Queue. If it was the last of an auto-delete queue, the queue is gone when done runs.
func (q *Queue) Detach(c queue.ConsumerID, how queue.Detachment, w *queue.Wake, done func()) {
	q.Queue.Detach(c, how, w, func() {
		q.mu.Lock()
		i := slices.IndexFunc(q.consumers, func(k Consumer) bool { return k.ID == c })
		if i < 0 { // a getter, or one that was cancelled before
			q.mu.Unlock()
			done()
			return
		}
		q.consumers = slices.Delete(q.consumers, i, i+1)
		last := len(q.consumers) == 0
		if last { // many queues that nobody uses any more cost little
			q.consumers = nil
		}
		q.mu.Unlock()
		if last {
			q.touch()
		}
		q.unused(done)
	})
}

// unused deletes an auto-delete queue whose last consumer has left. It has a Wake of its own: the caller may be a callback
// on a goroutine that knows none.
func (q *Queue) unused(done func()) {
	q.mu.Lock()
	end := q.AutoDelete && q.used && len(q.consumers) == 0 && q.attaching == 0 && q.state == live
	q.mu.Unlock()
	if !end {
		done()
		return
	}
	var w queue.Wake
	ifUnused := q.VHost.broker.replicated.Load() && q.Owner == 0 // others may consume on other nodes
	q.delete(ifUnused, false, &w, func(uint64, error) { done() })
	w.Flush()
}

// Get is queue.Queue's; it also counts as a use of the queue.
func (q *Queue) Get(c queue.ConsumerID, noAck bool, w *queue.Wake, done func(o queue.Offered, ready uint64, ok bool)) {
	if q.Settings().Expires >= 0 {
		q.touch()
	}
	q.Queue.Get(c, noAck, w, done)
}

// delete ends the queue and takes it out of the topology, or does neither: queue.ErrNotEmpty, queue.ErrInUse, or an
// *amqp.Error if that could not be stored. The consumers of a durable queue are cancelled before Broker.Sync calls who asks it
// in done. w is used before the method returns only.
func (q *Queue) delete(ifUnused, ifEmpty bool, w *queue.Wake, done func(n uint64, err error)) {
	b := q.VHost.broker
	c := DeleteQueue{VHost: q.VHost.Name, Name: q.Name, ID: q.ID, Soft: q.Owner != 0}
	if err := b.refuses(c); err != nil { // asked while the queue can still be left as it is
		done(0, err)
		return
	}
	retry := func() {
		var w queue.Wake
		q.delete(ifUnused, ifEmpty, &w, done)
		w.Flush()
	}
	if q.await(true, retry) {
		return
	}
	q.mu.Lock()
	over := q.state == gone
	q.mu.Unlock()
	if over {
		done(0, nil)
		return
	}
	q.Queue.Delete(ifUnused, ifEmpty, w, func(n uint64, err error) {
		if err != nil && !errors.Is(err, queue.ErrDeleted) {
			q.settle(live)
			done(0, err)
			return
		}
		b.commit(c, func(r result) {
			if r.refused != nil && r.refused.Code == amqp.InternalError {
				if !b.replicated.Load() { // the store failed just now
					q.settle(gone)
				} // otherwise the log has it, and what follows is done when it comes
				done(0, r.refused)
				return
			}
			b.Counters.QueuesDeleted.Add(1)
			q.settle(gone)
			if q.Durable && !r.carried {
				b.Sync(q.forget)
			}
			done(n, nil)
		})
	})
}

// forget ends the queue behind a Queue that was taken out of the topology, once that is durable: a crash before brings the
// queue back, and it must have everything then.
func (q *Queue) forget(err *amqp.Error) {
	if err != nil { // the store has failed, and the node is about to end
		return
	}
	var w queue.Wake
	q.Queue.Forget(&w)
	w.Flush()
}

// await registers retry if it is being decided whether the queue ends. Otherwise, with begin, that is being decided from
// now on: settle must follow.
func (q *Queue) await(begin bool, retry func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.state == ending:
		q.waiting = append(q.waiting, retry)
		return true
	case q.state == live && begin:
		q.state = ending
	}
	return false
}

// settle ends what await began.
func (q *Queue) settle(s life) {
	q.mu.Lock()
	q.state = s
	waiting := q.waiting
	q.waiting = nil
	if s == gone {
		q.consumers = nil
		q.dropAppointment()
	}
	q.mu.Unlock()
	for _, retry := range waiting {
		retry()
	}
}

// ended ends a queue that a command from the log has taken out of the topology.
func (q *Queue) ended() {
	q.settle(gone)
	q.forget(nil)
}

// end marks a queue as gone that went with its virtual host.
func (q *Queue) end() { q.settle(gone) }

// declaredAgain notes that the queue was declared though it was there. A replicated queue is not in use because of that.
func (q *Queue) declaredAgain() {
	if q.Type == Classic {
		q.touch()
	}
}

// touch restarts the time after which an unused queue expires.
func (q *Queue) touch() {
	now := q.VHost.broker.Clock.Now()
	q.mu.Lock()
	q.lastUsed = now
	q.mu.Unlock()
}

// LastUsed is when the queue was declared or read last, or its last consumer left. It is kept for queues that expire, and
// for others only now and then.
func (q *Queue) LastUsed() queue.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lastUsed
}

func (q *Queue) makeAppointment(expires int64) {
	q.VHost.broker.Clock.Set(&q.expiry, (*expiring)(q), q.lastUsed+queue.Time(expires))
}

func (q *Queue) dropAppointment() {
	if q.VHost.broker.Clock != nil {
		q.VHost.broker.Clock.Drop(&q.expiry)
	}
}

// expiring is a Queue as the Clock knows it.
type expiring Queue

// Tick deletes the queue if it was not used for long enough, and looks again later otherwise.
func (e *expiring) Tick(now queue.Time) {
	q := (*Queue)(e)
	expires := q.Settings().Expires
	decides := q.VHost.broker.decides(q)
	inUse := q.VHost.broker.replicated.Load() && q.Stats().Consumers > 0 // on other nodes
	q.mu.Lock()
	switch {
	case q.state == gone || expires < 0:
		q.mu.Unlock()
		return
	case len(q.consumers) > 0 || q.attaching > 0 || q.state == ending || inUse || !decides:
		q.lastUsed = now
		fallthrough
	case q.lastUsed+queue.Time(expires) > now:
		q.makeAppointment(expires)
		q.mu.Unlock()
		return
	}
	q.mu.Unlock()
	var w queue.Wake
	q.delete(true, false, &w, func(_ uint64, err error) {
		if err != nil { // a consumer came
			q.mu.Lock()
			q.lastUsed = now
			q.makeAppointment(expires)
			q.mu.Unlock()
		}
	})
	w.Flush()
}

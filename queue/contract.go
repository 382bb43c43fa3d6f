// Package queue holds what is common to every queue: the message and the slabs its bytes lie in, the contract between
// queues and those who publish to them and consume from them, the consumption machine (State), and the classic queue
// that runs the machine under a lock on one node.
//
// It knows nothing of sockets, channels, users or topology, and it never waits: every method returns after memory work,
// and what must wait for a disk or another node is reported later through a callback.
package queue

import "github.com/warrenmq/warren/amqp"

// Range is a run of numbers, both ends included: delivery ids of one consumer, or publish numbers of one channel.
type Range struct{ First, Last uint64 }

// A Batch is what one socket read brought from one channel for one queue, in publish order. The slices belong to the
// caller again when Publish returns.
type Batch struct {
	// Messages to enqueue. Each comes with one reference to its slab, which passes to the queue.
	Messages []Message
	// Numbers are the publish numbers of Messages, ascending; empty when Confirms is nil.
	Numbers []uint64
	// Confirms hears of every number exactly once, during Publish or later. Nil on a channel without confirms.
	Confirms Confirms
	// Pressed is set by Publish when the queue's consumers are at work and cannot keep up: the publisher should rest.
	Pressed bool
	// Refused is set by Publish: how many of the messages the queue refused for want of room and let go of.
	Refused int
}

// Confirms is the publishing channel's side of publisher confirms and of tx.commit.
type Confirms interface {
	// Settled reports that a queue has taken responsibility for the publishes in ranges (ok) or has refused or lost
	// them (!ok). Called without any queue's lock held, from any goroutine. The slice is the caller's.
	Settled(ranges []Range, ok bool, w *Wake)
}

// Queue is a queue as connections see it, whatever its type and wherever it lives. No method waits: answers come through
// the callbacks, before the method returns or later, on any goroutine. Deliveries and wake-ups that a call causes are
// gathered in its Wake, which the caller flushes once for its whole batch, without any lock held.
type Queue interface {
	Publish(b *Batch, w *Wake)
	// Attach adds a consumer. The id passed to done is never reused in this queue. On success done runs before the first
	// Offer to out, possibly under the queue's lock: it does memory work only, calls no queue and flushes no Wake.
	Attach(spec ConsumerSpec, out Outlet, w *Wake, done func(ConsumerID, error))
	// Detach ends a consumer; see Cancel and Remove. done runs when nothing more will be offered to it and, for Remove,
	// its messages are back in the queue.
	Detach(c ConsumerID, how Detachment, w *Wake, done func())
	// Ready says that everything offered to the consumer's outlet so far has been taken.
	Ready(c ConsumerID, w *Wake)
	// Get takes one message for a consumer attached with Getter set. ok is false when the queue has none to give; ready
	// is the number of messages left. The message comes with a reference. done runs without any lock held.
	Get(c ConsumerID, noAck bool, w *Wake, done func(o Offered, ready uint64, ok bool))
	// Settle applies the outcome to the deliveries of one consumer whose ids are in ids (ascending, not overlapping).
	// Ids that are not in flight are ignored. The slice is the caller's.
	Settle(c ConsumerID, ids []Range, o Outcome, w *Wake)
	// Purge drops the ready messages and reports how many there were.
	Purge(w *Wake, done func(n uint64))
	// Configure replaces the limits. Those that are lower take effect at once where they drop from the head.
	Configure(c Config, w *Wake)
	// Delete has the queue be deleted. With ifEmpty or ifUnused it may refuse: ErrNotEmpty, ErrInUse (tested in this order).
	// When done runs, with the number of messages that were ready, nobody can be attached any more, and what has left for
	// other queues is safe there: metadata may forget the queue. Until it has, and Forget was called, a durable queue goes on
	// and keeps what it has: a crash may bring it back, and then with everything.
	Delete(ifUnused, ifEmpty bool, w *Wake, done func(n uint64, err error))
	// Forget ends the queue: no metadata knows it any more, and none will after a crash. The consumers' outlets hear of it
	// through Cancelled. Delete need not have been called, and has done it already for a queue that is not durable.
	Forget(w *Wake)
	// Stats are the counts of now.
	Stats() Stats
}

// Bounded is a Queue that says when too much of what was published to it is still on its way: who publishes to it should wait then,
// and nobody else.
type Bounded interface {
	// Full reports whether its publishers should wait.
	Full() bool
	// WaitForRoom calls wake once, from any goroutine and without locks, when they may go on, which may be at once.
	WaitForRoom(wake func())
}

// Outlet is the consumer's end of a queue: a place in some connection's outbox.
type Outlet interface {
	// Offer hands over deliveries in order; each message comes with a reference. It is called under the queue's lock,
	// does memory work only, and keeps nothing of the slice. It returns false when the outlet is full: the queue then
	// offers nothing more to it until Ready. What was offered is accepted in any case.
	Offer(ds []Offered, w *Wake) bool
	// Cancelled says that the queue has ended the consumer (the queue was deleted or failed). Called without the
	// queue's lock.
	Cancelled(w *Wake)
	// TimedOut says that the queue took back some of what the consumer holds, because it was not settled in time, and gives
	// it nothing more until all of that is settled, which then means nothing else. The consumer stays attached. A getter, or a
	// consumer that was detached with Cancel, is also told so when it is ended while it holds something. Called without the
	// queue's lock, before whatever the queue answers behind that, as is Cancelled.
	TimedOut(w *Wake)
	// Activity says that the consumer became, or is no longer, the active one of a single-active-consumer queue.
	// Called under the queue's lock.
	Activity(active bool)
}

// Offered is one delivery on its way to a consumer.
type Offered struct {
	Message     Message
	ID          DeliveryID
	Redelivered bool
	Acquired    uint32 // times handed out before, saturating
	Failed      uint32 // times given back as failed, saturating
}

// Gate limits deliveries across the consumers of one channel (basic.qos with global set). Only queues of this node have
// gates; Acquire is called under the queue's lock and must only touch memory. A consumer refused by its gate is passed
// over until the next Ready for it.
type Gate interface{ Acquire() bool }

// Gated is a Queue whose consumers can be given a gate after they came.
type Gated interface {
	// Gate sets the gate of a consumer and returns how many deliveries it holds for which no gate was asked.
	Gate(c ConsumerID, g Gate) (held int)
}

// ConsumerSpec says how a consumer wants its messages.
type ConsumerSpec struct {
	Session   uint64 // whose consumer it is: one number per channel
	NoAck     bool   // settled by being handed over
	Exclusive bool
	Getter    bool   // takes messages by Get only; not counted, never selected, keeps no queue alive
	Prefetch  uint32 // unsettled deliveries it may hold; 0 is no limit
	Priority  int32  // higher is served first
	Window    uint32 // deliveries handed over before Ready must be called; 0 is DefaultWindow
	Gate      Gate   // nil: none
	Timeout   int64  // milliseconds to settle a delivery in; 0: Config.ConsumerTimeout, negative: none. Classic queues know none
	// Arguments are those of basic.consume, for types of queues that know more than the above: streams. They are a copy.
	Arguments amqp.Table
}

// DefaultWindow is how many deliveries wait in an outlet before the queue pauses for it.
const DefaultWindow = 256

// Detachment says what becomes of a consumer that leaves.
type Detachment uint8

const (
	// Cancel stops deliveries; what is in flight stays with the consumer until it is settled or removed.
	Cancel Detachment = iota
	// Remove also returns what is in flight to the queue, as failed deliveries (channel or connection ended).
	Remove
)

// Outcome is what a consumer says of a delivery.
type Outcome uint8

const (
	Ack           Outcome = iota
	Return                // back to the queue: basic.nack requeue=1, basic.recover
	ReturnFailed          // back to the queue, counted as failed: basic.reject requeue=1
	Discard               // dead-lettered or dropped: basic.nack requeue=0
	DiscardFailed         // the same, counted as failed: basic.reject requeue=0
)

// Stats are counts at one moment, and totals since the queue was made.
type Stats struct {
	Ready, Unacked           uint64
	ReadyBytes, UnackedBytes uint64
	Consumers                uint64
	Active                   ConsumerID // of a single-active-consumer queue; 0 is none
	Delayed, DelayedBytes    uint64     // returned, and ready later (Config.DelayType)
	Kept, KeptBytes          uint64     // dead letters that wait for Buried (Config.KeepDiscards)
	// Totals.
	Published, Delivered, DeliveredNoAck, Got, GotNoAck, GetEmpty, Redelivered, Acked uint64
	Expired, Rejected, Dropped, Returned                                              uint64
}

// Wake gathers those who have something to do because of a batch. It belongs to one goroutine. The zero value is ready.
type Wake struct{ list []Waker }

// Waker is woken once per batch. What it causes in turn goes into the same Wake, so that nothing recurses.
type Waker interface{ Wake(w *Wake) }

// Add registers k. Who adds makes sure, under the lock that guards k's work, not to add one that still waits.
func (w *Wake) Add(k Waker) { w.list = append(w.list, k) }

// Join takes over everyone that other has gathered.
func (w *Wake) Join(other *Wake) {
	w.list = append(w.list, other.list...)
	clear(other.list)
	other.list = other.list[:0]
}

// Flush wakes everyone added, in order, and forgets them. No lock may be held. Those who are added while it runs are
// woken too.
func (w *Wake) Flush() {
	for i := 0; i < len(w.list); i++ {
		k := w.list[i]
		w.list[i] = nil
		k.Wake(w)
	}
	w.list = w.list[:0]
}

// RefusedError is of a consumer that a queue does not take because of what it asks for.
type RefusedError struct{ Why string }

func (e *RefusedError) Error() string { return e.Why }

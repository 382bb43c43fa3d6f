package queue

// Time is milliseconds since 1970. It comes with every command, never goes back within one State, and 0 means "none".
type Time int64

// Seq names a message within one queue: its level in the top 8 bits, its place in that level's sequence below. Places
// start at 1, are given out in publish order and never again.
type Seq uint64

// Level is the priority level, 0 the lowest.
func (s Seq) Level() uint8 { return uint8(s >> 56) }

// ConsumerID names a consumer within one queue, from 1, never reused.
type ConsumerID uint32

// DeliveryID numbers the deliveries of one consumer, from 1, never reused.
type DeliveryID = uint64

// Meta is what the machine needs to know of a stored message.
type Meta struct {
	Seq    Seq
	Expiry Time   // 0: never
	Size   uint32 // octets of the body, as max-length-bytes counts them
	Flags  Flags  // those of the message; the machine looks at WasDelivered
}

// Log keeps the messages of one queue for the machine, which owns their order.
type Log interface {
	// Put stores a message that was published and not at once settled. Seqs of one level come in ascending order.
	Put(seq Seq, expiry Time, m *Message)
	// Next is the first stored message of after's level behind after. A Log that does not have it in memory, bytes
	// included, returns false; the machine then stops handing out from that level until Loaded. The answer holds until
	// the message is handed out or Unloaded is called. (A Log behind replicated queues never returns false: memory
	// decides nothing there.)
	Next(after Seq) (Meta, bool)
	// Resident reports whether the bytes of a stored message are in memory. It is asked before a returned message goes
	// out; false has the same consequence as with Next.
	Resident(seq Seq) bool
}

// Rules are what differs between queue types. They are data, set when a queue is made, and never change.
type Rules struct {
	Levels             int          // priority levels, 1..256
	DefaultLevel       uint8        // of a message without a priority
	Requeue            RequeuePlace // where returned messages go
	CountReturns       bool         // keep acquired and failed counts, and let delivery limits act on them
	PrefetchZero       uint32       // what prefetch 0 stands for; 0 is no limit
	Preempt            bool         // single active consumer: a consumer of higher priority takes over when the active one has drained
	ExclusiveConsumers bool         // whether ConsumerSpec.Exclusive counts
	RejectBefore       bool         // reject-publish is decided per message before it is stored (classic)
	DropBefore         bool         // after a requeue drop-head acts before consumers have their turn (classic), not after
}

// RequeuePlace says where a returned message goes.
type RequeuePlace uint8

const (
	Original RequeuePlace = iota // to its own place, ahead of everything behind it in its level
	Returns                      // to the end of a list that is served before all levels
)

// Config are the limits of a queue that may change while it lives, from arguments and policies.
type Config struct {
	TTL           int64 // milliseconds, -1: none
	MaxLength     int64 // ready messages, -1: none
	MaxBytes      int64 // ready octets, -1: none
	Overflow      Overflow
	DeliveryLimit int64 // failed deliveries allowed, -1: none; acts only with Rules.CountReturns
	SingleActive  bool
}

// Overflow says what gives way when a limit is met.
type Overflow uint8

const (
	DropHead         Overflow = iota
	RejectPublish             // the new message is refused
	RejectPublishDLX          // the new message is refused and dead-lettered
)

// Reason says why a message left without being acknowledged. The words are those of x-death.
type Reason uint8

const (
	Rejected Reason = iota
	Expired
	MaxLen
	DeliveryLimited
)

func (r Reason) String() string {
	return [...]string{"rejected", "expired", "maxlen", "delivery_limit"}[r]
}

// Delivery is an effect: hand this message to this consumer.
type Delivery struct {
	Seq         Seq
	ID          DeliveryID
	Consumer    ConsumerID
	Direct      int32 // index in the published batch of a message that was settled without being Put; -1 otherwise
	Settled     bool  // the consumer does not acknowledge: the Log lets go of the message
	Redelivered bool
	Acquired    uint32
	Failed      uint32
}

// SeqRange is a run of places in one level, both ends included. Places in it that hold no message are passed over.
type SeqRange struct{ First, Last Seq }

// Discarded is an effect: these messages leave for the dead-letter exchange, or for good if there is none.
type Discarded struct {
	SeqRange
	Reason Reason
	Failed bool  // the dead letter is marked redelivered (counted failures)
	Direct int32 // index in the published batch of a message refused with reject-publish-dlx, never Put; -1 otherwise.
	// Its publisher hears a refusal, although it is not listed in Refused, and the SeqRange means nothing.
}

// Effects is what a command asks to be done. One value is reused for many commands; Reset empties it.
//
// A message that was Put leaves in exactly one of four ways: as a Delivery with Settled and Direct < 0, as such a
// Delivery returned by Get, in Removed, or in Discards with Direct < 0. Whoever keeps a record of what is gone needs no
// other source. When the command has ended no place of these ranges holds a message that is still in the queue, be it
// ready, returned or in flight; and what lies in a level before a place that has left was handed out or has left as well.
//
// Messages to deliver, and those discarded as Expired or MaxLen, are in memory: the Log just said so. Removed ones, and
// those discarded as Rejected or DeliveryLimited, need not be.
type Effects struct {
	Deliver  []Delivery
	Removed  []SeqRange // settled or purged: let go of them
	Discards []Discarded
	Refused  []uint32     // indexes of the published batch that were refused (reject-publish); the caller keeps them
	Cancel   []ConsumerID // consumers the machine ended
	Activity []Activation
	Due      Time // when Tick has work next; 0: not known to have any
	More     bool // the command stopped at its limit of effects: call Continue
}

// Activation is an effect: a consumer of a single-active-consumer queue became active, or is no longer.
type Activation struct {
	Consumer ConsumerID
	Active   bool
}

// MaxEffects is how many messages one command expires, hands out or drops on the machine's own account before it stops
// with More. What the command was called for does not count and is done in full: the messages of the batch are placed, the
// deliveries settled.
const MaxEffects = 1024

// Reset empties e. Memory is kept, but for what a command of unusual size needed.
func (e *Effects) Reset() {
	e.Deliver, e.Removed, e.Discards = empty(e.Deliver), empty(e.Removed), empty(e.Discards)
	e.Refused, e.Cancel, e.Activity = empty(e.Refused), empty(e.Cancel), empty(e.Activity)
	e.Due, e.More = 0, false
}

func empty[T any](list []T) []T {
	if cap(list) > 8*MaxEffects {
		return nil
	}
	return list[:0]
}

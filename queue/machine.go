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
	Flags  Flags  // those of the message; the machine looks at WasDelivered and Failures
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
	CountReturns       bool         // keep acquired and failed counts, and let what is marked so in Config act
	PrefetchZero       uint32       // what prefetch 0 stands for; 0 is no limit
	Preempt            bool         // single active consumer: a consumer of higher priority takes over when the active one has drained
	ExclusiveConsumers bool         // whether ConsumerSpec.Exclusive counts
	RejectBefore       bool         // reject-publish is decided per message before it is stored (classic)
	DropBefore         bool         // after a requeue drop-head acts before consumers have their turn (classic), not after
	NoWindow           bool         // prefetch alone limits consumers: no ConsumerSpec.Window, no need for Ready
	ZeroTTL            int64        // milliseconds that a TTL of 0 stands for
}

// QuorumRules are the rules of quorum queues (RabbitMQ 4.3: 32 levels, a consumer without prefetch has 2000 in flight at
// most, a TTL of 0 leaves time for a consumer to take the message at once).
func QuorumRules() Rules {
	return Rules{
		Levels: 32, DefaultLevel: 4, Requeue: Returns, CountReturns: true, PrefetchZero: 2000, Preempt: true,
		NoWindow: true, ZeroTTL: 1,
	}
}

// RequeuePlace says where a returned message goes.
type RequeuePlace uint8

const (
	Original RequeuePlace = iota // to its own place, ahead of everything behind it in its level
	Returns                      // to the end of a list that is served before all levels
)

// Config are the limits of a queue that may change while it lives, from arguments and policies.
type Config struct {
	TTL           int64 // milliseconds, -1: none; of a stream, x-max-age
	MaxLength     int64 // ready messages, -1: none
	MaxBytes      int64 // ready octets, -1: none; of a stream, octets of segments
	Overflow      Overflow
	DeliveryLimit int64 // failed deliveries allowed, -1: none; acts only with Rules.CountReturns
	SingleActive  bool

	// The rest acts only with Rules.CountReturns.

	// Returned messages wait before they are ready again: DelayMin milliseconds for each failed delivery so far, at least
	// once and at most DelayMax. Without a DelayMin above 0 there is no delay; a DelayMax of 0 is DelayMin.
	DelayType          DelayType
	DelayMin, DelayMax int64
	// ConsumerTimeout is how many milliseconds a consumer may take to settle a delivery, 0: for ever. It acts on what is
	// handed out from now on, where ConsumerSpec.Timeout says nothing else.
	ConsumerTimeout int64
	// KeepDiscards keeps dead letters in the queue, as Effects.Kept, until Buried. Those with reason MaxLen leave all the
	// same. Without it what was kept is dropped.
	KeepDiscards bool
}

// DelayType says which returned messages are delayed.
type DelayType uint8

const (
	DelayNone     DelayType = iota
	DelayAll                // whatever comes back
	DelayFailed             // what was returned as failed
	DelayReturned           // what was returned, but not as failed
)

// Overflow says what gives way when a limit is met. What is in flight does not count; what is delayed or kept does.
type Overflow uint8

const (
	// DropHead drops what would be delivered next, after consumers had their turn.
	DropHead Overflow = iota
	// RejectPublish refuses the new message. Without Rules.RejectBefore the message that goes beyond a limit still comes
	// in, and all publishes are refused from then until there is no more than four fifths of each limit.
	RejectPublish
	// RejectPublishDLX refuses the new message and dead-letters it. Without Rules.RejectBefore it is DropHead.
	RejectPublishDLX
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
	Acquired    uint32 // times handed out before, with Rules.CountReturns
	Failed      uint32 // how many of these failed
	Session     uint64 // the consumer's
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
	Failures uint32 // failed deliveries of each, with Rules.CountReturns: what the dead letter brings to its target, in its Flags
}

// TimedOut is an effect: the consumer took too long to settle these deliveries, and they have returned. It gets nothing
// more until it has settled them all the same, to no other effect; a getter does. What a getter, or a cancelled consumer, held when
// its session went down is told the same way, as of these two nobody hears otherwise.
type TimedOut struct {
	Consumer ConsumerID
	Range
}

// Effects is what a command asks to be done. One value is reused for many commands; Reset empties it.
//
// A message that was Put leaves in exactly one of four ways: as a Delivery with Settled and Direct < 0, as such a
// Delivery returned by Get, in Removed, or in Discards with Direct < 0. What is Kept stays in the queue. Whoever keeps a record of what is gone needs no
// other source. When the command has ended no place of these ranges holds a message that is still in the queue, be it
// ready, returned or in flight; and what lies in a level before a place that has left was handed out or has left as well.
//
// Messages to deliver, and those discarded as Expired or MaxLen, are in memory: the Log just said so. Removed ones, and
// those discarded as Rejected or DeliveryLimited, need not be.
type Effects struct {
	Deliver  []Delivery
	Removed  []SeqRange // settled or purged: let go of them
	Discards []Discarded
	Kept     []Discarded // dead letters that stay until Buried (Config.KeepDiscards): route them
	TimedOut []TimedOut
	Refused  []uint32     // indexes of the published batch that were refused (reject-publish); the caller keeps them
	Cancel   []ConsumerID // consumers the machine ended
	Left     []ConsumerID // consumers that were ended, by whomever, and now hold nothing: they are forgotten
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
	e.Kept, e.TimedOut, e.Left = empty(e.Kept), empty(e.TimedOut), empty(e.Left)
	e.Due, e.More = 0, false
}

func empty[T any](list []T) []T {
	if cap(list) > 8*MaxEffects {
		return nil
	}
	return list[:0]
}

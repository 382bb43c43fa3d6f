package queue

// Ref says where a message's bytes lie: a slab of the node's Pool, and a place in it. It holds no pointer, so that the
// collector never walks a queue.
type Ref struct {
	Slab, Off, Len uint32
}

// Message is a published message as queues keep it: immutable bytes and the few properties that decide its way. It is a
// value without pointers; each copy that outlives a call owns one reference to its slab.
//
// The bytes are the end of the basic.publish as it came, which is also the end of every basic.deliver of it:
//
//	exchange-length exchange key-length key 0xCE | header frame | body frames
//
// so that delivering is a prefix, one copy, and new channel numbers.
type Message struct {
	Ref      Ref
	Size     uint32 // octets of the body
	TTL      int64  // milliseconds from the expiration property, -1: none
	Priority uint8
	Flags    Flags
}

// Flags are facts about a message that are asked for often. They are stored with it, in the low five bits of an octet; the
// high three say how many failed deliveries a dead letter brings along (Failures).
type Flags uint8

const (
	Persistent   Flags = 1 << iota
	HasPriority        // the priority property is set
	WasDelivered       // a dead letter whose last failure was counted: redelivered from the start
	HasHistory         // a dead letter: the header x-death was written by a broker and tells of earlier deaths
	KeyReplaced        // a dead letter that got another routing key: the header CC no longer counts
)

// MaxFailures is the most that Failures tells.
const MaxFailures = 8

// Failures is how many failed deliveries a dead letter had when it died, from 1 to MaxFailures; 0 of other messages. Of what
// comes from a queue that does not count it is 1.
func (f Flags) Failures() uint32 {
	if f&WasDelivered == 0 {
		return 0
	}
	return uint32(f>>5) + 1
}

// WithFailures is f of a dead letter that had n failed deliveries. Those beyond MaxFailures are forgotten.
func (f Flags) WithFailures(n uint32) Flags {
	f &^= WasDelivered | 7<<5
	if n > 0 {
		f |= WasDelivered | Flags(min(n, MaxFailures)-1)<<5
	}
	return f
}

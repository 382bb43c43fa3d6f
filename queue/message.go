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
	Failed   uint16 // of a dead letter: failed deliveries before it came, saturating; see Meta
}

// Flags are facts about a message that are asked for often.
type Flags uint8

const (
	Persistent   Flags = 1 << iota
	HasPriority        // the priority property is set
	WasDelivered       // a dead letter whose last failure was counted: redelivered from the start
	HasHistory         // a dead letter: the header x-death was written by a broker and tells of earlier deaths
	KeyReplaced        // a dead letter that got another routing key: the header CC no longer counts
)

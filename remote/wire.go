package remote

import (
	"encoding/binary"
	"errors"

	"github.com/warrenmq/warren/queue"
)

// errFormat is what a peer is broken with that sends something else than what the package's comment draws.
var errFormat = errors.New("remote: what came is not a batch of this protocol")

// Kinds of batches.
const (
	batchCommands = 1 // for queues of the receiver
	batchReports  = 2 // about queues of the sender
	batchEnded    = 3 // the sender has ended the session of this epoch
	batchSoft     = 4
	batchWant     = 5 // send all of the soft state
)

type command uint8

const (
	cmdPublish command = iota + 1
	cmdAttach
	cmdDetach
	cmdReady
	cmdSettle
	cmdGet
	cmdPurge
	cmdConfigure
	cmdDelete
	cmdForget
	cmdStats
	cmdWatch
)

type report uint8

const (
	repSettled report = iota + 1
	repAttached
	repDetached
	repDeliver
	repGot
	repPurged
	repDeleted
	repStats
	repCancelled
	repTimedOut
	repActivity
	repPressed
	repFull
)

const (
	attachNoAck = 1 << iota
	attachExclusive
	attachGetter
	attachFlags
)

const (
	deleteIfUnused = 1 << iota
	deleteIfEmpty
	deleteFlags
)

const (
	offerRedelivered = 1 << iota
	offerCounted     // acquired and failed follow
	offerFlags
)

// code is an error of a queue on the wire.
type code uint8

var codes = [...]error{nil, queue.ErrDeleted, queue.ErrNotEmpty, queue.ErrInUse, queue.ErrExclusive, ErrFailed}

// ErrFailed stands for an error of the home node that has no code of its own.
var ErrFailed = errors.New("remote: the queue's home node has failed")

func codeOf(err error) code {
	for i, e := range codes {
		if errors.Is(err, e) {
			return code(i)
		}
	}
	return code(len(codes) - 1)
}

func appendID(dst []byte, id ID) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(dst, id.Scope), id.Number)
}

func appendCommand(dst []byte, c command, id ID) []byte { return appendID(append(dst, byte(c)), id) }

func appendReport(dst []byte, r report, n uint64) []byte {
	return binary.AppendUvarint(append(dst, byte(r)), n)
}

// appendMeta appends what there is of a message besides its bytes: 5 to 22 octets.
func appendMeta(dst []byte, m *queue.Message) []byte {
	dst = append(dst, byte(m.Flags), m.Priority)
	dst = binary.AppendUvarint(dst, uint64(m.Size))
	dst = binary.AppendVarint(dst, m.TTL)
	return binary.AppendUvarint(dst, uint64(m.Ref.Len))
}

// appendOffered appends a delivery without the message's bytes. after is the id of the one before.
func appendOffered(dst []byte, o *queue.Offered, after uint64) []byte {
	dst = binary.AppendUvarint(dst, o.ID-after)
	var flags byte
	if o.Redelivered {
		flags |= offerRedelivered
	}
	if o.Acquired > 0 || o.Failed > 0 {
		flags |= offerCounted
	}
	dst = append(dst, flags)
	if flags&offerCounted != 0 {
		dst = binary.AppendUvarint(dst, uint64(o.Acquired))
		dst = binary.AppendUvarint(dst, uint64(o.Failed))
	}
	return appendMeta(dst, &o.Message)
}

// appendRanges appends ascending ranges: how many, and for each how far it is behind the last one, and its length.
func appendRanges(dst []byte, rs []queue.Range) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(rs)))
	last := uint64(0)
	for _, r := range rs {
		dst = binary.AppendUvarint(dst, r.First-last)
		dst = binary.AppendUvarint(dst, r.Last-r.First)
		last = r.Last
	}
	return dst
}

func appendConfig(dst []byte, c *queue.Config) []byte {
	dst = binary.AppendVarint(dst, c.TTL)
	dst = binary.AppendVarint(dst, c.MaxLength)
	dst = binary.AppendVarint(dst, c.MaxBytes)
	dst = append(dst, byte(c.Overflow))
	dst = binary.AppendVarint(dst, c.DeliveryLimit)
	dst = append(dst, octetOf(c.SingleActive)|octetOf(c.KeepDiscards)<<1, byte(c.DelayType))
	dst = binary.AppendVarint(dst, c.DelayMin)
	dst = binary.AppendVarint(dst, c.DelayMax)
	return binary.AppendVarint(dst, c.ConsumerTimeout)
}

func octetOf(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// counts are those of Stats that go over the link, in this order. Active goes apart: its number is another on each node.
func counts(s *queue.Stats) [22]*uint64 {
	return [...]*uint64{&s.Ready, &s.Unacked, &s.ReadyBytes, &s.UnackedBytes, &s.Consumers, &s.Delayed, &s.DelayedBytes, &s.Kept,
		&s.KeptBytes, &s.Published, &s.Delivered, &s.DeliveredNoAck, &s.Got, &s.GotNoAck, &s.GetEmpty, &s.Redelivered, &s.Acked,
		&s.Expired, &s.Rejected, &s.Dropped, &s.Returned, new(uint64)}
}

func appendStats(dst []byte, s *queue.Stats, active uint32) []byte {
	list := counts(s)
	*list[len(list)-1] = uint64(active)
	for _, n := range list {
		dst = binary.AppendUvarint(dst, *n)
	}
	return dst
}

// reader takes values off b. What is not there or out of range is 0, and makes it bad.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) fail() { r.bad, r.b = true, nil }

func (r *reader) octet() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

// below takes an octet less than most.
func (r *reader) below(most byte) byte {
	v := r.octet()
	if v >= most {
		r.fail()
		return 0
	}
	return v
}

func (r *reader) uvarint() uint64 { return r.most(1<<64 - 1) }

func (r *reader) u32() uint32 { return uint32(r.most(1<<32 - 1)) }

// most takes a number that is no greater than limit.
func (r *reader) most(limit uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > limit {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) id() ID { return ID{r.uvarint(), r.uvarint()} }

// count takes how many things follow that have at least an octet each.
func (r *reader) count() int { return int(r.most(uint64(len(r.b)))) }

// meta takes a message's, with Ref.Len set and nothing else of Ref.
func (r *reader) meta() (m queue.Message) {
	m.Flags, m.Priority = queue.Flags(r.octet()), r.octet()
	m.Size, m.TTL = r.u32(), r.varint()
	m.Ref.Len = uint32(r.most(1<<31 - 1))
	if m.Ref.Len < leastMessage || m.Size > m.Ref.Len {
		r.fail()
	}
	return m
}

// leastMessage is how many octets there are in a message with no name, property and body.
const leastMessage = 1 + 1 + 1 + 8 + 14

func (r *reader) offered(after uint64) (o queue.Offered) {
	o.ID = after + r.most(1<<64-1-after)
	flags := r.below(offerFlags)
	o.Redelivered = flags&offerRedelivered != 0
	if flags&offerCounted != 0 {
		o.Acquired, o.Failed = r.u32(), r.u32()
	}
	o.Message = r.meta()
	return o
}

// ranges appends ranges to dst. They may be empty, but neither overlap nor go back.
func (r *reader) ranges(dst []queue.Range) []queue.Range {
	last := uint64(0)
	for n := r.count(); n > 0 && !r.bad; n-- {
		gap := r.most(1<<64 - 1 - last)
		first := last + gap
		if gap == 0 && len(dst) > 0 {
			r.fail()
		}
		last = first + r.most(1<<64-1-first)
		dst = append(dst, queue.Range{First: first, Last: last})
	}
	return dst
}

func (r *reader) config() (c queue.Config) {
	c.TTL, c.MaxLength, c.MaxBytes = r.varint(), r.varint(), r.varint()
	c.Overflow = queue.Overflow(r.below(byte(queue.RejectPublishDLX) + 1))
	c.DeliveryLimit = r.varint()
	flags := r.below(4)
	c.SingleActive, c.KeepDiscards = flags&1 != 0, flags&2 != 0
	c.DelayType = queue.DelayType(r.below(byte(queue.DelayReturned) + 1))
	c.DelayMin, c.DelayMax, c.ConsumerTimeout = r.varint(), r.varint(), r.varint()
	return c
}

func (r *reader) stats() (s queue.Stats) {
	list := counts(&s)
	for _, n := range list {
		*n = r.uvarint()
	}
	s.Active = queue.ConsumerID(*list[len(list)-1])
	return s
}

func (r *reader) err() error { return codes[r.below(byte(len(codes)))] }

// place copies the bytes of messages that come one after the other in b into the pool, and sets their Refs. Each gets a
// reference. Small ones lie together.
func place(pool *queue.Pool, n int, message func(int) *queue.Message, b []byte) {
	for i := 0; i < n; {
		size := int(message(i).Ref.Len)
		end := i + 1
		for end < n && size+int(message(end).Ref.Len) <= queue.SlabSize/4 {
			size += int(message(end).Ref.Len)
			end++
		}
		ref, dst := pool.Room(size, end-i)
		copy(dst, b[:size])
		b = b[size:]
		for ; i < end; i++ {
			m := message(i)
			ref.Len = m.Ref.Len
			m.Ref = ref
			ref.Off += ref.Len
		}
	}
}

// AppendMessage appends a message, so that ReadMessage on another node makes the same one of it.
func AppendMessage(dst []byte, m queue.Message, pool *queue.Pool) []byte {
	return append(appendMeta(dst, &m), pool.Bytes(m.Ref)...)
}

// ReadMessage copies a message that AppendMessage has appended into the pool, with one reference for the caller, and returns
// what is behind it.
func ReadMessage(b []byte, pool *queue.Pool) (m queue.Message, rest []byte, err error) {
	r := reader{b: b}
	m = r.meta()
	body := r.bytes(uint64(m.Ref.Len))
	if r.bad {
		return queue.Message{}, nil, errFormat
	}
	place(pool, 1, func(int) *queue.Message { return &m }, body)
	return m, r.b, nil
}

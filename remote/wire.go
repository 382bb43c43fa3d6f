package remote

import (
	"encoding/binary"
	"errors"

	"github.com/warrenmq/warren/octet"
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

// reader takes batches apart.
type reader struct{ octet.Reader }

func newReader(b []byte) reader { return reader{octet.Reader{B: b}} }

func (r *reader) id() ID { return ID{r.Uvarint(), r.Uvarint()} }

// meta takes a message's, with Ref.Len set and nothing else of Ref.
func (r *reader) meta() (m queue.Message) {
	m.Flags, m.Priority = queue.Flags(r.Octet()), r.Octet()
	m.Size, m.TTL = r.U32(), r.Varint()
	m.Ref.Len = uint32(r.Most(1<<31 - 1))
	if m.Ref.Len < leastMessage || m.Size > m.Ref.Len {
		r.Fail()
	}
	return m
}

// leastMessage is how many octets there are in a message with no name, property and body.
const leastMessage = 1 + 1 + 1 + 8 + 14

func (r *reader) offered(after uint64) (o queue.Offered) {
	o.ID = after + r.Most(1<<64-1-after)
	flags := r.Below(offerFlags)
	o.Redelivered = flags&offerRedelivered != 0
	if flags&offerCounted != 0 {
		o.Acquired, o.Failed = r.U32(), r.U32()
	}
	o.Message = r.meta()
	return o
}

// ranges appends ranges to dst. They may be empty, but neither overlap nor go back.
func (r *reader) ranges(dst []queue.Range) []queue.Range {
	last := uint64(0)
	for n := r.Count(); n > 0 && !r.Bad; n-- {
		gap := r.Most(1<<64 - 1 - last)
		first := last + gap
		if gap == 0 && len(dst) > 0 {
			r.Fail()
		}
		last = first + r.Most(1<<64-1-first)
		dst = append(dst, queue.Range{First: first, Last: last})
	}
	return dst
}

func (r *reader) stats() (s queue.Stats) {
	list := counts(&s)
	for _, n := range list {
		*n = r.Uvarint()
	}
	s.Active = queue.ConsumerID(*list[len(list)-1])
	return s
}

func (r *reader) err() error { return codes[r.Below(byte(len(codes)))] }

// place copies the bytes of messages that come one after the other in b into the pool, and sets their Refs. Each gets a
// reference. Small ones lie together.
func place[T any](pool *queue.Pool, list []T, message func(*T) *queue.Message, b []byte) {
	for i := 0; i < len(list); {
		size := int(message(&list[i]).Ref.Len)
		end := i + 1
		for end < len(list) && size+int(message(&list[end]).Ref.Len) <= queue.SlabSize/4 {
			size += int(message(&list[end]).Ref.Len)
			end++
		}
		ref, dst := pool.Room(size, end-i)
		copy(dst, b[:size])
		b = b[size:]
		for ; i < end; i++ {
			m := message(&list[i])
			ref.Len = m.Ref.Len
			m.Ref = ref
			ref.Off += ref.Len
		}
	}
}

func itself(m *queue.Message) *queue.Message    { return m }
func messageOf(o *queue.Offered) *queue.Message { return &o.Message }

// AppendMessage appends a message, so that ReadMessage on another node makes the same one of it.
func AppendMessage(dst []byte, m queue.Message, pool *queue.Pool) []byte {
	return append(appendMeta(dst, &m), pool.Bytes(m.Ref)...)
}

// ReadMessage copies a message that AppendMessage has appended into the pool, with one reference for the caller, and returns
// what is behind it.
func ReadMessage(b []byte, pool *queue.Pool) (m queue.Message, rest []byte, err error) {
	r := newReader(b)
	m = r.meta()
	body := r.Take(uint64(m.Ref.Len))
	if r.Bad {
		return queue.Message{}, nil, errFormat
	}
	one := [1]queue.Message{m}
	place(pool, one[:], itself, body)
	return one[0], r.B, nil
}

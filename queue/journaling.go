package queue

import (
	"encoding/binary"
	"errors"

	"github.com/warrenmq/warren/storage"
)

// The journal's records of queues, little endian:
//
//	enqueue  queue u64, then for each message, places ascending within a level:
//	           seq u64  expiry i64  size u32  length u32  flags u8  priority u8  –  –  bytes
//	gone     queue u64, then ranges: first u64  last u64
//
// expiry is absolute, in milliseconds since 1970, 0: never; bytes are the message as it is stored.
const (
	recordEnqueue uint8 = 1
	recordGone    uint8 = 2
)

const enqueueHead = 28

var errRecordShort = errors.New("queue: journal record ends within a field")

// appendEnqueued appends a message to an enqueue record.
func appendEnqueued(dst []byte, seq Seq, r *resident, bytes []byte) []byte {
	m := &r.message
	dst = binary.LittleEndian.AppendUint64(dst, uint64(seq))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(r.expiry))
	dst = binary.LittleEndian.AppendUint32(dst, m.Size)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(bytes)))
	dst = append(dst, uint8(m.Flags), m.Priority, 0, 0)
	return append(dst, bytes...)
}

// readEnqueued shows the messages of an enqueue record behind its queue.
func readEnqueued(b []byte, f func(seq Seq, expiry Time, m Message, bytes []byte)) error {
	for len(b) > 0 {
		if len(b) < enqueueHead {
			return errRecordShort
		}
		n := int(binary.LittleEndian.Uint32(b[20:]))
		if len(b)-enqueueHead < n {
			return errRecordShort
		}
		m := Message{Size: binary.LittleEndian.Uint32(b[16:]), TTL: -1, Flags: Flags(b[24]), Priority: b[25]}
		f(Seq(binary.LittleEndian.Uint64(b)), Time(binary.LittleEndian.Uint64(b[8:])), m, b[enqueueHead:enqueueHead+n])
		b = b[enqueueHead+n:]
	}
	return nil
}

// readGone shows the ranges of a gone record behind its queue.
func readGone(b []byte, f func(SeqRange)) error {
	for ; len(b) >= 16; b = b[16:] {
		f(SeqRange{Seq(binary.LittleEndian.Uint64(b)), Seq(binary.LittleEndian.Uint64(b[8:]))})
	}
	if len(b) > 0 {
		return errRecordShort
	}
	return nil
}

// recordQueue splits a record into its queue and the rest.
func recordQueue(b []byte) (storage.LogID, []byte, error) {
	if len(b) < 8 {
		return 0, nil, errRecordShort
	}
	return storage.LogID(binary.LittleEndian.Uint64(b)), b[8:], nil
}

// journalEnqueued writes the messages that the last command put and that must survive. Called with q.mu held.
func (q *Classic) journalEnqueued() {
	fresh := q.log.fresh
	if len(fresh) == 0 {
		return
	}
	size := 8
	for _, seq := range fresh {
		if r := q.log.levels[seq.Level()].recent.Find(seq.place()); r != nil && q.durable && r.message.Flags&Persistent != 0 {
			size += enqueueHead + int(r.message.Ref.Len)
		}
	}
	epoch := q.store.journal.Epoch
	if size > 8 {
		var at storage.Epoch
		q.mark, at = q.store.journal.AppendFunc(recordEnqueue, size, func(dst []byte) []byte {
			dst = binary.LittleEndian.AppendUint64(dst, uint64(q.id))
			for _, seq := range fresh {
				if r := q.log.levels[seq.Level()].recent.Find(seq.place()); r != nil && r.message.Flags&Persistent != 0 {
					dst = appendEnqueued(dst, seq, r, q.pool.Bytes(r.message.Ref))
				}
			}
			return dst
		})
		epoch = func() storage.Epoch { return at }
		q.journaled = true
	}
	e := epoch()
	for _, seq := range fresh {
		if r := q.log.levels[seq.Level()].recent.Find(seq.place()); r != nil {
			r.epoch = e
		}
	}
	q.log.fresh = fresh[:0]
}

// journalGone writes ranges that are gone. Called with q.mu held.
func (q *Classic) journalGone(ranges []SeqRange) {
	if !q.journaled || len(ranges) == 0 {
		return
	}
	q.changed = true
	q.store.soil(q) // first: a flush that cuts the record sees the queue
	q.store.journal.AppendFunc(recordGone, 8+16*len(ranges), func(dst []byte) []byte {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(q.id))
		for _, r := range ranges {
			dst = binary.LittleEndian.AppendUint64(dst, uint64(r.First))
			dst = binary.LittleEndian.AppendUint64(dst, uint64(r.Last))
		}
		return dst
	})
}

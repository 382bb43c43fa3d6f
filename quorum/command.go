package quorum

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/warrenmq/warren/octet"
	"github.com/warrenmq/warren/queue"
)

// A command of a batch (propose.Header) is
//
//	kind u8 | queue uvarint | what the kind says

// kind says what a command does.
type kind uint8

const (
	cmdBegin     kind = iota + 1 // nothing; the first batch of a boot must not be empty
	cmdCreate                    // rules u8, config
	cmdPublish                   // messages
	cmdAttach                    // flags u8, prefetch uvarint, priority varint, timeout varint
	cmdDetach                    // consumer uvarint, how u8
	cmdSettle                    // consumer uvarint, outcome u8, ranges
	cmdGet                       // consumer uvarint
	cmdPurge                     //
	cmdMayDelete                 // flags u8
	cmdDelete                    //
	cmdTick                      //
	cmdContinue                  //
	cmdBuried                    // ranges of Seqs
	cmdLead                      // term uvarint; of no queue
	cmdDown                      // node uvarint, boot uvarint; of no queue
	cmdDeclare                   // rules u8, config; one that exists keeps its limits
)

// errFormat is what errors about proposals, and about what a slot has written down, wrap: whoever wrote it was another
// version, or it is damaged.
var errFormat = errors.New("quorum: unknown format")

func appendCommand(dst []byte, k kind, id uint64) []byte {
	return binary.AppendUvarint(append(dst, byte(k)), id)
}

// publishLen is at most how many octets a publish takes besides the messages' bytes.
func publishLen(messages int) int { return 1 + 10 + 10 + messages*(1+1+5+10+5) }

// appendPublish appends a publish of messages whose bytes are in pool.
//
//	count uvarint | count × (flags u8 | priority u8 | size uvarint | TTL varint | length uvarint) | their bytes
//
// The size is that of body and properties, which both count towards x-max-length-bytes in a quorum queue.
func appendPublish(dst []byte, id uint64, messages []queue.Message, pool *queue.Pool) []byte {
	dst = appendCommand(dst, cmdPublish, id)
	dst = binary.AppendUvarint(dst, uint64(len(messages)))
	for i := range messages {
		m := &messages[i]
		dst = append(dst, byte(m.Flags), m.Priority)
		dst = binary.AppendUvarint(dst, uint64(queue.Weight(pool.Bytes(m.Ref))))
		dst = binary.AppendVarint(dst, m.TTL)
		dst = binary.AppendUvarint(dst, uint64(m.Ref.Len))
	}
	for i := range messages {
		dst = append(dst, pool.Bytes(messages[i].Ref)...)
	}
	return dst
}

// What a settle says beside the outcomes of package queue: what a consumer that does not acknowledge has taken, and a get.
const (
	outcomeTaken = queue.DiscardFailed + 1 + iota
	outcomeGot
)

func appendSettle(dst []byte, id uint64, c queue.ConsumerID, o queue.Outcome, ids []queue.Range) []byte {
	dst = appendCommand(dst, cmdSettle, id)
	dst = binary.AppendUvarint(dst, uint64(c))
	dst = append(dst, byte(o))
	return queue.AppendRanges(dst, ids)
}

const (
	attachGetter = 1 << iota
	attachExclusive
)

const (
	deleteIfUnused = 1 << iota
	deleteIfEmpty
)

// appendConfig appends limits, behind their length so that later ones may be added.
func appendConfig(dst []byte, c *queue.Config) []byte {
	var b [queue.MaxConfig]byte
	f := queue.AppendConfig(b[:0], c)
	return append(binary.AppendUvarint(dst, uint64(len(f))), f...)
}

// reader takes commands and records apart.
type reader struct{ octet.Reader }

func newReader(b []byte) reader { return reader{octet.Reader{B: b}} }

// command takes the next command's kind and queue.
func (r *reader) command() (kind, uint64) { return kind(r.Octet()), r.Uvarint() }

// messages appends the messages of a publish to dst, with Ref.Len set and nothing else of Ref, and returns their bytes.
func (r *reader) messages(dst []queue.Message) ([]queue.Message, []byte) {
	total := uint64(0)
	for n := r.Count(); n > 0 && !r.Bad; n-- {
		m := queue.Message{Flags: queue.Flags(r.Octet()), Priority: r.Octet(), Size: r.U32(), TTL: r.Varint()}
		m.Ref.Len = r.U32()
		total += uint64(m.Ref.Len)
		dst = append(dst, m)
	}
	return dst, r.Take(total)
}

// ranges appends ranges to dst.
func (r *reader) ranges(dst []queue.Range) []queue.Range {
	last := uint64(0)
	for n := r.Count(); n > 0 && !r.Bad; n-- {
		first := last + r.Most(math.MaxUint64-last)
		last = first + r.Most(math.MaxUint64-first)
		dst = append(dst, queue.Range{First: first, Last: last})
	}
	return dst
}

// config takes limits. What a newer version has added is not understood, and therefore refused.
func (r *reader) config() queue.Config {
	f := octet.Reader{B: r.Take(r.Most(queue.MaxConfig))}
	c := queue.ReadConfig(&f)
	if f.Bad || len(f.B) > 0 {
		r.Fail()
	}
	return c
}

package slots

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/warrenmq/warren/octet"
	"github.com/warrenmq/warren/quorum/propose"
	"github.com/warrenmq/warren/stream"
)

// A command of a batch (propose.Header) is
//
//	kind u8 | stream uvarint | what the kind says

// kind says what a command does.
type kind uint8

const (
	cmdBegin   kind = iota + 1 // nothing; the first batch of a boot must not be empty
	cmdCreate                  // segment size uvarint, limits
	cmdChunk                   // length uvarint, chunk
	cmdCut                     // first uvarint: what is below goes
	cmdAsk                     // nothing; has an answer
	cmdAttach                  // name, start kind u8, offset uvarint, reset u8; has an answer
	cmdCommit                  // name, generation uvarint, next uvarint
	cmdSet                     // name, start kind u8, offset uvarint; has an answer
	cmdForget                  // name; has an answer
	cmdRewind                  // next uvarint: the stream goes on there; has an answer
	cmdDelete                  //
	cmdDeclare                 // as cmdCreate; a stream that is there keeps its limits
)

// How an attach or a set names a place, as everything else was looked up before.
const (
	startStored = iota
	startAt
	startFirst
	startNext
)

// errFormat is what errors about proposals, and about what a slot has written down, wrap: whoever wrote it was another
// version, or it is damaged.
var errFormat = errors.New("stream: unknown format")

func appendCommand(dst []byte, k kind, id uint64) []byte {
	return binary.AppendUvarint(append(dst, byte(k)), id)
}

func appendName(dst []byte, name string) []byte { return append(append(dst, byte(len(name))), name...) }

// appendLimits appends limits, behind their length so that later ones may be added.
func appendLimits(dst []byte, l stream.Limits) []byte {
	var b [2 * binary.MaxVarintLen64]byte
	f := binary.AppendVarint(b[:0], l.Bytes)
	f = binary.AppendVarint(f, l.Age)
	return append(append(dst, byte(len(f))), f...)
}

// reader takes commands and records apart.
type reader struct{ octet.Reader }

func newReader(b []byte) reader { return reader{octet.Reader{B: b}} }

func (r *reader) name() string { return string(r.Take(uint64(r.Octet()))) }

func (r *reader) limits() (l stream.Limits) {
	f := newReader(r.Take(uint64(r.Octet())))
	l.Bytes, l.Age = f.Varint(), f.Varint()
	if f.Bad || l.Bytes < 0 || l.Age < 0 {
		r.Fail()
	}
	return l
}

// command takes a command's kind and its stream.
func (r *reader) command() (kind, uint64) { return kind(r.Octet()), r.Uvarint() }

// code says how a command ended.
type code uint8

const (
	codeDone    code = iota
	codeDeleted      // there is no such stream
	codeRemoved      // the offset was removed: offset, first
	codeNames        // there are too many names
	codeUnknown      // there is no such name
	codeOutside      // no such offset can be set
	lastCode    = codeOutside
)

// result is the answer to one command.
type result struct {
	ordinal    uint32 // which of those commands of the batch that have answers
	code       code
	offset     uint64 // where the consumer starts, or what was asked for and removed
	generation uint64
	lost       uint64 // records between what was committed and offset; of codeRemoved the first offset
}

// origins are those of a slot, with the results that they may ask for again.
type origins = propose.Origins[[]result]

func appendResults(dst []byte, list *[]result) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(*list)))
	for i := range *list {
		x := &(*list)[i]
		dst = binary.AppendUvarint(dst, uint64(x.ordinal))
		dst = append(dst, byte(x.code))
		dst = binary.AppendUvarint(dst, x.offset)
		dst = binary.AppendUvarint(dst, x.generation)
		dst = binary.AppendUvarint(dst, x.lost)
	}
	return dst
}

func readResults(r *octet.Reader) (list []result) {
	for n := r.Count(); n > 0 && !r.Bad; n-- {
		x := result{ordinal: uint32(min(r.Uvarint(), math.MaxUint32)), code: code(r.Octet()), offset: r.Uvarint(), generation: r.Uvarint(), lost: r.Uvarint()}
		if x.code > lastCode {
			r.Fail()
		}
		list = append(list, x)
	}
	return list
}

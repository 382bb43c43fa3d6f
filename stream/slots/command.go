package slots

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/warrenmq/warren/octet"
	"github.com/warrenmq/warren/stream"
)

// A proposal is a batch of commands of one node, in the order in which they were given:
//
//	version u8 | at u64, ms | node u64 | boot u64 | number u64 | done u64 | commands, to the end
//	command    kind u8 | stream uvarint | what the kind says
//
// All fixed numbers are little endian.
const (
	formatVersion = 1
	headerLen     = 1 + 5*8
)

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

// header is what stands before the commands of a batch.
type header struct {
	at   int64 // milliseconds since 1970
	node uint64
	boot uint64
	// number is the batch's place in the sequence of its origin, from 1.
	number uint64
	// done says that results of batches up to this number will not be asked for again.
	done uint64
}

func (h *header) put(b []byte) {
	b[0] = formatVersion
	for i, v := range [...]uint64{uint64(h.at), h.node, h.boot, h.number, h.done} {
		binary.LittleEndian.PutUint64(b[1+8*i:], v)
	}
}

// readHeader takes a proposal apart.
func readHeader(b []byte) (h header, commands []byte, err error) {
	if len(b) < headerLen {
		return h, nil, fmt.Errorf("%w: a proposal of %d octets", errFormat, len(b))
	}
	if b[0] != formatVersion {
		return h, nil, fmt.Errorf("%w: a proposal of version %d, this node knows %d", errFormat, b[0], formatVersion)
	}
	field := func(i int) uint64 { return binary.LittleEndian.Uint64(b[1+8*i:]) }
	return header{int64(field(0)), field(1), field(2), field(3), field(4)}, b[headerLen:], nil
}

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

// answer is what became of a batch, where it has more to say than that all of it was done.
type answer struct {
	number  uint64
	results []result
}

func (a *answer) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, a.number)
	dst = binary.AppendUvarint(dst, uint64(len(a.results)))
	for i := range a.results {
		x := &a.results[i]
		dst = binary.AppendUvarint(dst, uint64(x.ordinal))
		dst = append(dst, byte(x.code))
		dst = binary.AppendUvarint(dst, x.offset)
		dst = binary.AppendUvarint(dst, x.generation)
		dst = binary.AppendUvarint(dst, x.lost)
	}
	return dst
}

func (r *reader) answer() (a answer) {
	a.number = r.Uvarint()
	for n := r.Count(); n > 0 && !r.Bad; n-- {
		x := result{ordinal: uint32(min(r.Uvarint(), math.MaxUint32)), code: code(r.Octet()), offset: r.Uvarint(), generation: r.Uvarint(), lost: r.Uvarint()}
		if x.code > lastCode {
			r.Fail()
		}
		a.results = append(a.results, x)
	}
	return a
}

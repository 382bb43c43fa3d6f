package propose

import (
	"encoding/binary"
	"fmt"
)

// A proposal is a batch of commands of one node, in the order in which they were given:
//
//	version u8 | at u64, ms | node u64 | boot u64 | number u64 | done u64 | commands, to the end
//
// All fixed numbers are little endian.
const (
	formatVersion = 1
	HeaderLen     = 1 + 5*8
)

// Header is what stands before the commands of a batch.
type Header struct {
	At   int64 // milliseconds since 1970
	Node uint64
	Boot uint64 // how many times the node has started
	// Number is the batch's place in the sequence of its origin, from 1.
	Number uint64
	// Done says that answers to batches up to this number will not be asked for again.
	Done uint64
}

// Put writes the header to the first HeaderLen octets of b.
func (h *Header) Put(b []byte) {
	b[0] = formatVersion
	for i, v := range [...]uint64{uint64(h.At), h.Node, h.Boot, h.Number, h.Done} {
		binary.LittleEndian.PutUint64(b[1+8*i:], v)
	}
}

// ReadHeader takes a proposal apart. An error says that it was written by another version, or is damaged.
func ReadHeader(b []byte) (h Header, commands []byte, err error) {
	if len(b) < HeaderLen {
		return h, nil, fmt.Errorf("a proposal of %d octets", len(b))
	}
	if b[0] != formatVersion {
		return h, nil, fmt.Errorf("a proposal of version %d, this node knows %d", b[0], formatVersion)
	}
	field := func(i int) uint64 { return binary.LittleEndian.Uint64(b[1+8*i:]) }
	return Header{int64(field(0)), field(1), field(2), field(3), field(4)}, b[HeaderLen:], nil
}

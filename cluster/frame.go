package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	frameHead = 16
	maxFrame  = 1 << 20 // octets of a body

	// MaxBatch is how many octets a batch has at the most: the largest message, and what is around it.
	MaxBatch = 512<<20 + 1<<20
)

// Types of frames. Those from frameData on are in the log.
const (
	frameAck     = 1
	frameGoodbye = 2
	frameData    = 3
	frameCredit  = 4
	frameCall    = 5
	frameReply   = 6
)

// frame is what one carries; see the package comment.
type frame struct {
	left   uint32
	stream uint32
	typ    uint8
	kind   uint8
	number uint16
	body   []byte
}

func (f *frame) logged() bool { return f.typ >= frameData }

// octets is what the frame takes on the wire.
func (f *frame) octets() int { return frameHead + len(f.body) }

var errFrame = errors.New("cluster: malformed frame")

// parse reads the frame at the start of b. It returns how many octets it takes, 0 if they are not all there yet: then needs
// is how many there have to be to go on. The body is part of b.
func (f *frame) parse(b []byte) (n, needs int, err error) {
	if len(b) < frameHead {
		return 0, frameHead, nil
	}
	size := binary.LittleEndian.Uint32(b)
	f.left = binary.LittleEndian.Uint32(b[4:])
	f.stream = binary.LittleEndian.Uint32(b[8:])
	f.typ, f.kind = b[12], b[13]
	f.number = binary.LittleEndian.Uint16(b[14:])
	ok := size <= maxFrame
	switch f.typ {
	case frameAck:
		ok = size == 8
	case frameGoodbye:
		ok = size == 0
	case frameCredit:
		ok = size == 8
	case frameData:
		ok = ok && f.left <= MaxBatch-size && (f.left == 0 || size == maxFrame)
	case frameCall, frameReply:
	default:
		ok = false
	}
	if !ok || f.typ != frameData && f.left != 0 {
		return 0, 0, fmt.Errorf("%w: type %d, %d octets, %d left", errFrame, f.typ, size, f.left)
	}
	n = frameHead + int(size)
	if len(b) < n {
		return 0, n, nil
	}
	f.body = b[frameHead:n:n]
	return n, 0, nil
}

// appendHead appends the head of a frame with a body of size octets.
func (f *frame) appendHead(dst []byte, size int) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(size))
	dst = binary.LittleEndian.AppendUint32(dst, f.left)
	dst = binary.LittleEndian.AppendUint32(dst, f.stream)
	dst = append(dst, f.typ, f.kind)
	return binary.LittleEndian.AppendUint16(dst, f.number)
}

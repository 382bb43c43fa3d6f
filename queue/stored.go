package queue

import "encoding/binary"

// Stored is a message's bytes taken apart, without copying.
type Stored struct {
	Exchange, Key []byte
	Header        []byte // payload of the content header frame: class, weight, body size, flags, properties
	Frames        []byte // the body frames, whole
}

const (
	frameHeader   = 2
	frameBody     = 3
	frameEnd      = 0xCE
	frameOverhead = 8
)

// ParseStored takes the bytes of a message apart, those that are shown. They were checked when the message was published.
func ParseStored(b []byte) Stored {
	var s Stored
	b = Shown(b)
	n := 1 + int(b[0])
	s.Exchange, b = b[1:n], b[n:]
	n = 1 + int(b[0])
	s.Key, b = b[1:n], b[n+1:]
	n = int(binary.BigEndian.Uint32(b[3:]))
	s.Header, s.Frames = b[7:7+n], b[frameOverhead+n:]
	return s
}

// HeaderOf is the payload of the content header frame of a message's bytes, of which b are those from the octet that ends
// the names on.
func HeaderOf(b []byte) []byte {
	n := int(binary.BigEndian.Uint32(b[4:]))
	return b[8 : 8+n]
}

// BodySize is how many octets the body of a message with these bytes has.
func BodySize(b []byte) uint32 { return uint32(binary.BigEndian.Uint64(ParseStored(b).Header[4:])) }

// Weight is how many octets body and properties of a message with these bytes have together.
func Weight(b []byte) uint32 {
	h := ParseStored(b).Header
	return uint32(binary.BigEndian.Uint64(h[4:])) + uint32(len(h)-12)
}

// Body calls yield with each piece of the body in order, until it returns false.
func (s Stored) Body(yield func([]byte) bool) {
	for b := s.Frames; len(b) > 0; {
		n := int(binary.BigEndian.Uint32(b[3:]))
		if !yield(b[7 : 7+n]) {
			return
		}
		b = b[frameOverhead+n:]
	}
}

// AppendBody appends the body to dst.
func (s Stored) AppendBody(dst []byte) []byte {
	for piece := range s.Body {
		dst = append(dst, piece...)
	}
	return dst
}

// StoredLen is the size in octets of a stored message whose body is cut into frames of at most frameMax octets.
func StoredLen(exchange, key, header, body, frameMax int) int {
	n := 1 + exchange + 1 + key + 1 + frameOverhead + header
	if body > 0 {
		piece := frameMax - frameOverhead
		n += body + (body+piece-1)/piece*frameOverhead
	}
	return n
}

// AppendStored appends everything of a stored message that stands before its body frames.
func AppendStored(dst, exchange, key, header []byte) []byte {
	dst = append(dst, byte(len(exchange)))
	dst = append(dst, exchange...)
	dst = append(dst, byte(len(key)))
	dst = append(dst, key...)
	dst = append(dst, frameEnd)
	dst = appendFrameStart(dst, frameHeader, len(header))
	dst = append(dst, header...)
	return append(dst, frameEnd)
}

func appendFrameStart(dst []byte, kind byte, size int) []byte {
	return append(dst, kind, 0, 0, byte(size>>24), byte(size>>16), byte(size>>8), byte(size))
}

// NewMessage copies a message that did not come from a socket (a dead letter, one published over HTTP) into the pool,
// with refs references. Exchange and key are at most 255 octets; header is a content header payload whose body size is
// that of the body. Flags, TTL and Priority are left to the caller.
func (p *Pool) NewMessage(exchange, key, header []byte, body func(yield func([]byte) bool), size, refs int) Message {
	return p.NewBlindMessage(exchange, key, header, nil, body, size, refs)
}

// NewBlindMessage is NewMessage for one with blind keys, each of at most 255 octets.
func (p *Pool) NewBlindMessage(exchange, key, header []byte, blind [][]byte, body func(yield func([]byte) bool), size, refs int) Message {
	const frameMax = 128 << 10
	n := StoredLen(len(exchange), len(key), len(header), size, frameMax) + blindRoom(blind)
	ref, dst := p.Room(n, refs)
	dst = AppendStored(dst[:0], exchange, key, header)
	f := frameFiller{dst: dst, left: size, piece: frameMax - frameOverhead}
	for piece := range body {
		f.write(piece)
	}
	if len(blind) > 0 {
		appendBlind(f.dst, blind)
	}
	return Message{Ref: ref, Size: uint32(size), TTL: -1}
}

// Room reserves size octets with refs references: in the shared slab when that wastes little, in one of its own
// otherwise.
func (p *Pool) Room(size, refs int) (Ref, []byte) {
	if size <= SlabSize/4 {
		return p.Reserve(size, refs)
	}
	s := p.GetBig(size)
	s.refs.Add(int32(refs - 1))
	return Ref{Slab: s.ID, Len: uint32(size)}, s.Buf
}

// frameFiller writes a body into consecutive frames of full size.
type frameFiller struct {
	dst   []byte
	left  int // octets of the body still to come
	open  int // octets the current frame still takes
	piece int
	total int // octets of the message when it is complete; 0: there is room for them
}

func (f *frameFiller) write(b []byte) {
	for len(b) > 0 {
		if f.open == 0 {
			f.open = min(f.left, f.piece)
			if f.total > 0 && cap(f.dst)-len(f.dst) < frameOverhead {
				f.grow(0)
			}
			f.dst = appendFrameStart(f.dst, frameBody, f.open)
		}
		n := min(f.open, len(b))
		if cap(f.dst)-len(f.dst) < n+frameOverhead && f.total > 0 {
			f.grow(n)
		}
		f.dst = append(f.dst, b[:n]...)
		b, f.open, f.left = b[n:], f.open-n, f.left-n
		if f.open == 0 {
			f.dst = append(f.dst, frameEnd)
		}
	}
}

// grow makes the room four times as large, or what the complete message takes: it follows what has come, not what was announced.
func (f *frameFiller) grow(n int) {
	size := min(f.total, max(4*cap(f.dst), len(f.dst)+n+frameOverhead))
	f.dst = append(make([]byte, 0, size), f.dst...)
}

// Assembly builds a stored message from pieces of a body that come one after the other.
type Assembly struct{ f frameFiller }

// NewAssembly starts with dst, the message up to its header frame, grows it as pieces come, and cuts the body of size octets into frames of at
// most frameMax.
func NewAssembly(dst []byte, size, frameMax int) Assembly {
	piece := frameMax - frameOverhead
	return Assembly{frameFiller{dst: dst, left: size, piece: piece, total: len(dst) + size + (size+piece-1)/piece*frameOverhead}}
}

// Write adds the next piece of the body. More than announced is the caller's error.
func (a *Assembly) Write(b []byte) { a.f.write(b) }

// Left is how many octets of the body are missing.
func (a *Assembly) Left() int { return a.f.left }

// Bytes is the message as far as it was written.
func (a *Assembly) Bytes() []byte { return a.f.dst }

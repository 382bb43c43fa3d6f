package amqp

import "encoding/binary"

// ProtocolHeader is what a client sends first, and what a server answers to a
// client whose protocol it does not speak.
const ProtocolHeader = "AMQP\x00\x00\x09\x01"

// AcceptsProtocol reports whether the first eight bytes of a connection ask for
// AMQP 0-9-1, or for AMQP 0-9 which RabbitMQ treats alike.
func AcceptsProtocol(head []byte) bool {
	return string(head) == ProtocolHeader || string(head) == "AMQP\x01\x01\x00\x09"
}

// Frame types (AMQP 0-9-1 §2.3.5).
const (
	FrameMethod    = 1
	FrameHeader    = 2
	FrameBody      = 3
	FrameHeartbeat = 8
)

const (
	// FrameEnd is the last octet of every frame.
	FrameEnd = 0xCE
	// FrameHeadSize is the size of what precedes a frame's payload.
	FrameHeadSize = 7
	// FrameOverhead is the size of a frame without payload.
	FrameOverhead = 8
	// FrameMinSize is the smallest frame-max that AMQP 0-9-1 allows.
	FrameMinSize = 4096
	// FrameInitialSize is the frame-max before tuning, and the smallest one
	// that RabbitMQ 4.1 and later accept.
	FrameInitialSize = 8192
)

// maxShown is how many bytes of a payload the text of a frame error shows.
const maxShown = 16

// A Frame is a whole frame; Payload is a view into the bytes it was parsed from.
type Frame struct {
	Type    byte
	Channel uint16
	Payload []byte
}

// A FrameHead is what precedes a frame's payload.
type FrameHead struct {
	Type    byte
	Channel uint16
	Size    uint32 // of the payload, without the end octet
}

// ParseFrameHead reads the head of the frame at the start of buf. ok is false
// while there are fewer than [FrameHeadSize] bytes. A frame whose payload is
// larger than max is an error: RabbitMQ grants a payload the whole frame-max,
// [FrameOverhead] more than AMQP does. max 0 means no limit.
func ParseFrameHead(buf []byte, max uint32) (h FrameHead, ok bool, err error) {
	if len(buf) < FrameHeadSize {
		return FrameHead{}, false, nil
	}
	h = FrameHead{buf[0], binary.BigEndian.Uint16(buf[1:]), binary.BigEndian.Uint32(buf[3:])}
	if max != 0 && h.Size > max {
		return h, false, Errorf(FrameError, "type %d, all octets = <<>>: {frame_too_large,%d,%d}",
			h.Type, h.Size, int64(max)-FrameOverhead)
	}
	return h, true, nil
}

// ParseFrame reads the frame at the start of buf and returns it with its whole
// length n. n is 0 and err nil while the frame is not complete; max is that of
// [ParseFrameHead].
//
// Any error is an [*Error] that closes the connection. With n 0 the borders of
// frames are lost, and nothing after it can be read: the frame is too large, or
// its end octet is wrong. With n not 0 the frame was whole but makes no sense
// (an unknown type, a method or header too short for its fixed part, a
// heartbeat with payload, a frame on a channel where it may not be), and frames
// after it can still be read to find the peer's close-ok.
func ParseFrame(buf []byte, max uint32) (f Frame, n int, err error) {
	h, ok, err := ParseFrameHead(buf, max)
	if !ok {
		return Frame{}, 0, err
	}
	end := FrameHeadSize + uint64(h.Size)
	if uint64(len(buf)) <= end {
		return Frame{}, 0, nil
	}
	f = Frame{h.Type, h.Channel, buf[FrameHeadSize:end:end]}
	if buf[end] != FrameEnd {
		return Frame{}, 0, WrongFrameEnd(f, buf[end])
	}
	return f, int(end) + 1, f.check()
}

// WrongFrameEnd is the error of a frame that ends in another octet than
// [FrameEnd], for callers that read a large payload without [ParseFrame].
func WrongFrameEnd(f Frame, end byte) error {
	return f.errorf(FrameError, ": {invalid_frame_end_marker,%d}", end)
}

// check finds frames that no connection may carry.
func (f Frame) check() error {
	known := false
	switch f.Type {
	case FrameMethod:
		if len(f.Payload) >= 4 {
			return nil
		}
	case FrameHeader:
		known = len(f.Payload) >= 12
		if known && f.Channel != 0 {
			return nil
		}
	case FrameBody:
		known = true
		if f.Channel != 0 {
			return nil
		}
	case FrameHeartbeat:
		known = len(f.Payload) == 0
		if known && f.Channel == 0 {
			return nil
		}
	}
	if known {
		return f.Unexpected()
	}
	return f.errorf(FrameError, ": unknown_frame")
}

// Unexpected is the hard error 505 of a frame that came at the wrong time or on
// the wrong channel.
func (f Frame) Unexpected() *Error {
	return f.errorf(UnexpectedFrame, "")
}

func (f Frame) errorf(code uint16, format string, args ...any) *Error {
	which, shown := "all", f.Payload
	if len(shown) > maxShown {
		which, shown = "first 16", shown[:maxShown]
	}
	return Errorf(code, "type %d, %s octets = %s"+format,
		append([]any{f.Type, which, ErlangBinary(shown)}, args...)...)
}

// BeginFrame appends the head of a frame whose payload the caller appends next,
// before [EndFrame].
func BeginFrame(dst []byte, typ byte, channel uint16) []byte {
	return append(dst, typ, byte(channel>>8), byte(channel), 0, 0, 0, 0)
}

// EndFrame ends the frame whose [BeginFrame] found dst start bytes long: it
// fills in the size and appends the end octet. The payload is less than 4 GiB.
func EndFrame(dst []byte, start int) []byte {
	binary.BigEndian.PutUint32(dst[start+3:], uint32(len(dst)-start-FrameHeadSize))
	return append(dst, FrameEnd)
}

// AppendFrame appends a whole frame.
func AppendFrame(dst []byte, typ byte, channel uint16, payload []byte) []byte {
	start := len(dst)
	dst = BeginFrame(dst, typ, channel)
	dst = append(dst, payload...)
	return EndFrame(dst, start)
}

// AppendMethodFrame appends a frame with a method. It is meant for replies; a
// method passed through it is allocated, so hot paths call Append between
// [BeginFrame] and [EndFrame].
func AppendMethodFrame(dst []byte, channel uint16, m Method) []byte {
	start := len(dst)
	dst = BeginFrame(dst, FrameMethod, channel)
	dst = m.Append(dst)
	return EndFrame(dst, start)
}

// AppendBodyFrames appends body in frames as large as frameMax allows: none
// when it is empty, and all full but the last. frameMax 0 means no limit, and
// one below [FrameMinSize] counts as that.
func AppendBodyFrames(dst []byte, channel uint16, body []byte, frameMax uint32) []byte {
	piece := BodyFrameSize(frameMax)
	for len(body) > piece {
		dst = AppendFrame(dst, FrameBody, channel, body[:piece])
		body = body[piece:]
	}
	if len(body) > 0 {
		dst = AppendFrame(dst, FrameBody, channel, body)
	}
	return dst
}

// BodyFrameSize is how many bytes of a body go into one frame; frameMax is that
// of [AppendBodyFrames].
func BodyFrameSize(frameMax uint32) int {
	if frameMax == 0 {
		return 1<<31 - 1 - FrameOverhead
	}
	return int(max(frameMax, FrameMinSize)) - FrameOverhead
}

// AppendHeartbeat appends a heartbeat frame.
func AppendHeartbeat(dst []byte) []byte {
	return append(dst, FrameHeartbeat, 0, 0, 0, 0, 0, 0, FrameEnd)
}

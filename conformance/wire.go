package conformance

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// Frame types of AMQP 0-9-1 §2.3.5.
const (
	frameMethod    = 1
	frameHeader    = 2
	frameBody      = 3
	frameHeartbeat = 8
	frameEnd       = 0xCE
)

// maxFrame bounds what is read from a broker, in octets of payload, whatever was negotiated.
const maxFrame = 64 << 20

// A frame is one frame as it lies on the wire; payload belongs to the frame.
type frame struct {
	typ     byte
	channel uint16
	payload []byte
}

func appendFrame(dst []byte, typ byte, channel uint16, payload []byte) []byte {
	dst = append(dst, typ)
	dst = binary.BigEndian.AppendUint16(dst, channel)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(payload)))
	dst = append(dst, payload...)
	return append(dst, frameEnd)
}

func readFrame(r *bufio.Reader) (frame, error) {
	var head [7]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	f := frame{typ: head[0], channel: binary.BigEndian.Uint16(head[1:])}
	size := binary.BigEndian.Uint32(head[3:])
	if size > maxFrame {
		return f, fmt.Errorf("a frame of %d octets", size)
	}
	f.payload = make([]byte, size)
	if _, err := io.ReadFull(r, f.payload); err != nil {
		return f, err
	}
	end, err := r.ReadByte()
	if err != nil {
		return f, err
	}
	if end != frameEnd {
		return f, fmt.Errorf("a frame that ends with 0x%02X instead of 0xCE", end)
	}
	return f, nil
}

// A decimal is the value of the field type 'D'.
type decimal struct {
	scale uint8
	value uint32
}

// A stamp is a timestamp, in seconds since 1970.
type stamp uint64

// A longL is an int64 that travels under the tag 'L' instead of 'l'.
type longL int64

// A rawField is a table value written as given, tag and octets, to make malformed tables.
type rawField struct {
	tag  byte
	data []byte
}

// An entry is one name and value of a table. The Go type of the value decides its tag:
//
//	bool t   int8 b   uint8 B   int16 s   uint16 u   int32 I   uint32 i   int64 l   longL L
//	float32 f   float64 d   decimal D   string S   []byte x   []any A   table F   stamp T   nil V
type entry struct {
	name  string
	value any
}

// A table is a field table in the order of the wire.
type table []entry

func (t table) get(name string) (any, bool) {
	for _, e := range t {
		if e.name == name {
			return e.value, true
		}
	}
	return nil, false
}

func appendShortstr(dst []byte, s string) []byte {
	if len(s) > 255 {
		s = s[:255]
	}
	return append(append(dst, byte(len(s))), s...)
}

func appendLongstr(dst []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(s))), s...)
}

// appendEntries writes the body of a table, without its length.
func appendEntries(dst []byte, t table) []byte {
	for _, e := range t {
		dst = appendValue(appendShortstr(dst, e.name), e.value)
	}
	return dst
}

func appendTable(dst []byte, t table) []byte {
	return appendLongstr(dst, string(appendEntries(nil, t)))
}

func appendValue(dst []byte, v any) []byte {
	be := binary.BigEndian
	switch v := v.(type) {
	case bool:
		if v {
			return append(dst, 't', 1)
		}
		return append(dst, 't', 0)
	case int8:
		return append(dst, 'b', byte(v))
	case uint8:
		return append(dst, 'B', v)
	case int16:
		return be.AppendUint16(append(dst, 's'), uint16(v))
	case uint16:
		return be.AppendUint16(append(dst, 'u'), v)
	case int32:
		return be.AppendUint32(append(dst, 'I'), uint32(v))
	case uint32:
		return be.AppendUint32(append(dst, 'i'), v)
	case int64:
		return be.AppendUint64(append(dst, 'l'), uint64(v))
	case longL:
		return be.AppendUint64(append(dst, 'L'), uint64(v))
	case float32:
		return be.AppendUint32(append(dst, 'f'), math.Float32bits(v))
	case float64:
		return be.AppendUint64(append(dst, 'd'), math.Float64bits(v))
	case decimal:
		return be.AppendUint32(append(dst, 'D', v.scale), v.value)
	case string:
		return appendLongstr(append(dst, 'S'), v)
	case []byte:
		return appendLongstr(append(dst, 'x'), string(v))
	case []any:
		var body []byte
		for _, e := range v {
			body = appendValue(body, e)
		}
		return appendLongstr(append(dst, 'A'), string(body))
	case table:
		return appendTable(append(dst, 'F'), v)
	case stamp:
		return be.AppendUint64(append(dst, 'T'), uint64(v))
	case rawField:
		return append(append(dst, v.tag), v.data...)
	}
	return append(dst, 'V')
}

var errShort = errors.New("it ends too early")

// A decoder reads primitive values; after the first error it returns zero values.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) take(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.b) {
		if d.err == nil {
			d.err = errShort
		}
		d.b = nil
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) uint(n int) uint64 {
	var v uint64
	for _, c := range d.take(n) {
		v = v<<8 | uint64(c)
	}
	return v
}

func (d *decoder) shortstr() string { return string(d.take(int(d.uint(1)))) }
func (d *decoder) longstr() string  { return string(d.take(int(d.uint(4)))) }

func (d *decoder) table(depth int) table {
	in := decoder{b: d.take(int(d.uint(4)))}
	t := table{}
	for d.err == nil && len(in.b) > 0 {
		t = append(t, entry{in.shortstr(), in.value(depth)})
		if in.err != nil {
			d.err = fmt.Errorf("malformed table: %w", in.err)
		}
	}
	return t
}

func (d *decoder) value(depth int) any {
	if depth > 64 {
		d.err = errors.New("a table nested deeper than 64")
		return nil
	}
	switch tag := byte(d.uint(1)); tag {
	case 't':
		return d.uint(1) != 0
	case 'b':
		return int8(d.uint(1))
	case 'B':
		return uint8(d.uint(1))
	case 's':
		return int16(d.uint(2))
	case 'u':
		return uint16(d.uint(2))
	case 'I':
		return int32(d.uint(4))
	case 'i':
		return uint32(d.uint(4))
	case 'l':
		return int64(d.uint(8))
	case 'L':
		return longL(d.uint(8))
	case 'f':
		return math.Float32frombits(uint32(d.uint(4)))
	case 'd':
		return math.Float64frombits(d.uint(8))
	case 'D':
		return decimal{uint8(d.uint(1)), uint32(d.uint(4))}
	case 'S':
		return d.longstr()
	case 'x':
		return []byte(d.longstr())
	case 'A':
		in := decoder{b: d.take(int(d.uint(4)))}
		list := []any{}
		for d.err == nil && len(in.b) > 0 {
			list = append(list, in.value(depth+1))
			if in.err != nil {
				d.err = fmt.Errorf("malformed array: %w", in.err)
			}
		}
		return list
	case 'F':
		return d.table(depth + 1)
	case 'T':
		return stamp(d.uint(8))
	case 'V':
		return nil
	default:
		if d.err == nil {
			d.err = fmt.Errorf("unknown field type %q", tag)
		}
		return nil
	}
}

package message

import (
	"encoding/binary"
	"errors"
	"unicode/utf8"
)

// ErrMessage is of an entry that is no AMQP 1.0 message.
var ErrMessage = errors.New("stream: an entry is not an AMQP 1.0 message")

// The descriptors of sections (AMQP 1.0 §3.2).
const (
	sectionHeader              = 0x70
	sectionDeliveryAnnotations = 0x71
	sectionMessageAnnotations  = 0x72
	sectionProperties          = 0x73
	sectionApplication         = 0x74
	sectionData                = 0x75
	sectionSequence            = 0x76
	sectionValue               = 0x77
	sectionFooter              = 0x78
)

// The constructors of types (AMQP 1.0 §1.6).
const (
	codeNull       = 0x40
	codeTrue       = 0x41
	codeFalse      = 0x42
	codeUint0      = 0x43
	codeUlong0     = 0x44
	codeList0      = 0x45
	codeUbyte      = 0x50
	codeByte       = 0x51
	codeSmallUint  = 0x52
	codeSmallUlong = 0x53
	codeSmallInt   = 0x54
	codeSmallLong  = 0x55
	codeBool       = 0x56
	codeUshort     = 0x60
	codeShort      = 0x61
	codeUint       = 0x70
	codeInt        = 0x71
	codeFloat      = 0x72
	codeChar       = 0x73
	codeUlong      = 0x80
	codeLong       = 0x81
	codeDouble     = 0x82
	codeTimestamp  = 0x83
	codeUUID       = 0x98
	codeBin8       = 0xa0
	codeStr8       = 0xa1
	codeSym8       = 0xa3
	codeBin32      = 0xb0
	codeStr32      = 0xb1
	codeSym32      = 0xb3
	codeList8      = 0xc0
	codeMap8       = 0xc1
	codeList32     = 0xd0
	codeMap32      = 0xd1
	codeArray8     = 0xe0
	codeArray32    = 0xf0
)

// value is a view of an encoded value: its constructor, and what follows without the size of variable types. Compound types
// keep their count.
type value struct {
	code byte
	raw  []byte
}

// lead is how many octets stand before raw: the constructor, and the size of a variable type.
func (v value) lead() int {
	switch v.code >> 4 {
	case 0xa, 0xc, 0xe:
		return 2
	case 0xb, 0xd, 0xf:
		return 5
	}
	return 1
}

// nextValue takes a value off the front of b. It does not look into compound ones. Described values are none: only sections
// are described.
func nextValue(b []byte) (v value, rest []byte, ok bool) {
	if len(b) == 0 {
		return value{}, nil, false
	}
	return valueAfter(b[0], b[1:])
}

// valueAfter is nextValue for a value whose constructor stands elsewhere.
func valueAfter(code byte, b []byte) (v value, rest []byte, ok bool) {
	n := 0
	switch code >> 4 {
	case 0x4:
		if code > codeList0 {
			return value{}, nil, false
		}
	case 0x5:
		n = 1
	case 0x6:
		n = 2
	case 0x7:
		n = 4
	case 0x8:
		n = 8
	case 0x9:
		n = 16
	case 0xa, 0xc, 0xe:
		if len(b) < 1 {
			return value{}, nil, false
		}
		n, b = int(b[0]), b[1:]
	case 0xb, 0xd, 0xf:
		if len(b) < 4 {
			return value{}, nil, false
		}
		size := binary.BigEndian.Uint32(b)
		if uint64(size) > uint64(len(b)-4) {
			return value{}, nil, false
		}
		n, b = int(size), b[4:]
	default:
		return value{}, nil, false
	}
	if n > len(b) {
		return value{}, nil, false
	}
	return value{code, b[:n:n]}, b[n:], true
}

// elements is the number of elements of a list or map, twice the pairs for this, and where they begin.
func (v value) elements(codes ...byte) (count uint32, items []byte, ok bool) {
	for _, c := range codes {
		if v.code != c {
			continue
		}
		switch c >> 4 {
		case 0x4:
			return 0, nil, true
		case 0xc, 0xe:
			if len(v.raw) < 1 {
				return 0, nil, false
			}
			return uint32(v.raw[0]), v.raw[1:], true
		default:
			if len(v.raw) < 4 {
				return 0, nil, false
			}
			return binary.BigEndian.Uint32(v.raw), v.raw[4:], true
		}
	}
	return 0, nil, false
}

func (v value) list() (uint32, []byte, bool)  { return v.elements(codeList0, codeList8, codeList32) }
func (v value) pairs() (uint32, []byte, bool) { return v.elements(codeMap8, codeMap32) }
func (v value) array() (uint32, []byte, bool) { return v.elements(codeArray8, codeArray32) }

func (v value) text() ([]byte, bool)   { return v.raw, v.code == codeStr8 || v.code == codeStr32 }
func (v value) symbol() ([]byte, bool) { return v.raw, v.code == codeSym8 || v.code == codeSym32 }
func (v value) binary() ([]byte, bool) { return v.raw, v.code == codeBin8 || v.code == codeBin32 }

func (v value) boolean() (value, ok bool) {
	switch v.code {
	case codeTrue:
		return true, true
	case codeFalse:
		return false, true
	case codeBool:
		return v.raw[0] != 0, true
	}
	return false, false
}

// unsigned is the value of any unsigned integer.
func (v value) unsigned() (uint64, bool) {
	switch v.code {
	case codeUint0, codeUlong0:
		return 0, true
	case codeUbyte, codeSmallUint, codeSmallUlong:
		return uint64(v.raw[0]), true
	case codeUshort:
		return uint64(binary.BigEndian.Uint16(v.raw)), true
	case codeUint:
		return uint64(binary.BigEndian.Uint32(v.raw)), true
	case codeUlong:
		return binary.BigEndian.Uint64(v.raw), true
	}
	return 0, false
}

// nextSection takes a section off the front of b: its descriptor, its value, and all of its octets.
func nextSection(b []byte) (code byte, v value, whole, rest []byte, ok bool) {
	if len(b) < 3 || b[0] != 0 {
		return 0, value{}, nil, nil, false
	}
	if code = b[2]; b[1] == codeSmallUlong && code >= sectionHeader && code <= sectionFooter { // as everybody writes it
		v, rest, ok = nextValue(b[3:])
		return code, v, b[:len(b)-len(rest)], rest, ok
	}
	d, after, ok := nextValue(b[1:])
	if !ok {
		return 0, value{}, nil, nil, false
	}
	if n, isNumber := d.unsigned(); isNumber && (d.code == codeSmallUlong || d.code == codeUlong) {
		if n < sectionHeader || n > sectionFooter {
			return 0, value{}, nil, nil, false
		}
		code = byte(n)
	} else if name, isSymbol := d.symbol(); isSymbol {
		if code = sectionNames[string(name)]; code == 0 {
			return 0, value{}, nil, nil, false
		}
	} else {
		return 0, value{}, nil, nil, false
	}
	if v, rest, ok = nextValue(after); !ok {
		return 0, value{}, nil, nil, false
	}
	return code, v, b[:len(b)-len(rest)], rest, true
}

var sectionNames = map[string]byte{
	"amqp:header:list":                sectionHeader,
	"amqp:delivery-annotations:map":   sectionDeliveryAnnotations,
	"amqp:message-annotations:map":    sectionMessageAnnotations,
	"amqp:properties:list":            sectionProperties,
	"amqp:application-properties:map": sectionApplication,
	"amqp:data:binary":                sectionData,
	"amqp:amqp-sequence:list":         sectionSequence,
	"amqp:amqp-value:*":               sectionValue,
	"amqp:footer:map":                 sectionFooter,
}

func appendSection(dst []byte, code byte) []byte { return append(dst, 0, codeSmallUlong, code) }

// appendVariable appends a value of the binary, string or symbol type, whose short constructor is given.
func appendVariable[T string | []byte](dst []byte, short byte, v T) []byte {
	if len(v) <= 255 {
		return append(append(dst, short, byte(len(v))), v...)
	}
	dst = binary.BigEndian.AppendUint32(append(dst, short+0x10), uint32(len(v)))
	return append(dst, v...)
}

// appendText appends a string if it can be one in a stream by RabbitMQ's rule, and binary otherwise.
func appendText(dst, v []byte) []byte {
	const most = 4096
	short := byte(codeStr8)
	if len(v) > most || !utf8.Valid(v) {
		short = codeBin8
	} else {
		for _, c := range v {
			if c == 0 {
				short = codeBin8
				break
			}
		}
	}
	return appendVariable(dst, short, v)
}

// beginCompound appends the start of a list or map, whose short constructor is given, for endCompound to fill in.
func beginCompound(dst []byte, short byte) []byte { return append(dst, short, 0, 0) }

// endCompound ends a list or map that began at start and has count elements.
func endCompound(dst []byte, start, count int) []byte {
	size := len(dst) - start - 3
	if size < 255 && count <= 255 {
		dst[start+1], dst[start+2] = byte(size+1), byte(count)
		return dst
	}
	dst = append(dst, 0, 0, 0, 0, 0, 0)
	copy(dst[start+9:], dst[start+3:])
	dst[start] += 0x10
	binary.BigEndian.PutUint32(dst[start+1:], uint32(size+4))
	binary.BigEndian.PutUint32(dst[start+5:], uint32(count))
	return dst
}

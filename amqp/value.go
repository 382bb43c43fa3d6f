package amqp

import (
	"bytes"
	"encoding/binary"
	"iter"
	"math"
)

// The tags of field values, as RabbitMQ reads them. They differ from those of
// the AMQP 0-9-1 grammar, which no implementation follows.
const (
	TagBool      = 't'
	TagInt8      = 'b'
	TagUint8     = 'B'
	TagInt16     = 's'
	TagUint16    = 'u'
	TagInt32     = 'I'
	TagUint32    = 'i'
	TagInt64     = 'l'
	TagInt64L    = 'L' // the same as TagInt64
	TagFloat     = 'f'
	TagDouble    = 'd'
	TagDecimal   = 'D'
	TagString    = 'S'
	TagBinary    = 'x'
	TagArray     = 'A'
	TagTable     = 'F'
	TagTimestamp = 'T'
	TagVoid      = 'V'
)

// A Value is a field value: its tag and a view of its bytes, without the length
// that precedes strings, tables and arrays on the wire. The zero Value is no
// value, and none of its accessors has a result.
type Value struct {
	Tag byte
	Raw []byte
}

// sizePrefixed stands in valueSize for a u32 and as many bytes as it says.
const sizePrefixed = 0xff

// valueSize is one more than the number of bytes that follow each tag, so that
// 0 means that there is no such tag.
var valueSize = [256]uint8{
	TagVoid: 1,
	TagBool: 2, TagInt8: 2, TagUint8: 2,
	TagInt16: 3, TagUint16: 3,
	TagInt32: 5, TagUint32: 5, TagFloat: 5,
	TagDecimal: 6,
	TagInt64:   9, TagInt64L: 9, TagDouble: 9, TagTimestamp: 9,
	TagString: sizePrefixed, TagBinary: sizePrefixed, TagArray: sizePrefixed, TagTable: sizePrefixed,
}

// nextValue takes a value off the front of src. It looks neither into tables
// and arrays nor at the value itself.
func nextValue(src []byte) (v Value, rest []byte, ok bool) {
	if len(src) == 0 {
		return Value{}, nil, false
	}
	tag := src[0]
	src = src[1:]
	n := uint64(valueSize[tag])
	switch n {
	case 0:
		return Value{}, nil, false
	case sizePrefixed:
		if len(src) < 4 {
			return Value{}, nil, false
		}
		n = uint64(binary.BigEndian.Uint32(src))
		src = src[4:]
	default:
		n--
	}
	if n > uint64(len(src)) {
		return Value{}, nil, false
	}
	return Value{tag, src[:n:n]}, src[n:], true
}

// validate checks what nextValue does not look at.
func (v Value) validate(depth int) bool {
	switch v.Tag {
	case TagFloat:
		return binary.BigEndian.Uint32(v.Raw)>>23&0xff != 0xff
	case TagDouble:
		return binary.BigEndian.Uint64(v.Raw)>>52&0x7ff != 0x7ff
	case TagTable:
		return depth > 0 && Table(v.Raw).validate(depth-1)
	case TagArray:
		return depth > 0 && Array(v.Raw).validate(depth-1)
	}
	return true
}

// Int is the value of any integer tag.
func (v Value) Int() (int64, bool) {
	switch {
	case len(v.Raw) == 1:
		switch v.Tag {
		case TagInt8:
			return int64(int8(v.Raw[0])), true
		case TagUint8:
			return int64(v.Raw[0]), true
		}
	case len(v.Raw) == 2:
		n := binary.BigEndian.Uint16(v.Raw)
		switch v.Tag {
		case TagInt16:
			return int64(int16(n)), true
		case TagUint16:
			return int64(n), true
		}
	case len(v.Raw) == 4:
		n := binary.BigEndian.Uint32(v.Raw)
		switch v.Tag {
		case TagInt32:
			return int64(int32(n)), true
		case TagUint32:
			return int64(n), true
		}
	case len(v.Raw) == 8:
		if v.Tag == TagInt64 || v.Tag == TagInt64L {
			return int64(binary.BigEndian.Uint64(v.Raw)), true
		}
	}
	return 0, false
}

// Bool is the value of a bool; any octet but 0 is true.
func (v Value) Bool() (value, ok bool) {
	if v.Tag != TagBool || len(v.Raw) != 1 {
		return false, false
	}
	return v.Raw[0] != 0, true
}

// Str is the text of a long string. It need not be UTF-8.
func (v Value) Str() ([]byte, bool) { return v.Raw, v.Tag == TagString }

// Bytes is the content of a long string or a byte array.
func (v Value) Bytes() ([]byte, bool) {
	return v.Raw, v.Tag == TagString || v.Tag == TagBinary
}

// Float is the value of a float or a double.
func (v Value) Float() (float64, bool) {
	switch {
	case v.Tag == TagFloat && len(v.Raw) == 4:
		return float64(math.Float32frombits(binary.BigEndian.Uint32(v.Raw))), true
	case v.Tag == TagDouble && len(v.Raw) == 8:
		return math.Float64frombits(binary.BigEndian.Uint64(v.Raw)), true
	}
	return 0, false
}

// Decimal is the value of a decimal, unscaled · 10^-scale.
func (v Value) Decimal() (scale uint8, unscaled uint32, ok bool) {
	if v.Tag != TagDecimal || len(v.Raw) != 5 {
		return 0, 0, false
	}
	return v.Raw[0], binary.BigEndian.Uint32(v.Raw[1:]), true
}

// Timestamp is the value of a timestamp in seconds since 1970.
func (v Value) Timestamp() (uint64, bool) {
	if v.Tag != TagTimestamp || len(v.Raw) != 8 {
		return 0, false
	}
	return binary.BigEndian.Uint64(v.Raw), true
}

// Table is the nested table.
func (v Value) Table() (Table, bool) { return Table(v.Raw), v.Tag == TagTable }

// Array is the nested array.
func (v Value) Array() (Array, bool) { return Array(v.Raw), v.Tag == TagArray }

// TypeName is the name that RabbitMQ's error texts give the type, and "" for
// the zero Value.
func (v Value) TypeName() string {
	switch v.Tag {
	case TagBool:
		return "bool"
	case TagInt8:
		return "byte"
	case TagUint8:
		return "unsignedbyte"
	case TagInt16:
		return "short"
	case TagUint16:
		return "unsignedshort"
	case TagInt32:
		return "signedint"
	case TagUint32:
		return "unsignedint"
	case TagInt64, TagInt64L:
		return "long"
	case TagFloat:
		return "float"
	case TagDouble:
		return "double"
	case TagDecimal:
		return "decimal"
	case TagString:
		return "longstr"
	case TagBinary:
		return "binary"
	case TagArray:
		return "array"
	case TagTable:
		return "table"
	case TagTimestamp:
		return "timestamp"
	case TagVoid:
		return "void"
	}
	return ""
}

// Matches reports whether v, an argument of a binding to a headers exchange, is
// met by the value of the message's header of the same name. A void argument is
// met by any value. Numbers compare by value within integers and within floats,
// strings and byte arrays by their bytes, everything else as [Value.Equal]
// does: so integers of different widths match, but not within arrays and
// tables. (RabbitMQ 4.3 matches no timestamps, by a mistake of units.)
func (v Value) Matches(header Value) bool {
	if v.Tag == TagVoid {
		return header.Tag != 0
	}
	if a, ok := v.Int(); ok {
		b, ok := header.Int()
		return ok && a == b
	}
	if a, ok := v.Bytes(); ok {
		b, ok := header.Bytes()
		return ok && bytes.Equal(a, b)
	}
	if a, ok := v.Float(); ok {
		b, ok := header.Float()
		return ok && a == b
	}
	return v.Equal(header)
}

// Equal reports whether the values have the same type and the same content,
// nested entries in the same order. The tags 'l' and 'L' are one type, and all
// true bools are equal.
func (v Value) Equal(w Value) bool {
	if canonicalTag(v.Tag) != canonicalTag(w.Tag) || len(v.Raw) != len(w.Raw) {
		return false
	}
	if bytes.Equal(v.Raw, w.Raw) {
		return true
	}
	switch v.Tag {
	case TagBool:
		a, aok := v.Bool()
		b, bok := w.Bool()
		return aok && bok && a == b
	case TagTable:
		return bytes.Equal(Table(v.Raw).respelt(), Table(w.Raw).respelt())
	case TagArray:
		return bytes.Equal(Array(v.Raw).respelt(), Array(w.Raw).respelt())
	}
	return false
}

func canonicalTag(tag byte) byte {
	if tag == TagInt64L {
		return TagInt64
	}
	return tag
}

// An Array is a view of an encoded array without its length prefix.
type Array []byte

// All goes through the elements, and stops where the array is malformed.
func (a Array) All() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		for rest := []byte(a); len(rest) > 0; {
			v, next, ok := nextValue(rest)
			if !ok || !yield(v) {
				return
			}
			rest = next
		}
	}
}

// Len is the number of elements.
func (a Array) Len() int {
	n := 0
	for range a.All() {
		n++
	}
	return n
}

func (a Array) validate(depth int) bool {
	for rest := []byte(a); len(rest) > 0; {
		v, next, ok := nextValue(rest)
		if !ok || !v.validate(depth) {
			return false
		}
		rest = next
	}
	return true
}

package message

import (
	"encoding/binary"
	"math"
	"unicode/utf8"

	"github.com/warrenmq/warren/amqp"
)

// maxDepth is how deep lists and maps may lie in a value that becomes a field.
const maxDepth = 32

// appendFieldOf appends a value as an AMQP 0-9-1 field, its tag first. It is false for what has none: decimals, floats that are
// no numbers, and what lies too deep; such values are left out of lists and maps.
func appendFieldOf(dst []byte, v value, depth int) ([]byte, bool) {
	be := binary.BigEndian
	switch v.code {
	case codeNull:
		return append(dst, amqp.TagVoid), true
	case codeTrue:
		return append(dst, amqp.TagBool, 1), true
	case codeFalse:
		return append(dst, amqp.TagBool, 0), true
	case codeBool:
		return append(dst, amqp.TagBool, min(v.raw[0], 1)), true
	case codeUint0:
		return append(dst, amqp.TagUint32, 0, 0, 0, 0), true
	case codeSmallUint:
		return append(dst, amqp.TagUint32, 0, 0, 0, v.raw[0]), true
	case codeUlong0, codeSmallUlong, codeUlong:
		n, _ := v.unsigned()
		if n > math.MaxInt64 {
			return dst, false
		}
		return be.AppendUint64(append(dst, amqp.TagInt64), n), true
	case codeSmallInt:
		return be.AppendUint32(append(dst, amqp.TagInt32), uint32(int8(v.raw[0]))), true
	case codeSmallLong:
		return be.AppendUint64(append(dst, amqp.TagInt64), uint64(int8(v.raw[0]))), true
	case codeFloat:
		if be.Uint32(v.raw)>>23&0xff == 0xff {
			return dst, false
		}
	case codeDouble:
		if be.Uint64(v.raw)>>52&0x7ff == 0x7ff {
			return dst, false
		}
	case codeTimestamp:
		ms := int64(be.Uint64(v.raw))
		return be.AppendUint64(append(dst, amqp.TagTimestamp), uint64(max(ms, 0))/1000), true
	case codeChar:
		return appendLong(dst, utf8.AppendRune(nil, rune(be.Uint32(v.raw)))), true
	case codeUUID:
		var buf [len(uuidPrefix) + 36]byte
		return appendLong(dst, appendUUID(buf[:0], v.raw)[len(uuidPrefix):]), true
	case codeBin8, codeBin32, codeStr8, codeStr32, codeSym8, codeSym32:
		return appendLong(dst, v.raw), true
	case codeList0, codeList8, codeList32:
		n, items, ok := v.list()
		if !ok || depth == 0 {
			return dst, false
		}
		return appendArrayOf(dst, n, items, 0, depth-1)
	case codeArray8, codeArray32:
		n, items, ok := v.array()
		if !ok || depth == 0 || n > 0 && len(items) == 0 {
			return dst, false
		}
		if n == 0 {
			return append(dst, amqp.TagArray, 0, 0, 0, 0), true
		}
		return appendArrayOf(dst, n, items[1:], items[0], depth-1)
	case codeMap8, codeMap32:
		n, items, ok := v.pairs()
		if !ok || depth == 0 {
			return dst, false
		}
		return appendTableOf(dst, n/2, items, depth-1)
	}
	if tag := fixedTags[v.code]; tag != 0 {
		return append(append(dst, tag), v.raw...), true
	}
	return dst, false
}

// fixedTags are the field types whose octets are those of AMQP 1.0.
var fixedTags = [256]byte{
	codeByte: amqp.TagInt8, codeUbyte: amqp.TagUint8, codeShort: amqp.TagInt16, codeUshort: amqp.TagUint16,
	codeInt: amqp.TagInt32, codeUint: amqp.TagUint32, codeLong: amqp.TagInt64, codeFloat: amqp.TagFloat, codeDouble: amqp.TagDouble,
}

// appendLong appends a long string.
func appendLong(dst, v []byte) []byte {
	dst = binary.BigEndian.AppendUint32(append(dst, amqp.TagString), uint32(len(v)))
	return append(dst, v...)
}

// maxEmpty is how many elements without octets an array may have: as its size does not bound them, a small entry could become
// a large message.
const maxEmpty = 16

// appendArrayOf appends n elements as an array. code is the constructor of all, or 0 if each has its own.
func appendArrayOf(dst []byte, n uint32, items []byte, code byte, depth int) ([]byte, bool) {
	whole := len(dst)
	dst = append(dst, amqp.TagArray, 0, 0, 0, 0)
	if code>>4 == 4 && n > maxEmpty {
		return dst[:whole], false
	}
	for range n {
		var e value
		var ok bool
		if code == 0 {
			e, items, ok = nextValue(items)
		} else {
			e, items, ok = valueAfter(code, items)
		}
		if !ok {
			return dst[:whole], false
		}
		dst, _ = appendFieldOf(dst, e, depth)
	}
	binary.BigEndian.PutUint32(dst[whole+1:], uint32(len(dst)-whole-5))
	return dst, true
}

// appendTableOf appends n pairs as a table.
func appendTableOf(dst []byte, n uint32, items []byte, depth int) ([]byte, bool) {
	whole := len(dst)
	dst = append(dst, amqp.TagTable, 0, 0, 0, 0)
	for range n {
		key, rest, ok := nextValue(items)
		if !ok {
			return dst[:whole], false
		}
		v, rest, ok := nextValue(rest)
		if !ok {
			return dst[:whole], false
		}
		items = rest
		name := key.raw
		if _, isSymbol := key.symbol(); !isSymbol {
			if _, isText := key.text(); !isText {
				continue
			}
		}
		if len(name) > amqp.MaxShortstr {
			continue
		}
		before := len(dst)
		dst = append(append(dst, byte(len(name))), name...)
		if dst, ok = appendFieldOf(dst, v, depth); !ok {
			dst = dst[:before]
		}
	}
	binary.BigEndian.PutUint32(dst[whole+1:], uint32(len(dst)-whole-5))
	return dst, true
}

package amqp

import (
	"encoding/binary"
	"math"
)

// AppendValue appends an entry of any type. v must be valid. Like all appending
// methods of Table it panics when the key is longer than [MaxShortstr], and
// does not look whether the key is there already.
func (t Table) AppendValue(key string, v Value) Table {
	return appendValue(appendShortstr(t, key), v)
}

// AppendString appends a long string.
func (t Table) AppendString(key, v string) Table {
	return appendLongstr(append(appendShortstr(t, key), TagString), v)
}

// AppendBytes appends a long string held in bytes.
func (t Table) AppendBytes(key string, v []byte) Table {
	return appendLongstr(append(appendShortstr(t, key), TagString), v)
}

// AppendBinary appends a byte array.
func (t Table) AppendBinary(key string, v []byte) Table {
	return appendLongstr(append(appendShortstr(t, key), TagBinary), v)
}

// AppendBool appends a bool.
func (t Table) AppendBool(key string, v bool) Table {
	return append(appendShortstr(t, key), TagBool, boolByte(v))
}

// AppendInt32 appends a signed 32-bit integer.
func (t Table) AppendInt32(key string, v int32) Table {
	return binary.BigEndian.AppendUint32(append(appendShortstr(t, key), TagInt32), uint32(v))
}

// AppendInt64 appends a signed 64-bit integer.
func (t Table) AppendInt64(key string, v int64) Table {
	return binary.BigEndian.AppendUint64(append(appendShortstr(t, key), TagInt64), uint64(v))
}

// AppendDouble appends a double, which must be finite.
func (t Table) AppendDouble(key string, v float64) Table {
	return binary.BigEndian.AppendUint64(append(appendShortstr(t, key), TagDouble), math.Float64bits(v))
}

// AppendTime appends a timestamp in seconds since 1970.
func (t Table) AppendTime(key string, seconds uint64) Table {
	return binary.BigEndian.AppendUint64(append(appendShortstr(t, key), TagTimestamp), seconds)
}

// AppendTable appends a nested table.
func (t Table) AppendTable(key string, v Table) Table {
	return appendLongstr(append(appendShortstr(t, key), TagTable), []byte(v))
}

// AppendArray appends a nested array.
func (t Table) AppendArray(key string, v Array) Table {
	return appendLongstr(append(appendShortstr(t, key), TagArray), []byte(v))
}

// AppendVoid appends a void value.
func (t Table) AppendVoid(key string) Table {
	return append(appendShortstr(t, key), TagVoid)
}

// AppendValue appends an element of any type. v must be valid.
func (a Array) AppendValue(v Value) Array { return appendValue(a, v) }

// AppendString appends a long string.
func (a Array) AppendString(v string) Array { return appendLongstr(append(a, TagString), v) }

// AppendInt64 appends a signed 64-bit integer.
func (a Array) AppendInt64(v int64) Array {
	return binary.BigEndian.AppendUint64(append(a, TagInt64), uint64(v))
}

// AppendTable appends a nested table.
func (a Array) AppendTable(v Table) Array { return appendLongstr(append(a, TagTable), []byte(v)) }

// StringValue is a long string.
func StringValue(v string) Value { return Value{TagString, []byte(v)} }

// BoolValue is a bool.
func BoolValue(v bool) Value { return Value{TagBool, []byte{boolByte(v)}} }

// Int64Value is a signed 64-bit integer.
func Int64Value(v int64) Value {
	return Value{TagInt64, binary.BigEndian.AppendUint64(nil, uint64(v))}
}

// TimeValue is a timestamp in seconds since 1970.
func TimeValue(seconds uint64) Value {
	return Value{TagTimestamp, binary.BigEndian.AppendUint64(nil, seconds)}
}

// TableValue is a nested table, a view of v.
func TableValue(v Table) Value { return Value{TagTable, v} }

// ArrayValue is a nested array, a view of v.
func ArrayValue(v Array) Value { return Value{TagArray, v} }

func appendValue[T ~[]byte](dst T, v Value) T {
	dst = append(dst, v.Tag)
	switch v.Tag {
	case TagString, TagBinary, TagArray, TagTable:
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(v.Raw)))
	}
	return append(dst, v.Raw...)
}

func boolByte(v bool) byte {
	if v {
		return 1
	}
	return 0
}

package amqp

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Map converts the table for people and JSON: integers become int64, floats and
// decimals float64, strings and byte arrays string, timestamps their uint64
// seconds, void nil, arrays []any and tables map[string]any. Of equal keys the
// first counts. The result holds no views. [TableOf] does not restore the types.
func (t Table) Map() map[string]any {
	m := make(map[string]any, t.Len())
	for k, v := range t.All() {
		if _, ok := m[string(k)]; !ok {
			m[string(k)] = v.Any()
		}
	}
	return m
}

// Any converts the value as [Table.Map] does.
func (v Value) Any() any {
	if n, ok := v.Int(); ok {
		return n
	}
	if s, ok := v.Bytes(); ok {
		return string(s)
	}
	if b, ok := v.Bool(); ok {
		return b
	}
	if f, ok := v.Float(); ok {
		return f
	}
	if t, ok := v.Timestamp(); ok {
		return t
	}
	if scale, unscaled, ok := v.Decimal(); ok {
		return float64(unscaled) / math.Pow10(int(scale))
	}
	if t, ok := v.Table(); ok {
		return t.Map()
	}
	if a, ok := v.Array(); ok {
		list := make([]any, 0, a.Len())
		for v := range a.All() {
			list = append(list, v.Any())
		}
		return list
	}
	return nil
}

// TableOf encodes a map, its keys sorted. Each of Go's sized numbers becomes the
// AMQP type of its size, int, uint, uint64 and json.Number a signed 64-bit
// integer if they fit, other json.Number a double, string a long string, []byte
// a byte array, time.Time a timestamp (0 before 1970), nil void, []any and []string an array,
// map[string]any a table; Table, Array and Value stay what they are, and must be
// valid. The error is [ErrTooLong] for a long key, and tells of anything that
// has no encoding.
//
// JSON whose integers shall stay integers is decoded with json.Decoder.UseNumber.
func TableOf(m map[string]any) (Table, error) {
	t, err := appendMap(nil, m, MaxDepth)
	if err != nil {
		return nil, err
	}
	return t, t.Validate()
}

func appendMap(dst Table, m map[string]any, depth int) (Table, error) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if len(key) > MaxShortstr {
			return nil, ErrTooLong
		}
		v, err := valueOf(m[key], depth)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", key, err)
		}
		dst = dst.AppendValue(key, v)
	}
	return dst, nil
}

// ValueOf encodes a value as [TableOf] does.
func ValueOf(v any) (Value, error) { return valueOf(v, MaxDepth) }

func valueOf(v any, depth int) (Value, error) {
	be := binary.BigEndian
	switch v := v.(type) {
	case nil:
		return Value{Tag: TagVoid}, nil
	case bool:
		return BoolValue(v), nil
	case int8:
		return Value{TagInt8, []byte{byte(v)}}, nil
	case uint8:
		return Value{TagUint8, []byte{v}}, nil
	case int16:
		return Value{TagInt16, be.AppendUint16(nil, uint16(v))}, nil
	case uint16:
		return Value{TagUint16, be.AppendUint16(nil, v)}, nil
	case int32:
		return Value{TagInt32, be.AppendUint32(nil, uint32(v))}, nil
	case uint32:
		return Value{TagUint32, be.AppendUint32(nil, v)}, nil
	case int64:
		return Int64Value(v), nil
	case int:
		return Int64Value(int64(v)), nil
	case uint:
		return valueOf(uint64(v), depth)
	case uint64:
		if v > math.MaxInt64 {
			return Value{}, fmt.Errorf("amqp: %d exceeds 64 signed bits", v)
		}
		return Int64Value(int64(v)), nil
	case float32:
		return checked(Value{TagFloat, be.AppendUint32(nil, math.Float32bits(v))})
	case float64:
		return checked(Value{TagDouble, be.AppendUint64(nil, math.Float64bits(v))})
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return Int64Value(n), nil
		}
		f, err := v.Float64()
		if err != nil {
			return Value{}, fmt.Errorf("amqp: number %s has no encoding", v)
		}
		return valueOf(f, depth)
	case string:
		return StringValue(v), nil
	case []byte:
		return Value{TagBinary, v}, nil
	case time.Time:
		return TimeValue(uint64(max(v.Unix(), 0))), nil
	case Value:
		return checked(v)
	case Table:
		return checked(TableValue(v))
	case Array:
		return checked(ArrayValue(v))
	}
	if depth == 0 {
		return Value{}, fmt.Errorf("amqp: nested deeper than %d", MaxDepth)
	}
	switch v := v.(type) {
	case map[string]any:
		t, err := appendMap(nil, v, depth-1)
		return TableValue(t), err
	case []string:
		var a Array
		for _, s := range v {
			a = a.AppendString(s)
		}
		return ArrayValue(a), nil
	case []any:
		var a Array
		for _, e := range v {
			w, err := valueOf(e, depth-1)
			if err != nil {
				return Value{}, err
			}
			a = a.AppendValue(w)
		}
		return ArrayValue(a), nil
	}
	return Value{}, fmt.Errorf("amqp: a %T has no encoding", v)
}

// checked returns v, or an error when it is not one that Validate accepts.
func checked(v Value) (Value, error) {
	t := Table(nil).AppendValue("", v)
	if w, ok := t.Get(""); !ok || len(w.Raw) != len(v.Raw) {
		return Value{}, ErrTable
	}
	return v, t.Validate()
}

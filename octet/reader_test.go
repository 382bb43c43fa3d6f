package octet

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"
)

func TestReader(t *testing.T) {
	b := []byte{7, 3}
	b = binary.AppendUvarint(b, math.MaxUint64)
	b = binary.AppendUvarint(b, math.MaxUint32)
	b = binary.AppendVarint(b, math.MinInt64)
	b = binary.LittleEndian.AppendUint64(b, 1<<63)
	b = append(b, 3, 'a', 'b', 'c')
	r := Reader{B: b}
	if r.Octet() != 7 || r.Below(4) != 3 || r.Uvarint() != math.MaxUint64 || r.U32() != math.MaxUint32 || r.Varint() != math.MinInt64 || r.U64() != 1<<63 {
		t.Fatalf("%+v", r)
	}
	if n := r.Count(); n != 3 || string(r.Take(uint64(n))) != "abc" || r.Bad || len(r.B) > 0 {
		t.Fatalf("%d, %+v", n, r)
	}
}

// TestReaderRefuses: what is cut off, or too much, is 0, and so is all that comes then.
func TestReaderRefuses(t *testing.T) {
	more := []byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2}
	for what, r := range map[string]struct {
		b    []byte
		take func(*Reader) uint64
	}{
		"no octet":          {nil, func(r *Reader) uint64 { return uint64(r.Octet()) }},
		"octet too high":    {[]byte{4, 1}, func(r *Reader) uint64 { return uint64(r.Below(4)) }},
		"uvarint cut off":   {[]byte{0x80}, (*Reader).Uvarint},
		"uvarint of 65 bit": {more, (*Reader).Uvarint},
		"uvarint of 33 bit": {binary.AppendUvarint(nil, 1<<32), func(r *Reader) uint64 { return uint64(r.U32()) }},
		"too many":          {[]byte{4, 1, 1, 1, 1}, func(r *Reader) uint64 { return r.Most(3) }},
		"more than follow":  {[]byte{4, 1, 1}, func(r *Reader) uint64 { return uint64(r.Count()) }},
		"varint cut off":    {[]byte{0xff}, func(r *Reader) uint64 { return uint64(r.Varint()) }},
		"7 octets of 8":     {make([]byte, 7), (*Reader).U64},
		"octets cut off":    {[]byte{1, 2}, func(r *Reader) uint64 { return uint64(len(r.Take(3))) }},
		"octets beyond all": {[]byte{1, 2}, func(r *Reader) uint64 { return uint64(len(r.Take(math.MaxUint64))) }},
	} {
		in := Reader{B: r.b}
		if v := r.take(&in); v != 0 || !in.Bad || len(in.B) > 0 || in.Octet() != 0 || in.Uvarint() != 0 {
			t.Errorf("%s: %d, %+v", what, v, in)
		}
	}
}

// FuzzReader: whatever is taken off whatever there is, in whatever order, comes from there, once each.
func FuzzReader(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, []byte{0, 1, 2, 3, 4, 5, 6, 7})
	f.Fuzz(func(t *testing.T, b, how []byte) {
		r := Reader{B: bytes.Clone(b)}
		for _, h := range how {
			before := len(r.B)
			switch h % 8 {
			case 0:
				r.Octet()
			case 1:
				r.Below(h)
			case 2:
				r.Uvarint()
			case 3:
				r.U32()
			case 4:
				if n := r.Count(); n > len(r.B)+1 {
					t.Fatalf("%d of %d octets", n, len(r.B))
				}
			case 5:
				r.Varint()
			case 6:
				r.U64()
			case 7:
				if v := r.Take(uint64(h)); !r.Bad && (len(v) != int(h) || cap(v) != int(h)) {
					t.Fatalf("%d octets, want %d", len(v), h)
				}
			}
			if r.Bad && len(r.B) > 0 || !r.Bad && !bytes.HasSuffix(b, r.B) || len(r.B) > before {
				t.Fatalf("%d left of %d, bad %v", len(r.B), before, r.Bad)
			}
		}
	})
}

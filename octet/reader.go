// Package octet takes values off octets that came from a disk or another node, and trusts none of them. Every room whose formats
// are made of octets and varints reads with it, and has methods of its own for what it makes of them.
package octet

import (
	"encoding/binary"
	"math"
)

// Reader takes values off B. What is not there, or out of range, is 0, makes it Bad and leaves nothing: whoever reads may look
// once, at the end. It never panics. What it gives lies in B.
type Reader struct {
	B   []byte
	Bad bool
}

// Fail says that what was read makes no sense.
func (r *Reader) Fail() { r.Bad, r.B = true, nil }

// Octet takes one.
func (r *Reader) Octet() byte {
	if len(r.B) == 0 {
		r.Fail()
		return 0
	}
	v := r.B[0]
	r.B = r.B[1:]
	return v
}

// Below takes an octet less than limit.
func (r *Reader) Below(limit byte) byte {
	v := r.Octet()
	if v >= limit {
		r.Fail()
		return 0
	}
	return v
}

// Uvarint takes a number.
func (r *Reader) Uvarint() uint64 { return r.Most(math.MaxUint64) }

// U32 takes a uvarint of 32 bits.
func (r *Reader) U32() uint32 { return uint32(r.Most(math.MaxUint32)) }

// Most takes a uvarint that is no greater than limit.
func (r *Reader) Most(limit uint64) uint64 {
	v, n := binary.Uvarint(r.B)
	if n <= 0 || v > limit {
		r.Fail()
		return 0
	}
	r.B = r.B[n:]
	return v
}

// Count takes how many things follow that have an octet each at least: a loop of so many ends.
func (r *Reader) Count() int { return int(r.Most(uint64(len(r.B)))) }

// Varint takes a number that may be negative.
func (r *Reader) Varint() int64 {
	v, n := binary.Varint(r.B)
	if n <= 0 {
		r.Fail()
		return 0
	}
	r.B = r.B[n:]
	return v
}

// U64 takes 8 octets, little endian.
func (r *Reader) U64() uint64 {
	if b := r.Take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// Take takes n octets.
func (r *Reader) Take(n uint64) []byte {
	if n > uint64(len(r.B)) {
		r.Fail()
		return nil
	}
	v := r.B[:n:n]
	r.B = r.B[n:]
	return v
}

// Of is 1 for what is so, and 0 for what is not.
func Of(so bool) byte {
	if so {
		return 1
	}
	return 0
}

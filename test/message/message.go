// Package message is the messages that drills publish: each says in its body which one it is, so that what a broker delivers
// can be told from what nobody published.
package message

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// ID names a message: the publisher's number in the upper 16 bits, its count below. Those of one publisher ascend.
type ID uint64

// Of is the n-th message of a publisher.
func Of(publisher int, n uint64) ID { return ID(publisher)<<48 | ID(n) }

// Publisher is the number of who sent it.
func (m ID) Publisher() int { return int(m >> 48) }

// String is publisher/count.
func (m ID) String() string { return fmt.Sprintf("%d/%d", m>>48, uint64(m&(1<<48-1))) }

// Smallest is the least size of a body, in octets.
const Smallest = 24

// Body is the body of a message: its id, its length, and a check and octets that follow from them. It has size octets, and at least
// Smallest.
func Body(m ID, size int) []byte {
	b := make([]byte, max(size, Smallest))
	binary.BigEndian.PutUint64(b, uint64(m))
	binary.BigEndian.PutUint64(b[8:], uint64(len(b)))
	x := uint64(m)*0x9E3779B97F4A7C15 + uint64(len(b))
	binary.BigEndian.PutUint64(b[16:], x)
	for i := Smallest; i < len(b); i++ {
		if i%8 == 0 {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		b[i] = byte(x >> (i % 8 * 8))
	}
	return b
}

// Read returns the message that a body is of, and whether it is one octet by octet.
func Read(b []byte) (ID, bool) {
	if len(b) < Smallest {
		return 0, false
	}
	m := ID(binary.BigEndian.Uint64(b))
	return m, bytes.Equal(b, Body(m, len(b)))
}

package queue

import "encoding/binary"

// A message's blind keys are those of its BCC header, which is taken off before the message is stored: whoever gets the
// message sees nothing of them, but they lead its dead letter (RabbitMQ docs: sender-selected, dlx). If there are any, they
// stand behind the body frames of the message's bytes:
//
//	key-length key ... | octets of all that, 4 octets, big endian | 0
//
// The last octet tells: that of a frame is another.
const (
	blindEnd  = 0
	blindTail = 4 + 1
)

// Shown returns of a message's bytes what a peer may see: all but blind keys.
func Shown(b []byte) []byte {
	if b[len(b)-1] == frameEnd {
		return b
	}
	return b[:len(b)-blindTail-blindLen(b)]
}

// AppendBlindKeys appends the blind keys in a message's bytes, views into them.
func AppendBlindKeys(dst [][]byte, b []byte) [][]byte {
	if b[len(b)-1] == frameEnd {
		return dst
	}
	end := len(b) - blindTail
	for b = b[end-blindLen(b) : end]; len(b) > 0; {
		n := 1 + int(b[0])
		dst = append(dst, b[1:n:n])
		b = b[n:]
	}
	return dst
}

func blindLen(b []byte) int { return int(binary.BigEndian.Uint32(b[len(b)-blindTail:])) }

// blindRoom is how many octets blind keys take.
func blindRoom(keys [][]byte) int {
	if len(keys) == 0 {
		return 0
	}
	n := blindTail
	for _, k := range keys {
		n += 1 + len(k)
	}
	return n
}

func appendBlind(dst []byte, keys [][]byte) []byte {
	start := len(dst)
	for _, k := range keys {
		dst = append(append(dst, byte(len(k))), k...)
	}
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(dst)-start)), blindEnd)
}

package queue

import "encoding/binary"

// A message's blind keys are those of its BCC header, which is taken off before the message is stored: whoever gets the
// message sees nothing of them, but they lead its dead letter (RabbitMQ docs: sender-selected, dlx). They stand behind the
// body frames of a message that is Blind:
//
//	key-length key ... | octets of all that, 4 octets, big endian
//
// and never leave the node.

// Shown returns of a message's bytes what a peer may see: all but blind keys.
func (f Flags) Shown(b []byte) []byte {
	if f&Blind == 0 {
		return b
	}
	return b[:len(b)-4-blindLen(b)]
}

// AppendBlindKeys appends the blind keys in a message's bytes, views into them.
func (f Flags) AppendBlindKeys(dst [][]byte, b []byte) [][]byte {
	if f&Blind == 0 {
		return dst
	}
	end := len(b) - 4
	for b = b[end-blindLen(b) : end]; len(b) > 0; {
		n := 1 + int(b[0])
		dst = append(dst, b[1:n:n])
		b = b[n:]
	}
	return dst
}

func blindLen(b []byte) int { return int(binary.BigEndian.Uint32(b[len(b)-4:])) }

// blindRoom is how many octets blind keys take.
func blindRoom(keys [][]byte) int {
	if len(keys) == 0 {
		return 0
	}
	n := 4
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
	return binary.BigEndian.AppendUint32(dst, uint32(len(dst)-start))
}

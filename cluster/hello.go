package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A Class is what a connection is for.
type Class uint8

const (
	Control Class = 1 // small and urgent: questions and answers, and whether the other node is there
	Data    Class = 2 // messages

	joining Class = 3 // a question of who is no member yet; see Join
	owning  Class = 4 // a connection that somebody else owns after the opening; see Node.Dial
)

func (c Class) String() string {
	switch c {
	case Control:
		return "control"
	case Data:
		return "data"
	case joining:
		return "joining"
	case owning:
		return "owning"
	}
	return fmt.Sprintf("class %d", uint8(c))
}

const (
	magic     = "WARRENLK"
	helloHead = len(magic) + 6
	helloBody = 1 + 1 + 16 + 8 + 8 + 8 + 4 + 32 + 1 // of version 1, without the name
	helloTail = 8 + 8                               // behind the name
	maxHello  = 4096                                // octets of a body, in any version
	maxOther  = 1024                                // octets of a refusal
)

// hello is the first message of either side.
type hello struct {
	versions    Versions
	class       Class
	purpose     uint8 // of the class owning, 0 in others
	cluster     ClusterID
	node        NodeID
	boot        uint64
	incarnation uint64 // random, for each Node
	window      uint32 // octets that each stream may send without being given credit
	nonce       [32]byte
	name        string
	starts      uint64 // confirmed ones; see Identity
	mark        uint64
}

func (h *hello) append(dst []byte) []byte {
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint16(dst, h.versions.Least)
	dst = binary.LittleEndian.AppendUint16(dst, h.versions.Most)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(helloBody+len(h.name)+helloTail))
	dst = append(dst, byte(h.class), h.purpose)
	dst = append(dst, h.cluster[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.node))
	dst = binary.LittleEndian.AppendUint64(dst, h.boot)
	dst = binary.LittleEndian.AppendUint64(dst, h.incarnation)
	dst = binary.LittleEndian.AppendUint32(dst, h.window)
	dst = append(dst, h.nonce[:]...)
	dst = append(dst, byte(len(h.name)))
	dst = append(dst, h.name...)
	dst = binary.LittleEndian.AppendUint64(dst, h.starts)
	return binary.LittleEndian.AppendUint64(dst, h.mark)
}

var errOpening = errors.New("cluster: malformed opening")

// readHello reads a hello and returns the octets too. If there is no version in common with ours, only its versions are known and
// the error is a Refusal.
func readHello(r io.Reader) (h hello, raw []byte, err error) {
	raw = make([]byte, helloHead, helloHead+helloBody+64+helloTail)
	if _, err := io.ReadFull(r, raw); err != nil {
		return h, nil, fmt.Errorf("cluster: read the hello: %w", err)
	}
	if string(raw[:len(magic)]) != magic {
		return h, nil, fmt.Errorf("%w: that is not a node of Warren", errOpening)
	}
	h.versions.Least = binary.LittleEndian.Uint16(raw[8:])
	h.versions.Most = binary.LittleEndian.Uint16(raw[10:])
	size := int(binary.LittleEndian.Uint16(raw[12:]))
	if size > maxHello || h.versions.Least > h.versions.Most {
		return h, nil, fmt.Errorf("%w: hello of %d octets, %v", errOpening, size, h.versions)
	}
	raw = append(raw, make([]byte, size)...)
	if _, err := io.ReadFull(r, raw[helloHead:]); err != nil {
		return h, nil, fmt.Errorf("cluster: read the hello: %w", err)
	}
	if _, ok := Spoken.common(h.versions); !ok {
		return h, raw, refuse(WrongVersion, "one speaks %v, the other %v", lower(Spoken, h.versions), higher(Spoken, h.versions))
	}
	return h, raw, h.decode(raw[helloHead:])
}

// lower and higher put two ranges in an order on which both sides agree, so that both give the same text.
func lower(a, b Versions) Versions {
	if a.Most < b.Least {
		return a
	}
	return b
}

func higher(a, b Versions) Versions {
	if a.Most < b.Least {
		return b
	}
	return a
}

// decode reads the body of a hello. What a later version may have put behind it is left alone.
func (h *hello) decode(b []byte) error {
	if len(b) < helloBody || len(b) < helloBody+int(b[helloBody-1])+helloTail {
		return fmt.Errorf("%w: hello of %d octets", errOpening, len(b))
	}
	h.class, h.purpose = Class(b[0]), b[1]
	copy(h.cluster[:], b[2:])
	h.node = NodeID(binary.LittleEndian.Uint64(b[18:]))
	h.boot = binary.LittleEndian.Uint64(b[26:])
	h.incarnation = binary.LittleEndian.Uint64(b[34:])
	h.window = binary.LittleEndian.Uint32(b[42:])
	copy(h.nonce[:], b[46:])
	tail := helloBody + int(b[helloBody-1])
	h.name = string(b[helloBody:tail])
	h.starts, h.mark = binary.LittleEndian.Uint64(b[tail:]), binary.LittleEndian.Uint64(b[tail+8:])
	if h.node == 0 || h.window == 0 || h.window > maxWindow {
		return fmt.Errorf("%w: node %v, window %d", errOpening, h.node, h.window)
	}
	return nil
}

// Kinds of the other messages of the opening.
const (
	sayProof  = 1
	sayReady  = 2
	sayTake   = 3
	sayTaken  = 4
	sayJoin   = 5
	sayJoined = 6
	sayGiven  = 7
	sayRefuse = 0xff
)

// say writes a message of the opening.
func say(w io.Writer, kind uint8, body []byte) error {
	b := append(make([]byte, 0, 64), kind, byte(len(body)), byte(len(body)>>8))
	if _, err := w.Write(append(b, body...)); err != nil {
		return fmt.Errorf("cluster: write in the opening: %w", err)
	}
	return nil
}

// listen reads a message of one kind and size. A Refusal of the other side is the error.
func listen(r io.Reader, kind uint8, size int) ([]byte, error) { return listenAny(r, kind, size, size) }

// listenAny is listen for a range of sizes.
func listenAny(r io.Reader, kind uint8, least, most int) ([]byte, error) {
	var head [3]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, fmt.Errorf("cluster: read in the opening: %w", err)
	}
	n := int(binary.LittleEndian.Uint16(head[1:]))
	refused := head[0] == sayRefuse
	if refused && (n == 0 || n > maxOther) || !refused && (head[0] != kind || n < least || n > most) {
		return nil, fmt.Errorf("%w: message %d of %d octets, where %d was expected", errOpening, head[0], n, kind)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, fmt.Errorf("cluster: read in the opening: %w", err)
	}
	if refused {
		return nil, &Refusal{Reason: Reason(body[0]), Text: printable(body[1:]), ByPeer: true}
	}
	return body, nil
}

// printable is text of another node, of which nothing is known yet, as it can be put in a log.
func printable(b []byte) string {
	s := []rune(string(b))
	for i, r := range s {
		if r < ' ' || r == 0x7f || r == 0xfffd || r >= 0x80 && r < 0xa0 {
			s[i] = '?'
		}
	}
	return string(s)
}

// take and taken settle from where the two logs go on; see the package comment.
type (
	take  struct{ session, tie, next, received uint64 }
	taken struct {
		resumed  bool
		received uint64
	}
)

const takeSize, takenSize = 32, 9

func (t *take) append(dst []byte) []byte {
	for _, n := range [...]uint64{t.session, t.tie, t.next, t.received} {
		dst = binary.LittleEndian.AppendUint64(dst, n)
	}
	return dst
}

func (t *take) decode(b []byte) {
	for i, n := range [...]*uint64{&t.session, &t.tie, &t.next, &t.received} {
		*n = binary.LittleEndian.Uint64(b[8*i:])
	}
}

func (t *taken) append(dst []byte) []byte {
	resumed := byte(0)
	if t.resumed {
		resumed = 1
	}
	return binary.LittleEndian.AppendUint64(append(dst, resumed), t.received)
}

func (t *taken) decode(b []byte) {
	t.resumed, t.received = b[0] != 0, binary.LittleEndian.Uint64(b[1:])
}

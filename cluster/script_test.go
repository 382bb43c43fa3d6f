package cluster

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"
)

// script is a peer that a test plays by hand.
type script struct {
	t    testing.TB
	c    net.Conn
	peer hello // what the node said
	buf  []byte
}

// scripted is the opening of a connection to a node, as somebody may play it.
func scripted(t testing.TB, to *seat, id NodeID, boot uint64, change func(*opening)) (*script, error) {
	t.Helper()
	c, err := net.Dial("tcp", to.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	own := hello{versions: Spoken, class: Data, cluster: ClusterID{1}, node: id, boot: boot, incarnation: boot, window: minWindow, name: "script"}
	own.nonce[0] = byte(boot)
	o := opening{conn: c, dialer: true, own: own, secret: secret, check: func(*hello) *Refusal { return nil }}
	if change != nil {
		change(&o)
	}
	peer, err := o.run()
	return &script{t: t, c: c, peer: peer}, err
}

// play is scripted where nothing is refused.
func play(t testing.TB, to *seat, id NodeID, boot uint64) *script {
	t.Helper()
	s, err := scripted(t, to, id, boot, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// take is what the lower id says, and returns what the higher one answers.
func (s *script) take(k take) (k2 taken) {
	s.t.Helper()
	if err := say(s.c, sayTake, k.append(nil)); err != nil {
		s.t.Fatal(err)
	}
	b, err := listen(s.c, sayTaken, takenSize)
	if err != nil {
		s.t.Fatal(err)
	}
	k2.decode(b)
	return k2
}

// taken is what the higher id answers, and returns what the lower one said.
func (s *script) taken(answer taken) (k take) {
	s.t.Helper()
	b, err := listen(s.c, sayTake, takeSize)
	if err != nil {
		s.t.Fatal(err)
	}
	k.decode(b)
	if err := say(s.c, sayTaken, answer.append(nil)); err != nil {
		s.t.Fatal(err)
	}
	return k
}

func (s *script) write(f frame) {
	s.t.Helper()
	if err := s.try(f); err != nil {
		s.t.Fatal(err)
	}
}

// try is write to a node that may have closed the connection.
func (s *script) try(f frame) error {
	head := f.appendHead(nil, len(f.body))
	_, err := s.c.Write(append(head, f.body...))
	return err
}

func (s *script) ack(n uint64) {
	s.t.Helper()
	s.write(frame{typ: frameAck, body: binary.LittleEndian.AppendUint64(nil, n)})
}

// next is the next frame that is not an ack.
func (s *script) next() (f frame) {
	s.t.Helper()
	for {
		n, needs, err := f.parse(s.buf)
		if err != nil {
			s.t.Fatal(err)
		}
		if n > 0 {
			s.buf = s.buf[n:]
			if f.typ != frameAck {
				return f
			}
			continue
		}
		more := make([]byte, needs-len(s.buf))
		k, err := io.ReadAtLeast(s.c, more, 1)
		if err != nil {
			s.t.Fatal(err)
		}
		s.buf = append(s.buf, more[:k]...)
	}
}

// over waits until the node has closed the connection.
func (s *script) over() {
	s.t.Helper()
	if _, err := io.Copy(io.Discard, s.c); err != nil {
		if n, ok := err.(net.Error); ok && n.Timeout() {
			s.t.Fatal("the connection is still there")
		}
	}
}

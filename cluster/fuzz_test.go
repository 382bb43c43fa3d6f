package cluster

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"
	"time"
)

// FuzzFrame: any octets are a frame, not all of one, or an error; and a frame is what it was made of.
func FuzzFrame(f *testing.F) {
	f.Add((&frame{typ: frameData, stream: 7, kind: 3, number: 9}).appendHead(nil, 0))
	f.Add((&frame{typ: frameData, left: 5}).appendHead(nil, maxFrame))
	f.Add(append((&frame{typ: frameCredit, stream: 1}).appendHead(nil, 8), 1, 2, 3, 4, 5, 6, 7, 8))
	f.Fuzz(func(t *testing.T, b []byte) {
		var x frame
		n, needs, err := x.parse(b)
		switch {
		case err != nil:
			if !errors.Is(err, errFrame) || n != 0 {
				t.Fatal(n, err)
			}
		case n == 0:
			if needs <= len(b) || needs > frameHead+maxFrame {
				t.Fatalf("needs %d of %d", needs, len(b))
			}
		default:
			if again := append(x.appendHead(nil, len(x.body)), x.body...); !bytes.Equal(again, b[:n]) {
				t.Fatalf("%x became %x", b[:n], again)
			}
		}
	})
}

// FuzzHello: any octets are a hello or an error; and a hello is what it was made of.
func FuzzHello(f *testing.F) {
	h := hello{versions: Spoken, class: Data, node: 3, boot: 4, window: 5, name: "x"}
	f.Add(h.append(nil))
	h.versions = Versions{2, 3}
	f.Add(h.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, raw, err := readHello(bytes.NewReader(b))
		if err != nil {
			return
		}
		if !bytes.HasPrefix(b, raw) {
			t.Fatal("read what was not there")
		}
		again := x.append(nil)
		if !bytes.Equal(again[helloHead:], raw[helloHead:len(again)]) || !bytes.Equal(again[:12], raw[:12]) {
			t.Fatalf("%x became %x", raw, again)
		}
	})
}

// FuzzOpening: a listener survives whatever comes instead of an opening, and lets nobody in.
func FuzzOpening(f *testing.F) {
	h := hello{versions: Spoken, class: Data, node: 3, boot: 4, window: 5, name: "x"}
	f.Add(append(h.append(nil), sayProof, 32, 0), true)
	f.Add(append(h.append(nil), sayRefuse, 4, 0, 1, 'a', 0xff, '\n'), false)
	f.Fuzz(func(t *testing.T, b []byte, dialer bool) {
		here, there := net.Pipe()
		o := opening{conn: here, dialer: dialer, own: h, secret: secret, check: func(*hello) *Refusal { return nil }}
		here.SetDeadline(time.Now().Add(10 * time.Second))
		go func() {
			go func() {
				buf := make([]byte, 4096)
				for {
					if _, err := there.Read(buf); err != nil {
						return
					}
				}
			}()
			there.Write(b)
			there.Close()
		}()
		if _, err := o.run(); err == nil {
			t.Fatal("let in")
		}
		here.Close()
	})
}

// FuzzFrames: a member that sends anything ends its connection at the worst.
func FuzzFrames(f *testing.F) {
	mk := func(frames ...frame) (b []byte) {
		for _, x := range frames {
			b = append(x.appendHead(b, len(x.body)), x.body...)
		}
		return b
	}
	f.Add(mk(frame{typ: frameData, stream: 1, body: []byte("x")}, frame{typ: frameData, stream: 1, number: 1}))
	f.Add(mk(frame{typ: frameCall, stream: 1, body: []byte("x")}, frame{typ: frameReply, stream: 1, number: 1}))
	f.Add(mk(frame{typ: frameAck, body: make([]byte, 8)}, frame{typ: frameCredit, body: make([]byte, 8)}, frame{typ: frameGoodbye}))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := Open(Options{Identity: testIdentity(9, 1), Secret: secret, Window: minWindow, Streams: 10,
			Dial:    func(context.Context, string) (net.Conn, error) { return nil, errors.New("alone") },
			Receive: func(b Batch) { b.Credit.Return() },
			Answer:  func(q Question) { q.Answer(q.Body) }})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		if err := n.SetPeers(Book{{ID: 1}}); err != nil {
			t.Fatal(err)
		}
		l := n.link(1, Control)
		h := hello{node: 1, boot: 1, window: minWindow}
		l.adopting.Lock()
		l.restart(1, &h)
		here, there := net.Pipe()
		if err := l.begin(here, &h, 0, func() bool { return true }); err != nil {
			t.Fatal(err)
		}
		l.adopting.Unlock()
		go func() {
			there.Write(b)
			there.Close()
		}()
		buf := make([]byte, 4096)
		for {
			if _, err := there.Read(buf); err != nil {
				break
			}
		}
	})
}

package conformance

import (
	"bufio"
	"net"
	"strings"
	"sync"
	"testing"
)

// A fakeBroker is a scripted peer: it makes the handshake and opens channels as it should, and leaves every other method to
// answer, which returns what to write. It knows no queue; a test makes it right or wrong.
type fakeBroker struct {
	product string
	answer  func(f frame, m message) []byte
	// greet replaces connection.start; nil is right.
	greet []byte
	// refuse answers start-ok instead of tune.
	refuse []byte
	// hangUp closes the socket instead of reading the first frame.
	hangUp bool
}

// reply encodes one method, with content if its name asks for one and alone is false.
func reply(channel uint16, name string, values map[string]any, body ...string) []byte {
	m := message{spec: methodsByName[name], values: values}
	payload, err := m.encodeMethod()
	if err != nil {
		panic(err)
	}
	b := appendFrame(nil, frameMethod, channel, payload)
	if m.spec.content {
		text := strings.Join(body, "")
		header, err := encodeHeader(60, 0, uint64(len(text)), values)
		if err != nil {
			panic(err)
		}
		b = appendFrame(b, frameHeader, channel, header)
		for _, piece := range body {
			b = appendFrame(b, frameBody, channel, []byte(piece))
		}
	}
	return b
}

// start listens until the test ends and returns the URI.
func (f fakeBroker) start(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	t.Cleanup(conns.Wait)
	t.Cleanup(func() { l.Close() })
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				f.serve(c)
			})
		}
	})
	return "amqp://" + l.Addr().String()
}

func (f fakeBroker) serve(c net.Conn) {
	r := bufio.NewReader(c)
	header := make([]byte, 8)
	if _, err := r.Read(header); err != nil {
		return
	}
	if f.greet != nil {
		c.Write(f.greet)
	} else {
		c.Write(reply(0, "connection.start", map[string]any{"version-minor": uint64(9), "mechanisms": "PLAIN", "locales": "en_US",
			"server-properties": table{{"product", f.product}, {"version", "1"}}}))
	}
	if f.hangUp {
		return
	}
	for {
		in, err := readFrame(r)
		if err != nil {
			return
		}
		if in.typ != frameMethod {
			continue
		}
		m, err := decodeMethod(in.payload)
		if err != nil {
			return
		}
		var out []byte
		switch m.spec.name {
		case "connection.start-ok":
			if out = f.refuse; out == nil {
				out = reply(0, "connection.tune", map[string]any{"channel-max": uint64(10), "frame-max": uint64(8192)})
			}
		case "connection.tune-ok":
		case "connection.open":
			out = reply(0, "connection.open-ok", nil)
		case "connection.close":
			out = reply(0, "connection.close-ok", nil)
		case "channel.open":
			out = reply(in.channel, "channel.open-ok", nil)
		default:
			out = f.answer(in, m)
		}
		if len(out) > 0 {
			if _, err := c.Write(out); err != nil {
				return
			}
		}
		if m.spec.name == "connection.close-ok" {
			return
		}
	}
}

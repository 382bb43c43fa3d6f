package server

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

// wire is a client that sends and receives frames and assumes nothing.
type wire struct {
	testing.TB
	net.Conn
	r *bufio.Reader
}

// patience is how long a test waits for what has to come.
const patience = 10 * time.Second

func (n *node) wire(t testing.TB) *wire {
	t.Helper()
	c, err := net.Dial("tcp", n.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return newWire(t, c)
}

func newWire(t testing.TB, c net.Conn) *wire {
	return &wire{t, c, bufio.NewReaderSize(c, 64<<10)}
}

// open dials, logs in, and opens channel 1.
func (n *node) open(t testing.TB, change func(*amqp.ConnectionTuneOk)) *wire {
	t.Helper()
	w := n.wire(t)
	w.login(change)
	w.send(1, &amqp.ChannelOpen{})
	w.expect(1, &amqp.ChannelOpenOk{})
	return w
}

func (w *wire) login(change func(*amqp.ConnectionTuneOk)) {
	w.Helper()
	w.raw([]byte(amqp.ProtocolHeader))
	w.expect(0, &amqp.ConnectionStart{})
	can := amqp.Table(nil).AppendBool("consumer_cancel_notify", true).AppendBool("authentication_failure_close", true)
	w.send(0, &amqp.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest", Locale: "en_US", ClientProperties: amqp.Table(nil).AppendTable("capabilities", can)})
	var tune amqp.ConnectionTune
	w.expect(0, &tune)
	ok := amqp.ConnectionTuneOk{ChannelMax: tune.ChannelMax, FrameMax: tune.FrameMax}
	if change != nil {
		change(&ok)
	}
	w.send(0, &ok)
	w.send(0, &amqp.ConnectionOpen{VirtualHost: "/"})
	w.expect(0, &amqp.ConnectionOpenOk{})
}

// raw sends octets.
func (w *wire) raw(b []byte) {
	w.Helper()
	w.SetWriteDeadline(time.Now().Add(patience))
	if _, err := w.Write(b); err != nil {
		w.Fatal(err)
	}
}

func (w *wire) send(channel uint16, m amqp.Method) {
	w.Helper()
	w.raw(amqp.AppendMethodFrame(nil, channel, m))
}

// frame receives a frame; heartbeats are passed over.
func (w *wire) frame() (amqp.Frame, error) {
	w.SetReadDeadline(time.Now().Add(patience))
	for {
		head := make([]byte, amqp.FrameHeadSize)
		if _, err := io.ReadFull(w.r, head); err != nil {
			return amqp.Frame{}, err
		}
		b := append(head, make([]byte, binary.BigEndian.Uint32(head[3:])+1)...)
		if _, err := io.ReadFull(w.r, b[len(head):]); err != nil {
			return amqp.Frame{}, err
		}
		f, _, err := amqp.ParseFrame(b, 0)
		if err != nil || f.Type != amqp.FrameHeartbeat {
			return f, err
		}
	}
}

// expect receives a method of m's kind, into m.
func (w *wire) expect(channel uint16, m amqp.Method) {
	w.Helper()
	f, err := w.frame()
	if err != nil {
		w.Fatalf("waiting for %T: %v", m, err)
	}
	got, err := amqp.DecodeMethod(f.Payload)
	if f.Type != amqp.FrameMethod || err != nil {
		w.Fatalf("waiting for %T: frame %v, %v", m, f, err)
	}
	if f.Channel != channel || got.ID() != m.ID() {
		w.Fatalf("got %+v on channel %d, not %T on %d", got, f.Channel, m, channel)
	}
	_, args, _ := amqp.SplitMethod(f.Payload)
	if err := m.Decode(args); err != nil {
		w.Fatal(err)
	}
}

// content receives header and body of a message.
func (w *wire) content(channel uint16) (header, body []byte) {
	w.Helper()
	f, err := w.frame()
	if err != nil || f.Type != amqp.FrameHeader || f.Channel != channel {
		w.Fatal("no header: ", f, err)
	}
	header = f.Payload
	piece := 0 // all frames but the last are of one size
	for size := binary.BigEndian.Uint64(header[4:]); uint64(len(body)) < size; {
		f, err := w.frame()
		if err != nil || f.Type != amqp.FrameBody || f.Channel != channel {
			w.Fatal("no body: ", f.Type, f.Channel, err)
		}
		if last := uint64(len(body)+len(f.Payload)) == size; piece == 0 {
			piece = len(f.Payload)
		} else if len(f.Payload) > piece || len(f.Payload) < piece && !last {
			w.Fatalf("a frame of %d octets after one of %d", len(f.Payload), piece)
		}
		body = append(body, f.Payload...)
	}
	return header, body
}

// closed waits for the end of the connection and returns the code of the connection.close before it, if there was one.
func (w *wire) closed() (code uint16, text string) {
	w.Helper()
	for {
		f, err := w.frame()
		var late net.Error
		if errors.As(err, &late) && late.Timeout() {
			w.Fatal("the connection stays open")
		}
		if err != nil {
			return code, text
		}
		if m, err := amqp.DecodeMethod(f.Payload); f.Channel == 0 && f.Type == amqp.FrameMethod && err == nil {
			if m, ok := m.(*amqp.ConnectionClose); ok {
				code, text = m.ReplyCode, m.ReplyText
				w.Write(amqp.AppendMethodFrame(nil, 0, &amqp.ConnectionCloseOk{}))
			}
		}
	}
}

// publish is the frames of a publish to the default exchange.
func publishFrames(channel uint16, key string, l *amqp.PropertyList, body []byte, frameMax uint32) []byte {
	b := amqp.AppendMethodFrame(nil, channel, &amqp.BasicPublish{RoutingKey: []byte(key)})
	header, err := amqp.AppendHeader(nil, uint64(len(body)), l)
	if err != nil {
		panic(err)
	}
	b = amqp.AppendFrame(b, amqp.FrameHeader, channel, header)
	return amqp.AppendBodyFrames(b, channel, body, frameMax)
}

// declare makes a queue.
// declareAs declares a queue of a type.
func (w *wire) declareAs(typ, name string) {
	w.Helper()
	w.send(1, &amqp.QueueDeclare{Queue: name, Durable: typ == broker.Quorum, Arguments: amqp.Table(nil).AppendString("x-queue-type", typ)})
	w.expect(1, &amqp.QueueDeclareOk{})
}

func (w *wire) declare(name string) {
	w.Helper()
	w.send(1, &amqp.QueueDeclare{Queue: name})
	w.expect(1, &amqp.QueueDeclareOk{})
}

// ready asks how many messages a queue has ready.
func (w *wire) ready(name string) uint32 {
	w.Helper()
	w.send(1, &amqp.QueueDeclare{Queue: name, Passive: true})
	var ok amqp.QueueDeclareOk
	w.expect(1, &ok)
	return ok.MessageCount
}

// confirm waits until the peer has handled everything sent so far on channel 1.
func (w *wire) sync() {
	w.Helper()
	w.send(1, &amqp.BasicQos{})
	w.expect(1, &amqp.BasicQosOk{})
}

// until waits for a condition that has to come.
func until(t testing.TB, what string, yes func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !yes() {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
		time.Sleep(time.Millisecond)
	}
}

func testDeadline() time.Time { return time.Now().Add(patience) }

// shortly is when a write that goes nowhere ends.
func shortly() time.Time { return time.Now().Add(100 * time.Millisecond) }

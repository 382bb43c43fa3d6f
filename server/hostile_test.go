package server

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/test/seeds"
)

// TestHalfOpen: connections that say nothing, or not enough, end with the handshake timeout, and cost next to nothing
// until then.
func TestHalfOpen(t *testing.T) {
	n := start(t, func(o *Options) { o.HandshakeTimeout = 2 * time.Second })
	const connections = 1000
	before := heap()
	var all []net.Conn
	for i := range connections {
		c, err := net.Dial("tcp", n.address)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
		switch i % 3 {
		case 1:
			io.WriteString(c, "AMQP")
		case 2:
			io.WriteString(c, amqp.ProtocolHeader+"\x01\x00\x00\x00\x00\x1f\x00") // 7,936 octets to come
			c.Write(make([]byte, 7000))
		}
	}
	until(t, "all are accepted", func() bool { return n.Counters.ConnectionsOpened.Load() == connections })
	until(t, "none holds a buffer", func() bool { return n.pool.InUse() == 0 })
	if grown := heap() - n.pool.Free() - before; grown > connections*40<<10 {
		t.Errorf("%d octets for a connection", grown/connections)
	}
	for _, c := range all {
		c.SetReadDeadline(testDeadline())
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	until(t, "all are closed", func() bool { return n.Counters.ConnectionsClosed.Load() == connections })
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// TestOctetByOctet writes a whole conversation one octet at a time.
func TestOctetByOctet(t *testing.T) {
	n := start(t, nil)
	w := n.wire(t)
	b := []byte(amqp.ProtocolHeader)
	b = amqp.AppendMethodFrame(b, 0, &amqp.ConnectionStartOk{Mechanism: "PLAIN", Response: "\x00guest\x00guest"})
	b = amqp.AppendMethodFrame(b, 0, &amqp.ConnectionTuneOk{ChannelMax: 10, FrameMax: 8192})
	b = amqp.AppendMethodFrame(b, 0, &amqp.ConnectionOpen{VirtualHost: "/"})
	b = amqp.AppendMethodFrame(b, 1, &amqp.ChannelOpen{})
	b = amqp.AppendMethodFrame(b, 1, &amqp.QueueDeclare{Queue: "q"})
	b = append(b, publishFrames(1, "q", &amqp.PropertyList{DeliveryMode: 2}, make([]byte, 300), 0)...)
	b = amqp.AppendMethodFrame(b, 1, &amqp.BasicGet{Queue: "q"})
	for i := range b {
		w.raw(b[i : i+1])
	}
	for _, m := range []amqp.Method{&amqp.ConnectionStart{}, &amqp.ConnectionTune{}, &amqp.ConnectionOpenOk{}} {
		w.expect(0, m)
	}
	for _, m := range []amqp.Method{&amqp.ChannelOpenOk{}, &amqp.QueueDeclareOk{}, &amqp.BasicGetOk{}} {
		w.expect(1, m)
	}
	if _, body := w.content(1); len(body) != 300 {
		t.Error(len(body))
	}
}

// conversation is a stream that makes sense, to be spoilt.
func conversation(r *rand.Rand) (b []byte) {
	for number := uint16(1); number <= 3; number++ {
		b = amqp.AppendMethodFrame(b, number, &amqp.ChannelOpen{})
	}
	table := amqp.Table(nil).AppendString("k", "v").AppendTable("t", amqp.Table(nil).AppendBool("b", true))
	for range 5 + r.IntN(40) {
		number := uint16(1 + r.IntN(3))
		method := func(m amqp.Method) { b = amqp.AppendMethodFrame(b, number, m) }
		switch r.IntN(20) {
		case 0:
			method(&amqp.QueueDeclare{Queue: "q", Arguments: table})
		case 1:
			method(&amqp.BasicConsume{Queue: "q", NoAck: r.IntN(2) == 0, Arguments: table})
		case 2:
			method(&amqp.BasicAck{DeliveryTag: uint64(r.IntN(5)), Multiple: r.IntN(2) == 0})
		case 3:
			method(&amqp.BasicNack{DeliveryTag: uint64(r.IntN(5)), Multiple: r.IntN(2) == 0, Requeue: r.IntN(2) == 0})
		case 4:
			method(&amqp.BasicGet{Queue: "q"})
		case 5:
			method(&amqp.ConfirmSelect{})
		case 6:
			method(&amqp.TxSelect{})
		case 7:
			method(&amqp.TxCommit{})
		case 8:
			method(&amqp.TxRollback{})
		case 9:
			method(&amqp.QueueBind{Queue: "q", Exchange: "amq.headers", Arguments: table})
		case 10:
			method(&amqp.BasicQos{PrefetchCount: uint16(r.IntN(3)), Global: r.IntN(2) == 0})
		case 11:
			method(&amqp.ChannelClose{})
			method(&amqp.ChannelOpen{})
		case 12:
			method(&amqp.QueueDelete{Queue: "q"})
		case 13:
			method(&amqp.BasicConsume{Queue: replyQueue, NoAck: true, ConsumerTag: "r"})
		case 14:
			method(&amqp.BasicRecover{Requeue: true})
		default:
			l := amqp.PropertyList{DeliveryMode: byte(r.IntN(3))}
			if r.IntN(3) == 0 {
				l.Headers, l.Expiration = table, fmt.Sprint(r.IntN(100))
			}
			if r.IntN(5) == 0 {
				l.ReplyTo = replyQueue
			}
			b = append(b, publishFrames(number, "q", &l, make([]byte, r.IntN(5)*r.IntN(3000)), uint32(4096*(1+r.IntN(2))))...)
		}
	}
	return b
}

// spoil changes a stream a little.
func spoil(r *rand.Rand, b []byte) []byte {
	for range r.IntN(4) {
		i := r.IntN(len(b))
		switch r.IntN(5) {
		case 0:
			b[i] = byte(r.Uint32())
		case 1:
			b[i] ^= 1 << r.IntN(8)
		case 2: // cut something out
			b = append(b[:i], b[min(len(b), i+1+r.IntN(30)):]...)
		case 3: // say something twice
			b = append(b[:i:i], b[max(0, i-r.IntN(200)):]...)
		case 4:
			for j := range min(8, len(b)-i) {
				b[i+j] = byte(r.Uint32())
			}
		}
		if len(b) == 0 {
			return b
		}
	}
	return b
}

// speak sends a stream on a new connection, ends it, and waits for the other side's end.
func (n *node) speak(t testing.TB, r *rand.Rand, b []byte) {
	c, err := net.Dial("tcp", n.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w := newWire(t, c)
	w.login(func(k *amqp.ConnectionTuneOk) { k.FrameMax = 8192 })
	done := make(chan error, 1)
	c.SetDeadline(testDeadline())
	go func() {
		_, err := io.Copy(io.Discard, w.r)
		done <- err
	}()
	for len(b) > 0 {
		k := len(b)
		if r != nil {
			k = 1 + r.IntN(len(b))
		}
		if _, err := c.Write(b[:k]); err != nil {
			break
		}
		b = b[k:]
	}
	c.(*net.TCPConn).CloseWrite()
	if err := <-done; errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection does not end")
	}
}

// TestSpoilt sends spoilt conversations; the node serves others all the same, and keeps nothing.
func TestSpoilt(t *testing.T) {
	n := start(t, nil)
	seed := seeds.Of(t)
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for range 100 {
				n.speak(t, r, spoil(r, conversation(r)))
			}
		})
	}
	clients.Wait()
	w := n.open(t, nil)
	w.declare("after")
	until(t, "all connections end", func() bool {
		return n.Counters.ConnectionsOpened.Load()-n.Counters.ConnectionsClosed.Load() == 1
	})
}

// FuzzConnection sends any octets after a login.
func FuzzConnection(f *testing.F) {
	for i := range uint64(20) {
		r := rand.New(rand.NewPCG(1, i))
		f.Add(spoil(r, conversation(r)))
	}
	pool := queue.NewPool(64 << 20)
	pool.Poison = true // before the node reads it
	n := serve(f, pool, nil)
	f.Fuzz(func(t *testing.T, b []byte) { n.speak(t, nil, b) })
}

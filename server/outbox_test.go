package server

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
)

// TestWakeOfEmptied: the outbox of a connection that was in somebody's list when a channel ended, and took everything out
// again, must still wake for what comes next.
func TestWakeOfEmptied(t *testing.T) {
	n := start(t, nil)
	c := &conn{server: n.Server}
	c.out.idle.L = &c.out.mu
	c.mail.more.L = &c.mail.mu
	ch := &channel{conn: c}
	var theirs queue.Wake
	k := &consumer{channel: ch, noAck: true}
	ref, _ := n.pool.Reserve(100, 1)
	k.Offer([]queue.Offered{{Message: queue.Message{Ref: ref}}}, &theirs)
	c.drop(ch, nil)
	theirs.Flush()
	c.out.mu.Lock()
	wake := c.out.add(1)
	c.out.mu.Unlock()
	if !wake {
		t.Error("who puts something into it wakes nobody")
	}
}

// stuff has the connection's socket filled with deliveries on channel 2, which nobody reads yet. They are large.
func (w *wire) stuff(n *node) {
	w.Helper()
	p := n.open(w, nil)
	p.declare("stuff")
	for range 60 { // more than the sockets hold
		p.raw(publishFrames(1, "stuff", &amqp.PropertyList{}, make([]byte, 1<<20), 131072))
	}
	p.sync()
	w.send(2, &amqp.ChannelOpen{})
	w.expect(2, &amqp.ChannelOpenOk{})
	w.send(2, &amqp.BasicConsume{Queue: "stuff", NoAck: true})
	last := uint64(0)
	until(w, "the socket is full", func() bool {
		before := last
		for k := range n.Connections() {
			if k.SentOctets > 1<<20 { // not the publisher
				last = k.SentOctets
			}
		}
		return last > 0 && last == before
	})
}

// TestCancelWithDeliveriesUnderWay: a consumer is cancelled, or its queue deleted, while deliveries to it wait to be
// written; they are acknowledged later.
func TestCancelWithDeliveriesUnderWay(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		t.Run(fmt.Sprint("deleted ", deleted), func(t *testing.T) {
			n := start(t, nil)
			w := n.open(t, nil)
			w.declare("q")
			w.send(1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "c"})
			w.expect(1, &amqp.BasicConsumeOk{})
			w.stuff(n)
			p := n.open(t, nil)
			p.raw(numbered(1, "q", 0, 10, 100))
			p.sync()
			if deleted {
				p.send(1, &amqp.QueueDelete{Queue: "q"})
				p.expect(1, &amqp.QueueDeleteOk{})
			} else {
				w.send(1, &amqp.BasicCancel{ConsumerTag: "c"})
				until(t, "the consumer is cancelled", func() bool {
					p.send(1, &amqp.QueueDeclare{Queue: "q", Passive: true})
					var ok amqp.QueueDeclareOk
					p.expect(1, &ok)
					return ok.ConsumerCount == 0
				})
				w.send(1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "next"}) // may get the handle of the old one
			}
			for acked := 0; acked < 10; {
				f, err := w.frame()
				if err != nil {
					t.Fatal(err)
				}
				if f.Type != amqp.FrameMethod {
					continue
				}
				m, err := amqp.DecodeMethod(f.Payload)
				if err != nil {
					t.Fatal(err)
				}
				if m, ok := m.(*amqp.BasicDeliver); ok && f.Channel == 1 {
					w.send(1, &amqp.BasicAck{DeliveryTag: m.DeliveryTag})
					acked++
				}
			}
			w.send(1, &amqp.BasicAck{DeliveryTag: 99}) // when this one fails the others have been handled
			until(t, "they have been acknowledged", func() bool { return n.Counters.Acked.Load() == 10 })
			w.Close()
			until(t, "it is closed", func() bool { return n.Counters.ConnectionsClosed.Load() == 1 })
			if !deleted {
				if got := p.ready("q"); got != 0 {
					t.Errorf("%d messages came back", got)
				}
			}
		})
	}
}

// TestManyReplies: more direct replies come at once than a queue would offer without being asked for more.
func TestManyReplies(t *testing.T) {
	n := start(t, nil)
	w := n.open(t, nil)
	w.send(1, &amqp.BasicConsume{Queue: replyQueue, ConsumerTag: "r", NoAck: true})
	w.expect(1, &amqp.BasicConsumeOk{})
	w.declare("q")
	w.raw(publishFrames(1, "q", &amqp.PropertyList{ReplyTo: replyQueue}, nil, 0))
	w.sync()
	p := n.open(t, nil)
	p.send(1, &amqp.BasicGet{Queue: "q", NoAck: true})
	p.expect(1, &amqp.BasicGetOk{})
	header, _ := p.content(1)
	h, _ := amqp.ParseHeader(header)
	to, ok := h.ReplyTo()
	if !ok {
		t.Fatal("no reply-to")
	}
	const replies = 1000
	var all []byte
	for i := range replies {
		all = append(all, publishFrames(1, string(to), &amqp.PropertyList{}, fmt.Append(nil, i), 0)...)
	}
	p.raw(all)
	p.sync()
	for i := range replies {
		w.expect(1, &amqp.BasicDeliver{})
		if _, body := w.content(1); string(body) != fmt.Sprint(i) {
			t.Fatalf("reply %d: %s", i, body)
		}
	}
	// A new consumer has a new name, and the old one's replies are nobody's.
	w.send(1, &amqp.BasicCancel{ConsumerTag: "r"})
	w.expect(1, &amqp.BasicCancelOk{})
	w.send(1, &amqp.BasicConsume{Queue: replyQueue, ConsumerTag: "r2", NoAck: true})
	w.expect(1, &amqp.BasicConsumeOk{})
	p.raw(publishFrames(1, string(to), &amqp.PropertyList{}, nil, 0))
	p.sync()
	w.sync()
}

// TestAsksAndDoesNotRead: whoever asks for answers, returns or confirms and does not read them is not read from any more
// at some point, and the node keeps a bounded amount for him.
func TestAsksAndDoesNotRead(t *testing.T) {
	mandatory := func(body int) []byte {
		b := amqp.AppendMethodFrame(nil, 1, &amqp.BasicPublish{RoutingKey: []byte("nowhere"), Mandatory: true})
		header, _ := amqp.AppendHeader(nil, uint64(body), &amqp.PropertyList{})
		b = amqp.AppendFrame(b, amqp.FrameHeader, 1, header)
		return amqp.AppendBodyFrames(b, 1, make([]byte, body), 131072)
	}
	for _, c := range []struct {
		name  string
		setup func(n *node, w *wire)
		ask   []byte
	}{
		{"returns", func(*node, *wire) {}, mandatory(1000)},
		{"gets", func(n *node, w *wire) {
			w.raw(publishFrames(1, "q", &amqp.PropertyList{}, make([]byte, 100000), 131072))
			w.sync()
		}, append(amqp.AppendMethodFrame(nil, 1, &amqp.BasicGet{Queue: "q"}), amqp.AppendMethodFrame(nil, 1, &amqp.BasicRecoverAsync{Requeue: true})...)},
		{"answers", func(*node, *wire) {}, amqp.AppendMethodFrame(nil, 1, &amqp.QueueDeclare{Queue: "q", Passive: true})},
		{"confirms", func(n *node, w *wire) {
			w.send(1, &amqp.ConfirmSelect{})
			w.expect(1, &amqp.ConfirmSelectOk{})
			w.stuff(n)
		}, publishFrames(1, "nowhere", &amqp.PropertyList{}, nil, 0)},
		{"closes", func(n *node, w *wire) {
			w.send(1, &amqp.ChannelOpen{})
		}, amqp.AppendMethodFrame(nil, 0, &amqp.ConnectionClose{})},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := start(t, nil)
			w := n.open(t, nil)
			w.declare("q")
			c.setup(n, w)
			burst := bytes.Repeat(c.ask, 1+100000/len(c.ask))
			var sent, same int
			// The peer stops reading what it is sent when it stops being able to write: its writes then move no further.
			for same < 5 && sent < 64<<20 {
				w.SetWriteDeadline(shortly())
				m, _ := w.Write(burst)
				sent += m
				if m == 0 {
					same++
				} else {
					same = 0
				}
				if m < len(burst) && m > 0 { // go on where it stopped
					burst = append(burst[m:], burst[:m]...)
				}
			}
			var kept uint64
			for k := range n.Connections() {
				kept += k.PendingOctets
			}
			var unconfirmed uint64
			for k := range n.Channels() {
				unconfirmed += k.Unconfirmed
			}
			if kept > 3*maxBacklog || n.pool.InUse() > 96<<20 || unconfirmed > 4*maxUnheard {
				t.Errorf("%d octets wait, %d publishes, %d octets of messages, after %d were sent", kept, unconfirmed, n.pool.InUse(), sent)
			}
			if sent >= 64<<20 {
				t.Errorf("everything was read: %d octets", sent)
			}
			// Once it reads, it goes on.
			if c.name == "closes" {
				return
			}
			go func() {
				for {
					if _, err := w.r.Discard(1 << 10); err != nil {
						return
					}
				}
			}()
			w.SetReadDeadline(testDeadline())
			w.SetWriteDeadline(testDeadline())
			if _, err := w.Write(burst); err != nil {
				t.Error("does not go on: ", err)
			}
		})
	}
}

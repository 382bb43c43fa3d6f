package server

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/queue"
)

// stillThere waits until the queue has so many messages and consumers.
func (w *wire) stillThere(q string, messages, consumers uint32) {
	w.Helper()
	until(w, fmt.Sprintf("%d messages and %d consumers in %s", messages, consumers, q), func() bool {
		w.send(1, &amqp.QueueDeclare{Queue: q, Passive: true})
		var ok amqp.QueueDeclareOk
		w.expect(1, &ok)
		return ok.MessageCount == messages && ok.ConsumerCount == consumers
	})
}

// filled is a quorum queue with some messages, and the client that published them.
func (n *node) filled(t *testing.T, messages int) *wire {
	t.Helper()
	p := n.open(t, nil)
	p.declareAs(broker.Quorum, "q")
	p.raw(numbered(1, "q", 0, messages, 100))
	p.stillThere("q", uint32(messages), 0)
	return p
}

// TestLateGrant: the channel, or the connection, that asked for a consumer or a message has ended when the answer comes.
// Nobody hears of it, and nothing stays with anybody.
func TestLateGrant(t *testing.T) {
	for _, c := range []struct {
		name string
		ask  amqp.Method
		end  func(w *wire)
	}{
		{"consume, channel error", &amqp.BasicConsume{Queue: "q", ConsumerTag: "c"}, channelError},
		{"consume without an answer, channel error", &amqp.BasicConsume{Queue: "q", ConsumerTag: "c", NoWait: true}, channelError},
		{"get, channel error", &amqp.BasicGet{Queue: "q"}, channelError},
		{"get from an empty queue, channel error", &amqp.BasicGet{Queue: "empty"}, channelError},
		{"purge, channel error", &amqp.QueuePurge{Queue: "empty"}, channelError},
		{"consume, connection close", &amqp.BasicConsume{Queue: "q"}, connectionClose},
		{"get, connection close", &amqp.BasicGet{Queue: "q"}, connectionClose},
		{"consume, cut", &amqp.BasicConsume{Queue: "q"}, func(w *wire) { w.Close() }},
		{"get, cut", &amqp.BasicGet{Queue: "q"}, func(w *wire) { w.Close() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := start(t, nil)
			p := n.filled(t, 3)
			p.declareAs(broker.Quorum, "empty")
			w := n.open(t, nil)
			w.send(1, &amqp.BasicGet{Queue: "empty"}) // so that there is a getter already
			w.expect(1, &amqp.BasicGetEmpty{})
			n.far.hold()
			w.send(1, c.ask)
			c.end(w)
			until(t, "it has ended", func() bool { return n.Counters.ChannelsClosed.Load() == 1 })
			n.far.rest(t)
			p.stillThere("q", 3, 0)
		})
	}
}

// channelError has the channel closed by an acknowledgement, which is not held up, and opens it anew. What comes then can only be meant
// for the old one.
func channelError(w *wire) {
	w.Helper()
	w.send(1, &amqp.BasicAck{DeliveryTag: 99})
	w.expect(1, &amqp.ChannelClose{})
	w.send(1, &amqp.ChannelCloseOk{})
	w.send(1, &amqp.ChannelOpen{})
	w.expect(1, &amqp.ChannelOpenOk{})
	w.Cleanup(w.sync)
}

func connectionClose(w *wire) {
	w.Helper()
	w.send(0, &amqp.ConnectionClose{})
	w.expect(0, &amqp.ConnectionCloseOk{})
}

// TestChannelsEndWithoutAnswers: nobody waits for a queue that lives elsewhere to close a channel or a connection. What was held comes back
// when the queue gets to know.
func TestChannelsEndWithoutAnswers(t *testing.T) {
	n := start(t, nil)
	p := n.filled(t, 5)
	w := n.open(t, nil)
	w.send(2, &amqp.ChannelOpen{})
	w.expect(2, &amqp.ChannelOpenOk{})
	for channel := range uint16(2) {
		w.send(channel+1, &amqp.BasicQos{PrefetchCount: 2})
		w.expect(channel+1, &amqp.BasicQosOk{})
		w.send(channel+1, &amqp.BasicConsume{Queue: "q"})
		w.expect(channel+1, &amqp.BasicConsumeOk{})
		for range 2 {
			w.expect(channel+1, &amqp.BasicDeliver{})
			w.content(channel + 1)
		}
	}
	n.far.hold()
	w.send(1, &amqp.ChannelClose{})
	w.expect(1, &amqp.ChannelCloseOk{})
	connectionClose(w)
	n.far.release()
	p.stillThere("q", 5, 0)
}

// TestLateAnswersKeepTheirOrder: what is asked in one go is answered in that order, whoever answers.
func TestLateAnswersKeepTheirOrder(t *testing.T) {
	n := start(t, nil)
	w := n.open(t, nil)
	w.declareAs(broker.Quorum, "q")
	w.declare("c")
	for range 20 {
		var all []byte
		for _, m := range []amqp.Method{
			&amqp.BasicConsume{Queue: "q", ConsumerTag: "a"}, &amqp.BasicConsume{Queue: "c", ConsumerTag: "b"},
			&amqp.BasicCancel{ConsumerTag: "a"}, &amqp.QueuePurge{Queue: "q"}, &amqp.BasicQos{}, &amqp.BasicGet{Queue: "q"}, &amqp.QueuePurge{Queue: "c"},
			&amqp.BasicCancel{ConsumerTag: "b"}, &amqp.QueueDeclare{Queue: "c", Passive: true},
		} {
			all = amqp.AppendMethodFrame(all, 1, m)
		}
		w.raw(all)
		w.expect(1, &amqp.BasicConsumeOk{})
		w.expect(1, &amqp.BasicConsumeOk{})
		w.expect(1, &amqp.BasicCancelOk{})
		w.expect(1, &amqp.QueuePurgeOk{})
		w.expect(1, &amqp.BasicQosOk{})
		w.expect(1, &amqp.BasicGetEmpty{})
		w.expect(1, &amqp.QueuePurgeOk{})
		w.expect(1, &amqp.BasicCancelOk{})
		w.expect(1, &amqp.QueueDeclareOk{})
	}
}

// TestCounts: what was given out before says so in its headers, whatever its size and the peer's frames; the first delivery is as it was
// published.
func TestCounts(t *testing.T) {
	for _, size := range []int{0, 100, 10000, byReference, 100000, 3 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			n := start(t, nil)
			w := n.open(t, func(ok *amqp.ConnectionTuneOk) { ok.FrameMax = 4096 })
			w.declareAs(broker.Quorum, "q")
			p := n.open(t, nil)
			sent := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
			p.raw(publishFrames(1, "q", &amqp.PropertyList{AppID: "a", Headers: amqp.Table(nil).AppendString("x-delivery-count", "mine")}, sent, 131072))
			w.send(1, &amqp.BasicConsume{Queue: "q"})
			w.expect(1, &amqp.BasicConsumeOk{})
			for i, want := range []string{
				"map[x-delivery-count:mine]", "map[x-acquired-count:1 x-delivery-count:mine]", "map[x-acquired-count:2 x-delivery-count:1]",
				"map[x-acquired-count:3 x-delivery-count:2]",
			} {
				var d amqp.BasicDeliver
				w.expect(1, &d)
				header, body := w.content(1)
				h, err := amqp.ParseHeader(header)
				if err != nil {
					t.Fatal(err)
				}
				headers, _ := h.Headers()
				app, _ := h.AppID()
				if got := fmt.Sprint(headers.Map()); got != want || string(app) != "a" || !bytes.Equal(body, sent) || d.Redelivered != (i > 0) {
					t.Fatalf("delivery %d: %s, want %s; %d octets, redelivered %t", i, got, want, len(body), d.Redelivered)
				}
				if i == 0 {
					w.send(1, &amqp.BasicNack{DeliveryTag: d.DeliveryTag, Requeue: true})
				} else {
					w.send(1, &amqp.BasicReject{DeliveryTag: d.DeliveryTag, Requeue: true})
				}
			}
		})
	}
}

// timedOut has an outlet hear that something has timed out.
func timedOut(o queue.Outlet) {
	var w queue.Wake
	o.TimedOut(&w)
	w.Flush()
}

// TestTimedOut: a consumer whose deliveries were taken back is told so, or loses its channel.
func TestTimedOut(t *testing.T) {
	n := start(t, nil)
	n.filled(t, 1)
	w := n.open(t, nil)
	w.send(1, &amqp.BasicConsume{Queue: "q", ConsumerTag: "c", Arguments: amqp.Table(nil).AppendInt64("x-consumer-timeout", 5000)})
	w.expect(1, &amqp.BasicConsumeOk{})
	w.expect(1, &amqp.BasicDeliver{})
	w.content(1)
	for range 2 { // it stays attached, and may be late again
		timedOut(n.far.last())
		var m amqp.BasicCancel
		if w.expect(1, &m); m.ConsumerTag != "c" || !m.NoWait {
			t.Fatalf("%+v", m)
		}
	}
	w.send(2, &amqp.ChannelOpen{})
	w.expect(2, &amqp.ChannelOpenOk{})
	w.send(2, &amqp.BasicGet{Queue: "q"})
	w.expect(2, &amqp.BasicGetEmpty{})
	timedOut(n.far.last())
	var m amqp.ChannelClose
	w.expect(2, &m)
	if want := "PRECONDITION_FAILED - delivery acknowledgement on channel 2 timed out. Timeout value used: 0 ms. This timeout value can be configured, see consumers doc guide to learn more"; m.ReplyText != want || m.ClassID != 0 || m.MethodID != 0 {
		t.Fatalf("%+v", m)
	}
}

// TestEndedFirst: a client hears that its consumer was ended, or has lost deliveries, before it has the answer to what it asked behind its
// acknowledgements: by that answer it takes them for done. The queue answers just after it says so.
func TestEndedFirst(t *testing.T) {
	ends := []struct {
		name string
		end  func(queue.Outlet, *queue.Wake)
	}{
		{"cancelled", queue.Outlet.Cancelled},
		{"timed out", queue.Outlet.TimedOut},
	}
	for _, c := range []struct {
		name        string
		ask, answer amqp.Method
	}{
		{"get", &amqp.BasicGet{Queue: "q"}, &amqp.BasicGetOk{}},
		{"get from another queue", &amqp.BasicGet{Queue: "empty"}, &amqp.BasicGetEmpty{}},
		{"purge", &amqp.QueuePurge{Queue: "q"}, &amqp.QueuePurgeOk{}},
		{"consume", &amqp.BasicConsume{Queue: "q", ConsumerTag: "d"}, &amqp.BasicConsumeOk{}},
		{"cancel", &amqp.BasicCancel{ConsumerTag: "c"}, &amqp.BasicCancelOk{}},
		{"publish", nil, &amqp.BasicAck{}},
	} {
		for _, e := range ends {
			t.Run(c.name+", "+e.name, func(t *testing.T) {
				n := start(t, nil)
				p := n.filled(t, 2)
				p.declareAs(broker.Quorum, "empty")
				w := n.open(t, nil)
				w.holdOne("c")
				consumer := n.far.last()
				n.far.hold()
				n.far.before(func(w *queue.Wake) { e.end(consumer, w) })
				w.askFor(c.ask)
				n.far.release()
				var cancel amqp.BasicCancel
				if w.expect(1, &cancel); cancel.ConsumerTag != "c" {
					t.Errorf("%q was cancelled", cancel.ConsumerTag)
				}
				w.expect(1, c.answer)
				switch c.answer.(type) {
				case *amqp.BasicGetOk:
					w.content(1)
				case *amqp.BasicConsumeOk:
					w.expect(1, &amqp.BasicDeliver{})
					w.content(1)
				}
				w.sync()
			})
		}
		for _, lost := range []string{"no notice", "got"} {
			t.Run(c.name+", channel lost, "+lost, func(t *testing.T) {
				n := start(t, nil)
				p := n.filled(t, 2)
				p.declareAs(broker.Quorum, "empty")
				var w *wire
				if lost == "got" {
					w = n.open(t, nil)
					w.holdOne("c")
					w.send(1, &amqp.BasicGet{Queue: "q"})
					w.expect(1, &amqp.BasicGetOk{})
					w.content(1)
				} else {
					w = n.openAware(t)
					w.holdOne("c")
				}
				late := n.far.last()
				n.far.hold()
				n.far.before(func(w *queue.Wake) { late.TimedOut(w) })
				w.askFor(c.ask)
				n.far.release()
				var end amqp.ChannelClose
				if w.expect(1, &end); end.ReplyCode != amqp.PreconditionFailed {
					t.Errorf("%+v", end)
				}
				w.send(1, &amqp.ChannelCloseOk{})
				w.send(1, &amqp.ChannelOpen{})
				w.expect(1, &amqp.ChannelOpenOk{})
				w.sync()
				n.far.rest(t)
				published := uint32(0)
				if c.ask == nil {
					published = 1
				}
				p.stillThere("empty", published, 0)
			})
		}
	}
}

// TestConfirmsBehindTheEnd: what a queue confirms after it has taken something away is announced behind the news of that, even if
// confirms of before have not been announced yet.
func TestConfirmsBehindTheEnd(t *testing.T) {
	n := start(t, nil)
	p := n.filled(t, 1)
	p.declareAs(broker.Quorum, "empty")
	w := n.open(t, nil)
	w.holdOne("c")
	consumer := n.far.last()
	for i := range uint64(20) {
		n.far.rest(t)
		n.far.hold()
		n.far.before(func(*queue.Wake) { // the first goes alone; then, between two that may be announced together
			n.far.before(func(*queue.Wake) { n.far.before(func(w *queue.Wake) { consumer.TimedOut(w) }) })
		})
		for k := range int64(3) {
			w.askFor(nil)
			until(t, "it waits", func() bool { return n.far.open.Load() > k })
		}
		n.far.release()
		told, confirmed := false, uint64(0)
		for !told || confirmed < 3*i+3 {
			f, err := w.frame()
			if err != nil {
				t.Fatal(err)
			}
			m, err := amqp.DecodeMethod(f.Payload)
			if err != nil {
				t.Fatal(err)
			}
			switch m := m.(type) {
			case *amqp.BasicCancel:
				told = true
			case *amqp.BasicAck:
				if confirmed = m.DeliveryTag; confirmed == 3*i+3 && !told {
					t.Fatalf("round %d: confirmed before the consumer was told", i)
				}
			default:
				t.Fatalf("%+v", m)
			}
		}
	}
}

// holdOne has a channel in confirm mode hold a message by a consumer.
func (w *wire) holdOne(tag string) {
	w.Helper()
	w.send(1, &amqp.ConfirmSelect{})
	w.expect(1, &amqp.ConfirmSelectOk{})
	w.send(1, &amqp.BasicQos{PrefetchCount: 1})
	w.expect(1, &amqp.BasicQosOk{})
	w.send(1, &amqp.BasicConsume{Queue: "q", ConsumerTag: tag})
	w.expect(1, &amqp.BasicConsumeOk{})
	w.expect(1, &amqp.BasicDeliver{})
	w.content(1)
}

// askFor sends a method, or publishes a message if there is none.
func (w *wire) askFor(m amqp.Method) {
	w.Helper()
	if m == nil {
		w.raw(numbered(1, "empty", 0, 1, 100))
	} else {
		w.send(1, m)
	}
}

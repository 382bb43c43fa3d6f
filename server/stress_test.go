package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/warrenmq/warren/test/seeds"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

// TestDroppedConnections cuts consumers' connections at any moment under load: what was published was acknowledged, or is
// still in the queue.
func TestDroppedConnections(t *testing.T) {
	for _, typ := range []string{broker.Classic, broker.Quorum} {
		t.Run(typ, func(t *testing.T) { dropConnections(t, typ) })
	}
}

func dropConnections(t *testing.T, typ string) {
	n := start(t, nil)
	seed := seeds.Of(t)
	w := n.open(t, nil)
	w.declareAs(typ, "q")
	const messages = 20000
	var acked sync.Map
	var acks atomic.Int64
	stop := make(chan struct{})
	var consumers sync.WaitGroup
	end := sync.OnceFunc(func() {
		close(stop)
		consumers.Wait()
	})
	defer end()
	for i := range 4 {
		consumers.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for {
				select {
				case <-stop:
					return
				default:
				}
				n.consumeAndDrop(t, r, &acked, &acks)
			}
		})
	}
	w.send(1, &amqp.ConfirmSelect{})
	w.expect(1, &amqp.ConfirmSelectOk{})
	for i := range messages {
		w.raw(publishFrames(1, "q", &amqp.PropertyList{}, fmt.Append(make([]byte, i%300), " ", i), 0))
	}
	for heard := uint64(0); heard < messages; {
		var ack amqp.BasicAck
		w.expect(1, &ack)
		heard = max(heard, ack.DeliveryTag)
	}
	until(t, "half of them are acknowledged", func() bool { return acks.Load() > messages/2 })
	end()
	until(t, "all connections end", func() bool {
		return n.Counters.ConnectionsOpened.Load()-n.Counters.ConnectionsClosed.Load() == 1
	})
	// An ack that was on its way when the connection was cut may have counted or not: those numbers may be missing or not.
	var left [messages]bool
	for {
		w.send(1, &amqp.BasicGet{Queue: "q", NoAck: true})
		f, err := w.frame()
		if err != nil {
			t.Fatal(err)
		}
		if m, _ := amqp.DecodeMethod(f.Payload); m.ID() == amqp.BasicGetEmptyID {
			break
		}
		_, body := w.content(1)
		left[numberOf(body)] = true
	}
	for i := range messages {
		if _, ok := acked.Load(i); !ok && !left[i] {
			t.Errorf("message %d is lost", i)
		}
	}
}

func numberOf(body []byte) int {
	for i := len(body) - 1; ; i-- {
		if body[i] == ' ' {
			n, _ := strconv.Atoi(string(body[i+1:]))
			return n
		}
	}
}

// consumeAndDrop consumes for a while and cuts the connection in the middle of something.
func (n *node) consumeAndDrop(t *testing.T, r *rand.Rand, acked *sync.Map, acks *atomic.Int64) {
	c, err := net.Dial("tcp", n.address)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	w := newWire(t, c)
	w.login(nil)
	w.raw(amqp.AppendMethodFrame(nil, 1, &amqp.ChannelOpen{}))
	w.expect(1, &amqp.ChannelOpenOk{})
	w.send(1, &amqp.BasicQos{PrefetchCount: uint16(1 + r.IntN(100))})
	w.expect(1, &amqp.BasicQosOk{})
	w.send(1, &amqp.BasicConsume{Queue: "q"})
	w.expect(1, &amqp.BasicConsumeOk{})
	for range r.IntN(500) {
		c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		f, err := w.frame()
		if err != nil {
			return
		}
		m, err := amqp.DecodeMethod(f.Payload)
		d, ok := m.(*amqp.BasicDeliver)
		if err != nil || !ok {
			t.Errorf("%T, %v", m, err)
			return
		}
		_, body := w.content(1)
		acked.Store(numberOf(body), true) // before: the ack may count although we never know
		w.Write(amqp.AppendMethodFrame(nil, 1, &amqp.BasicAck{DeliveryTag: d.DeliveryTag}))
		acks.Add(1)
	}
}

// TestStress has many clients declare, consume, publish, get, cancel, close and delete the same few queues at once. It is
// for the race detector, the poisoned slabs and the count of references.
func TestStress(t *testing.T) {
	for _, types := range [][]string{{broker.Classic}, {broker.Quorum}, {broker.Classic, broker.Quorum}} {
		t.Run(fmt.Sprint(types), func(t *testing.T) { stress(t, types) })
	}
}

func stress(t *testing.T, types []string) {
	n := startBound(t, 16<<20, nil)
	seed := seeds.Of(t)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	var clients sync.WaitGroup
	for i := range 12 {
		clients.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for ctx.Err() == nil {
				n.misbehave(ctx, t, r, types)
			}
		})
	}
	clients.Wait()
}

// misbehave is the life of one client. A queue's number decides its type.
func (n *node) misbehave(ctx context.Context, t *testing.T, r *rand.Rand, types []string) {
	socket, err := net.Dial("tcp", n.address)
	if err != nil {
		t.Error(err)
		return
	}
	defer socket.Close()
	c, err := amqp091.Open(socket, amqp091.Config{SASL: []amqp091.Authentication{&amqp091.PlainAuth{Username: "guest", Password: "guest"}}, Vhost: "/", Heartbeat: time.Minute})
	if err != nil {
		t.Error("open: ", err)
		return
	}
	go func() { // calls of this client library do not end by themselves when the peer keeps it waiting
		select {
		case <-ctx.Done():
			socket.Close()
		case <-c.NotifyClose(make(chan *amqp091.Error, 1)):
		}
	}()
	var ch *amqp091.Channel
	for range r.IntN(200) {
		if ch == nil || ch.IsClosed() {
			if ch, err = c.Channel(); err != nil {
				return
			}
		}
		number := r.IntN(3)
		q, typ := fmt.Sprint("q", number), types[number%len(types)]
		switch r.IntN(16) {
		case 0:
			ch.QueueDeclare(q, typ == broker.Quorum, false, false, false, amqp091.Table{"x-queue-type": typ})
		case 1:
			ch.QueueDelete(q, false, false, false)
		case 2, 3:
			if ds, err := ch.Consume(q, fmt.Sprint("c", r.IntN(4)), r.IntN(2) == 0, false, false, false, nil); err == nil {
				ack := r.IntN(3)
				go func() {
					for d := range ds {
						switch ack {
						case 0:
							d.Ack(false)
						case 1:
							d.Reject(true)
						}
					}
				}()
			}
		case 4:
			ch.Cancel(fmt.Sprint("c", r.IntN(4)), false)
		case 5:
			ch.Get(q, r.IntN(2) == 0)
		case 6:
			ch.Close()
		case 7:
			ch.QueuePurge(q, false)
		case 8:
			ch.Qos(r.IntN(5), 0, r.IntN(2) == 0)
		case 9:
			if r.IntN(5) == 0 {
				socket.Close()
				return
			}
		case 10:
			ch.Ack(0, true)
		case 11:
			switch r.IntN(4) {
			case 0:
				ch.Tx()
			case 1:
				ch.TxCommit()
			case 2:
				ch.TxRollback()
			case 3:
				ch.Confirm(false)
			}
		default:
			for range 10 {
				ch.PublishWithContext(ctx, "", q, r.IntN(4) == 0, false, amqp091.Publishing{Body: make([]byte, r.IntN(3)*r.IntN(40000))})
			}
		}
	}
}

// TestGlobalPrefetch: a channel's own limit holds for its consumers together.
func TestGlobalPrefetch(t *testing.T) {
	n := start(t, nil)
	w := n.open(t, nil)
	w.declare("a")
	w.declare("b")
	w.send(1, &amqp.BasicQos{PrefetchCount: 5, Global: true})
	w.expect(1, &amqp.BasicQosOk{})
	for _, q := range []string{"a", "b"} {
		w.send(1, &amqp.BasicConsume{Queue: q})
		w.expect(1, &amqp.BasicConsumeOk{})
	}
	const messages = 400
	p := n.open(t, nil)
	for i := range messages {
		p.raw(publishFrames(1, []string{"a", "b"}[i%2], &amqp.PropertyList{}, []byte("x"), 0))
	}
	p.sync()
	if got := p.ready("a") + p.ready("b"); got != messages-5 {
		t.Errorf("%d ready, with a limit of 5 in %d", got, messages)
	}
	for range messages {
		var d amqp.BasicDeliver
		w.expect(1, &d)
		w.content(1)
		if got := p.ready("a") + p.ready("b"); got+uint32(d.DeliveryTag)+4 < messages {
			t.Fatalf("%d ready after delivery %d", got, d.DeliveryTag)
		}
		w.send(1, &amqp.BasicAck{DeliveryTag: d.DeliveryTag})
	}
}

// TestLateGlobalPrefetch sets a channel's limit after its consumers came, one of which has a message already and one of
// which does not acknowledge: it holds for both, counts the message, and is lifted for both.
func TestLateGlobalPrefetch(t *testing.T) {
	n := start(t, nil)
	w, p := n.open(t, nil), n.open(t, nil)
	w.declare("a")
	w.declare("b")
	w.send(1, &amqp.BasicConsume{Queue: "a", ConsumerTag: "acks"})
	w.expect(1, &amqp.BasicConsumeOk{})
	w.send(1, &amqp.BasicConsume{Queue: "b", ConsumerTag: "takes", NoAck: true})
	w.expect(1, &amqp.BasicConsumeOk{})
	publish := func(q string, count int) {
		for range count {
			p.raw(publishFrames(1, q, &amqp.PropertyList{}, []byte("x"), 0))
		}
		p.sync()
	}
	ready := func(a, b uint32) {
		t.Helper()
		p.sync()
		if gotA, gotB := p.ready("a"), p.ready("b"); gotA != a || gotB != b {
			t.Fatalf("%d and %d ready, not %d and %d", gotA, gotB, a, b)
		}
	}
	deliver := func(from string) (tag uint64) {
		t.Helper()
		var d amqp.BasicDeliver
		w.expect(1, &d)
		w.content(1)
		if string(d.ConsumerTag) != from {
			t.Fatalf("a delivery to %s, not to %s", d.ConsumerTag, from)
		}
		return d.DeliveryTag
	}
	publish("a", 1)
	deliver("acks")
	w.send(1, &amqp.BasicQos{PrefetchCount: 2, Global: true})
	w.expect(1, &amqp.BasicQosOk{})
	publish("b", 1)
	deliver("takes") // counts for nothing
	publish("a", 3)
	last := deliver("acks")
	ready(2, 0)
	publish("b", 2)
	ready(2, 2)
	w.send(1, &amqp.BasicAck{DeliveryTag: last, Multiple: true}) // the two come in either order
	for range 4 {
		var d amqp.BasicDeliver
		w.expect(1, &d)
		w.content(1)
		if string(d.ConsumerTag) == "acks" {
			w.send(1, &amqp.BasicAck{DeliveryTag: d.DeliveryTag})
		}
	}
	ready(0, 0)
	publish("a", 4)
	deliver("acks")
	deliver("acks")
	ready(2, 0)
	w.send(1, &amqp.BasicQos{PrefetchCount: 0, Global: true})
	deliver("acks")
	deliver("acks")
	w.expect(1, &amqp.BasicQosOk{})
}

// TestGlobalPrefetchAsEachConsumersOwn: quorum queues know no limits of channels, nor does anybody on a node that refuses them.
func TestGlobalPrefetchAsEachConsumersOwn(t *testing.T) {
	for _, c := range []struct {
		typ    string
		refuse bool
		held   uint32 // of 10 messages by two consumers
	}{{broker.Classic, false, 2}, {broker.Classic, true, 4}, {broker.Quorum, false, 4}, {broker.Quorum, true, 4}} {
		t.Run(fmt.Sprint(c.typ, " refused ", c.refuse), func(t *testing.T) {
			n := start(t, func(o *Options) { o.RefuseGlobalQoS = c.refuse })
			w := n.open(t, nil)
			w.declareAs(c.typ, "q")
			w.send(1, &amqp.BasicQos{PrefetchCount: 2, Global: true})
			w.expect(1, &amqp.BasicQosOk{})
			for range 2 {
				w.send(1, &amqp.BasicConsume{Queue: "q"})
				w.expect(1, &amqp.BasicConsumeOk{})
			}
			p := n.open(t, nil)
			p.raw(numbered(1, "q", 0, 10, 100))
			p.sync()
			n.far.rest(t)
			if got := p.ready("q"); got != 10-c.held {
				t.Errorf("%d are ready, want %d", got, 10-c.held)
			}
		})
	}
}

package server

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/test/seeds"
)

// TestManyQueuesOneConfirm: a publish may wait for more queues than fit 14 bits.
func TestManyQueuesOneConfirm(t *testing.T) {
	n := start(t, nil)
	c := &conn{server: n.Server}
	c.out.idle.L, c.mail.more.L = &c.out.mu, &c.mail.mu
	k := &confirms{channel: &channel{conn: c}, base: 1}
	const queues = 40000
	var w queue.Wake
	if got := k.published(queues); got != 1 {
		t.Fatal(got)
	}
	for i := range queues {
		k.Settled([]queue.Range{{First: 1, Last: 1}}, true, &w)
		if b := k.append(nil, &item{}); (len(b) > 0) != (i == queues-1) {
			t.Fatalf("after %d queues: %v", i+1, b)
		}
	}
}

// TestConfirmsModel settles publishes in any order, by a queue or several, and compares what is announced with a naive
// list: each number once, with the right verdict, and multiple never reaching over one that waits or was another's.
func TestConfirmsModel(t *testing.T) {
	seed := seeds.Of(t)
	r := rand.New(rand.NewPCG(seed, 0))
	n := start(t, nil)
	for range 200 {
		c := &conn{server: n.Server}
		c.out.idle.L, c.mail.more.L = &c.out.mu, &c.mail.mu
		k := &confirms{channel: &channel{conn: c, number: 1}, base: 1}
		type publish struct {
			left            int
			nack, announced bool
		}
		all := []publish{{announced: true}}
		var w queue.Wake
		for range 300 {
			switch r.IntN(3) {
			case 0:
				p := publish{left: r.IntN(3)}
				number := k.published(p.left)
				if int(number) != len(all) {
					t.Fatal("numbers")
				}
				if p.left == 0 {
					k.Settled([]queue.Range{{First: number, Last: number}}, true, &w)
				}
				all = append(all, p)
			case 1:
				i := r.IntN(len(all))
				if p := &all[i]; p.left > 0 {
					ok := r.IntN(4) > 0
					p.left--
					p.nack = p.nack || !ok
					k.Settled([]queue.Range{{First: uint64(i), Last: uint64(i)}}, ok, &w)
				}
			case 2:
				for b := k.append(nil, &item{size: k.item}); len(b) > 0; {
					f, size, err := amqp.ParseFrame(b, 0)
					if err != nil {
						t.Fatal(err)
					}
					b = b[size:]
					m, err := amqp.DecodeMethod(f.Payload)
					if err != nil {
						t.Fatal(err)
					}
					tag, multiple, nack := uint64(0), false, false
					switch m := m.(type) {
					case *amqp.BasicAck:
						tag, multiple = m.DeliveryTag, m.Multiple
					case *amqp.BasicNack:
						tag, multiple, nack = m.DeliveryTag, m.Multiple, true
					}
					from := tag
					if multiple {
						from = 1
					}
					for i := from; i <= tag; i++ {
						p := &all[i]
						if p.announced && i == tag || p.left > 0 || !p.announced && p.nack != nack {
							t.Fatal(fmt.Sprintf("%d as part of %T %d: %+v", i, m, tag, *p))
						}
						p.announced = true
					}
				}
				for i, p := range all {
					if p.left == 0 && !p.announced {
						t.Fatalf("%d was not announced", i)
					}
				}
			}
		}
	}
}

// TestConfirmsOfAFullQueue: a queue that refuses what it has no room for, while a consumer makes some. Each publish is
// confirmed once, and no ack of several reaches over a nack.
func TestConfirmsOfAFullQueue(t *testing.T) {
	n := start(t, nil)
	const publishes = 20_000
	c := n.open(t, nil)
	c.send(1, &amqp.QueueDeclare{Queue: "q", Arguments: amqp.Table(nil).AppendInt64("x-max-length", 10).AppendString("x-overflow", "reject-publish")})
	c.expect(1, &amqp.QueueDeclareOk{})
	c.send(1, &amqp.BasicQos{PrefetchCount: 5})
	c.expect(1, &amqp.BasicQosOk{})
	c.send(1, &amqp.BasicConsume{Queue: "q"})
	c.expect(1, &amqp.BasicConsumeOk{})
	consumed := make(chan int)
	go func() { // acknowledges one by one until the connection ends
		got := 0
		defer func() { consumed <- got }()
		for {
			f, err := c.frame()
			if err != nil {
				return
			}
			if m, err := amqp.DecodeMethod(f.Payload); err == nil && f.Type == amqp.FrameMethod {
				if d, ok := m.(*amqp.BasicDeliver); ok {
					got++
					if _, err := c.Write(amqp.AppendMethodFrame(nil, 1, &amqp.BasicAck{DeliveryTag: d.DeliveryTag})); err != nil {
						return
					}
				}
			}
		}
	}()
	p := n.open(t, nil)
	p.send(1, &amqp.ConfirmSelect{})
	p.expect(1, &amqp.ConfirmSelectOk{})
	go func() {
		for sent := 0; sent < publishes; sent += 50 {
			if _, err := p.Write(numbered(1, "q", sent, 50, 10)); err != nil {
				return
			}
		}
	}()
	const waits, acked, nacked = 0, 1, 2
	verdict := make([]int, publishes+1)
	first, acks, nacks := uint64(1), 0, 0 // first that waits
	for acks+nacks < publishes {
		f, err := p.frame()
		if err != nil {
			t.Fatal(err)
		}
		m, err := amqp.DecodeMethod(f.Payload)
		if err != nil {
			t.Fatal(err)
		}
		var tag uint64
		var multiple bool
		how := acked
		switch m := m.(type) {
		case *amqp.BasicAck:
			tag, multiple = m.DeliveryTag, m.Multiple
		case *amqp.BasicNack:
			tag, multiple, how = m.DeliveryTag, m.Multiple, nacked
		default:
			t.Fatalf("%+v", m)
		}
		from := tag
		if multiple {
			from = first // those before have been heard of
		}
		for i := from; i <= tag; i++ {
			if verdict[i] != waits {
				if multiple {
					continue // heard of one by one
				}
				t.Fatalf("%d is confirmed again", i)
			}
			verdict[i] = how
			if how == acked {
				acks++
			} else {
				nacks++
			}
		}
		for first <= publishes && verdict[first] != waits {
			first++
		}
	}
	if acks < 10 || nacks == 0 {
		t.Errorf("%d acks, %d nacks: nothing was tried", acks, nacks)
	}
	until(t, "everything acked is consumed", func() bool { return n.broker.VHost("/").Queue("q").Stats().Ready == 0 })
	until(t, "everything is acknowledged", func() bool { return n.broker.VHost("/").Queue("q").Stats().Unacked == 0 })
	until(t, "what was refused is counted", func() bool { return n.broker.Counters.PublishesRefused.Load() == uint64(nacks) })
	c.Close()
	if got := <-consumed; got != acks {
		t.Errorf("%d consumed of %d acked", got, acks)
	}
}

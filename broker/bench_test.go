package broker

import (
	"fmt"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/queue"
)

func benchBroker(b *testing.B) *VHost {
	clock := queue.NewClock()
	b.Cleanup(clock.Close)
	pool := queue.NewPool(64 << 20)
	return New(Options{Pool: pool, Clock: clock, NewQueue: func(n NewQueue) queue.Queue {
		return queue.NewClassic(queue.ClassicRules(n.MaxPriority), n.Config, pool, clock, n.DeadLetters)
	}}).VHost("/")
}

// BenchmarkScope is a batch that publishes one message to a queue nobody published to just before.
func BenchmarkScope(b *testing.B) {
	v := benchBroker(b)
	keys := make([][]byte, 5000)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "queue.%d", i)
		v.DeclareQueue(Actor{}, QueueDeclaration{Name: string(keys[i])}, func(*Queue, *amqp.Error) {})
	}
	u := v.broker.User("guest")
	m := new(exchange.Message)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		s := v.Begin()
		x, err := s.Publishable(u, nil)
		if err != nil {
			b.Fatal(err)
		}
		m.Key = keys[i%len(keys)]
		i++
		if len(s.Route(x, m)) != 1 {
			b.Fatal("not routed")
		}
		s.End()
	}
}

// BenchmarkDeclare makes, binds and deletes a queue beside 5,000 others.
func BenchmarkDeclare(b *testing.B) {
	v := benchBroker(b)
	u := v.broker.User("guest")
	var w queue.Wake
	declare := func(name string) {
		v.DeclareQueue(Actor{User: u}, QueueDeclaration{Name: name, Durable: true}, func(_ *Queue, err *amqp.Error) {
			if err != nil {
				b.Fatal(err)
			}
		})
		v.Bind(Actor{User: u}, Binding{Source: "amq.topic", Destination: name, Key: name}, func(err *amqp.Error) {
			if err != nil {
				b.Fatal(err)
			}
		})
	}
	for i := range 5000 {
		declare(fmt.Sprintf("queue.%d", i))
	}
	b.ReportAllocs()
	for b.Loop() {
		declare("new")
		v.DeleteQueue(Actor{User: u}, "new", false, false, &w, func(uint64, *amqp.Error) {})
	}
}

// BenchmarkDeadLetter publishes to a queue of length 0 with a dead-letter exchange.
func BenchmarkDeadLetter(b *testing.B) {
	v := benchBroker(b)
	var from *Queue
	v.DeclareQueue(Actor{}, QueueDeclaration{Name: "from", Arguments: args("x-max-length", 0, "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "to")}, func(q *Queue, err *amqp.Error) { from = q })
	v.DeclareQueue(Actor{}, QueueDeclaration{Name: "to"}, func(q *Queue, err *amqp.Error) {
		var w queue.Wake
		q.Attach(Consumer{Spec: queue.ConsumerSpec{NoAck: true}}, &deaf{v.broker.Pool}, &w, func(queue.ConsumerID, *amqp.Error) {})
	})
	header, _ := amqp.AppendHeader(nil, 0, &amqp.PropertyList{})
	var w queue.Wake
	batch := &queue.Batch{Messages: make([]queue.Message, 100)}
	b.ReportAllocs()
	for b.Loop() {
		for i := range batch.Messages {
			batch.Messages[i] = v.broker.Pool.NewMessage(nil, []byte("from"), header, func(func([]byte) bool) {}, 0, 1)
		}
		from.Publish(batch, &w)
		w.Flush()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/message")
}

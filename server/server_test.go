package server

import (
	"context"
	"io"
	"log/slog"
	"net"
	"runtime"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/queue"
)

// node is a server in the test's process.
type node struct {
	*Server
	pool    *queue.Pool
	far     *far // the quorum queues
	address string
}

// start runs a server with the given options on a free port until the test ends. Freed slabs are poisoned; at the end all
// must be free, and every goroutine gone.
func start(t testing.TB, change func(*Options)) *node {
	t.Helper()
	return startBound(t, 256<<20, change)
}

// startBound is start with a bound of the message memory.
func startBound(t testing.TB, bound int64, change func(*Options)) *node {
	t.Helper()
	goroutines := runtime.NumGoroutine()
	pool := queue.NewPool(bound)
	pool.Poison = true
	n := serve(t, pool, change)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		n.Shutdown(ctx)
		if ctx.Err() != nil {
			t.Error("connections did not end")
		}
		n.far.rest(t)
		n.broker.DeleteVHost("/", func(bool, error) {})
		n.far.rest(t)
		n.clock.Close()
		// The slab that small messages share is full now; whoever still holds a part of it keeps it from being freed.
		ref, _ := pool.Reserve(queue.SlabSize, 1)
		if kept := pool.InUse() - queue.SlabSize; kept != 0 {
			t.Errorf("%d octets of message memory were not released", kept)
		}
		pool.Release(ref.Slab, 1)
		if !t.Failed() {
			until(t, "all goroutines end", func() bool { return runtime.NumGoroutine() <= goroutines })
		}
	})
	return n
}

// serve runs a server with the given pool.
func serve(t testing.TB, pool *queue.Pool, change func(*Options)) *node {
	t.Helper()
	clock := queue.NewClock()
	far := newFar(t)
	b := broker.New(broker.Options{
		Node: "warren@test", Pool: pool, Clock: clock,
		NewQueue: func(q broker.NewQueue) queue.Queue {
			switch q.Type {
			case broker.Classic:
				return queue.NewClassic(queue.ClassicRules(q.MaxPriority), q.Config, pool, clock, q.DeadLetters)
			case broker.Quorum:
				rules := queue.QuorumRules()
				rules.NoWindow = false // the classic queue goes by Ready
				return far.queue(queue.NewClassic(rules, q.Config, pool, clock, q.DeadLetters))
			}
			return nil
		},
	})
	o := DefaultOptions()
	o.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	if change != nil {
		change(&o)
	}
	s := New(o, b, pool, clock)
	address, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &node{Server: s, pool: pool, far: far, address: address.String()}
}

func (n *node) dial(t testing.TB) *amqp091.Connection {
	t.Helper()
	c, err := amqp091.DialConfig("amqp://guest:guest@"+n.address+"/", amqp091.Config{Dial: amqp091.DefaultDial(5 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (n *node) channel(t testing.TB) *amqp091.Channel {
	t.Helper()
	ch, err := n.dial(t).Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

func TestPublishConsumeAck(t *testing.T) {
	n := start(t, nil)
	ch := n.channel(t)
	q, err := ch.QueueDeclare("", false, false, true, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	ds, err := ch.Consume(q.Name, "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	const messages = 1000
	for i := range messages {
		err := ch.PublishWithContext(t.Context(), "", q.Name, false, false, amqp091.Publishing{Body: make([]byte, i*i%100000), AppId: "test"})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range messages {
		d := <-ds
		if len(d.Body) != i*i%100000 || d.AppId != "test" {
			t.Fatalf("message %d has %d octets", i, len(d.Body))
		}
		if i%10 == 9 {
			d.Ack(true)
		}
	}
	if q, err = ch.QueueDeclarePassive(q.Name, false, false, true, false, nil); err != nil || q.Messages != 0 || q.Consumers != 1 {
		t.Fatal(q, err)
	}
}

// TestGarbage: any bytes end the connection within the handshake timeout.
func TestGarbage(t *testing.T) {
	n := start(t, func(o *Options) { o.HandshakeTimeout = 200 * time.Millisecond })
	for _, greeting := range []string{"", "A", "GET / HTTP/1.1\r\n\r\n", "AMQP\x00\x00\x09\x01", "AMQP\x00\x00\x09\x01\x01\x00\x00\x00"} {
		c, err := net.Dial("tcp", n.address)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, greeting)
		c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Errorf("after %q: %v", greeting, err)
		}
		c.Close()
	}
}

package cli

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// peer is a connection with a channel to a node; what it asks for must be granted.
type peer struct {
	*testing.T
	*amqp091.Channel
	conn *amqp091.Connection
}

func (n *realNode) peer() *peer {
	n.t.Helper()
	conn, err := amqp091.Dial("amqp://guest:guest@" + n.amqp + "/")
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return &peer{n.t, ch, conn}
}

func (c *peer) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (c *peer) declare(name string, durable, autoDelete bool, args amqp091.Table) {
	c.Helper()
	_, err := c.QueueDeclare(name, durable, autoDelete, false, false, args)
	c.must(err)
}

// publish sends one message and waits for its confirm.
func (c *peer) publish(exchange, key string, p amqp091.Publishing) {
	c.Helper()
	p.DeliveryMode = amqp091.Persistent
	d, err := c.PublishWithDeferredConfirm(exchange, key, false, false, p)
	c.must(err)
	if !d.Wait() {
		c.Fatal("refused")
	}
}

// take gets the next message within two seconds, without acknowledging it.
func (c *peer) take(queue string) amqp091.Delivery {
	c.Helper()
	for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		d, ok, err := c.Get(queue, false)
		c.must(err)
		if ok {
			return d
		}
		if time.Now().After(deadline) {
			c.Fatalf("no message in %s", queue)
		}
	}
}

func (c *peer) ready(queue string) int {
	c.Helper()
	q, err := c.QueueDeclarePassive(queue, false, false, false, false, nil)
	c.must(err)
	return q.Messages
}

// acrossRestart are things done before a restart, and what must be so after it. Every name belongs to one of them.
var acrossRestart = []struct {
	name          string
	before, after func(n *realNode, c *peer)
}{
	{"a refused declare leaves nothing", func(n *realNode, c *peer) {
		other := n.peer()
		if _, err := other.QueueDeclare("refused", true, false, false, false, amqp091.Table{"x-max-length": -1}); err == nil {
			n.t.Error("accepted")
		}
		c.declare("declared", true, false, amqp091.Table{"x-max-length": 5})
		other = n.peer()
		if _, err := other.QueueDeclare("declared", true, false, false, false, amqp091.Table{"x-max-length": 6}); err == nil {
			n.t.Error("accepted")
		}
	}, func(n *realNode, c *peer) {
		if status, _ := n.do("guest", "GET", "/queues/%2F/refused", ""); status != 404 {
			n.t.Errorf("status %d", status)
		}
		c.declare("declared", true, false, amqp091.Table{"x-max-length": 5})
	}},
	{"a quorum queue counts on how often a message has failed", func(n *realNode, c *peer) {
		c.declare("poison", true, false, amqp091.Table{"x-queue-type": "quorum", "x-delivery-limit": 5})
		c.publish("", "poison", amqp091.Publishing{Body: []byte("1")})
		for range 2 {
			d := c.take("poison")
			c.must(d.Reject(true))
		}
	}, func(n *realNode, c *peer) {
		for failed := int64(2); failed <= 5; failed++ {
			d := c.take("poison")
			if d.Headers["x-delivery-count"] != failed || !d.Redelivered {
				n.t.Errorf("it has failed %d times: %v, redelivered %v", failed, d.Headers, d.Redelivered)
			}
			c.must(d.Reject(true))
		}
		if n := c.ready("poison"); n != 0 {
			c.Errorf("%d messages are left after 6 failures with a limit of 5", n)
		}
	}},
	{"of bindings those with two durable ends", func(n *realNode, c *peer) {
		c.must(c.ExchangeDeclare("dx", "fanout", true, false, false, false, nil))
		c.must(c.ExchangeDeclare("tx", "fanout", false, false, false, false, nil))
		c.declare("dq", true, false, nil)
		c.declare("tq", false, false, nil)
		for _, x := range []string{"dx", "tx"} {
			c.must(c.QueueBind("dq", "", x, false, nil))
			c.must(c.QueueBind("tq", "", x, false, nil))
		}
		c.must(c.ExchangeBind("tx", "", "dx", false, nil))
		c.must(c.ExchangeBind("dx", "", "tx", false, nil))
	}, func(n *realNode, c *peer) {
		for path, want := range map[string]string{
			"/exchanges/%2F/dx/bindings/source?columns=destination": `[{"destination":"dq"}]`, "/exchanges/%2F/dx/bindings/destination": `[]`,
			"/queues/%2F/dq/bindings?columns=source": `[{"source":""},{"source":"dx"}]`,
		} {
			if _, got := n.do("guest", "GET", path, ""); got != want {
				n.t.Errorf("%s: %s, want %s", path, got, want)
			}
		}
		for _, gone := range []string{"/queues/%2F/tq", "/exchanges/%2F/tx"} {
			if status, _ := n.do("guest", "GET", gone, ""); status != 404 {
				n.t.Errorf("%s: status %d", gone, status)
			}
		}
		c.publish("dx", "", amqp091.Publishing{Body: []byte("m")})
		c.take("dq")
	}},
	{"priorities", func(n *realNode, c *peer) {
		c.declare("prio", true, false, amqp091.Table{"x-max-priority": 10})
		for _, p := range []uint8{0, 9, 0, 9, 0, 9} {
			c.publish("", "prio", amqp091.Publishing{Priority: p})
		}
	}, func(n *realNode, c *peer) {
		c.publish("", "prio", amqp091.Publishing{Priority: 5})
		c.publish("", "prio", amqp091.Publishing{Priority: 5})
		for i, want := range []uint8{9, 9, 9, 5, 5, 0, 0, 0} {
			if d := c.take("prio"); d.Priority != want {
				n.t.Errorf("number %d has priority %d, not %d", i, d.Priority, want)
			}
		}
	}},
	{"an auto-delete queue that had no consumer", func(n *realNode, c *peer) {
		c.declare("ad", true, true, nil)
	}, func(n *realNode, c *peer) {
		c.ready("ad")
	}},
	{"an exclusive consumer is forgotten", func(n *realNode, c *peer) {
		c.declare("ex", true, false, nil)
		_, err := c.Consume("ex", "", false, true, false, false, nil)
		c.must(err)
	}, func(n *realNode, c *peer) {
		_, err := c.Consume("ex", "", false, false, false, false, nil)
		c.must(err)
	}},
	{"a limit by policy", func(n *realNode, c *peer) {
		c.declare("limited", true, false, nil)
		n.expect([][5]any{{"guest", "PUT", "/policies/%2F/two", `{"pattern":"^limited$","definition":{"max-length":2}}`, 201}})
		for range 3 {
			c.publish("", "limited", amqp091.Publishing{})
		}
	}, func(n *realNode, c *peer) {
		for range 5 {
			c.publish("", "limited", amqp091.Publishing{})
		}
		if got := c.ready("limited"); got != 2 {
			n.t.Errorf("%d ready", got)
		}
		n.expect([][5]any{{"guest", "GET", "/queues/%2F/limited?columns=policy,effective_policy_definition", "", `{"effective_policy_definition":{"max-length":2},"policy":"two"}`}})
	}},
	{"what falls due meanwhile", func(n *realNode, c *peer) {
		c.declare("due", true, false, nil)
		c.declare("waiting", true, false, amqp091.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "due"})
		for _, ttl := range []string{"400", "500", "1500", "60000"} {
			c.publish("", "waiting", amqp091.Publishing{Expiration: ttl, Body: []byte(ttl)})
		}
	}, func(n *realNode, c *peer) {
		for _, want := range []string{"400", "500", "1500"} {
			if d := c.take("due"); string(d.Body) != want || d.Headers["x-last-death-reason"] != "expired" || d.Expiration != "" {
				n.t.Errorf("%s: %+v", want, d)
			}
		}
		if got := c.ready("waiting"); got != 1 {
			n.t.Errorf("%d still wait", got)
		}
	}},
	{"the keys and the history of a dead letter", func(n *realNode, c *peer) {
		c.must(c.ExchangeDeclare("bx", "direct", true, false, false, false, nil))
		c.declare("blind", true, false, nil)
		c.must(c.QueueBind("blind", "bcc", "bx", false, nil))
		c.declare("dying", true, false, amqp091.Table{"x-dead-letter-exchange": "bx"})
		c.must(c.QueueBind("dying", "dying", "bx", false, nil))
		c.publish("", "dying", amqp091.Publishing{Headers: amqp091.Table{"BCC": []any{"bcc"}, "a": int32(1)}})
		c.must(c.take("dying").Nack(false, false))
		c.take("blind")
	}, func(n *realNode, c *peer) {
		first := c.take("blind") // came back
		d := c.take("dying")
		c.must(d.Nack(false, false))
		c.must(first.Ack(false))
		d = c.take("blind")
		deaths, _ := d.Headers["x-death"].([]any)
		if len(deaths) != 1 {
			n.t.Fatalf("%v", d.Headers)
		}
		death := deaths[0].(amqp091.Table)
		if _, shown := d.Headers["BCC"]; shown || death["count"] != int64(2) || fmt.Sprint(death["routing-keys"]) != "[dying]" || d.Headers["a"] != int32(1) {
			n.t.Errorf("%v", d.Headers)
		}
	}},
	{"what was delivered is redelivered, at its place", func(n *realNode, c *peer) {
		c.declare("again", true, false, nil)
		for i := range 4 {
			c.publish("", "again", amqp091.Publishing{Body: fmt.Append(nil, i)})
		}
		c.take("again")
		c.must(c.take("again").Ack(false))
		c.take("again")
	}, func(n *realNode, c *peer) {
		for _, want := range []struct {
			body        string
			redelivered bool
		}{{"0", true}, {"2", true}, {"3", false}} {
			if d := c.take("again"); string(d.Body) != want.body || d.Redelivered != want.redelivered {
				n.t.Errorf("%s, redelivered %t; want %v", d.Body, d.Redelivered, want)
			}
		}
	}},
}

// TestAcrossARestart: what users found other brokers to forget, or to remember wrongly.
func TestAcrossARestart(t *testing.T) {
	dir := t.TempDir()
	n := runNodeIn(t, dir)
	c := n.peer()
	for _, k := range acrossRestart {
		k.before(n, c)
	}
	n.stop()
	timer := time.NewTimer(700 * time.Millisecond) // something falls due
	defer timer.Stop()
	<-timer.C
	n = runNodeIn(t, dir)
	c = n.peer()
	for _, k := range acrossRestart {
		t.Run(k.name, func(t *testing.T) { k.after(n, c) })
	}
}

// TestSharedBodies: messages that several queues share, small and large, while one queue is consumed slowly with refusals,
// one fast, one is purged and one deleted, and a restart in the middle. Every queue that is left gives each body once
// acknowledged, whole and in order.
func TestSharedBodies(t *testing.T) {
	dir := t.TempDir()
	n := runNodeIn(t, dir, "--memory-bound", "16MB")
	c := n.peer()
	r := rand.New(rand.NewPCG(16, 5))
	c.must(c.ExchangeDeclare("all", "fanout", true, false, false, false, nil))
	queues := []string{"slow", "fast", "kept", "purged", "deleted"}
	for _, q := range queues {
		c.declare(q, true, false, nil)
		c.must(c.QueueBind(q, "", "all", false, nil))
	}
	const half = 600
	body := func(i int) []byte {
		size := []int{10, 3900, 4100, 100_000}[i%4]
		return append(fmt.Appendf(nil, "%d.", i), bytes.Repeat([]byte{byte(i)}, size)...)
	}
	publish := func(from int) {
		t.Helper()
		var last *amqp091.DeferredConfirmation
		for i := from; i < from+half; i++ {
			var err error
			last, err = c.PublishWithDeferredConfirm("all", "", false, false, amqp091.Publishing{DeliveryMode: 2, Body: body(i)})
			c.must(err)
		}
		if !last.Wait() {
			t.Fatal("not confirmed")
		}
	}
	next := map[string]int{}
	consume := func(q string, until int, refuse int) {
		t.Helper()
		for next[q] < until {
			d := c.take(q)
			if !bytes.Equal(d.Body, body(next[q])) {
				head, _, _ := strings.Cut(string(d.Body[:min(len(d.Body), 10)]), ".")
				t.Fatalf("%s: %d octets of %q instead of number %d", q, len(d.Body), head, next[q])
			}
			if r.IntN(100) < refuse {
				c.must(d.Nack(false, true))
				continue
			}
			c.must(d.Ack(false))
			next[q]++
		}
	}
	publish(0)
	consume("fast", half/2, 0)
	consume("slow", 50, 50)
	if _, err := c.QueuePurge("purged", false); err != nil {
		t.Fatal(err)
	}
	if _, err := c.QueueDelete("deleted", false, false, false); err != nil {
		t.Fatal(err)
	}
	publish(half)
	n.stop()
	n = runNodeIn(t, dir, "--memory-bound", "16MB")
	c = n.peer()
	next["purged"] = half
	consume("purged", 2*half, 10)
	consume("fast", 2*half, 0)
	consume("slow", 2*half, 30)
	consume("kept", 2*half, 0)
	for _, q := range queues[:4] {
		if got := c.ready(q); got != 0 {
			t.Errorf("%s: %d left", q, got)
		}
	}
}

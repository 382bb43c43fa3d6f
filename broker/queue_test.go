package broker

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/test/seeds"
)

func TestPredeclared(t *testing.T) {
	n := newNode(t)
	n.PutVHost(PutVHost{Name: "other"}, func(error) {})
	list := func(v *VHost) (names []string) {
		for _, x := range v.Exchanges() {
			names = append(names, x.Name+":"+x.Type)
			if !x.Durable || x.AutoDelete || x.Internal != strings.HasPrefix(x.Name, "amq.rabbitmq") {
				t.Errorf("%+v", x)
			}
		}
		return names
	}
	want := []string{":direct", "amq.direct:direct", "amq.fanout:fanout", "amq.headers:headers", "amq.match:headers", "amq.rabbitmq.trace:topic", "amq.topic:topic"}
	if got := list(n.VHost("other")); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if got := list(n.v); !slices.Equal(got, slices.Insert(want, 5, "amq.rabbitmq.log:topic")) {
		t.Errorf("got %q", got)
	}
}

func TestLogin(t *testing.T) {
	n := newNode(t)
	n.PutUser(User{Name: "none", Tags: []string{"monitoring"}}, func(error) {})
	for _, c := range []struct {
		user, password string
		loopback       bool
		want           string
	}{
		{"guest", "guest", true, ""},
		{"guest", "guest", false, "user 'guest' can only connect via localhost"},
		{"guest", "wrong", true, "user 'guest': invalid credentials"},
		{"guest", "", true, "user 'guest': invalid credentials"},
		{"none", "", true, "user 'none': invalid credentials"},
		{"nobody", "guest", true, "user 'nobody': invalid credentials"},
	} {
		got := ""
		if _, err := n.Authenticate(c.user, c.password, c.loopback); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v: got %q", c, got)
		}
	}
	if c := &n.Counters; c.AuthAttempts.Load() != 6 || c.AuthSucceeded.Load() != 1 || c.AuthFailed.Load() != 5 {
		t.Error("logins are miscounted")
	}
	u := User{Hash: HashPassword("x")}
	if len(u.Hash) != 36 {
		t.Error("a SHA-256 hash has 4 and 32 octets")
	}
}

func TestServerNamed(t *testing.T) {
	n := newNode(t)
	q, err := n.declare(Actor{Connection: 1}, QueueDeclaration{Exclusive: true})
	if err != nil || !regexp.MustCompile(`^amq\.gen-[A-Za-z0-9_-]{22}$`).MatchString(q.Name) {
		t.Fatalf("%v %v", q, err)
	}
	if typ, _ := text(q.Arguments, "x-queue-type"); typ != Classic {
		t.Errorf("x-queue-type is not filled in: %q", typ)
	}
	if q.Durable || q.ID&softQueue == 0 {
		t.Error("an exclusive queue is soft state and not durable")
	}
}

func TestDefaultQueueType(t *testing.T) {
	n := newNode(t)
	n.PutVHost(PutVHost{Name: "/", DefaultQueueType: Quorum}, func(error) {})
	_, err := n.declare(Actor{}, QueueDeclaration{Name: "a", Durable: true})
	n.want("durable", err, "NOT_IMPLEMENTED - queue type 'quorum' is not supported by this node")
	_, err = n.declare(Actor{}, QueueDeclaration{Durable: true})
	n.want("server-named", err, "PRECONDITION_FAILED - Cannot declare a server-named queue for type rabbit_quorum_queue")
	for _, d := range []QueueDeclaration{{Name: "b"}, {Name: "c", Durable: true, AutoDelete: true}, {Name: "d", Durable: true, Exclusive: true}} {
		q, err := n.declare(Actor{Connection: 1}, d)
		if err != nil || q.Type != Classic {
			t.Errorf("%+v: %v, %v", d, q, err)
		}
	}
}

func TestAutoDelete(t *testing.T) {
	n := newNode(t)
	n.want("setup", n.exchange(Actor{}, exchange.Declaration{Name: "x", Type: "fanout", AutoDelete: true}), "")
	n.want("setup", n.exchange(Actor{}, exchange.Declaration{Name: "y", Type: "fanout", AutoDelete: true}), "")
	q, err := n.declare(Actor{}, QueueDeclaration{Name: "q", AutoDelete: true})
	if err != nil {
		t.Fatal(err)
	}
	n.mustBind("x", "q", "")
	n.want("bind", n.bind(Actor{}, Binding{Source: "y", Destination: "x", ToExchange: true}), "")
	exists := func(want bool) {
		t.Helper()
		_, x := n.v.Exchange("x")
		_, y := n.v.Exchange("y")
		if q := n.v.Queue("q") != nil; q != want || x != want || y != want {
			t.Errorf("queue %v, exchanges %v %v, want %v", q, x, y, want)
		}
	}
	n.publish("", "q", amqp.PropertyList{}, "one")
	n.get(q) // a getter is no consumer
	exists(true)
	_, a, _ := n.consume(q, queueSpec(10))
	_, b, _ := n.consume(q, queueSpec(10))
	if got := q.Consumers(); len(got) != 2 || got[0].Tag != "c" || got[1].ID != b {
		t.Errorf("consumers: %+v", got)
	}
	n.detach(q, a, queue.Cancel)
	n.detach(q, a, queue.Remove) // counted once
	exists(true)
	n.detach(q, b, queue.Cancel)
	exists(false)
	_, _, err = n.consume(q, queueSpec(1))
	n.want("consume", err, "NOT_FOUND - no queue 'q' in vhost '/'")
}

func TestExclusiveGoesWithConnection(t *testing.T) {
	n := newNode(t)
	me := Actor{Connection: 7}
	for _, name := range []string{"a", "b"} {
		if _, err := n.declare(me, QueueDeclaration{Name: name, Exclusive: true}); err != nil {
			t.Fatal(err)
		}
	}
	n.mustDeclare("c", nil)
	n.want("bind", n.bind(me, Binding{Source: "amq.topic", Destination: "a", Key: "#"}), "")
	if got := n.publish("amq.topic", "k", amqp.PropertyList{}, ""); got != 1 {
		t.Errorf("anyone may publish to an exclusive queue: %d", got)
	}
	out, _, _ := n.consume(n.v.Queue("a"), queueSpec(1))
	n.once(func(done func()) { n.v.ConnectionClosed(8, &n.wake, done) })
	n.once(func(done func()) { n.v.ConnectionClosed(7, &n.wake, done) })
	n.wake.Flush()
	if qs := n.v.Queues(); len(qs) != 1 || qs[0].Name != "c" {
		t.Errorf("left: %v", qs)
	}
	if !out.cancelled {
		t.Error("the consumer did not hear of it")
	}
	if got := n.publish("amq.topic", "k", amqp.PropertyList{}, ""); got != 0 {
		t.Errorf("a binding is left")
	}
	n.once(func(done func()) { n.v.ConnectionClosed(7, &n.wake, done) })
}

func TestDeleteVHost(t *testing.T) {
	n := newNode(t)
	q := n.mustDeclare("q", nil)
	n.mustBind("amq.fanout", "q", "")
	out, _, _ := n.consume(q, queueSpec(1))
	n.once(func(done func()) {
		n.Broker.DeleteVHost("/", func(existed bool, err error) {
			if !existed {
				t.Error("it existed")
			}
			done()
		})
	})
	_, err := n.declare(Actor{}, QueueDeclaration{Name: "q"})
	n.want("declare", err, "NOT_FOUND - no vhost '/'")
	if !out.cancelled || n.VHost("/") != nil || n.v.Queue("q") != nil {
		t.Error("something is left")
	}
}

func TestExpires(t *testing.T) {
	n := newNode(t)
	q := n.mustDeclare("q", args("x-expires", 40))
	used := n.mustDeclare("used", args("x-expires", 40))
	_, c, _ := n.consume(used, queueSpec(1))
	gone := func(name string) {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Second); n.v.Queue(name) != nil; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s does not expire", name)
			}
		}
	}
	begin := n.Clock.Now()
	n.get(q)
	gone("q")
	if took := n.Clock.Now() - begin; took < 40 {
		t.Errorf("expired after %d ms", took)
	}
	if n.v.Queue("used") == nil {
		t.Error("a queue with a consumer expired")
	}
	n.detach(used, c, queue.Cancel)
	gone("used")
}

// TestConcurrently has many connections declare, use and delete the same few names. Whatever the order, nothing is
// left over and nobody waits for ever.
func TestConcurrently(t *testing.T) {
	n := newNode(t)
	seed := seeds.Of(t)
	var wg sync.WaitGroup
	for c := range 6 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(c)))
			var w queue.Wake
			a := Actor{Connection: uint64(c + 1)}
			for range 300 {
				name := fmt.Sprintf("q%d", r.IntN(3))
				answered := make(chan *Queue, 1)
				n.v.DeclareQueue(a, QueueDeclaration{Name: name, AutoDelete: true}, func(q *Queue, err *amqp.Error) {
					if err != nil {
						t.Error(err)
					}
					answered <- q
				})
				q := <-answered
				n.v.Bind(a, Binding{Source: "amq.fanout", Destination: name}, func(*amqp.Error) {})
				s := n.v.Begin()
				targets := slices.Clone(s.Route(s.Exchange([]byte("amq.fanout")), new(exchange.Message)))
				s.End()
				for _, q := range targets {
					m := n.Pool.NewMessage(nil, nil, make([]byte, 14), func(func([]byte) bool) {}, 0, 1)
					q.Publish(&queue.Batch{Messages: []queue.Message{m}}, &w)
				}
				attached := make(chan queue.ConsumerID, 1)
				out := &deaf{n.Pool}
				q.Attach(Consumer{Spec: queue.ConsumerSpec{NoAck: true}}, out, &w, func(id queue.ConsumerID, err *amqp.Error) { attached <- id })
				done := make(chan bool, 1)
				if id := <-attached; id != 0 && r.IntN(2) == 0 {
					q.Detach(id, queue.Remove, &w, func() { done <- true })
				} else {
					n.v.DeleteQueue(a, name, false, false, &w, func(uint64, *amqp.Error) { done <- true })
				}
				<-done
				w.Flush()
			}
		})
	}
	wg.Wait()
	var w queue.Wake
	for i := range 3 {
		n.v.DeleteQueue(Actor{}, fmt.Sprintf("q%d", i), false, false, &w, func(uint64, *amqp.Error) {})
	}
	w.Flush()
	if c := &n.Counters; c.QueuesCreated.Load() != c.QueuesDeleted.Load() || c.QueuesDeclared.Load() != 6*300 {
		t.Errorf("%d created, %d deleted, %d declared", c.QueuesCreated.Load(), c.QueuesDeleted.Load(), c.QueuesDeclared.Load())
	}
	if n.v.count != 0 || len(n.v.BindingsFrom("amq.fanout")) != 0 {
		t.Errorf("%d queues, %d bindings left", n.v.count, len(n.v.BindingsFrom("amq.fanout")))
	}
}

// deaf lets go of what it is offered.
type deaf struct{ pool *queue.Pool }

func (d *deaf) Offer(ds []queue.Offered, _ *queue.Wake) bool {
	for _, o := range ds {
		d.pool.Release(o.Message.Ref.Slab, 1)
	}
	return true
}
func (d *deaf) Cancelled(*queue.Wake) {}
func (d *deaf) Activity(bool)         {}
func (d *deaf) TimedOut(*queue.Wake)  {}

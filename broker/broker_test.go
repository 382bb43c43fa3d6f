package broker

import (
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/queue"
)

// node is a broker for tests, whose callbacks have all run when a call returns.
type node struct {
	*testing.T
	*Broker
	v    *VHost
	wake queue.Wake
}

func newNode(t *testing.T) *node {
	clock := queue.NewClock()
	t.Cleanup(clock.Close)
	pool := queue.NewPool(64 << 20)
	pool.Poison = true
	b := New(Options{
		Node: "warren@test", Pool: pool, Clock: clock,
		NewQueue: func(n NewQueue) queue.Queue {
			if n.Type != Classic {
				return nil
			}
			return queue.NewClassic(queue.ClassicRules(n.MaxPriority), n.Config, pool, clock, n.DeadLetters)
		},
	})
	return &node{T: t, Broker: b, v: b.VHost("/")}
}

// want compares an error with the reply text of one, "" for none.
func (n *node) want(what string, err *amqp.Error, text string) {
	n.Helper()
	got := ""
	if err != nil {
		got = err.Text
	}
	if got != text {
		n.Errorf("%s: got %q, want %q", what, got, text)
	}
}

func (n *node) exchange(a Actor, d exchange.Declaration) (err *amqp.Error) {
	n.Helper()
	n.once(func(done func()) { n.v.DeclareExchange(a, d, func(e *amqp.Error) { err = e; done() }) })
	return err
}

func (n *node) declare(a Actor, d QueueDeclaration) (q *Queue, err *amqp.Error) {
	n.Helper()
	n.once(func(done func()) { n.v.DeclareQueue(a, d, func(r *Queue, e *amqp.Error) { q, err = r, e; done() }) })
	return q, err
}

func (n *node) mustDeclare(name string, args amqp.Table) *Queue {
	n.Helper()
	q, err := n.declare(Actor{}, QueueDeclaration{Name: name, Durable: true, Arguments: args})
	if err != nil {
		n.Fatal(err)
	}
	return q
}

func (n *node) mustBind(source, q, key string) {
	n.Helper()
	n.want("bind", n.bind(Actor{}, Binding{Source: source, Destination: q, Key: key}), "")
}

func (n *node) bind(a Actor, b Binding) (err *amqp.Error) {
	n.Helper()
	n.once(func(done func()) { n.v.Bind(a, b, func(e *amqp.Error) { err = e; done() }) })
	return err
}

func (n *node) unbind(a Actor, b Binding) (err *amqp.Error) {
	n.Helper()
	n.once(func(done func()) { n.v.Unbind(a, b, func(e *amqp.Error) { err = e; done() }) })
	return err
}

func (n *node) deleteQueue(a Actor, name string, ifUnused, ifEmpty bool) (count uint64, err *amqp.Error) {
	n.Helper()
	n.once(func(done func()) {
		n.v.DeleteQueue(a, name, ifUnused, ifEmpty, &n.wake, func(c uint64, e *amqp.Error) { count, err = c, e; done() })
	})
	n.wake.Flush()
	return count, err
}

// once runs an operation that calls done exactly once before it returns.
func (n *node) once(op func(done func())) {
	n.Helper()
	calls := 0
	op(func() { calls++ })
	if calls != 1 {
		n.Fatalf("done ran %d times", calls)
	}
}

// publish routes and publishes one message as a connection would, and returns how many queues it went to.
func (n *node) publish(x, key string, l amqp.PropertyList, body string) int {
	n.Helper()
	scope := n.v.Begin()
	source, err := scope.Publishable(nil, []byte(x))
	if err != nil {
		n.Fatal(err)
	}
	cc, err := exchange.AppendKeys(nil, l.Headers, exchange.CC)
	if err != nil {
		n.Fatal(err)
	}
	queues := append([]*Queue(nil), scope.Route(source, &exchange.Message{Key: []byte(key), More: cc, Headers: l.Headers})...)
	scope.End()
	header, e := amqp.AppendHeader(nil, uint64(len(body)), &l)
	if e != nil {
		n.Fatal(e)
	}
	for _, q := range queues {
		m := n.Pool.NewMessage([]byte(x), []byte(key), header, func(yield func([]byte) bool) { yield([]byte(body)) }, len(body), 1)
		q.Publish(&queue.Batch{Messages: []queue.Message{m}}, &n.wake)
	}
	n.wake.Flush()
	return len(queues)
}

// outlet keeps what it is offered.
type outlet struct {
	got       []queue.Offered
	cancelled bool
}

func (o *outlet) Offer(ds []queue.Offered, _ *queue.Wake) bool {
	o.got = append(o.got, ds...)
	return true
}
func (o *outlet) Cancelled(*queue.Wake) { o.cancelled = true }
func (o *outlet) Activity(bool)         {}
func (o *outlet) TimedOut(*queue.Wake)  {}

func (n *node) consume(q *Queue, spec queue.ConsumerSpec) (*outlet, queue.ConsumerID, *amqp.Error) {
	n.Helper()
	var out outlet
	var id queue.ConsumerID
	var err *amqp.Error
	n.once(func(done func()) {
		q.Attach(Consumer{Tag: "c", Spec: spec}, &out, &n.wake, func(c queue.ConsumerID, e *amqp.Error) { id, err = c, e; done() })
	})
	n.wake.Flush()
	return &out, id, err
}

func (n *node) detach(q *Queue, c queue.ConsumerID, how queue.Detachment) {
	n.Helper()
	n.once(func(done func()) { q.Detach(c, how, &n.wake, done) })
	n.wake.Flush()
}

// get takes a message without acknowledgement.
func (n *node) get(q *Queue) (m queue.Offered, ok bool) {
	n.Helper()
	_, id, err := n.consume(q, queue.ConsumerSpec{Getter: true})
	if err != nil {
		n.Fatal(err)
	}
	n.once(func(done func()) {
		q.Get(id, true, &n.wake, func(o queue.Offered, _ uint64, found bool) { m, ok = o, found; done() })
	})
	n.detach(q, id, queue.Remove)
	return m, ok
}

func args(kv ...any) amqp.Table {
	var t amqp.Table
	for i := 0; i < len(kv); i += 2 {
		v, err := amqp.ValueOf(kv[i+1])
		if err != nil {
			panic(err)
		}
		t = t.AppendValue(kv[i].(string), v)
	}
	return t
}

func queueSpec(prefetch uint32) queue.ConsumerSpec { return queue.ConsumerSpec{Prefetch: prefetch} }

func exclusiveSpec() queue.ConsumerSpec { return queue.ConsumerSpec{Exclusive: true} }

package broker

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/queue"
)

// newQuorum is a node whose quorum queues are classic ones that go by other rules.
func newQuorum(t *testing.T, o Options) *node {
	t.Helper()
	n := newAny(t, o)
	n.NewQueue = func(q NewQueue) queue.Queue {
		rules := queue.QuorumRules()
		if rules.NoWindow = false; q.Type == Classic {
			rules = queue.ClassicRules(q.MaxPriority)
		}
		return queue.NewClassic(rules, q.Config, n.Pool, n.Clock, q.DeadLetters)
	}
	return n
}

func (n *node) quorum(name string, kv ...any) *Queue {
	n.Helper()
	q, err := n.declare(Actor{}, QueueDeclaration{Name: name, Durable: true, Arguments: args(append([]any{"x-queue-type", Quorum}, kv...)...)})
	n.want("declare "+name, err, "")
	return q
}

func TestConditionsOfQuorumQueues(t *testing.T) {
	n := newQuorum(t, Options{})
	n.quorum("q")
	const text = "NOT_IMPLEMENTED - cannot delete queue 'q' in vhost '/'. queue.delete operations with %s flag set are not supported by quorum queues"
	for _, c := range []struct {
		unused, empty bool
		flag          string
	}{{true, false, "if-unused"}, {false, true, "if-empty"}, {true, true, "if-unused"}} {
		_, err := n.deleteQueue(Actor{}, "q", c.unused, c.empty)
		n.want(c.flag, err, strings.Replace(text, "%s", c.flag, 1))
	}
	_, err := n.deleteQueue(Actor{}, "missing", true, true)
	n.want("a queue that is not there", err, "")
	_, err = n.deleteQueue(Actor{}, "q", false, false)
	n.want("without conditions", err, "")
}

func TestConsumersOfQuorumQueues(t *testing.T) {
	n := newQuorum(t, Options{})
	q, single := n.quorum("q"), n.quorum("single", "x-single-active-consumer", true)
	for range 2 {
		_, _, err := n.consume(q, queue.ConsumerSpec{Exclusive: true})
		n.want("the exclusive flag", err, "")
		_, _, err = n.consume(single, queue.ConsumerSpec{Exclusive: true})
		n.want("the exclusive flag", err, "")
	}
	if _, consumers := q.Counts(); consumers != 2 {
		t.Errorf("%d consumers", consumers)
	}
	if _, consumers := single.Counts(); consumers != 1 {
		t.Errorf("%d consumers, of which one is active", consumers)
	}
	_, _, err := n.consume(single, queue.ConsumerSpec{Getter: true})
	n.want("get", err, "RESOURCE_LOCKED - cannot obtain access to locked queue 'single' in vhost '/'. basic.get operations are not supported by quorum queues with single active consumer")
	_, _, err = n.consume(q, queue.ConsumerSpec{Getter: true})
	n.want("get", err, "")
}

// Queues that nobody uses, and that were declared alike, share what they can.
func TestQueuesAtRestCostLittle(t *testing.T) {
	n := newQuorum(t, Options{})
	a, b, other := n.quorum("a"), n.quorum("b"), n.quorum("other", "x-max-length", 5)
	if a.Settings() != b.Settings() {
		t.Error("queues declared alike have settings of their own")
	}
	if limit := other.Settings().Config.MaxLength; limit != 5 || a.Settings().Config.MaxLength != -1 {
		t.Errorf("a limit of %d, and of %d without one", limit, a.Settings().Config.MaxLength)
	}
	_, c, err := n.consume(a, queue.ConsumerSpec{})
	n.want("consume", err, "")
	if a.Consuming() != 1 {
		t.Errorf("%d consumers", a.Consuming())
	}
	n.detach(a, c, queue.Cancel)
	if a.Consuming() != 0 || a.consumers != nil {
		t.Errorf("%d consumers, room for %d", a.Consuming(), cap(a.consumers))
	}
}

// An application that declares a classic queue may find a quorum queue, if the operator wants it so.
func TestRelaxedRedeclaration(t *testing.T) {
	const other = "PRECONDITION_FAILED - inequivalent arg "
	for _, relaxed := range []bool{false, true} {
		n := newQuorum(t, Options{RelaxedRedeclaration: relaxed})
		n.quorum("q", "x-max-length", 5, "x-delivery-limit", 3)
		n.mustDeclare("c", nil) // it must be a quorum queue that is there
		for _, c := range []struct {
			d               QueueDeclaration
			strict, relaxed string
		}{
			{QueueDeclaration{Name: "q", Durable: true, Arguments: args("x-max-length", 5)},
				other + "'x-queue-type' for queue 'q' in vhost '/': received 'classic' but current is 'quorum'", ""},
			{QueueDeclaration{Name: "q", AutoDelete: true, Exclusive: true, Arguments: args("x-max-length", 5, "x-queue-type", "classic", "x-max-priority", 3, "x-overflow", "drop-head")}, "RESOURCE_LOCKED", ""},
			{QueueDeclaration{Name: "q", Arguments: args("x-max-length", 5)}, other + "'durable'", ""},
			{QueueDeclaration{Name: "q", Durable: true, Arguments: args("x-max-length", 6)}, other + "'x-max-length'", other + "'x-max-length' for queue 'q' in vhost '/': received '6' but current is '5'"},
			{QueueDeclaration{Name: "q", Durable: true, Arguments: args("x-max-length", 5, "x-expires", 6)}, other + "'x-expires'", other + "'x-expires' for queue 'q' in vhost '/': received the value '6' of type 'long' but current is none"},
			{QueueDeclaration{Name: "q", Durable: true, Arguments: args("x-queue-type", "quorum", "x-max-length", 5)}, other + "'x-delivery-limit'", other + "'x-delivery-limit' for queue 'q' in vhost '/': received none but current is the value '3' of type 'long'"},
			{QueueDeclaration{Name: "c", Durable: true, Arguments: args("x-queue-type", "quorum")}, other + "'x-queue-type'", other + "'x-queue-type'"},
		} {
			_, err := n.declare(Actor{Connection: 1}, c.d)
			want := c.strict
			if relaxed {
				want = c.relaxed
			}
			got := ""
			if err != nil {
				got = err.Text
			}
			if want == "" && got != "" || !strings.HasPrefix(got, want) {
				t.Errorf("relaxed %t, %+v: got %q, want %q", relaxed, c.d, got, want)
			}
		}
	}
}

// What arguments, policies and operator policies make of a quorum queue (RabbitMQ docs: quorum queues, policies).
func TestSettingsOfQuorumQueues(t *testing.T) {
	n := newQuorum(t, Options{ConsumerTimeout: 1800000})
	defaults := queue.Config{TTL: -1, MaxLength: -1, MaxBytes: -1, DeliveryLimit: 20, ConsumerTimeout: 1800000}
	for _, c := range []struct {
		arguments      amqp.Table
		user, operator string
		change         func(c *queue.Config)
	}{
		{nil, "", "", func(*queue.Config) {}},
		{args("x-delivery-limit", 3), `{"delivery-limit":5}`, "", func(c *queue.Config) { c.DeliveryLimit = 3 }},
		{args("x-delivery-limit", 5), `{"delivery-limit":3}`, `{"delivery-limit":2}`, func(c *queue.Config) { c.DeliveryLimit = 2 }},
		{args("x-delivery-limit", -7), `{"delivery-limit":3}`, "", func(c *queue.Config) { c.DeliveryLimit = 3 }},
		{args("x-delivery-limit", -7), "", "", func(c *queue.Config) { c.DeliveryLimit = -1 }},
		{args("x-delivery-limit", "many"), "", "", func(*queue.Config) {}},
		{args("x-delivery-limit", "many"), `{"delivery-limit":3}`, "", func(c *queue.Config) { c.DeliveryLimit = 3 }},
		{nil, `{"delivery-limit":-1}`, `{"delivery-limit":9}`, func(c *queue.Config) { c.DeliveryLimit = 9 }},
		{args("x-overflow", "reject-publish"), `{"overflow":"drop-head"}`, "", func(*queue.Config) {}},
		{args("x-overflow", "drop-head"), `{"overflow":"reject-publish"}`, "", func(c *queue.Config) { c.Overflow = queue.RejectPublish }},
		{args("x-overflow", "reject-publish-dlx"), "", "", func(*queue.Config) {}},
		{args("x-max-length", 5, "x-message-ttl", 7, "x-max-length-bytes", 9), `{"max-length":4,"message-ttl":8}`, `{"max-length-bytes":3}`,
			func(c *queue.Config) { c.MaxLength, c.TTL, c.MaxBytes = 4, 7, 3 }},
		{args("x-consumer-timeout", 5000), "", "", func(c *queue.Config) { c.ConsumerTimeout = 5000 }},
		{args("x-consumer-timeout", 5000), `{"consumer-timeout":3000}`, "", func(c *queue.Config) { c.ConsumerTimeout = 3000 }},
		{args("x-consumer-timeout", 3000000), "", "", func(c *queue.Config) { c.ConsumerTimeout = 3000000 }},
		{args("x-consumer-timeout", 0), "", "", func(c *queue.Config) { c.ConsumerTimeout = 1 }},
		{args("x-delayed-retry-type", "all", "x-delayed-retry-min", 10), `{"delayed-retry-type":"failed","delayed-retry-min":20,"delayed-retry-max":30}`, "",
			func(c *queue.Config) { c.DelayType, c.DelayMin, c.DelayMax = queue.DelayFailed, 10, 30 }},
		{nil, `{"delayed-retry-type":"returned","delayed-retry-min":20,"delayed-retry-max":90}`, `{"delayed-retry-min":40,"delayed-retry-max":50}`,
			func(c *queue.Config) { c.DelayType, c.DelayMin, c.DelayMax = queue.DelayReturned, 40, 50 }},
		{args("x-delayed-retry-type", "whatever", "x-delayed-retry-min", "soon", "x-delayed-retry-max", -1), "", "", func(*queue.Config) {}},
		{args("x-dead-letter-strategy", "at-least-once", "x-dead-letter-exchange", "", "x-overflow", "reject-publish"), "", "",
			func(c *queue.Config) { c.KeepDiscards, c.Overflow = true, queue.RejectPublish }},
		{args("x-dead-letter-strategy", "at-least-once", "x-dead-letter-exchange", ""), "", "", func(*queue.Config) {}},
		{args("x-dead-letter-strategy", "at-least-once", "x-overflow", "reject-publish"), "", "", func(c *queue.Config) { c.Overflow = queue.RejectPublish }},
		{args("x-dead-letter-strategy", "at-most-once", "x-dead-letter-exchange", "", "x-overflow", "reject-publish"), `{"dead-letter-strategy":"at-least-once"}`, "",
			func(c *queue.Config) { c.Overflow = queue.RejectPublish }},
		{nil, `{"max-length":5,"queue-mode":"lazy"}`, "", func(*queue.Config) {}},
		{nil, `{"max-length":5,"initial-cluster-size":3}`, "", func(*queue.Config) {}},
		{args("x-single-active-consumer", true), "", "", func(c *queue.Config) { c.SingleActive = true }},
	} {
		policy := func(definition string, operator bool) *policy {
			if definition == "" {
				return nil
			}
			var d map[string]any
			decoder := json.NewDecoder(strings.NewReader(definition))
			decoder.UseNumber()
			if err := decoder.Decode(&d); err != nil {
				t.Fatal(err)
			}
			p, err := compilePolicy(Policy{Name: "p", ApplyTo: "quorum_queues", Definition: d}, operator)
			if err != nil {
				t.Fatal(definition, err)
			}
			if !p.applies(Quorum, "q") {
				return nil
			}
			return p
		}
		want := defaults
		c.change(&want)
		if got := n.v.effective(Quorum, c.arguments, policy(c.user, false), policy(c.operator, true)).Config; got != want {
			t.Errorf("%v, %s, %s:\n got %+v\nwant %+v", c.arguments.Map(), c.user, c.operator, got, want)
		}
	}
}

// Failed deliveries go with a dead letter.
func TestFailuresGoWithDeadLetters(t *testing.T) {
	n := newQuorum(t, Options{})
	target := n.quorum("d")
	for name, kv := range map[string][]any{Quorum: {"x-queue-type", Quorum, "x-delivery-limit", 2}, Classic: {"x-queue-type", Classic}} {
		q, err := n.declare(Actor{}, QueueDeclaration{Name: name, Durable: true, Arguments: args(append(kv, "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "d")...)})
		n.want(name, err, "")
		for _, c := range []struct {
			outcomes []queue.Outcome
			failed   uint32
		}{
			{[]queue.Outcome{queue.Discard}, 0},
			{[]queue.Outcome{queue.DiscardFailed}, 1},
			{[]queue.Outcome{queue.ReturnFailed, queue.DiscardFailed}, 2},
			{[]queue.Outcome{queue.ReturnFailed, queue.ReturnFailed, queue.ReturnFailed}, 3},
		} {
			if name == Classic && len(c.outcomes) > 1 {
				continue // does not count
			}
			n.publish("", name, amqp.PropertyList{}, "m")
			_, id, err := n.consume(q, queue.ConsumerSpec{Getter: true})
			n.want("getter", err, "")
			for _, o := range c.outcomes {
				q.Get(id, false, &n.wake, func(got queue.Offered, _ uint64, ok bool) {
					if !ok {
						t.Fatalf("%s %v: no message", name, c.outcomes)
					}
					n.Pool.Release(got.Message.Ref.Slab, 1)
					q.Settle(id, []queue.Range{{First: got.ID, Last: got.ID}}, o, &n.wake)
				})
			}
			n.wake.Flush()
			m, ok := n.get(target)
			if !ok || m.Message.Flags.Failures() != c.failed {
				t.Errorf("%s %v: %t, failed %d", name, c.outcomes, ok, m.Message.Flags.Failures())
			}
		}
	}
}

// Dead letters that must arrive are told to have arrived when all of their targets have taken them, and only then.
func TestDeadLettersThatMustArrive(t *testing.T) {
	n := newQuorum(t, Options{})
	n.mustDeclare("d", nil)
	n.mustDeclare("e", args("x-max-length", 1, "x-overflow", "reject-publish"))
	n.want("exchange", n.exchange(Actor{}, exchange.Declaration{Name: "x", Type: "fanout"}), "")
	q := n.quorum("q", "x-dead-letter-exchange", "x", "x-dead-letter-strategy", "at-least-once", "x-overflow", "reject-publish")
	discard := func(letters int) (arrived int) {
		var ds []queue.DeadLetter
		for range letters {
			header, err := amqp.AppendHeader(nil, 1, &amqp.PropertyList{})
			if err != nil {
				t.Fatal(err)
			}
			m := n.Pool.NewMessage(nil, []byte("q"), header, func(yield func([]byte) bool) { yield([]byte("m")) }, 1, 1)
			ds = append(ds, queue.DeadLetter{Message: m, Reason: queue.Expired})
		}
		q.letters.Discard(ds, &n.wake, func() { arrived++ })
		n.wake.Flush()
		return arrived
	}
	if discard(1) != 0 {
		t.Error("without a route")
	}
	n.mustBind("x", "d", "")
	if discard(3) != 1 {
		t.Error("to one queue")
	}
	n.mustBind("x", "e", "")
	if discard(1) != 1 {
		t.Error("to two queues")
	}
	if discard(2) != 0 {
		t.Error("one of the queues refused them")
	}
	if got := n.v.Queue("d").Stats().Ready; got != 6 {
		t.Errorf("%d dead letters", got)
	}
}

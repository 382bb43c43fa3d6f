package broker

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/test/seeds"
)

func (n *node) setPolicy(operator bool, p Policy) {
	n.Helper()
	n.once(func(done func()) {
		n.v.SetPolicy(operator, p, func(_ bool, err error) {
			if err != nil {
				n.Fatal(err)
			}
			done()
		})
	})
}

func (n *node) clearPolicy(operator bool, name string) {
	n.Helper()
	n.once(func(done func()) {
		n.v.ClearPolicy(operator, name, func(existed bool, err error) {
			if err != nil || !existed {
				n.Fatal(existed, err)
			}
			done()
		})
	})
}

// until waits for what happens on other goroutines.
func (n *node) until(what string, yes func() bool) {
	n.Helper()
	for deadline := time.Now().Add(20 * time.Second); !yes(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			n.Fatalf("%s: not in time", what)
		}
	}
}

// TestPolicyModel makes, changes and removes policies, queues and exchanges at random, and compares what counts for each
// with what a naive reading of the rules says.
func TestPolicyModel(t *testing.T) {
	seed := seeds.Of(t)
	r := rand.New(rand.NewPCG(seed, 0))
	clock := queue.NewClock()
	t.Cleanup(clock.Close)
	pool := queue.NewPool(1 << 20)
	b := New(Options{Pool: pool, Clock: clock, NewQueue: func(q NewQueue) queue.Queue { // every type: only settings are looked at
		return queue.NewClassic(queue.ClassicRules(q.MaxPriority), q.Config, pool, clock, q.DeadLetters)
	}})
	n := &node{T: t, Broker: b, v: b.VHost("/")}
	patterns := []string{"", ".*", "^a", "b$", "^ab$", "a.*b", "[ab]", "c"}
	targets := []string{"", "all", "queues", "classic_queues", "quorum_queues", "streams", "exchanges"}
	keys := map[bool][]string{false: {"max-length", "max-length-bytes", "delivery-limit", "message-ttl", "initial-cluster-size"}, true: {"max-length", "max-length-bytes", "delivery-limit", "message-ttl"}}
	applies := map[string]string{"": "classic quorum stream exchange", "all": "classic quorum stream exchange", "queues": "classic quorum stream",
		"classic_queues": "classic", "quorum_queues": "quorum", "streams": "stream", "exchanges": "exchange"}
	unsupported := map[string]string{Classic: "delivery-limit initial-cluster-size", Quorum: "initial-cluster-size", Stream: "max-length delivery-limit message-ttl"}
	naive := func(policies map[string]Policy, typ, name string) string {
		best := ""
		for _, p := range policies {
			matched, _ := regexp.MatchString(p.Pattern, name)
			ok := matched && strings.Contains(applies[p.ApplyTo], typ)
			for key := range p.Definition {
				for _, u := range strings.Fields(unsupported[typ]) {
					ok = ok && u != key
				}
			}
			if ok && (best == "" || p.Priority > policies[best].Priority || p.Priority == policies[best].Priority && p.Name < best) {
				best = p.Name
			}
		}
		return best
	}
	name := func() string {
		return strings.Repeat("a", r.IntN(3)) + strings.Repeat("b", r.IntN(2)) + strings.Repeat("c", r.IntN(2)) + "."
	}
	all := [2]map[string]Policy{{}, {}}
	for range 400 {
		operator := r.IntN(2) == 1
		mine := all[kindOf(operator)]
		switch r.IntN(4) {
		case 0:
			typ := []string{Classic, Quorum, Stream}[r.IntN(3)]
			n.v.DeclareQueue(Actor{}, QueueDeclaration{Name: strings.TrimSuffix(name(), ".") + "q" + typ, Durable: true, Arguments: args("x-queue-type", typ)}, func(*Queue, *amqp.Error) {})
		case 1:
			n.exchange(Actor{}, exchange.Declaration{Name: "x" + name(), Type: "fanout"})
		case 2:
			p := Policy{Name: fmt.Sprint("p", r.IntN(6)), Pattern: patterns[r.IntN(len(patterns))], ApplyTo: targets[r.IntN(len(targets))], Priority: int64(r.IntN(4) - 1), Definition: map[string]any{}}
			for len(p.Definition) == 0 || r.IntN(2) == 0 {
				p.Definition[keys[operator][r.IntN(len(keys[operator]))]] = r.IntN(100)
			}
			n.setPolicy(operator, p)
			mine[p.Name] = p
		case 3:
			for name := range mine {
				n.clearPolicy(operator, name)
				delete(mine, name)
				break
			}
		}
		for _, q := range n.v.Queues() {
			s := q.Settings()
			user, operator := naive(all[0], q.Type, q.Name), naive(all[1], q.Type, q.Name)
			if s.Policy != user || s.OperatorPolicy != operator {
				t.Fatalf("%s %s: %q and %q count, want %q and %q", q.Type, q.Name, s.Policy, s.OperatorPolicy, user, operator)
			}
			lowest := int64(-1)
			for i, p := range []string{user, operator} {
				if v, ok := all[i][p].Definition["max-length-bytes"].(int); ok && (lowest < 0 || int64(v) < lowest) {
					lowest = int64(v)
				}
			}
			if s.Config.MaxBytes != lowest {
				t.Fatalf("%s: max-length-bytes %d, want %d", q.Name, s.Config.MaxBytes, lowest)
			}
		}
		for _, x := range n.v.Exchanges() {
			if got, _ := n.v.ExchangePolicy(x.Name); x.Name != "" && got != naive(all[0], "exchange", x.Name) {
				t.Fatalf("exchange %s: %q counts, want %q", x.Name, got, naive(all[0], "exchange", x.Name))
			}
		}
	}
	if len(n.v.Queues()) < 10 {
		t.Errorf("only %d queues", len(n.v.Queues()))
	}
}

// TestPolicyDropsAtOnce: a length limit by policy on a long queue with a dead-letter exchange.
func TestPolicyDropsAtOnce(t *testing.T) {
	n := newNode(t)
	const count = 100000
	q := n.mustDeclare("q", nil)
	dead := n.mustDeclare("dead", nil)
	n.fill(q, count)
	n.setPolicy(false, Policy{Name: "short", Pattern: "^q$", Definition: map[string]any{"max-length": 10, "dead-letter-exchange": "", "dead-letter-routing-key": "dead"}})
	n.until("the limit", func() bool { return q.Stats().Ready == 10 && dead.Stats().Ready == count-10 })
	if got := n.Counters.DeadLettered(Classic, queue.MaxLen); got != count-10 {
		t.Errorf("%d dead letters", got)
	}
	l := n.letter(dead)
	h, _ := l.Headers()
	if v, _ := h.Get("x-first-death-reason"); exchange.Text(v) != "maxlen" || l.body != "0" {
		t.Errorf("the first of them is %q, reason %s", l.body, exchange.Text(v))
	}
	if l := n.letter(q); l.body != fmt.Sprint(count-10) {
		t.Errorf("the first one left is %q", l.body)
	}
	want := "[{dead-letter-exchange  policy short} {dead-letter-routing-key dead policy short} {max-length 10 policy short}]"
	if got := fmt.Sprint(q.Effective()); got != want {
		t.Errorf("effective: %s", got)
	}
	n.setPolicy(true, Policy{Name: "op", Pattern: "^q$", Definition: map[string]any{"max-length": 4}})
	n.until("the operator's limit", func() bool { return q.Stats().Ready == 4 })
	if got := fmt.Sprint(q.EffectivePolicy()); got != "map[dead-letter-exchange: dead-letter-routing-key:dead max-length:4]" {
		t.Errorf("effective policy: %s", got)
	}
	n.clearPolicy(true, "op")
	n.clearPolicy(false, "short")
	if s := q.Settings(); s.Config.MaxLength != -1 || s.DeadLetter || s.Policy != "" {
		t.Errorf("after the end of the policies: %+v", s)
	}
	n.fill(q, 20)
	if got := q.Stats().Ready; got != 24 {
		t.Errorf("%d ready", got)
	}
}

// fill publishes many small messages to a queue, numbered from 0.
func (n *node) fill(q *Queue, count int) {
	header, err := amqp.AppendHeader(nil, 1, new(amqp.PropertyList))
	if err != nil {
		n.Fatal(err)
	}
	var batch queue.Batch
	for i := range count {
		body := fmt.Sprint(i)
		batch.Messages = append(batch.Messages, n.Pool.NewMessage(nil, []byte(q.Name), header, func(yield func([]byte) bool) { yield([]byte(body)) }, len(body), 1))
		if len(batch.Messages) == 256 || i == count-1 {
			q.Publish(&batch, &n.wake)
			n.wake.Flush()
			batch.Messages = batch.Messages[:0]
		}
	}
}

// TestPolicyTTL: a time to live by policy is that of messages that come later.
func TestPolicyTTL(t *testing.T) {
	n := newNode(t)
	q := n.mustDeclare("q", args("x-message-ttl", 60000))
	n.fill(q, 1)
	n.setPolicy(false, Policy{Name: "ttl", Pattern: "q", Definition: map[string]any{"message-ttl": 20}})
	n.get(q)
	n.fill(q, 3)
	n.until("expiry", func() bool { return q.Stats().Ready == 0 })
	if got := q.Stats().Expired; got != 3 {
		t.Errorf("%d have expired", got)
	}
	n.clearPolicy(false, "ttl")
	n.fill(q, 1)
	time.Sleep(60 * time.Millisecond)
	if got := q.Stats().Ready; got != 1 {
		t.Errorf("%d left after the end of the policy", got)
	}
}

// TestPolicyExpires: queues expire by policy, from the moment that they get it, and no more when it is gone.
func TestPolicyExpires(t *testing.T) {
	n := newNode(t)
	q := n.mustDeclare("q", nil)
	kept := n.mustDeclare("kept", args("x-expires", 100000))
	begin := n.Clock.Now()
	n.setPolicy(false, Policy{Name: "long", Pattern: "kept", Priority: 1, Definition: map[string]any{"expires": 100000}})
	n.setPolicy(false, Policy{Name: "brief", Pattern: "", Definition: map[string]any{"expires": 50}})
	n.until("expiry", func() bool { return n.v.Queue(q.Name) == nil })
	if took := n.Clock.Now() - begin; took < 50 {
		t.Errorf("expired after %d ms", took)
	}
	time.Sleep(100 * time.Millisecond)
	if n.v.Queue(kept.Name) == nil {
		t.Error("a queue with a policy of higher priority expired")
	}
	n.clearPolicy(false, "long")
	n.until("expiry", func() bool { return n.v.Queue(kept.Name) == nil })
	n.setPolicy(false, Policy{Name: "brief", Pattern: "", Definition: map[string]any{"expires": 2000}})
	later := n.mustDeclare("later", nil)
	n.clearPolicy(false, "brief")
	if s := later.Settings(); s.Expires != -1 {
		t.Errorf("%+v", s)
	}
	time.Sleep(2100 * time.Millisecond)
	if n.v.Queue(later.Name) == nil {
		t.Error("expired after the end of the policy")
	}
}

// TestPolicyAlternate: the alternate exchange by policy; an argument wins; routes that were remembered are forgotten.
func TestPolicyAlternate(t *testing.T) {
	n := newNode(t)
	for _, x := range []exchange.Declaration{{Name: "x", Type: "direct"}, {Name: "own", Type: "direct", Arguments: args("alternate-exchange", "second")}, {Name: "first", Type: "fanout"}, {Name: "second", Type: "fanout"}} {
		n.want(x.Name, n.exchange(Actor{}, x), "")
	}
	one, two := n.mustDeclare("one", nil), n.mustDeclare("two", nil)
	n.mustBind("first", "one", "")
	n.mustBind("second", "two", "")
	ready := func(what string, want ...uint64) {
		t.Helper()
		if a, b := one.Stats().Ready, two.Stats().Ready; a != want[0] || b != want[1] {
			t.Errorf("%s: %d and %d, want %v", what, a, b, want)
		}
	}
	version := n.v.Version()
	n.setPolicy(false, Policy{Name: "p", Pattern: "^(x|own|new|amq.direct)$", ApplyTo: "exchanges", Definition: map[string]any{"alternate-exchange": "first"}})
	if n.v.Version() == version {
		t.Error("the version stays: routes would be remembered")
	}
	for _, x := range []string{"x", "own", "amq.direct"} {
		n.publish(x, "k", amqp.PropertyList{}, "")
	}
	ready("policy", 2, 1)
	n.want("new", n.exchange(Actor{}, exchange.Declaration{Name: "new", Type: "direct"}), "")
	n.publish("new", "k", amqp.PropertyList{}, "")
	ready("one declared later", 3, 1)
	n.setPolicy(false, Policy{Name: "over", Pattern: "^x$", Priority: 1, Definition: map[string]any{"max-length": 1}})
	if got := n.publish("x", "k", amqp.PropertyList{}, ""); got != 0 {
		t.Error("a policy of higher priority without the key does not hide it")
	}
	n.clearPolicy(false, "over")
	n.publish("x", "k", amqp.PropertyList{}, "")
	ready("cleared", 4, 1)
	n.clearPolicy(false, "p")
	if got := n.publish("x", "k", amqp.PropertyList{}, ""); got != 0 {
		t.Error("the alternate exchange outlives its policy")
	}
	if name, d := n.v.ExchangePolicy("x"); name != "" || d != nil {
		t.Error(name, d)
	}
}

// TestPolicyRefusals: what is refused changes nothing.
func TestPolicyRefusals(t *testing.T) {
	n := newNode(t)
	refused := func(err error) {
		t.Helper()
		if err == nil {
			t.Error("not refused")
		}
	}
	n.v.SetPolicy(false, Policy{Name: "p", Pattern: "("}, func(_ bool, err error) { refused(err) })
	n.v.SetPolicy(true, Policy{Name: "p", Definition: map[string]any{"dead-letter-exchange": ""}}, func(_ bool, err error) { refused(err) })
	n.v.SetPolicy(true, Policy{Name: "p", Definition: map[string]any{"max-length": make(chan int)}}, func(_ bool, err error) { refused(err) })
	n.v.ClearPolicy(false, "p", func(existed bool, err error) {
		if existed || err != nil {
			t.Error(existed, err)
		}
	})
	if len(n.v.Policies(false))+len(n.v.Policies(true)) > 0 {
		t.Error("something is there")
	}
	d := map[string]any{"max-length": 1}
	n.setPolicy(false, Policy{Name: "p", Definition: d})
	d["max-length"] = 2
	if p, ok := n.v.Policy(false, "p"); !ok || fmt.Sprint(p.Definition) != "map[max-length:1]" || p.ApplyTo != "all" {
		t.Error("the definition is the caller's map", p)
	}
	gone := n.v
	n.DeleteVHost("/", func(bool, error) {})
	gone.SetPolicy(false, Policy{Name: "p", Definition: d}, func(_ bool, err error) { refused(err) })
}

// TestPolicyConcurrently has policies change from several goroutines while queues are declared. In the end every queue has
// the settings of the policies there are.
func TestPolicyConcurrently(t *testing.T) {
	n := newNode(t)
	done := make(chan bool)
	const workers = 4
	for w := range workers {
		go func() {
			r := rand.New(rand.NewPCG(uint64(w), 7))
			for i := range 150 {
				switch r.IntN(3) {
				case 0:
					n.v.DeclareQueue(Actor{}, QueueDeclaration{Name: fmt.Sprint("q", w, "-", i)}, func(*Queue, *amqp.Error) {})
				case 1:
					n.v.SetPolicy(false, Policy{Name: fmt.Sprint("p", r.IntN(3)), Priority: int64(r.IntN(3)), Pattern: fmt.Sprint("q", r.IntN(workers)), Definition: map[string]any{"max-length": r.IntN(100)}}, func(bool, error) {})
				default:
					n.v.ClearPolicy(false, fmt.Sprint("p", r.IntN(3)), func(bool, error) {})
				}
			}
			done <- true
		}()
	}
	for range workers {
		<-done
	}
	for _, q := range n.v.Queues() {
		user, _ := n.v.PoliciesFor(q.Type, q.Name)
		want, max := "", int64(-1)
		if user != nil {
			want = user.Name
			max, _ = integerOf(user.Definition["max-length"])
		}
		if s := q.Settings(); s.Policy != want || s.Config.MaxLength != max {
			t.Fatalf("%s: %q with %d counts, want %q with %d", q.Name, s.Policy, s.Config.MaxLength, want, max)
		}
	}
}

// TestPolicyRace: of two policies set at the same time the queue has the one that is there in the end.
func TestPolicyRace(t *testing.T) {
	n := newNode(t)
	q := n.mustDeclare("q", nil)
	done := make(chan bool)
	for i := range 3000 {
		for half := range 2 {
			go func() {
				n.v.SetPolicy(false, Policy{Name: "p", Definition: map[string]any{"max-length": 2*i + half}}, func(bool, error) { done <- true })
			}()
		}
		<-done
		<-done
		p, _ := n.v.Policy(false, "p")
		if want := number64(p.Definition["max-length"]); q.Settings().Config.MaxLength != want {
			t.Fatalf("round %d: %d counts, want %d", i, q.Settings().Config.MaxLength, want)
		}
	}
}

// TestPolicyOnManyQueues: a policy that matches few of 100,000 queues touches those, and readers of the virtual host get
// in meanwhile.
func TestPolicyOnManyQueues(t *testing.T) {
	n := newNode(t)
	count := 100000
	if testing.Short() {
		count = 20000
	}
	for i := range count {
		if _, err := n.declare(Actor{}, QueueDeclaration{Name: fmt.Sprint("queue-", i), Arguments: args("x-queue-type", Classic)}); err != nil {
			t.Fatal(err)
		}
	}
	other := n.v.Queue("queue-7").Settings()
	var stop atomic.Bool
	longest := make(chan time.Duration)
	go func() {
		most := time.Duration(0)
		for !stop.Load() {
			begin := time.Now()
			n.v.Begin().End()
			most = max(most, time.Since(begin))
			runtime.Gosched()
		}
		longest <- most
	}()
	begin := time.Now()
	n.setPolicy(false, Policy{Name: "p", Pattern: "-1999[0-9]$", Definition: map[string]any{"max-length": 5}})
	few := time.Since(begin)
	begin = time.Now()
	n.setPolicy(false, Policy{Name: "all", Pattern: "^queue", Priority: -1, Definition: map[string]any{"message-ttl": 5000}})
	all := time.Since(begin)
	stop.Store(true)
	t.Logf("10 of %d queues took %v, all %v, the longest wait of a reader was %v", count, few, all, <-longest)
	matched := 0
	for _, q := range n.v.Queues() {
		switch s := q.Settings(); {
		case s.Policy == "p" && s.Config.MaxLength == 5 && s.Config.TTL == -1:
			matched++
		case s.Policy != "all" || s.Config.TTL != 5000:
			t.Fatalf("%s: %+v", q.Name, s)
		}
	}
	if matched != 10 || other.Policy != "" {
		t.Errorf("%d queues matched", matched)
	}
}

// TestPolicyBesideOthers: a limit that drops a million messages goes on in steps, and another queue is served meanwhile.
func TestPolicyBesideOthers(t *testing.T) {
	n := newNode(t)
	count := 1000000
	if testing.Short() {
		count = 100000
	}
	q, other := n.mustDeclare("q", nil), n.mustDeclare("other", nil)
	n.fill(q, count)
	begin := time.Now()
	n.setPolicy(false, Policy{Name: "p", Pattern: "^q$", Definition: map[string]any{"max-length": 10}})
	answered := time.Since(begin)
	rounds, slowest := 0, time.Duration(0)
	for q.Stats().Ready > 10 {
		round := time.Now()
		n.fill(other, 1)
		if n.letter(other) == nil {
			t.Fatal("the other queue gives nothing")
		}
		slowest = max(slowest, time.Since(round))
		rounds++
	}
	t.Logf("answered after %v, done after %v; %d rounds on another queue meanwhile, the slowest took %v", answered, time.Since(begin), rounds, slowest)
	if rounds < 3 {
		t.Errorf("%d rounds only: the drop is not in steps", rounds)
	}
	// A step is counted after the queue's lock was released.
	for deadline := time.Now().Add(10 * time.Second); n.Counters.DeadDropped(Classic, queue.MaxLen) != uint64(count-10); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d counted as dropped", n.Counters.DeadDropped(Classic, queue.MaxLen))
		}
	}
}

package broker

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/queue"
)

// letter is a message as a consumer sees it.
type letter struct {
	exchange, key, body string
	redelivered         bool
	amqp.Header
}

func (n *node) letter(q *Queue) *letter {
	n.Helper()
	o, ok := n.get(q)
	if !ok {
		return nil
	}
	defer n.Pool.Release(o.Message.Ref.Slab, 1)
	s := queue.ParseStored(append([]byte(nil), n.Pool.Bytes(o.Message.Ref)...))
	h, err := amqp.ParseHeader(s.Header)
	if err != nil {
		n.Fatal(err)
	}
	return &letter{string(s.Exchange), string(s.Key), string(s.AppendBody(nil)), o.Redelivered, h}
}

// headers renders the headers as JSON, times left out.
func (l *letter) headers() string {
	t, _ := l.Headers()
	m := t.Map()
	if deaths, ok := m["x-death"].([]any); ok {
		for _, d := range deaths {
			delete(d.(map[string]any), "time")
		}
	}
	b, _ := json.Marshal(m)
	return string(b)
}

// reject takes one message from q and gives it back as refused.
func (n *node) reject(q *Queue, how queue.Outcome) {
	n.Helper()
	out, id, err := n.consume(q, queueSpec(1))
	if err != nil {
		n.Fatal(err)
	}
	if len(out.got) != 1 {
		n.Fatalf("%s has no message to reject", q.Name)
	}
	n.Pool.Release(out.got[0].Message.Ref.Slab, 1)
	q.Settle(id, []queue.Range{{First: out.got[0].ID, Last: out.got[0].ID}}, how, &n.wake)
	n.detach(q, id, queue.Remove)
	n.wake.Flush()
}

func TestDeathHeaders(t *testing.T) {
	n := newNode(t)
	n.want("setup", n.exchange(Actor{}, exchange.Declaration{Name: "dlx", Type: "fanout"}), "")
	a := n.mustDeclare("a", args("x-dead-letter-exchange", "dlx", "x-dead-letter-routing-key", "dead"))
	b := n.mustDeclare("b", args("x-dead-letter-exchange", ""))
	n.mustBind("dlx", "b", "")
	l := amqp.PropertyList{
		ContentType: "text/plain", Expiration: "60000", DeliveryMode: 2, Priority: 3, MessageID: "m",
		Headers: args("x-death", []any{map[string]any{"queue": "a", "reason": "rejected", "count": int64(7)}}, "x-first-death-queue", "forged", "own", int8(1), "CC", []any{"elsewhere", 5}),
	}
	n.publish("", "a", l, "body")
	n.reject(a, queue.DiscardFailed)
	got := n.letter(b)
	if got == nil {
		t.Fatal("not dead-lettered")
	}
	want := `{"CC":["elsewhere",5],"own":1,"x-death":[{"count":1,"exchange":"","original-expiration":"60000","queue":"a","reason":"rejected","routing-keys":["a","elsewhere"]}],` +
		`"x-first-death-exchange":"","x-first-death-queue":"a","x-first-death-reason":"rejected","x-last-death-exchange":"","x-last-death-queue":"a","x-last-death-reason":"rejected"}`
	if got.headers() != want {
		t.Errorf("headers:\n got %s\nwant %s", got.headers(), want)
	}
	if got.exchange != "dlx" || got.key != "dead" || got.body != "body" || !got.redelivered {
		t.Errorf("%+v", got)
	}
	if _, ok := got.Expiration(); ok {
		t.Error("expiration is left")
	}
	if id, _ := got.MessageID(); string(id) != "m" || !got.Persistent() || got.BodySize != 4 {
		t.Errorf("other properties are changed: %q", id)
	}
	if own, _ := got.Properties.Headers(); true {
		if v, _ := own.Get("own"); v.Tag != amqp.TagInt8 {
			t.Errorf("the type of a header is changed to %q", v.Tag)
		}
	}
	entry := firstEntry(t, got)
	order := ""
	for k, v := range entry.All() {
		order += fmt.Sprintf("%s:%c ", k, v.Tag)
	}
	if order != "original-expiration:S count:l reason:S queue:S time:T exchange:S routing-keys:A " {
		t.Errorf("entry: %s", order)
	}
	v, _ := entry.Get("time")
	if s, _ := v.Timestamp(); s < uint64(time.Now().Unix()-60) || s > uint64(time.Now().Unix()) {
		t.Errorf("time %d", s)
	}

	// A second life: without a key of its own, the message keeps the one it got; CC no longer counts.
	elsewhere := n.mustDeclare("elsewhere", nil)
	dead := n.mustDeclare("dead", args("x-dead-letter-exchange", "", "x-dead-letter-routing-key", "a"))
	n.publish("", "a", l, "body")
	n.reject(a, queue.Discard)
	n.reject(b, queue.Discard)
	if ready := elsewhere.Stats().Ready; ready != 1 {
		t.Errorf("CC led to %d messages, not to the one that was published", ready)
	}
	n.reject(dead, queue.Discard) // back to a
	n.reject(a, queue.Discard)
	got = n.letter(b)
	if got == nil || got.redelivered {
		t.Fatalf("%+v", got)
	}
	want = `{"CC":["elsewhere",5],"own":1,"x-death":[` +
		`{"count":2,"exchange":"","original-expiration":"60000","queue":"a","reason":"rejected","routing-keys":["a","elsewhere"]},` +
		`{"count":1,"exchange":"","queue":"dead","reason":"rejected","routing-keys":["dead"]},` +
		`{"count":1,"exchange":"dlx","queue":"b","reason":"rejected","routing-keys":["dead"]}],` +
		`"x-first-death-exchange":"","x-first-death-queue":"a","x-first-death-reason":"rejected","x-last-death-exchange":"","x-last-death-queue":"a","x-last-death-reason":"rejected"}`
	if got.headers() != want {
		t.Errorf("headers:\n got %s\nwant %s", got.headers(), want)
	}
}

func firstEntry(t *testing.T, l *letter) amqp.Table {
	t.Helper()
	headers, _ := l.Headers()
	v, _ := headers.Get("x-death")
	list, _ := v.Array()
	for e := range list.All() {
		entry, _ := e.Table()
		return entry
	}
	t.Fatal("no x-death")
	return nil
}

func TestDeadLetterCycle(t *testing.T) {
	n := newNode(t)
	a := n.mustDeclare("a", args("x-max-length", 1, "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "b"))
	b := n.mustDeclare("b", args("x-max-length", 1, "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "a"))
	for i := range 100 {
		n.publish("", "a", amqp.PropertyList{}, fmt.Sprint(i))
	}
	// Each message dies in a, then in b, and then has been in both.
	if a.Stats().Ready != 1 || b.Stats().Ready != 1 {
		t.Errorf("ready: %d, %d", a.Stats().Ready, b.Stats().Ready)
	}
	if got := n.letter(a); got.body != "99" {
		t.Errorf("in a: %s", got.body)
	}
	if got := n.letter(b); got.body != "98" {
		t.Errorf("in b: %s", got.body)
	}
	self := n.mustDeclare("self", args("x-message-ttl", 0, "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "self"))
	n.publish("", "self", amqp.PropertyList{}, "")
	if self.Stats().Ready != 0 {
		t.Error("an expired message came back to the same queue")
	}
	// A rejection on the way lets it go on.
	n.publish("", "a", amqp.PropertyList{}, "round")
	for range 10 {
		n.reject(a, queue.Discard)
		n.reject(b, queue.Discard)
	}
	if got := n.letter(a); got == nil || !strings.Contains(got.headers(), `"count":10`) {
		t.Errorf("%v", got)
	}
	if n.Counters.DeadLettersUnrouted.Load() == 0 || n.Counters.DeadLettered(Classic, queue.MaxLen) == 0 {
		t.Error("nothing was counted")
	}
}

func TestDeadLetterOrderAndFanOut(t *testing.T) {
	n := newNode(t)
	n.want("setup", n.exchange(Actor{}, exchange.Declaration{Name: "dlx", Type: "fanout", Internal: true}), "")
	n.mustDeclare("a", args("x-max-length", 10, "x-dead-letter-exchange", "dlx"))
	var targets []*Queue
	for i := range 3 {
		targets = append(targets, n.mustDeclare(fmt.Sprintf("d%d", i), nil))
		n.mustBind("dlx", targets[i].Name, "")
	}
	big := strings.Repeat("x", 300<<10)
	for i := range 500 {
		body := fmt.Sprint(i)
		if i == 7 {
			body = big
		}
		n.publish("", "a", amqp.PropertyList{}, body)
	}
	for _, q := range targets {
		for i := range 490 {
			want := fmt.Sprint(i)
			if i == 7 {
				want = big
			}
			if got := n.letter(q); got == nil || got.body != want {
				t.Fatalf("%s: message %d differs", q.Name, i)
			}
		}
	}
	n.deleteQueue(Actor{}, "a", false, false)
	for _, q := range targets {
		if got := n.letter(q); got != nil {
			t.Error("deleting a queue dead-lettered its messages")
		}
	}
	if used := n.Pool.InUse(); used > queue.SlabSize {
		t.Errorf("%d octets of slabs are still held", used)
	}
}

func TestDeadLetterNowhere(t *testing.T) {
	n := newNode(t)
	q := n.mustDeclare("q", args("x-dead-letter-exchange", "missing"))
	long := n.mustDeclare("long", args("x-dead-letter-exchange", "amq.fanout", "x-dead-letter-routing-key", strings.Repeat("k", 300)))
	n.mustBind("amq.fanout", "q", "")
	for _, q := range []*Queue{q, long} {
		n.publish("", q.Name, amqp.PropertyList{}, "")
		n.reject(q, queue.Discard)
	}
	if got := n.Counters.DeadLettersUnrouted.Load(); got != 2 {
		t.Errorf("%d unrouted", got)
	}
	if used := n.Pool.InUse(); used > queue.SlabSize {
		t.Errorf("%d octets of slabs are still held", used)
	}
}

// TestDeadLetterIsRefused: a dead-letter queue that is full and refuses keeps its limit, and what it refuses leaves a trace
// in a counter and in the log, which hears of it once a minute and queue.
func TestDeadLetterIsRefused(t *testing.T) {
	n := newNode(t)
	var log strings.Builder
	n.Broker.Log = slog.New(slog.NewTextHandler(&log, nil))
	d := n.mustDeclare("d", args("x-max-length", 3, "x-overflow", "reject-publish"))
	q := n.mustDeclare("q", args("x-max-length", 0, "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "d"))
	for i := range 10 {
		n.publish("", "q", amqp.PropertyList{}, fmt.Sprint(i))
	}
	if q.Stats().Ready != 0 || d.Stats().Ready != 3 {
		t.Errorf("ready: %d, %d", q.Stats().Ready, d.Stats().Ready)
	}
	if refused, unrouted := n.Counters.DeadLettersRefused.Load(), n.Counters.DeadLettersUnrouted.Load(); refused != 7 || unrouted != 0 {
		t.Errorf("%d refused, %d unrouted", refused, unrouted)
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `msg="dead letters were dropped" queue=q vhost=/ exchange="" exchange_missing=false without_queue=0 refused=1`) {
		t.Errorf("log: %s", got)
	}
	log.Reset()
	lost := n.mustDeclare("lost", args("x-message-ttl", 0, "x-dead-letter-exchange", "missing"))
	for range 5 {
		n.publish("", "lost", amqp.PropertyList{}, "")
	}
	if lost.Stats().Ready != 0 || n.Counters.DeadLettersUnrouted.Load() != 5 {
		t.Errorf("%d ready, %d unrouted", lost.Stats().Ready, n.Counters.DeadLettersUnrouted.Load())
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `queue=lost vhost=/ exchange=missing exchange_missing=true without_queue=1 refused=0`) {
		t.Errorf("log: %s", got)
	}
	// One that passes a refused letter on has lost nothing.
	n.mustDeclare("e", args("x-max-length", 0, "x-overflow", "reject-publish-dlx", "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "f"))
	f := n.mustDeclare("f", nil)
	n.mustDeclare("p", args("x-max-length", 0, "x-dead-letter-exchange", "", "x-dead-letter-routing-key", "e"))
	n.publish("", "p", amqp.PropertyList{}, "")
	if f.Stats().Ready != 1 || n.Counters.DeadLettersRefused.Load() != 7 {
		t.Errorf("%d in f, %d refused", f.Stats().Ready, n.Counters.DeadLettersRefused.Load())
	}
}

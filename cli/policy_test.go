package cli

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/queue"
)

// TestPolicyOnStoredQueue: a length limit by policy on a queue most of whose messages lie on disk, with a dead-letter
// exchange; and the policy after a restart.
func TestPolicyOnStoredQueue(t *testing.T) {
	cfg := config.Default()
	cfg.DataDir, cfg.MemoryBound = t.TempDir(), 16<<20
	begin := func() (*rooms, *amqp091.Channel, func()) {
		t.Helper()
		e, err := openEngine(cfg, "0", 1<<40, slog.New(slog.NewTextHandler(io.Discard, nil)))
		if err != nil {
			t.Fatal(err)
		}
		at, err := e.Listen("127.0.0.1:0", false)
		if err != nil {
			t.Fatal(err)
		}
		c, err := amqp091.Dial("amqp://guest:guest@" + at.String() + "/")
		if err != nil {
			t.Fatal(err)
		}
		ch, err := c.Channel()
		if err != nil {
			t.Fatal(err)
		}
		return e.(*rooms), ch, func() {
			t.Helper()
			c.Close()
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			if err := e.Stop(ctx); err != nil {
				t.Error(err)
			}
		}
	}
	r, ch, end := begin()
	for _, q := range []string{"q", "dead"} {
		if _, err := ch.QueueDeclare(q, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	const count = 40000
	body := []byte(strings.Repeat("x", 1000))
	var last *amqp091.DeferredConfirmation
	for range count {
		var err error
		last, err = ch.PublishWithDeferredConfirm("", "q", false, false, amqp091.Publishing{DeliveryMode: 2, Body: body})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !last.Wait() {
		t.Fatal("not confirmed")
	}
	v := r.broker.VHost("/")
	set := make(chan error, 1)
	v.SetPolicy(false, broker.Policy{Name: "short", Pattern: "^q$", Definition: map[string]any{"max-length": 10, "dead-letter-exchange": "", "dead-letter-routing-key": "dead"}}, func(_ bool, err error) { set <- err })
	if err := <-set; err != nil {
		t.Fatal(err)
	}
	ready := func(q string) uint64 { return v.Queue(q).Stats().Ready }
	for deadline := time.Now().Add(60 * time.Second); ready("q") != 10 || ready("dead") != count-10; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d and %d ready", ready("q"), ready("dead"))
		}
	}
	if got := r.broker.Counters.DeadLettered(broker.Classic, queue.MaxLen); got != count-10 {
		t.Errorf("%d dead letters", got)
	}
	end()
	r, ch, end = begin()
	defer end()
	v = r.broker.VHost("/")
	if ready("q") != 10 || ready("dead") != count-10 {
		t.Errorf("%d and %d ready after the restart", ready("q"), ready("dead"))
	}
	if s := v.Queue("q").Settings(); s.Policy != "short" || s.Config.MaxLength != 10 {
		t.Errorf("%+v", s)
	}
	for range 5 {
		if err := ch.PublishWithContext(context.Background(), "", "q", false, false, amqp091.Publishing{Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) { // what gives way is read from disk first
		q, err := ch.QueueDeclarePassive("q", true, false, false, false, nil)
		if err != nil || time.Now().After(deadline) {
			t.Fatal(q.Messages, err)
		}
		if q.Messages == 10 && ready("dead") == count-5 {
			break
		}
	}
}

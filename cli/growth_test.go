package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	process "github.com/warrenmq/warren/test/node"
)

// TestStreamsOfALoneNode: a node that ran alone, and has a stream of several segments with a committed offset, becomes the first of three.
// Readers at each of them see the same messages at the same offsets, the same of them through a filter, and the same committed offset;
// and when the first node is killed, publishers and readers go on.
func TestStreamsOfALoneNode(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &lostCluster{t: t, self: self, secret: filepath.Join(t.TempDir(), "secret")}
	if err := os.WriteFile(c.secret, []byte("a secret that is long enough\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.nodes, c.at = []*process.Process{{Binary: c.self, Dir: t.TempDir(), Env: []string{"WARREN_TEST_COMMAND=1"}, Args: c.args(0, "")}}, make([]process.Addresses, 1)
	c.start(0)
	conn, ch := c.dial(0)
	if _, err := ch.QueueDeclare("s", true, false, false, false, amqp091.Table{"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 4000}); err != nil {
		t.Fatal(err)
	}
	const n, read = 60, 20
	filler := strings.Repeat(".", 300)
	publish := func(ch *amqp091.Channel, i int) {
		t.Helper()
		confirm, err := ch.PublishWithDeferredConfirm("", "s", false, false, amqp091.Publishing{Body: []byte(fmt.Sprint(i)),
			Headers: amqp091.Table{"x-stream-filter-value": []string{"a", "b", "c"}[i%3], "filler": filler}})
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-confirm.Done():
		case <-time.After(20 * time.Second):
			t.Fatalf("message %d is not confirmed", i)
		}
	}
	for i := 1; i <= n; i++ {
		publish(ch, i)
	}
	named := amqp091.Table{"x-stream-consumer-name": "reader", "x-stream-offset-reset": "first"}
	takes(t, ch, "s", named, 1, read)
	committed := func(node int, next int) {
		t.Helper()
		until(t, "the offset is committed", func() error {
			_, out, errs := c.warren(0, "stream", "offsets", "list", "s", "--url", "http://"+c.at[node].HTTP)
			if !strings.Contains(out, fmt.Sprintf("reader\t%d\t", next)) {
				return fmt.Errorf("node %d: %s%s", node+1, out, errs)
			}
			return nil
		})
	}
	committed(0, read)
	conn.Close()
	status := func(node int) (text string, segments int) {
		_, text, errs := c.warren(0, "stream", "status", "s", "--format", "json", "--url", "http://"+c.at[node].HTTP)
		var s struct{ Segments int }
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			return errs, 0
		}
		return text, s.Segments
	}
	if _, segments := status(0); segments < 4 {
		t.Fatalf("%d segments", segments)
	}
	if err := c.nodes[0].Stop(); err != nil {
		t.Fatal(err)
	}

	c.nodes[0].Args = c.args(0, "127.0.0.1:0")
	c.start(0)
	c.join = c.at[0].Cluster
	c.add()
	c.add()
	until(t, "all have a vote everywhere", func() error {
		info, err := c.status(0)
		for _, s := range info.Slots {
			if len(s.Members) != 3 || len(s.Replicas) != 3 {
				return fmt.Errorf("%+v", s)
			}
		}
		if err == nil && len(info.Slots) < 4 {
			err = fmt.Errorf("%d slots", len(info.Slots))
		}
		return err
	})
	replicas := func(of ...int) {
		t.Helper()
		until(t, "the replicas are equal", func() error {
			var first string
			for i, node := range of {
				text, segments := status(node)
				if i == 0 {
					first = text
				}
				if text != first || segments < 4 || strings.Contains(text, "mending") || strings.Contains(text, "broken") {
					return fmt.Errorf("node %d: %s, and the first %s", node+1, text, first)
				}
			}
			return nil
		})
	}
	replicas(0, 1, 2)
	reads := func(node, last int, args amqp091.Table, step int) {
		t.Helper()
		conn, _ := c.dial(node)
		defer conn.Close()
		args["x-stream-offset"] = "first"
		_, from := consumeStream(t, conn, "s", args)
		for i := step; i <= last; i += step {
			d := receive(t, from, fmt.Sprint(i))
			if offsetOf(d) != int64(i-1) {
				t.Fatalf("node %d has message %d at %d", node+1, i, offsetOf(d))
			}
			if err := d.Ack(false); err != nil {
				t.Fatal(err)
			}
		}
	}
	for node := range 3 {
		reads(node, n, amqp091.Table{}, 1)
		reads(node, n, amqp091.Table{"x-stream-filter": "a"}, 3)
		committed(node, read)
	}

	c.kill(0)
	_, ch = c.dial(1)
	for i := n + 1; i <= n+10; i++ {
		publish(ch, i)
	}
	conn, ch = c.dial(2)
	takes(t, ch, "s", named, read+1, n+10)
	conn.Close()
	for _, node := range []int{1, 2} {
		committed(node, n+10)
		reads(node, n+10, amqp091.Table{}, 1)
		reads(node, n+9, amqp091.Table{"x-stream-filter": "a"}, 3)
	}
	replicas(1, 2)
}

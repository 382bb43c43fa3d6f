package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/conformance"
)

// cluster is nodes in this process that are members of one cluster.
type nodes struct {
	t      *testing.T
	secret string
	dirs   []string
	at     string // of the first
	list   []*realNode
	args   [][]string // of each one's own
}

func runCluster(t *testing.T, n int) *nodes {
	t.Helper()
	return runClusterOf(t, make([][]string, n)...)
}

// runClusterOf runs a node with each list of arguments.
func runClusterOf(t *testing.T, args ...[]string) *nodes {
	t.Helper()
	c := &nodes{t: t, args: args, secret: filepath.Join(t.TempDir(), "secret")}
	if err := os.WriteFile(c.secret, []byte("a secret that is long enough\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range args {
		c.dirs = append(c.dirs, t.TempDir())
		c.list = append(c.list, nil)
		c.start(len(c.list) - 1)
	}
	return c
}

func (c *nodes) start(i int) {
	c.t.Helper()
	args := []string{"--node-name", fmt.Sprintf("n@%d", i+1), "--cluster-listen", "127.0.0.1:0", "--cluster-secret-file", c.secret}
	if i > 0 {
		args = append(args, "--join", c.at)
	}
	args = append(args, c.args[i]...)
	c.list[i] = runNodeIn(c.t, c.dirs[i], args...)
	if i == 0 {
		c.at = c.list[0].engine.(*rooms).member.advertise
	}
}

// dial opens a channel at a node.
func (n *realNode) dial() (*amqp091.Connection, *amqp091.Channel) {
	n.t.Helper()
	conn, err := amqp091.Dial("amqp://guest:guest@" + n.amqp)
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
	return conn, ch
}

func publishConfirmed(t *testing.T, ch *amqp091.Channel, exchange, key, body, replyTo string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, err := ch.PublishWithDeferredConfirmWithContext(ctx, exchange, key, false, false, amqp091.Publishing{Body: []byte(body), DeliveryMode: 2, ReplyTo: replyTo})
	if err == nil {
		var ok bool
		if ok, err = c.WaitContext(ctx); err == nil && !ok {
			err = fmt.Errorf("refused")
		}
	}
	if err != nil {
		t.Fatalf("publish %s: %v", body, err)
	}
}

func receive(t *testing.T, from <-chan amqp091.Delivery, body string) amqp091.Delivery {
	t.Helper()
	select {
	case d := <-from:
		if string(d.Body) != body {
			t.Fatalf("got %q, want %q", d.Body, body)
		}
		return d
	case <-time.After(20 * time.Second):
		t.Fatalf("no message; want %q", body)
	}
	panic("unreachable")
}

// until waits for something that other nodes have to hear of first.
func until(t *testing.T, what string, ok func() error) {
	t.Helper()
	end := time.Now().Add(20 * time.Second)
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// again does something on channels of its own until it succeeds: an error closes a channel.
func again(t *testing.T, what string, conn *amqp091.Connection, do func(*amqp091.Channel) error) {
	t.Helper()
	until(t, what, func() error {
		ch, err := conn.Channel()
		if err != nil {
			return err
		}
		defer ch.Close()
		return do(ch)
	})
}

// TestCluster: any node serves any client, whatever the queue and wherever it lives, and one that stops takes nothing along
// that others need.
func TestCluster(t *testing.T) {
	c := runCluster(t, 3)
	_, one := c.list[0].dial()
	conn2, two := c.list[1].dial()
	conn3, three := c.list[2].dial()

	if _, err := two.QueueDeclare("classic", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := one.ExchangeDeclare("x", "topic", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	quorum := amqp091.Table{"x-queue-type": "quorum"}
	if _, err := one.QueueDeclare("quorum", true, false, false, false, quorum); err != nil {
		t.Fatal(err)
	}
	again(t, "bind on another node", conn3, func(ch *amqp091.Channel) error {
		if err := ch.QueueBind("classic", "c.#", "x", false, nil); err != nil {
			return err
		}
		return ch.QueueBind("quorum", "q.#", "x", false, nil)
	})

	// A classic queue of node 2, from node 3 to node 1.
	from, err := one.Consume("classic", "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	publishConfirmed(t, three, "x", "c.1", "over two nodes", "")
	if err := receive(t, from, "over two nodes").Ack(false); err != nil {
		t.Fatal(err)
	}

	// A quorum queue.
	taken, err := three.Consume("quorum", "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	publishConfirmed(t, one, "x", "q.1", "replicated", "")
	if err := receive(t, taken, "replicated").Ack(false); err != nil {
		t.Fatal(err)
	}

	// An exclusive queue of node 3, which others can publish to and not use otherwise.
	own, err := three.QueueDeclare("", false, false, true, false, nil)
	if err == nil {
		err = three.QueueBind(own.Name, "e.#", "x", false, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	mine, err := three.Consume(own.Name, "", true, true, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "an exclusive queue is known", func() error {
		conn, ch := c.list[0].dial()
		defer conn.Close()
		_, err := ch.QueueDeclarePassive(own.Name, false, false, true, false, nil)
		if err == nil || !strings.Contains(err.Error(), "RESOURCE_LOCKED") {
			return fmt.Errorf("it can be declared elsewhere: %v", err)
		}
		return nil
	})
	publishConfirmed(t, one, "", own.Name, "exclusive", "")
	receive(t, mine, "exclusive")

	// Direct reply-to over nodes.
	replies, err := two.Consume("amq.rabbitmq.reply-to", "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	publishConfirmed(t, two, "", "quorum", "question", "amq.rabbitmq.reply-to")
	q := receive(t, taken, "question")
	publishConfirmed(t, three, "", q.ReplyTo, "answer", "")
	receive(t, replies, "answer")
	if err := q.Ack(false); err != nil {
		t.Fatal(err)
	}

	// Node 2 stops: the quorum queue goes on, its classic queue is out of reach, and says so.
	publishConfirmed(t, one, "", "classic", "stays", "")
	unacked := receive(t, from, "stays")
	conn2.Close()
	c.list[1].stop()
	publishConfirmed(t, one, "", "quorum", "two are enough", "")
	if err := receive(t, taken, "two are enough").Ack(false); err != nil {
		t.Fatal(err)
	}
	until(t, "a queue whose node is down", func() error {
		conn, ch := c.list[0].dial()
		defer conn.Close()
		_, err := ch.QueueDeclarePassive("classic", true, false, false, false, nil)
		if err == nil || !strings.Contains(err.Error(), "home node 'n@2' of durable queue 'classic' in vhost '/' is down or inaccessible") {
			return fmt.Errorf("it is declared with %v", err)
		}
		return nil
	})
	_ = unacked
	c.start(1)
	again(t, "the queue is there again", conn3, func(ch *amqp091.Channel) error {
		d, ok, err := ch.Get("classic", true)
		if err == nil && (!ok || string(d.Body) != "stays" || !d.Redelivered) {
			err = fmt.Errorf("got %v %q", ok, d.Body)
		}
		return err
	})
}

// TestMemberConforms: a member of a cluster, the second of three, answers as a node alone does. Cases that are about time are for that one.
func TestMemberConforms(t *testing.T) {
	if testing.Short() {
		t.Skip("1,000 conversations, which are played without -short")
	}
	c := runCluster(t, 3)
	o := conformance.Options{URI: "amqp://guest:guest@" + c.list[1].amqp, HTTP: c.list[1].url, Parallel: 16, Limit: 20 * time.Second,
		Match: regexp.MustCompile("^(channel|confirms|connection|consume|exchange|frames|large|mixed|publish|qos|queue|replyto|routing|settle|tx|users)/")}
	report, err := conformance.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if n := report.Count(conformance.Failed); n > 0 {
		var text strings.Builder
		report.Write(&text)
		t.Errorf("%d of %d cases failed\n%s", n, len(report.Results), text.String())
	}
	t.Logf("%d cases", report.Count(conformance.Passed))
}

// TestForget: a member that is forgotten ends, its classic queues are gone, and another takes its place under its name.
func TestForget(t *testing.T) {
	c := runCluster(t, 3)
	conn, one := c.list[0].dial()
	_, three := c.list[2].dial()
	quorum := amqp091.Table{"x-queue-type": "quorum"}
	if _, err := one.QueueDeclare("quorum", true, false, false, false, quorum); err != nil {
		t.Fatal(err)
	}
	if _, err := three.QueueDeclare("classic", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	publishConfirmed(t, three, "", "quorum", "stays", "")
	m := c.list[0].engine.(*rooms).member
	if err := m.Forget("n@3", false); err == nil {
		t.Fatal("a member that is up was forgotten")
	}
	c.list[2].stop()
	until(t, "it is down", func() error {
		if m.isUp(m.numberOf("n@3")) {
			return fmt.Errorf("up")
		}
		return nil
	})
	if err := m.Forget("n@3", false); err != nil {
		t.Fatal(err)
	}
	until(t, "another one is not forgotten too: it would leave one of two votes", func() error {
		err := m.Forget("n@2", true)
		if err == nil {
			t.Fatal("it was forgotten")
		}
		if !strings.Contains(err.Error(), "has 2 votes, of which 1 would be left") {
			return err
		}
		return nil
	})
	until(t, "its queue is gone", func() error {
		ch, err := conn.Channel()
		if err != nil {
			return err
		}
		if _, err = ch.QueueDeclarePassive("classic", true, false, false, false, nil); err == nil || !strings.Contains(err.Error(), "no queue 'classic'") {
			return fmt.Errorf("it is declared with %v", err)
		}
		return nil
	})
	c.dirs[2] = t.TempDir()
	c.start(2)
	if n := c.list[2].engine.(*rooms).member.identity.Number; n != 4 {
		t.Fatalf("its number is %d: 3 must not come again", n)
	}
	conn3, _ := c.list[2].dial()
	again(t, "the new node has the message", conn3, func(ch *amqp091.Channel) error {
		d, ok, err := ch.Get("quorum", true)
		if err == nil && (!ok || string(d.Body) != "stays") {
			err = fmt.Errorf("got %v %q", ok, d.Body)
		}
		return err
	})
}

// TestJoinRefused: who may not join is told why.
func TestJoinRefused(t *testing.T) {
	c := runCluster(t, 1)
	run := func(secret, dir, name string, more ...string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(file, []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
		args := append([]string{"server", "--listen", "127.0.0.1:0", "--http", "none", "--metrics", "none", "--data-dir", dir, "--node-name", name,
			"--cluster-listen", "127.0.0.1:0", "--cluster-secret-file", file, "--log-level", "none"}, more...)
		var out, errs strings.Builder
		p := &program{in: strings.NewReader(""), out: &out, err: &errs, open: openEngine,
			env: func(name string) (string, bool) { return "off", name == "GOGC" || name == "GOMEMLIMIT" }}
		if code := p.run(args); code == 0 {
			t.Fatal("it runs")
		}
		return errs.String()
	}
	own := t.TempDir()
	n := runNodeIn(t, own)
	n.stop()
	for _, x := range []struct{ secret, dir, name, want string }{
		{"short", t.TempDir(), "a", "has 5 octets; at least 16 are needed"},
		{"not the secret of this cluster", t.TempDir(), "a", "wrong secret"},
		{"a secret that is long enough", own, "a", "has a data directory of its own and cannot join"},
		{"a secret that is long enough", t.TempDir(), "n@1", "there is a member of the name n@1 already"},
	} {
		if got := run(x.secret, x.dir, x.name, "--join", c.at); !strings.Contains(got, x.want) {
			t.Errorf("%s, %s: %s; want %s", x.secret, x.name, got, x.want)
		}
	}
	put := make(chan error, 1)
	c.list[0].engine.(*rooms).broker.PutMember(broker.Member{NodeID: 2, Name: "n@2", Address: "127.0.0.1:1"}, func(_ uint64, err error) { put <- err })
	if err := <-put; err != nil {
		t.Fatal(err)
	}
	c.list[0].stop()
	var out, errs strings.Builder
	p := &program{in: strings.NewReader(""), out: &out, err: &errs, open: openEngine,
		env: func(name string) (string, bool) { return "off", name == "GOGC" || name == "GOMEMLIMIT" }}
	p.run([]string{"server", "--listen", "127.0.0.1:0", "--http", "none", "--metrics", "none", "--data-dir", c.dirs[0], "--log-level", "none"})
	if want := "this node is member 1 of a cluster, and has no address for the others"; !strings.Contains(errs.String(), want) {
		t.Errorf("without an address: %s; want %s", errs.String(), want)
	}
}

// TestStartInsists: a start that has seen a majority, and loses it before it has told metadata about the node, waits for the next
// one. What waiting does not mend ends it.
func TestStartInsists(t *testing.T) {
	ctx, quit := context.WithCancel(context.Background())
	m := &membership{context: ctx, log: slog.New(slog.DiscardHandler)}
	answers := []error{amqp.Errorf(amqp.InternalError, "metadata has no majority: no node has led for 13s, and nothing was changed"), nil}
	n := 0
	change := func(done func(uint64, error)) { n++; done(1, answers[n-1]) }
	if err := m.insist(change); err != nil || n != 2 {
		t.Errorf("after %d tries: %v", n, err)
	}
	n, answers = 0, []error{amqp.Errorf(amqp.InternalError, "metadata cannot be stored: no space left on the disk")}
	if err := m.insist(change); err == nil || n != 1 {
		t.Errorf("on a full disk, after %d tries: %v", n, err)
	}
	quit()
	n, answers = 0, []error{amqp.Errorf(amqp.InternalError, "metadata has no majority: as before")}
	if err := m.insist(change); err == nil || n != 1 {
		t.Errorf("when the node stops, after %d tries: %v", n, err)
	}
}

// TestLookAgain: what one node has answered is there for a client of another one at once.
func TestLookAgain(t *testing.T) {
	c := runCluster(t, 3)
	var conns []*amqp091.Connection
	for _, n := range c.list {
		conn, _ := n.dial()
		conns = append(conns, conn)
	}
	on := func(i int, what string, do func(*amqp091.Channel) error) {
		t.Helper()
		ch, err := conns[i%3].Channel()
		if err == nil {
			err = do(ch)
			ch.Close()
		}
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for i := range 12 {
		q, x := fmt.Sprint("q", i), fmt.Sprint("x", i)
		on(i, "declare", func(ch *amqp091.Channel) error {
			if err := ch.ExchangeDeclare(x, "fanout", true, false, false, false, nil); err != nil {
				return err
			}
			_, err := ch.QueueDeclare(q, true, false, false, false, amqp091.Table{"x-queue-type": "quorum"})
			return err
		})
		for _, other := range []int{i + 1, i + 2} {
			on(other, "use", func(ch *amqp091.Channel) (err error) {
				switch i % 4 {
				case 0:
					_, err = ch.Consume(q, "", false, false, false, false, nil)
				case 1:
					_, _, err = ch.Get(q, true)
				case 2:
					_, err = ch.QueuePurge(q, false)
				case 3:
					err = ch.QueueBind(q, "", x, false, nil)
				}
				return err
			})
		}
		on(i, "delete", func(ch *amqp091.Channel) error {
			_, err := ch.QueueDelete(q, false, false, false)
			return err
		})
	}
	ch, err := conns[1].Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.Consume("none", "", false, false, false, false, nil); err == nil || !strings.Contains(err.Error(), "no queue 'none'") {
		t.Errorf("what is nowhere: %v", err)
	}
}

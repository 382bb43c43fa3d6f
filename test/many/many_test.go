// Package many declares very many quorum queues, and looks at what they cost.
package many

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/node"
)

var (
	count  = flag.Int("queues", 300, "how many quorum queues there are")
	strict = flag.Bool("strict", false, "hold what 10,000 queues cost, and how long they take, to what is promised of them")
	binary = flag.String("binary", "", "the broker; empty: it is built")
)

const clockTicks = 100 // of the system's clock a second

// member is a node, and what it costs.
type member struct {
	node.Process
	at node.Addresses
}

// anonymous is the octets of memory that the node has of its own.
func (m *member) anonymous(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "RssAnon:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}

// cpu is how long the node has computed.
func (m *member) cpu(t *testing.T) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * time.Second / clockTicks
}

// each has so many connections to a node divide the queues among them.
func (m *member) each(t *testing.T, connections int, do func(conn *amqp091.Connection, names []string) error) {
	t.Helper()
	var running sync.WaitGroup
	errs := make(chan error, connections)
	for i := range connections {
		running.Go(func() {
			conn, err := amqp091.Dial("amqp://guest:guest@" + m.at.AMQP)
			if err != nil {
				errs <- err
				return
			}
			defer conn.Close()
			var names []string
			for k := i; k < *count; k += connections {
				names = append(names, fmt.Sprintf("q-%d", k))
			}
			if err := do(conn, names); err != nil {
				errs <- err
			}
		})
	}
	running.Wait()
	select {
	case err := <-errs:
		t.Fatal(err)
	default:
	}
}

// freePort is an address that a node may listen at each time that it is started: others look for it there.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

var quorum = amqp091.Table{"x-queue-type": "quorum"}

func declare(conn *amqp091.Connection, names []string) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := ch.QueueDeclare(name, true, false, false, true, quorum); err != nil {
			return err
		}
	}
	_, err = ch.QueueDeclare(names[len(names)-1], true, false, false, false, quorum)
	return err
}

// publish publishes a message to each queue, and waits until all are confirmed.
func publish(conn *amqp091.Connection, names []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ch, err := conn.Channel()
	if err == nil {
		err = ch.Confirm(false)
	}
	if err != nil {
		return err
	}
	var waits []*amqp091.DeferredConfirmation
	for _, name := range names {
		w, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", name, true, false, amqp091.Publishing{DeliveryMode: 2, Body: []byte(name)})
		if err != nil {
			return err
		}
		waits = append(waits, w)
	}
	for i, w := range waits {
		if ok, err := w.WaitContext(ctx); err != nil || !ok {
			return fmt.Errorf("%s does not take a message: %v", names[i], err)
		}
	}
	return nil
}

// pass has the message of each queue go to a consumer, who then leaves.
func pass(conn *amqp091.Connection, names []string) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	for _, name := range names {
		came, err := ch.Consume(name, name, true, false, false, true, nil)
		if err != nil {
			return err
		}
		select {
		case d, ok := <-came:
			if !ok || string(d.Body) != name {
				return fmt.Errorf("%s gives %q", name, d.Body)
			}
		case <-time.After(20 * time.Second):
			return fmt.Errorf("%s gives nothing", name)
		}
		if err := ch.Cancel(name, true); err != nil {
			return err
		}
	}
	return nil
}

// cost is what a node takes while nothing happens.
type cost struct {
	memory int     // anonymous, octets
	busy   float64 // part of a core
}

// atRest is what each node takes when what was begun has come to an end, and it has given back what it does not need.
func atRest(t *testing.T, ms []*member) []cost {
	t.Helper()
	look := 100 * time.Millisecond
	if *strict {
		look = 20 * time.Second
		time.Sleep(15 * time.Second)
	}
	before, begun := make([]time.Duration, len(ms)), time.Now()
	for i, m := range ms {
		before[i] = m.cpu(t)
	}
	time.Sleep(look)
	costs := make([]cost, len(ms))
	for i, m := range ms {
		costs[i] = cost{m.anonymous(t), (m.cpu(t) - before[i]).Seconds() / time.Since(begun).Seconds()}
	}
	return costs
}

// judge compares what nodes take with what they took without queues.
func judge(t *testing.T, when string, idle, now []cost) {
	t.Helper()
	for i, c := range now {
		added := c.memory - idle[i].memory
		t.Logf("%s, node %d: %.1f MB, %.1f more than without queues; %.2f%% of a core, %.2f%% without", when, i+1,
			float64(c.memory)/1e6, float64(added)/1e6, 100*c.busy, 100*idle[i].busy)
		if most := 50_000_000; *strict && added > most {
			t.Errorf("node %d has %d octets more", i+1, added)
		}
		if *strict && c.busy >= 0.02 {
			t.Errorf("node %d takes %.2f%% of a core", i+1, 100*c.busy)
		}
	}
}

// TestManyQueues: quorum queues that are idle cost a node little memory and next to no time, on one node and on each of three,
// and all of them can be used soon after the node that leads them was killed. With -queues 10000 -strict, as is promised:
// 50 MB, 2% of a core, 1,000 declared a second, 4 s.
func TestManyQueues(t *testing.T) {
	dir := t.TempDir()
	broker := *binary
	if broker == "" {
		broker = filepath.Join(dir, "warren")
		if err := node.Build(broker); err != nil {
			t.Fatal(err)
		}
	}
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("a secret that is long enough\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, nodes := range []int{1, 3} {
		t.Run(strconv.Itoa(nodes), func(t *testing.T) { many(t, broker, secret, nodes) })
	}
}

// begin starts so many nodes, which form a cluster if they are several.
func begin(t *testing.T, broker, secret string, nodes int) (ms []*member) {
	t.Helper()
	join := ""
	for i := range nodes {
		m := &member{Process: node.Process{Binary: broker, Dir: t.TempDir(), Args: []string{
			"--listen", "127.0.0.1:0", "--http", "none", "--metrics", "none", "--node-name", fmt.Sprintf("n%d", i+1)}}}
		if nodes > 1 {
			m.Args = append(m.Args, "--cluster-listen", freePort(t), "--cluster-secret-file", secret)
			if join != "" {
				m.Args = append(m.Args, "--join", join)
			}
		}
		var err error
		if m.at, err = m.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if m.Ended() == nil {
				_ = m.Kill()
			}
		})
		if join == "" {
			join = m.at.Cluster
		}
		ms = append(ms, m)
	}
	return ms
}

func many(t *testing.T, broker, secret string, nodes int) {
	ms := begin(t, broker, secret, nodes)
	idle := atRest(t, ms)
	begun := time.Now()
	ms[0].each(t, 16, declare)
	took := time.Since(begun)
	t.Logf("%d declared in %v, %.0f a second", *count, took, float64(*count)/took.Seconds())
	if *strict && float64(*count)/took.Seconds() < 1000 {
		t.Errorf("declared at less than 1,000 a second")
	}
	judge(t, "declared", idle, atRest(t, ms))
	begun = time.Now()
	last := ms[nodes-1] // where another node serves: it has heard of all
	last.each(t, 4, publish)
	t.Logf("all used after %v", time.Since(begun))
	last.each(t, 64, pass)
	judge(t, "used", idle, atRest(t, ms))
	if nodes == 1 {
		return
	}
	for i, m := range ms { // one of them leads most
		if err := m.Kill(); err != nil {
			t.Fatal(err)
		}
		begun = time.Now()
		ms[(i+1)%nodes].each(t, 4, publish)
		took = time.Since(begun)
		t.Logf("all used %v after node %d was killed", took, i+1)
		if *strict && took > 4*time.Second {
			t.Error("that is too long")
		}
		var err error
		if m.at, err = m.Start(); err != nil {
			t.Fatal(err)
		}
	}
}

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

func many(t *testing.T, broker, secret string, nodes int) {
	var ms []*member
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
	before := make([]int, nodes)
	for i, m := range ms {
		before[i] = m.anonymous(t)
	}
	begun := time.Now()
	ms[0].each(t, 16, declare)
	took := time.Since(begun)
	t.Logf("%d declared in %v, %.0f a second", *count, took, float64(*count)/took.Seconds())
	ms[nodes-1].each(t, 4, publish) // where another node serves: it has heard of all
	t.Logf("all used after %v", time.Since(begun))
	if *strict && float64(*count)/took.Seconds() < 1000 {
		t.Errorf("declared at less than 1,000 a second")
	}
	const look = 5 * time.Second
	spent := make([]time.Duration, nodes)
	if *strict {
		time.Sleep(10 * time.Second) // what was begun comes to an end
	}
	for i, m := range ms {
		spent[i] = m.cpu(t)
	}
	if *strict {
		time.Sleep(look)
	}
	for i, m := range ms {
		added, busy := m.anonymous(t)-before[i], m.cpu(t)-spent[i]
		t.Logf("node %d: %.1f MB more, from %.1f; %.1f%% of a core", i+1, float64(added)/1e6, float64(before[i])/1e6, 100*busy.Seconds()/look.Seconds())
		if most := 50_000_000; *strict && added > most {
			t.Errorf("node %d has %d octets more", i+1, added)
		}
		if *strict && busy > look/50 {
			t.Errorf("node %d computed for %v of %v", i+1, busy, look)
		}
	}
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

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/netns"
	"github.com/warrenmq/warren/test/node"
	"github.com/warrenmq/warren/test/streams"
)

// The ports of a node, which are free in a namespace of its own.
const (
	portAMQP    = 5672
	portHTTP    = 15672
	portCluster = 25672
)

// A node has little memory, so that what is not consumed at once goes to disk soon.
const bound = 4 << 20

// member is a node of the cluster.
type member struct {
	number  int // from 1
	process node.Process

	disk  string        // a file system of its own, small at times; empty: none
	clock time.Duration // by how much it is ahead
	base  []string      // arguments, without whom it joins

	busy sync.Mutex // held by who kills or stops it, until it is started again
	mu   sync.Mutex // guards what follows
	up   bool       // it was started, and not ended on purpose
}

func (m *member) name() string { return fmt.Sprintf("warren@n%d", m.number) }

// injected is the file that says what goes wrong with its machine.
func (m *member) injected() string { return filepath.Join(m.process.Dir, "inject") }

// join says whom it asks to be taken in, should its directory be empty.
func (m *member) join(by *member) {
	m.process.Args = append(m.base[:len(m.base):len(m.base)], "--join", fmt.Sprintf("%s:%d", host(by.number), portCluster))
}

func (m *member) address() string { return fmt.Sprintf("%s:%d", host(m.number), portAMQP) }

// cluster is nodes in namespaces.
type cluster struct {
	*network
	members []*member
	api     http.Client
}

// clustered reports whether a Warren knows of other nodes.
func clustered(binary string) bool {
	help, _ := exec.Command(binary, "server", "--help").CombinedOutput()
	return strings.Contains(string(help), "--cluster-listen")
}

// newCluster starts n nodes, and returns when all serve and the topology is declared.
func newCluster(ctx context.Context, binary, dir string, n int, env ...string) (*cluster, error) {
	w, err := newNetwork(n)
	if err != nil {
		return nil, fmt.Errorf("network: %w", err)
	}
	c := &cluster{network: w, api: http.Client{Timeout: 5 * time.Second}}
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("of the fault drill, and long enough to be taken\n"), 0o600); err != nil {
		return nil, err
	}
	for i := 1; i <= n; i++ {
		m := &member{number: i}
		m.process = node.Process{Binary: binary, Dir: filepath.Join(dir, fmt.Sprint("node", i)), Spawn: w.nodes[i-1].Start, Args: []string{
			"--node-name", m.name(), "--listen", m.address(), "--http", fmt.Sprintf("%s:%d", host(i), portHTTP), "--metrics", "none",
			"--memory-bound", fmt.Sprint(bound), "--set", "loopback_users.guest=false",
		}}
		if n > 1 {
			m.process.Args = append(m.process.Args, "--cluster-listen", fmt.Sprintf("%s:%d", host(i), portCluster),
				"--cluster-advertise", fmt.Sprintf("%s:%d", host(i), portCluster), "--cluster-secret-file", secret)
		}
		m.base = m.process.Args
		if i > 1 {
			m.join(c.members[0])
		}
		m.process.Env = append(env[:len(env):len(env)], "WARREN_INJECT="+m.injected())
		if i == n && n > 1 {
			m.disk = filepath.Join(m.process.Dir, "disk")
			m.process.Data = filepath.Join(m.disk, "data")
		}
		if err := os.MkdirAll(m.process.DataDir(), 0o755); err != nil {
			return nil, err
		}
		if m.disk != "" {
			if err := netns.Mount(m.disk, roomy); err != nil {
				return nil, err
			}
			if err := os.MkdirAll(m.process.DataDir(), 0o755); err != nil {
				return nil, err
			}
		}
		c.members = append(c.members, m)
		if err := m.start(); err != nil {
			return nil, err
		}
		if _, err := m.process.Ready(patience); err != nil {
			c.dump()
			return nil, fmt.Errorf("node %d: %w", i, err)
		}
	}
	return c, eventually(ctx, patience, func() error { return c.declare(ctx) })
}

func (c *cluster) declare(ctx context.Context) error {
	for _, m := range c.members { // each must know it
		_, ch, cut, err := open(ctx, m.address(), 10*time.Second)
		if err != nil {
			return fmt.Errorf("node %d: %w", m.number, err)
		}
		if err = declare(ch); err == nil {
			err = declareClassic(ch, m.number-1)
		}
		cut()
		if err != nil {
			return fmt.Errorf("declare at node %d: %w", m.number, err)
		}
	}
	return nil
}

// eventually tries until f succeeds, and returns its last error.
func eventually(ctx context.Context, most time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// start launches the process; it serves when it can.
func (m *member) start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.process.Launch(); err != nil {
		return err
	}
	m.up = true
	return nil
}

// end says that the process is about to be ended on purpose.
func (m *member) end() {
	m.mu.Lock()
	m.up = false
	m.mu.Unlock()
}

// ended returns how a node ended that should run, nil if it does or should not.
func (m *member) ended() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if how := m.process.Ended(); m.up && how != nil {
		return fmt.Errorf("node %d ended by itself: %v\n%s", m.number, how, m.process.Complaints())
	}
	return nil
}

func (m *member) kill() error {
	m.end()
	return m.process.Kill()
}

func (m *member) pause() error  { return m.process.Signal(syscall.SIGSTOP) }
func (m *member) resume() error { return m.process.Signal(syscall.SIGCONT) }

var errStatus = errors.New("no such path")

// get reads JSON from a node's API.
func (c *cluster) get(m *member, path string, into any) error {
	r, err := http.NewRequest("GET", fmt.Sprintf("http://%s:%d%s", host(m.number), portHTTP, path), nil)
	if err != nil {
		return err
	}
	r.SetBasicAuth("guest", "guest")
	a, err := c.api.Do(r)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	switch {
	case a.StatusCode == http.StatusNotFound || a.StatusCode == http.StatusMethodNotAllowed:
		return errStatus
	case a.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %s", path, a.Status)
	}
	return json.NewDecoder(a.Body).Decode(into)
}

// queueInfo is what the API says of a queue.
type queueInfo struct {
	Name     string
	Leader   string
	Online   []string
	Messages uint64
}

func (c *cluster) queue(m *member, name string) (q queueInfo, err error) {
	return q, c.get(m, "/api/queues/%2F/"+name, &q)
}

// leader is the member that leads a queue, as the first node says that answers; nil: unknown.
func (c *cluster) leader(name string) *member {
	for _, m := range c.members {
		if q, err := c.queue(m, name); err == nil {
			for _, x := range c.members {
				if x.name() == q.Leader {
					return x
				}
			}
		}
	}
	return nil
}

// emptied returns an error while some node says that a queue has messages.
func (c *cluster) emptied() error {
	for _, m := range c.members {
		for _, spec := range queues {
			q, err := c.queue(m, spec.name)
			if err == nil && q.Messages > 0 {
				err = fmt.Errorf("%d messages", q.Messages)
			}
			if err != nil {
				return fmt.Errorf("node %d says of %s, when all is drained: %w", m.number, spec.name, err)
			}
		}
	}
	return nil
}

// slotView is a slot as the API tells of it, with its replicas on all nodes.
type slotView struct {
	Name, Leader string
	Replicas     []struct {
		Node    string
		Applied uint64
		Digest  string // of the state at Applied; empty: not told
	}
}

// compared returns how many slots have equal replicas on all nodes, and an error if some have not. 0: the nodes do not tell.
func (c *cluster) compared() (n int, err error) {
	var v struct{ Slots []slotView }
	if err := c.get(c.members[0], "/api/warren/cluster", &v); err != nil {
		if errors.Is(err, errStatus) {
			err = nil
		}
		return 0, err
	}
	for _, s := range v.Slots {
		if len(s.Replicas) != len(c.members) {
			return 0, fmt.Errorf("slot %s has %d replicas on %d nodes", s.Name, len(s.Replicas), len(c.members))
		}
		first := s.Replicas[0]
		for _, r := range s.Replicas {
			if r.Applied != first.Applied || r.Digest != first.Digest {
				return 0, fmt.Errorf("slot %s is %q at %d on %s, and %q at %d on %s", s.Name, first.Digest, first.Applied, first.Node, r.Digest, r.Applied, r.Node)
			}
		}
		if first.Digest != "" {
			n++
		}
	}
	return n, nil
}

// probe publishes to each queue through each node, and waits for the confirms.
func (c *cluster) probe(ctx context.Context) error {
	for _, m := range c.members {
		_, ch, cut, err := open(ctx, m.address(), 10*time.Second)
		if err != nil {
			return fmt.Errorf("node %d: %w", m.number, err)
		}
		err = func() error {
			defer cut()
			if err := ch.Confirm(false); err != nil {
				return err
			}
			name := "probe"
			if _, err := ch.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
				return err
			}
			k, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", name, false, false, amqp.Publishing{DeliveryMode: amqp.Persistent})
			if err != nil {
				return err
			}
			_, err = k.WaitContext(ctx)
			return err
		}()
		if err != nil {
			return fmt.Errorf("node %d: %w", m.number, err)
		}
	}
	return nil
}

// stop ends all nodes in order, at once.
func (c *cluster) stop() error {
	errs := make([]error, len(c.members))
	var stopping sync.WaitGroup
	for i, m := range c.members {
		m.end()
		stopping.Go(func() { errs[i] = m.process.Stop() })
	}
	stopping.Wait()
	return errors.Join(errs...)
}

// dump has each node that runs write into its log what its goroutines do, and end.
func (c *cluster) dump() {
	for _, m := range c.members {
		m.end()
		if m.process.Signal(syscall.SIGQUIT) == nil {
			eventually(context.Background(), patience, func() error {
				if m.process.Ended() == nil {
					return errors.New("it runs")
				}
				return nil
			})
		}
	}
}

// committed asks a node what offsets of streams are committed, and notes what it says. One that does not answer is left alone.
func (c *cluster) committed(m *member, h *streams.History) {
	for _, s := range streams.Plan {
		var list []struct {
			Name   string
			Offset uint64
		}
		if c.get(m, "/api/warren/streams/%2F/"+s.Name+"/offsets", &list) != nil {
			continue
		}
		for _, x := range list {
			h.Committed(x.Name, x.Offset)
		}
	}
}

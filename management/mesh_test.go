package management

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// mesh is a cluster of APIs in one process.
type mesh struct {
	nodes []*meshNode
	asked atomic.Int64 // questions
}

// meshNode is a member, and its view of the others.
type meshNode struct {
	*mesh
	number uint64
	broker *fake
	api    *API
	client *client

	mu     sync.Mutex // guards all below
	down   bool       // all know that it is
	silent bool       // it does not answer, and nobody knows yet
	says   string     // its answer, if it is to be none
	deeds  []string
	fault  error
	slots  []Slot
	votes  error // what stands in the way
}

var errSilent = errors.New("no answer in time")

func (n *meshNode) set(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

func (n *meshNode) away() (down, silent bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down, n.silent
}

func (n *meshNode) did(format string, a ...any) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.deeds = append(n.deeds, fmt.Sprintf(format, a...))
	return n.fault
}

func (n *meshNode) done() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.deeds)
}

func memberOf(number uint64) string { return fmt.Sprintf("warren@%c", 'a'+byte(number)-1) }

func (n *meshNode) Members() (list []Member) {
	for _, m := range n.nodes {
		down, _ := m.away()
		list = append(list, Member{Number: m.number, Name: memberOf(m.number), Address: fmt.Sprintf("10.0.0.%d:25672", m.number), Up: !down, This: m == n,
			Since: time.Unix(1700000000, 0), Boot: 3, Least: 1, Most: 1})
	}
	return list
}

func (n *meshNode) Links() (list []Link) {
	for _, m := range n.nodes {
		if m != n {
			down, _ := m.away()
			for _, class := range []string{"control", "bulk"} {
				list = append(list, Link{Peer: m.number, Class: class, Connected: !down, Address: fmt.Sprintf("10.0.0.%d:25672", m.number), Made: 2, Held: 7})
			}
		}
	}
	return list
}

func (n *meshNode) Slots() []Slot {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.slots
}

func (n *meshNode) Forget(name string, force bool) error { return n.did("forget %s %v", name, force) }
func (n *meshNode) Vote(name string, votes bool, in func(Slot) bool) (list []Voted, err error) {
	n.mu.Lock()
	slots, fails := n.slots, n.votes
	n.mu.Unlock()
	for _, s := range slots {
		if s.Shard > 1 && in(s) {
			list = append(list, Voted{Slot: s.Name, Size: len(s.Members), Err: fails})
			err = errors.Join(err, n.did("vote %s %v in %s", name, votes, s.Name))
		}
	}
	return list, err
}
func (n *meshNode) Rebalance() error { return n.did("rebalance") }
func (n *meshNode) TransferLeader(vhost, queue, node string) error {
	return n.did("transfer %s %s %s", vhost, queue, node)
}

func (n *meshNode) Ask(member uint64, question []byte, deadline time.Duration) ([]byte, error) {
	n.asked.Add(1)
	m := n.nodes[member-1]
	if down, silent := m.away(); down || silent || deadline <= 0 {
		return nil, errSilent
	}
	m.mu.Lock()
	says := m.says
	m.mu.Unlock()
	if says != "" {
		return []byte(says), nil
	}
	answer := m.api.Answer(slices.Clone(question))
	if len(answer) > MaxAnswer {
		return nil, fmt.Errorf("an answer of %d octets", len(answer))
	}
	return answer, nil
}

// cluster makes one of brokers.
func cluster(t *testing.T, brokers ...*fake) *mesh {
	t.Helper()
	c := &mesh{}
	for i, f := range brokers {
		n := &meshNode{mesh: c, number: uint64(i + 1), broker: f}
		c.nodes = append(c.nodes, n)
		n.api = New(Options{Broker: f, Node: memberOf(n.number), Cluster: "three", ProductVersion: "0.1.0", MemoryLimit: 1 << 30, DataDir: t.TempDir(), Peers: n,
			Listeners: func() []Listener { return []Listener{{"amqp", "127.0.0.1", 5672 + i, false}} }})
		n.api.askTime = 20 * time.Second // of a machine that is busy
		server := httptest.NewServer(n.api)
		t.Cleanup(server.Close)
		n.client = &client{t, server.URL, "guest"}
	}
	return c
}

// clients makes a cluster of three with two connections on each node: ports 11 and 12 on the first, 21 and 22 on the second …
func clients(t *testing.T) *mesh {
	var brokers []*fake
	for i := range 3 {
		f := newFake()
		for j := range 2 {
			f.connect(10*(i+1)+j+1, []string{"guest", "ann"}[j], []string{"/", "shop"}[j], "q")
			f.connections[j].ReceivedBytes = uint64(100*(j+1) - i)
		}
		brokers = append(brokers, f)
	}
	return cluster(t, brokers...)
}

// ports are the ports of the peers in a list of things of connections.
func ports(items any) (list []int) {
	if page, ok := items.(map[string]any); ok {
		items = page["items"]
	}
	for _, item := range items.([]any) {
		var port int
		fmt.Sscanf(item.(map[string]any)["name"].(string), "127.0.0.1:%d", &port)
		list = append(list, port)
	}
	return list
}

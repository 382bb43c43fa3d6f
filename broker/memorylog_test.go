package broker

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/test/seeds"
)

// memoryLog is a log that all nodes of a test see, and that moves when the test says so.
type memoryLog struct {
	t       testing.TB
	nodes   []*replica
	pending []proposal
	entries [][]proposal
	results [][]string // by entry, of whoever was first to apply it
}

type proposal struct {
	node    *replica
	start   int // of node
	command []byte
	done    func(any, *amqp.Error)
}

// replica is one node.
type replica struct {
	*disk
	log     *memoryLog
	start   int
	refuses *amqp.Error
}

func (n *replica) Propose(command []byte, _ bool, done func(any, *amqp.Error)) {
	n.log.pending = append(n.log.pending, proposal{n, n.start, bytes.Clone(command), done})
}

func (n *replica) Refuses() *amqp.Error { return n.refuses }

func newCluster(t testing.TB, nodes int) *memoryLog {
	l := &memoryLog{t: t}
	for i := range nodes {
		n := &replica{log: l, disk: &disk{TB: t, fs: storage.NewFaultFS(uint64(i) + 1)}}
		n.options = func(o *Options) {
			o.Commands, o.Member = n, uint64(i)+1
			o.DefaultVHost = []string{"/", "other"}[i%2] // configurations may differ
		}
		if err := n.open(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.stop() })
		n.rest()
		l.nodes = append(l.nodes, n)
	}
	l.nodes[0].PutVHost(PutVHost{Name: "/"}, func(error) {})
	l.settle()
	return l
}

// agree makes an entry of what was proposed first.
func (l *memoryLog) agree(most int) {
	if n := min(most, len(l.pending)); n > 0 {
		l.entries = append(l.entries, slices.Clone(l.pending[:n]))
		l.pending = slices.Delete(l.pending, 0, n)
	}
}

// apply applies the next entry on a node, if there is one.
func (l *memoryLog) apply(n *replica) bool {
	at, _ := n.Applied()
	if at == uint64(len(l.entries)) {
		return false
	}
	e := l.entries[at]
	var commands [][]byte
	for _, p := range e {
		commands = append(commands, p.command)
	}
	index := at + 1
	results, err := n.ApplyEntry(index, binary.AppendUvarint(nil, index*3), commands)
	if err != nil {
		l.t.Fatal(err)
	}
	for i, p := range e {
		if p.node == n && p.start == n.start {
			p.done(results[i], nil)
		}
	}
	var texts []string
	for _, v := range results {
		r := v.(*result)
		texts = append(texts, fmt.Sprint(r.existed, r.refused, r.number, r.durable, r.unbound, r.queue != nil && r.refused == nil))
	}
	if int(at) == len(l.results) {
		l.results = append(l.results, texts)
	} else if got, want := fmt.Sprint(texts), fmt.Sprint(l.results[at]); got != want {
		l.t.Errorf("entry %d: got results %s, another node %s", index, got, want)
	}
	return true
}

// settle applies everything everywhere.
func (l *memoryLog) settle() {
	for more := true; more; {
		more = len(l.pending) > 0
		l.agree(5)
		for _, n := range l.nodes {
			for l.apply(n) {
				more = true
			}
		}
	}
}

// crash cuts a node's power. What it had proposed and is not in the log may get there, or not.
func (l *memoryLog) crash(n *replica, r *rand.Rand) {
	n.start++
	l.pending = slices.DeleteFunc(l.pending, func(p proposal) bool { return p.node == n && r.IntN(2) == 0 })
	n.disk.crash(r)
	n.rest()
}

// rest waits until what a start has written is written and told: from then on answers come on the test's goroutine.
func (n *replica) rest() {
	for t := n.committer; ; runtime.Gosched() {
		t.mu.Lock()
		idle := t.current == nil && t.next.batch.Empty()
		t.mu.Unlock()
		if idle {
			return
		}
	}
}

// store lists the metadata in the store.
func (d *disk) store() map[string]string {
	m := map[string]string{}
	err := d.db.Iterate([]byte(metadataPrefix), func(key, value []byte) error {
		m[string(key)] = fmt.Sprintf("%x", value)
		return nil
	})
	if err != nil {
		d.Fatal(err)
	}
	return m
}

// hard lists all hard state in memory.
func (d *disk) hard() map[string]string {
	m := d.state()
	maps.DeleteFunc(m, func(k, _ string) bool { return strings.HasPrefix(k, "binding") })
	m["counters"] = fmt.Sprint(d.lastQueue.Load(), d.lastMember, d.slots, d.committer.order, d.committer.applied, d.committer.numbering)
	m["members"] = fmt.Sprint(d.Members(), d.Replicas())
	exported, err := json.Marshal(d.Export(Origin{}))
	if err != nil {
		d.Fatal(err)
	}
	m["definitions"] = string(exported)
	for _, v := range d.VHosts() {
		for _, x := range v.Exchanges() {
			m["exchange "+v.Name+" "+x.Name] = fmt.Sprint(x, v.topology.Exchange(x.Name).Alternate)
		}
		for _, q := range v.Queues() {
			if q.Owner == 0 {
				m["queue "+v.Name+" "+q.Name] = fmt.Sprint(q.ID, q.Home, q.Type, q.Durable, q.AutoDelete, q.Arguments, q.Effective())
			}
		}
		for _, b := range v.Bindings() { // their order at one source counts
			if q := v.Queue(b.Destination); b.Source != "" && (b.ToExchange || q.Owner == 0) {
				m["bindings "+v.Name+" "+b.Source] += fmt.Sprintf("%+v, ", b)
			}
		}
	}
	return m
}

func (l *memoryLog) compare() {
	l.t.Helper()
	first := l.nodes[0]
	for _, n := range l.nodes[1:] {
		diff(l.t, n.store(), first.store())
		diff(l.t, n.hard(), first.hard())
	}
}

// member changes what a cluster has besides.
func (n *replica) member(r *rand.Rand) {
	switch r.IntN(5) {
	case 4:
		x := Replica{uint64(16 + r.IntN(2)), uint64(1 + r.IntN(5)), Vote(r.IntN(3)), uint64(r.IntN(3))}
		n.PutReplica(x, func(error) {})
	case 0:
		n.DeleteMember(uint64(r.IntN(6)), []uint64{1}[r.IntN(2):], func(bool, error) {})
	case 1:
		n.PutSlots(uint64(1+r.IntN(8)), []uint64{1, uint64(r.IntN(3))}, func(uint64, error) {})
	case 2:
		n.PutMember(Member{Number: uint64(r.IntN(6)), NodeID: uint64(1 + r.IntN(5)), Name: fmt.Sprint("n", r.IntN(3))}, func(uint64, error) {})
	default:
		n.PutMember(Member{NodeID: uint64(1 + r.IntN(5)), Address: fmt.Sprint("h:", r.IntN(3)), Least: 1, Most: 2}, func(uint64, error) {})
	}
}

// TestReplicas changes everything at random on three nodes, whose soft state differs, crashes them, and has those that lag
// take the state of others: in the end they are equal.
func TestReplicas(t *testing.T) {
	seed := seeds.Of(t)
	for round := range 8 {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		l := newCluster(t, 3)
		for range 600 {
			n := l.nodes[r.IntN(3)]
			switch k := r.IntN(40); {
			case n.VHost("/") == nil: // a crash took what it had applied
				l.apply(n)
			case k < 20:
				n.change(r)
			case k == 20:
				n.member(r)
			case k < 28:
				l.agree(1 + r.IntN(4))
			case k < 38:
				l.apply(n)
			case k == 38 && r.IntN(4) == 0:
				l.crash(n, r)
			case r.IntN(4) == 0:
				from := l.nodes[r.IntN(3)]
				behind, _ := n.Applied()
				if ahead, _ := from.Applied(); ahead > behind {
					n.take(from)
				}
			}
			if t.Failed() {
				t.FailNow()
			}
		}
		l.settle()
		l.compare()
		for _, n := range l.nodes {
			hard, stored := n.hard(), n.store()
			l.crash(n, r)
			for l.apply(n) {
			}
			diff(t, n.hard(), hard)
			diff(t, n.store(), stored)
		}
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
		for _, n := range l.nodes {
			n.stop()
		}
	}
}

// take gives n the state of another node, and compares what becomes of it with a start on that state.
func (n *replica) take(from *replica) {
	n.Helper()
	capture, err := from.Capture()
	if err != nil {
		n.Fatal(err)
	}
	if err := n.Restore(bytes.NewReader(capture)); err != nil {
		n.Fatal(err)
	}
	fs := storage.NewFaultFS(1)
	db, err := storage.OpenDB(fs, "metadata", storage.DBOptions{})
	if err != nil {
		n.Fatal(err)
	}
	if err := RestoreStore(db, bytes.NewReader(capture)); err != nil {
		n.Fatal(err)
	}
	db.Close()
	fresh := openDisk(n, fs)
	diff(n, n.hard(), fresh.hard())
	diff(n, n.store(), fresh.store())
	diff(n, n.store(), from.store())
	fresh.stop()
}

// done runs an operation to its end.
func (l *memoryLog) done(what string, op func(done func(*amqp.Error)), want string) {
	l.t.Helper()
	var got *amqp.Error
	called := false
	op(func(err *amqp.Error) { got, called = err, true })
	l.settle()
	text := ""
	if got != nil {
		text = got.Error()
	}
	if !called || text != want {
		l.t.Errorf("%s: got %q (answered %t), want %q", what, text, called, want)
	}
}

func (l *memoryLog) declare(n *replica, a Actor, d QueueDeclaration) *Queue {
	l.t.Helper()
	var q *Queue
	l.done("declare "+d.Name, func(done func(*amqp.Error)) {
		n.VHost("/").DeclareQueue(a, d, func(got *Queue, err *amqp.Error) { q = got; done(err) })
	}, "")
	return q
}

func (l *memoryLog) auto(n *replica, x string) {
	l.t.Helper()
	l.done("exchange "+x, func(done func(*amqp.Error)) {
		n.VHost("/").DeclareExchange(Actor{}, exchange.Declaration{Name: x, Type: exchange.Fanout, AutoDelete: true}, done)
	}, "")
}

func (l *memoryLog) bind(n *replica, a Actor, from, to string, toExchange bool) {
	l.t.Helper()
	l.done("bind", func(done func(*amqp.Error)) {
		n.VHost("/").Bind(a, Binding{Source: from, Destination: to, ToExchange: toExchange}, done)
	}, "")
}

func (l *memoryLog) exchanges(want ...string) {
	l.t.Helper()
	for i, n := range l.nodes {
		var got []string
		for _, x := range n.VHost("/").Exchanges() {
			if x.AutoDelete {
				got = append(got, x.Name)
			}
		}
		if !slices.Equal(got, want) {
			l.t.Errorf("node %d: exchanges %q, want %q", i, got, want)
		}
	}
}

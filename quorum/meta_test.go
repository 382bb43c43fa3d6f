package quorum

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	transport "github.com/lni/dragonboat/v4/plugin/chan"
	"github.com/lni/dragonboat/v4/plugin/tan"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/quorum/propose"
	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/test/seeds"
)

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// within is a transport between hosts of one process, which can be cut off.
type within struct {
	transport.ChanTransportFactory
	cut *atomic.Bool
}

func (within) Validate(string) bool { return true }

func (w within) Create(c config.NodeHostConfig, m raftio.MessageHandler, s raftio.ChunkHandler) raftio.ITransport {
	return cutTransport{w.ChanTransportFactory.Create(c, func(b raftpb.MessageBatch) {
		if !w.cut.Load() {
			m(b)
		}
	}, s), w.cut}
}

type cutTransport struct {
	raftio.ITransport
	cut *atomic.Bool
}

func (t cutTransport) GetConnection(ctx context.Context, target string) (raftio.IConnection, error) {
	c, err := t.ITransport.GetConnection(ctx, target)
	if err != nil {
		return nil, err
	}
	return cutConnection{c, t.cut}, nil
}

type cutConnection struct {
	raftio.IConnection
	cut *atomic.Bool
}

func (c cutConnection) SendMessageBatch(b raftpb.MessageBatch) error {
	if c.cut.Load() {
		return nil
	}
	return c.IConnection.SendMessageBatch(b)
}

// metaNode is a node with metadata and a Raft engine, and no messages.
type metaNode struct {
	testing.TB
	number uint64
	boot   uint64
	dir    string
	cut    atomic.Bool
	db     *storage.DB
	clock  *queue.Clock
	pool   *queue.Pool
	broker *broker.Broker
	host   *dragonboat.NodeHost
	meta   *Meta
	up     bool
}

func newMetaNode(t testing.TB, number uint64) *metaNode {
	n := &metaNode{TB: t, number: number, dir: t.TempDir()}
	n.start()
	t.Cleanup(n.stop)
	return n
}

// start opens everything but the replica.
func (n *metaNode) start() {
	n.Helper()
	n.boot++
	var err error
	if n.db, err = storage.OpenDB(storage.OS{}, filepath.Join(n.dir, "meta"), storage.DBOptions{}); err != nil {
		n.Fatal(err)
	}
	n.clock, n.pool = queue.NewClock(), queue.NewPool(1<<20)
	n.broker, err = broker.Open(broker.Options{Node: fmt.Sprint("n", n.number), Pool: n.pool, Clock: n.clock, Store: n.db, Member: n.number,
		NewQueue: func(q broker.NewQueue) queue.Queue {
			return queue.NewClassic(queue.ClassicRules(q.MaxPriority), q.Config, n.pool, n.clock, q.DeadLetters)
		}})
	if err != nil {
		n.Fatal(err)
	}
	quiet(testLog(), nil)
	dir := filepath.Join(n.dir, "raft")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		n.Fatal(err)
	}
	logDB := config.GetTinyMemLogDBConfig()
	logDB.KVWriteBufferSize = 64 << 10
	n.host, err = dragonboat.NewNodeHost(config.NodeHostConfig{
		DeploymentID: 7, NodeHostDir: dir, RTTMillisecond: 20, RaftAddress: address(n.number),
		Expert: config.ExpertConfig{LogDBFactory: tan.Factory, LogDB: logDB, Engine: config.GetDefaultEngineConfig(), TransportFactory: within{cut: &n.cut}},
	})
	if err != nil {
		n.Fatal(err)
	}
	n.up = true
}

func (n *metaNode) stop() {
	if !n.up {
		return
	}
	n.up = false
	if n.meta != nil {
		n.meta.Close()
		n.meta = nil
	}
	n.host.Close()
	n.broker.Close()
	n.clock.Close()
	n.db.Close()
}

// replica starts the replica, of a new member if join is set, and has the broker use it.
func (n *metaNode) replica(join bool, o MetaOptions) {
	n.Helper()
	o.Node, o.Boot, o.Join, o.Store, o.Log = n.number, n.boot, join, n.broker, testLog()
	var err error
	if n.meta, err = StartMeta(n.host, o); err != nil {
		n.Fatal(err)
	}
	if err := n.broker.Replicate(n.meta, n.number); err != nil {
		n.Fatal(err)
	}
}

func (n *metaNode) caughtUp() {
	n.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.meta.CaughtUp(ctx); err != nil {
		n.Fatal(err)
	}
}

func (n *metaNode) declare(name string) (q *broker.Queue, err *amqp.Error) {
	type answer struct {
		q   *broker.Queue
		err *amqp.Error
	}
	done := make(chan answer, 1)
	n.broker.VHost("/").DeclareQueue(broker.Actor{}, broker.QueueDeclaration{Name: name, Durable: true}, func(q *broker.Queue, err *amqp.Error) {
		done <- answer{q, err}
	})
	select {
	case a := <-done:
		return a.q, a.err
	case <-time.After(patience):
		n.Fatalf("no answer to the declaration of %s", name)
		return nil, nil
	}
}

// must declares until it succeeds: while nobody leads it may not.
func (n *metaNode) must(name string) *broker.Queue {
	n.Helper()
	end := time.Now().Add(patience)
	for {
		q, err := n.declare(name)
		if err == nil {
			return q
		}
		if time.Now().After(end) {
			n.Fatal(err)
		}
	}
}

func (n *metaNode) add(m *metaNode) {
	n.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.meta.Admit(ctx, m.number); err != nil {
		n.Fatal(err)
	}
	if added, err := n.meta.AddMember(ctx, m.number); added || err != nil {
		n.Fatal("a member that never ran got a vote", err)
	}
	m.broker.SetMember(m.number)
	m.replica(true, MetaOptions{LeaderPatience: 400 * time.Millisecond, AnswerPatience: 1200 * time.Millisecond})
	m.caughtUp()
	done := make(chan error, 1)
	m.broker.PutVHost(broker.PutVHost{Name: "/", Description: "Default virtual host"}, func(err error) { done <- err })
	if err := <-done; err != nil {
		n.Fatal(err)
	}
	for added := false; !added; {
		var err error
		if added, err = n.meta.AddMember(ctx, m.number); err != nil {
			n.Fatal(err)
		}
	}
}

// state is the whole of the metadata, but for the index, which no two have at the same time.
func (n *metaNode) state() string {
	n.Helper()
	exported, err := json.Marshal(n.broker.Export(broker.Origin{}))
	if err != nil {
		n.Fatal(err)
	}
	s := string(exported) + fmt.Sprint(n.broker.Members(), n.broker.HasSlots())
	for _, v := range n.broker.VHosts() {
		for _, q := range v.Queues() {
			s += fmt.Sprint(" ", q.Name, q.ID, q.Home)
		}
	}
	return s
}

func awaitMeta(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// TestMetaCluster: a node that was alone founds a cluster, two join and have what it had, and each is as good as the others;
// the leader dies and metadata goes on changing; two die and it does not, and says so.
func TestMetaCluster(t *testing.T) {
	nodes := []*metaNode{newMetaNode(t, 1), newMetaNode(t, 2), newMetaNode(t, 3)}
	a, b, c := nodes[0], nodes[1], nodes[2]
	made := make(chan error, 1)
	a.must("alone")
	a.broker.VHost("/").DeclareExchange(broker.Actor{}, exchange.Declaration{Name: "transient", Type: exchange.Fanout}, func(err *amqp.Error) { made <- nil })
	<-made
	a.broker.SetMember(1)
	a.replica(false, MetaOptions{LeaderPatience: 400 * time.Millisecond, AnswerPatience: 1200 * time.Millisecond})
	reader, err := a.host.GetLogReader(metaShard)
	if err != nil {
		t.Fatal(err)
	}
	if first, last := reader.GetRange(); first < 2 {
		t.Errorf("the log begins at %d and ends at %d", first, last)
	}
	for _, n := range nodes {
		number := make(chan uint64, 1)
		a.broker.PutMember(broker.Member{NodeID: n.number * 100, Name: fmt.Sprint("n", n.number)}, func(got uint64, _ error) { number <- got })
		if got := <-number; got != n.number {
			t.Fatalf("member %d has number %d", n.number, got)
		}
	}
	a.add(b)
	a.add(c)
	if b.broker.VHost("/").Queue("alone") == nil {
		t.Error("what the founder had did not come")
	}
	if _, ok := c.broker.VHost("/").Exchange("transient"); !ok {
		t.Error("what the founder had in memory did not come")
	}
	for i, n := range nodes {
		if q := n.must(fmt.Sprint("by", i+1)); q.Home != n.number {
			t.Errorf("a queue of node %d lives on %d", n.number, q.Home)
		}
	}
	equal := func() {
		t.Helper()
		for _, n := range nodes {
			n.caughtUp()
		}
		for _, n := range nodes[1:] {
			if got, want := n.state(), a.state(); got != want {
				t.Errorf("node %d has\n%s, node 1\n%s", n.number, got, want)
			}
		}
	}
	equal()

	leads := func() int {
		at := -1
		awaitMeta(t, "somebody leads", func() bool {
			for i, n := range nodes {
				if number, ok := n.meta.Leader(); n.up && ok && number == n.number {
					at = i
				}
			}
			return at >= 0
		})
		return at
	}
	if at := leads(); at == 0 { // the founder need not lead
		if err := a.meta.TransferLeader(2); err != nil {
			t.Fatal(err)
		}
		awaitMeta(t, "the other leads", func() bool { n, ok := a.meta.Leader(); return ok && n == 2 })
	}
	dead := nodes[leads()]
	other := nodes[(slices.Index(nodes, dead)+1)%3]
	third := nodes[(slices.Index(nodes, dead)+2)%3]
	dead.stop()
	other.must("without the leader")
	for i := range 50 {
		name := fmt.Sprint("more", i)
		other.broker.VHost("/").DeclareQueue(broker.Actor{}, broker.QueueDeclaration{Name: name}, func(*broker.Queue, *amqp.Error) {})
	}
	other.must("after them")
	awaitMeta(t, "the other has it", func() bool { return third.broker.VHost("/").Queue("after them") != nil })

	// A start finds its place again, and what has happened meanwhile.
	dead.start()
	if !dead.broker.Replicated() {
		t.Error("alone again")
	}
	dead.replica(false, MetaOptions{LeaderPatience: 400 * time.Millisecond, AnswerPatience: 1200 * time.Millisecond})
	equal()
	dead.must("back")
	equal()

	// Two are gone: first nothing comes of it, then it is refused.
	other.stop()
	third.stop()
	_, refused := dead.declare("nobody1")
	if refused == nil || refused.Code != amqp.InternalError || !strings.Contains(refused.Text, "metadata has no majority") {
		t.Errorf("without a majority: %v", refused)
	}
	awaitMeta(t, "it is refused at once", func() bool { return dead.meta.Refuses() != nil })
	if _, refused = dead.declare("nobody2"); refused == nil || !strings.Contains(refused.Text, "no node has led") {
		t.Errorf("without a majority: %v", refused)
	}
	// One is back: what was not known to have an outcome has one, what was refused has none.
	other.start()
	other.replica(false, MetaOptions{})
	awaitMeta(t, "the change takes effect", func() bool { return dead.broker.VHost("/").Queue("nobody1") != nil })
	other.caughtUp()
	if other.broker.VHost("/").Queue("nobody1") == nil || other.broker.VHost("/").Queue("nobody2") != nil {
		t.Error("not what was proposed")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := other.meta.RemoveMember(ctx, third.number); err != nil {
		t.Fatal(err)
	}
	if list, _, err := dead.meta.Members(ctx); err != nil || len(list) != 2 || slices.Contains(list, third.number) {
		t.Errorf("members %v, %v", list, err)
	}
}

// TestMetaCutOff: what a member that is cut off has proposed takes effect when it is back, once; a member that lags behind the log
// takes a snapshot while it runs.
func TestMetaCutOff(t *testing.T) {
	nodes := []*metaNode{newMetaNode(t, 1), newMetaNode(t, 2), newMetaNode(t, 3)}
	a, b, c := nodes[0], nodes[1], nodes[2]
	a.replica(false, MetaOptions{})
	a.add(b)
	a.add(c)
	c.must("before")
	if n, ok := c.meta.Leader(); ok && n == 3 {
		c.meta.TransferLeader(1)
		awaitMeta(t, "another leads", func() bool { n, ok := c.meta.Leader(); return ok && n == 1 })
	}
	c.cut.Store(true)
	if _, err := c.declare("cut"); err == nil || !Passes(err) || !strings.Contains(err.Text, "may still") {
		t.Errorf("cut off: %v", err)
	}
	leader := a
	for i := range 20 {
		leader.must(fmt.Sprint("q", i))
	}
	done := make(chan error, 1)
	leader.broker.VHost("/").DeleteQueue(broker.Actor{}, "before", false, false, &queue.Wake{}, func(uint64, *amqp.Error) { done <- nil })
	<-done
	if n, ok := a.meta.Leader(); !ok || n == 2 {
		leader = b
	}
	for _, n := range []*metaNode{a, b} { // whoever leads has cut its log
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if _, err := n.host.SyncRequestSnapshot(ctx, metaShard, dragonboat.SnapshotOption{OverrideCompactionOverhead: true}); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	c.cut.Store(false)
	awaitMeta(t, "the change takes effect", func() bool { return a.broker.VHost("/").Queue("cut") != nil })
	c.must("after")
	a.must("later") // the numbers of others came with the snapshot
	b.must("still later")
	for _, n := range nodes {
		n.caughtUp()
	}
	if c.broker.VHost("/").Queue("before") != nil || c.broker.VHost("/").Queue("q19") == nil {
		t.Error("the snapshot did not arrive")
	}
	if x, y := a.state(), c.state(); x != y || x != b.state() {
		t.Errorf("node 1 has\n%s, node 3\n%s", x, y)
	}
	// A founder whose log is cut starts as it was.
	a.stop()
	a.start()
	a.replica(false, MetaOptions{})
	a.must("again")
}

// TestMetaNumbering: of batches that are lost, doubled and out of order, each is applied once and in the order of its start,
// and those of an earlier start no more; a start from what was written goes on there.
func TestMetaNumbering(t *testing.T) {
	r := rand.New(rand.NewPCG(seeds.Of(t), 0))
	var os metaOrigins
	want := map[uint64]metaHeader{}
	for range 20000 {
		node := 1 + r.Uint64N(3)
		w := want[node]
		h := metaHeader{node, w.boot + uint64(r.IntN(12)/11), 0}
		if h.number = 1 + r.Uint64N(3); h.boot == w.boot && r.IntN(3) > 0 {
			h.number = max(1, w.number+r.Uint64N(3))
		}
		if r.IntN(20) == 0 && h.boot > 0 {
			h.boot--
		}
		_, yes := os.Next(propose.Header{Node: node, Boot: h.boot, Number: h.number})
		should := h.boot > w.boot && h.number == 1 || h.boot == w.boot && h.number == w.number+1
		if yes != should {
			t.Fatalf("%+v after %+v: %t", h, w, yes)
		}
		if yes {
			want[node] = h
		}
		if r.IntN(10) == 0 {
			again, err := readMetaOrigins(appendMetaOrigins(nil, os))
			if err != nil || !reflect.DeepEqual(again, os) {
				t.Fatalf("%v became %v, %v", os, again, err)
			}
			os = again
		}
	}
}

func FuzzMetaEntry(f *testing.F) {
	f.Add(metaHeader{1, 2, 3}.append(nil))
	f.Add(append(metaHeader{1, 2, 3}.append(nil), 2, 'a', 'b', 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, commands, err := readMetaEntry(b)
		if err != nil {
			if !errors.Is(err, errFormat) {
				t.Fatal(err)
			}
			return
		}
		again := h.append(nil)
		for _, c := range commands {
			again = append(binary.AppendUvarint(again, uint64(len(c))), c...)
		}
		g, list, err := readMetaEntry(again)
		if err != nil || g != h || len(list) != len(commands) {
			t.Fatalf("%v %v became %v %v, %v", h, commands, g, list, err)
		}
		if _, err := readMetaOrigins(b); err != nil && !errors.Is(err, errFormat) {
			t.Fatal(err)
		}
	})
}

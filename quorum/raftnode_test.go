package quorum

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/logger"
	"github.com/lni/dragonboat/v4/plugin/tan"
	sm "github.com/lni/dragonboat/v4/statemachine"

	link "github.com/warrenmq/warren/cluster"
)

// keeper is a state machine that keeps all commands in memory, each once.
type keeper struct {
	mu        sync.Mutex // guards what follows
	changed   chan struct{}
	commands  map[string]bool
	applied   uint64
	recovered int
}

func newKeeper() *keeper {
	return &keeper{commands: map[string]bool{}, changed: make(chan struct{}, 1)}
}

func (k *keeper) told() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

func (k *keeper) Open(<-chan struct{}) (uint64, error) { return 0, nil }
func (k *keeper) Update(entries []sm.Entry) ([]sm.Entry, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, e := range entries {
		k.commands[string(e.Cmd)] = true
		k.applied = e.Index
		entries[i].Result = sm.Result{Value: 1}
	}
	k.told()
	return entries, nil
}
func (k *keeper) Lookup(any) (any, error) { return nil, nil }
func (k *keeper) Sync() error             { return nil }
func (k *keeper) Close() error            { return nil }
func (k *keeper) PrepareSnapshot() (any, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	b := binary.LittleEndian.AppendUint64(nil, k.applied)
	for c := range k.commands {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(c))), c...)
	}
	return b, nil
}
func (k *keeper) SaveSnapshot(b any, w io.Writer, _ <-chan struct{}) error {
	_, err := w.Write(b.([]byte))
	return err
}
func (k *keeper) RecoverFromSnapshot(r io.Reader, _ <-chan struct{}) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.applied = binary.LittleEndian.Uint64(b)
	clear(k.commands)
	for b = b[8:]; len(b) > 0; {
		n := binary.LittleEndian.Uint32(b)
		k.commands[string(b[4:4+n])] = true
		b = b[4+n:]
	}
	k.recovered++
	k.told()
	return nil
}

// until waits for what must become true of a keeper.
func (k *keeper) until(t *testing.T, what string, done func() bool) {
	t.Helper()
	late := time.After(40 * time.Second)
	for {
		k.mu.Lock()
		ok := done()
		n := len(k.commands)
		k.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-k.changed:
		case <-late:
			t.Fatalf("waited for %s; there are %d commands", what, n)
		}
	}
}

// raftNode is a member: a node of the cluster, and a Raft engine above it.
type raftNode struct {
	number    uint64
	node      *link.Node
	addr      string
	transport *Transport
	host      *dragonboat.NodeHost
	keeper    *keeper

	mu    sync.Mutex   // guards what follows
	conns []*mutedConn // made by it
}

// mutedConn is a connection that can be made to take what it is to send, and send nothing.
type mutedConn struct {
	net.Conn
	muted, closed atomic.Bool
}

func (c *mutedConn) Write(b []byte) (int, error) {
	if c.muted.Load() && !c.closed.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *mutedConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

func (n *raftNode) Dial(ctx context.Context, member uint64, purpose uint8) (net.Conn, error) {
	p, ok := n.node.Peers().Member(member)
	if !ok {
		return nil, link.ErrUnknown
	}
	conn, err := n.node.Dial(ctx, p.ID, purpose)
	if err != nil {
		return nil, err
	}
	c := &mutedConn{Conn: conn}
	n.mu.Lock()
	n.conns = append(n.conns, c)
	n.mu.Unlock()
	return c, nil
}

// each does something with all connections that were made, and returns how many there have been.
func (n *raftNode) each(do func(*mutedConn)) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		do(c)
	}
	return len(n.conns)
}

func newRaftNode(t *testing.T, number uint64) *raftNode {
	t.Helper()
	n := &raftNode{number: number, keeper: newKeeper()}
	n.transport = NewTransport(n, slog.New(slog.DiscardHandler))
	node, err := link.Open(link.Options{
		Identity: link.Identity{Node: link.NodeID(100 + number), Cluster: link.ClusterID{1}, Boot: 1, Number: number},
		Secret:   []byte("secret"),
		Accept: func(peer link.NodeID, _ uint64, purpose uint8, c net.Conn) {
			p, _ := n.node.Peers().Find(peer)
			n.transport.Accept(p.Number, purpose, c)
		}})
	if err != nil {
		t.Fatal(err)
	}
	n.node = node
	t.Cleanup(func() { node.Close() })
	a, err := node.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.addr = a.String()
	return n
}

// start starts the engine with its replica.
func (n *raftNode) start(t *testing.T, members map[uint64]dragonboat.Target, join bool) {
	t.Helper()
	logDB := config.GetTinyMemLogDBConfig()
	host, err := dragonboat.NewNodeHost(config.NodeHostConfig{DeploymentID: 7, NodeHostDir: t.TempDir(), RTTMillisecond: 20,
		RaftAddress: address(n.number), Expert: config.ExpertConfig{LogDBFactory: tan.Factory, LogDB: logDB, TransportFactory: n.transport}})
	if err != nil {
		t.Fatal(err)
	}
	n.host = host
	t.Cleanup(host.Close)
	if err := host.StartOnDiskReplica(members, join, func(uint64, uint64) sm.IOnDiskStateMachine { return n.keeper },
		config.Config{ReplicaID: n.number, ShardID: 1, ElectionRTT: 20, HeartbeatRTT: 2, PreVote: true, CheckQuorum: true,
			OrderedConfigChange: true}); err != nil {
		t.Fatal(err)
	}
}

// patiently does something until it succeeds.
func patiently(t *testing.T, what string, do func(context.Context) error) {
	t.Helper()
	end := time.Now().Add(40 * time.Second)
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		err := do(ctx)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Raft engines elect a leader over the transport, replicate, go on when connections are cut or nothing comes over them any
// more, and stream a snapshot to one that comes later.
func TestTransportOfEngines(t *testing.T) {
	for _, pkg := range []string{"raft", "rsm", "transport", "dragonboat", "logdb", "tan", "config", "settings", "utils"} {
		logger.GetLogger(pkg).SetLevel(logger.CRITICAL)
	}
	var nodes []*raftNode
	var book link.Book
	for number := range uint64(3) {
		n := newRaftNode(t, number+1)
		nodes = append(nodes, n)
		book = book.With(link.Peer{ID: link.NodeID(101 + number), Number: number + 1, Address: n.addr})
	}
	for _, n := range nodes {
		if err := n.node.SetPeers(book); err != nil {
			t.Fatal(err)
		}
	}
	founders := map[uint64]dragonboat.Target{1: address(1), 2: address(2)}
	for _, n := range nodes[:2] {
		n.start(t, founders, false)
	}
	proposed := 0
	propose := func(by *raftNode, count int) {
		t.Helper()
		for range count {
			cmd := make([]byte, 64<<10)
			binary.LittleEndian.PutUint64(cmd, uint64(proposed))
			proposed++
			patiently(t, "propose", func(ctx context.Context) error {
				_, err := by.host.SyncPropose(ctx, by.host.GetNoOPSession(1), cmd)
				return err
			})
		}
	}
	all := func(n *raftNode) {
		t.Helper()
		n.keeper.until(t, fmt.Sprintf("all commands on member %d", n.number), func() bool { return len(n.keeper.commands) == proposed })
	}
	propose(nodes[0], 20)
	propose(nodes[1], 20)
	all(nodes[0])
	all(nodes[1])
	for what, trouble := range map[string]func(*mutedConn){
		"cut":   func(c *mutedConn) { c.Close() },
		"muted": func(c *mutedConn) { c.muted.Store(true) },
	} {
		before := nodes[0].each(trouble) // what it sends gets lost, what the other one sends does not
		propose(nodes[0], 5)
		propose(nodes[1], 5)
		all(nodes[0])
		all(nodes[1])
		if after := nodes[0].each(func(*mutedConn) {}); before == 0 || after <= before {
			t.Errorf("%d connections, %d before they were %s", after, before, what)
		}
	}
	// A snapshot without which nobody can follow: the log is gone.
	for _, n := range nodes[:2] {
		patiently(t, "snapshot", func(ctx context.Context) error {
			_, err := n.host.SyncRequestSnapshot(ctx, 1, dragonboat.SnapshotOption{OverrideCompactionOverhead: true, CompactionOverhead: 1})
			return err
		})
	}
	patiently(t, "add a replica", func(ctx context.Context) error {
		m, err := nodes[0].host.SyncGetShardMembership(ctx, 1)
		if err != nil || m.Nodes[3] != "" {
			return err
		}
		return nodes[0].host.SyncRequestAddReplica(ctx, 1, 3, address(3), m.ConfigChangeID)
	})
	late := nodes[2]
	late.start(t, nil, true)
	all(late)
	propose(late, 5)
	all(late)
	late.keeper.mu.Lock()
	if late.keeper.recovered == 0 {
		t.Error("no snapshot came")
	}
	late.keeper.mu.Unlock()
	all(nodes[0])
	all(nodes[1])
}

package quorum

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/logger"
	"github.com/lni/dragonboat/v4/plugin/tan"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
	sm "github.com/lni/dragonboat/v4/statemachine"

	link "github.com/warrenmq/warren/cluster"
	"github.com/warrenmq/warren/test/seeds"
)

// wire is a network of two members in which a connection is one over loopback.
type wire struct {
	t  testing.TB
	to *Transport
	as uint64 // who dials
}

func (w wire) Dial(_ context.Context, _ uint64, purpose uint8) (net.Conn, error) {
	here, there := loopback(w.t)
	w.to.Accept(w.as, purpose, there)
	return here, nil
}

// loopback is both ends of a connection.
func loopback(t testing.TB) (here, there net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if here, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if there, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close(); there.Close() })
	return here, there
}

// carriers is the transports of members 1 and 2, where 2 gives what comes to the functions.
func carriers(t testing.TB, messages raftio.MessageHandler, chunks raftio.ChunkHandler) (one, two *carrier) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	second := NewTransport(nil, log)
	first := NewTransport(wire{t, second, 1}, log)
	two = second.Create(config.NodeHostConfig{RaftAddress: address(2)}, messages, chunks).(*carrier)
	one = first.Create(config.NodeHostConfig{RaftAddress: address(1)}, nil, nil).(*carrier)
	for _, k := range []*carrier{one, two} {
		if err := k.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { k.Close() })
	}
	return one, two
}

// messagesOf are a batch from member 1 with a proposal.
func messagesOf(cmd []byte) raftpb.MessageBatch {
	return raftpb.MessageBatch{SourceAddress: address(1), DeploymentId: 7, BinVer: raftio.TransportBinVersion,
		Requests: []raftpb.Message{{Type: raftpb.Replicate, From: 1, To: 2, ShardID: 16, Term: 3,
			Entries: []raftpb.Entry{{Term: 3, Index: 4, Cmd: cmd}}}}}
}

// soon receives what must come.
func soon[T any](t testing.TB, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(20 * time.Second):
		t.Fatal("waited too long")
	}
	return v
}

func TestTransportCarries(t *testing.T) {
	got := make(chan []byte, 10)
	data := make(chan []byte, 10)
	one, _ := carriers(t, func(b raftpb.MessageBatch) { got <- b.Requests[0].Entries[0].Cmd },
		func(c raftpb.Chunk) bool { data <- c.Data; return true })
	c, err := one.GetConnection(t.Context(), address(2))
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, 1, piece - 50, 3*piece + 1, 10} {
		cmd := bytes.Repeat([]byte{byte(size), 2, 3}, size/3+1)[:size]
		if err := c.SendMessageBatch(messagesOf(cmd)); err != nil {
			t.Fatal(err)
		}
		if b := soon(t, got); !bytes.Equal(b, cmd) {
			t.Fatalf("%d octets, not %d", len(b), size)
		}
	}
	c.Close()
	s, err := one.GetSnapshotConnection(t.Context(), address(2))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if err := s.SendChunk(raftpb.Chunk{From: 1, ReplicaID: 2, ChunkId: uint64(i), Data: bytes.Repeat([]byte{byte(i)}, 2<<20)}); err != nil {
			t.Fatal(err)
		}
	}
	s.Close() // when it returns, the other side has it all
	if len(data) != 5 {
		t.Errorf("%d chunks when the connection is closed", len(data))
	}
	for i := range 5 {
		if b := soon(t, data); len(b) != 2<<20 || b[0] != byte(i) {
			t.Errorf("chunk %d: %d octets of %d", i, len(b), b[0])
		}
	}
	for _, target := range []string{"warren-0:25672", "warren-02:25672", "warren-2", "localhost:25672", "warren-2:25672x", ""} {
		if _, err := one.GetConnection(t.Context(), target); err == nil || one.Validate(target) {
			t.Errorf("%q is an address", target)
		}
	}
	if !one.Validate(address(12)) {
		t.Error("no address")
	}
}

// What a member sends that is not of the protocol, or that the engine would not survive, ends the connection.
func TestTransportMalformed(t *testing.T) {
	frame := func(kind uint8, body []byte) []byte {
		b := append(make([]byte, transportHead), body...)
		binary.LittleEndian.PutUint32(b, uint32(len(body)))
		b[4] = kind
		binary.LittleEndian.PutUint32(b[8:], frameSum(b))
		return b
	}
	messages := func(change func(*raftpb.MessageBatch)) []byte {
		batch := messagesOf([]byte("x"))
		change(&batch)
		return frame(kindMessages, raftpb.MustMarshal(&batch))
	}
	chunk := func(c raftpb.Chunk) []byte { return frame(kindChunk, raftpb.MustMarshal(&c)) }
	good := messages(func(*raftpb.MessageBatch) {})
	for i, tc := range []struct {
		purpose uint8
		octets  []byte
	}{
		{PurposeMessages, []byte("GET / HTTP/1.1\r\n\r\n")},
		{PurposeMessages, frame(0, []byte("x"))},
		{PurposeMessages, frame(kindMessages, nil)},
		{PurposeMessages, frame(kindMessages, []byte("x"))},
		{PurposeMessages, frame(kindMessages, []byte{1<<3 | 2, 200, 1})},
		{PurposeMessages, frame(kindMessages, []byte{1<<3 | 2, 0, 1<<3 | 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})},
		{PurposeMessages, frame(kindEnd, nil)},
		{PurposeMessages, chunk(raftpb.Chunk{From: 1, ReplicaID: 2})},
		{PurposeMessages, append(slices.Clone(good[:len(good)-1]), 'y')},
		{PurposeMessages, append(binary.LittleEndian.AppendUint32(nil, maxMessages+1), good[4:]...)},
		{PurposeMessages, append(append(slices.Clone(good[:5]), 2), good[6:]...)},
		{PurposeMessages, messages(func(b *raftpb.MessageBatch) { b.SourceAddress = address(3) })},
		{PurposeMessages, messages(func(b *raftpb.MessageBatch) { b.Requests[0].To = 0 })},
		{PurposeMessages, messages(func(b *raftpb.MessageBatch) { b.Requests[0].Type = raftpb.InstallSnapshot })},
		{PurposeMessages, messages(func(b *raftpb.MessageBatch) { b.Requests[0].Type = raftpb.LocalTick })},
		{PurposeSnapshot, good},
		{PurposeSnapshot, frame(kindEnd, []byte("x"))},
		{PurposeSnapshot, frame(kindChunk, []byte("x"))},
		{PurposeSnapshot, chunk(raftpb.Chunk{From: 3, ReplicaID: 2})},
		{PurposeSnapshot, chunk(raftpb.Chunk{From: 1, ReplicaID: 1})},
		{PurposeSnapshot, chunk(raftpb.Chunk{From: 1, ReplicaID: 2, ChunkId: 9})}, // the engine says no
		{9, nil},
	} {
		_, two := carriers(t, func(b raftpb.MessageBatch) { t.Errorf("%d: the engine got %+v", i, b) },
			func(c raftpb.Chunk) bool { return c.ChunkId != 9 })
		here, there := loopback(t)
		two.Accept(1, tc.purpose, there)
		here.SetDeadline(time.Now().Add(20 * time.Second))
		here.Write(tc.octets)
		_, err := io.Copy(io.Discard, here)
		if e, ok := err.(net.Error); ok && e.Timeout() {
			t.Errorf("%d: the connection is still there", i)
		}
		two.Close()
	}
	// What is well formed arrives.
	got := make(chan struct{}, 1)
	_, two := carriers(t, func(raftpb.MessageBatch) { got <- struct{}{} }, nil)
	here, there := loopback(t)
	two.Accept(1, PurposeMessages, there)
	here.Write(good)
	soon(t, got)
}

// A connection on which nothing comes back is given up, whether what is sent disappears or the other side does not read it.
func TestTransportStalled(t *testing.T) {
	one, _ := carriers(t, nil, nil)
	for _, tc := range []struct {
		size  int
		every time.Duration
		want  error
	}{
		{10, time.Millisecond, errUnheard},           // the system takes all
		{1 << 20, time.Hour, os.ErrDeadlineExceeded}, // it does not, and there is no question
	} {
		here, _ := loopback(t)
		s, err := one.sender(here, 200*time.Millisecond, tc.every)
		if err != nil {
			t.Fatal(err)
		}
		s.asked = time.Now()
		batch := messagesOf(make([]byte, tc.size))
		late := time.AfterFunc(20*time.Second, func() { here.Close() })
		for end := time.Now().Add(20 * time.Second); err == nil && time.Now().Before(end); time.Sleep(time.Millisecond) {
			err = s.SendMessageBatch(batch)
		}
		if !errors.Is(err, tc.want) {
			t.Errorf("batches of %d octets: %v", tc.size, err)
		}
		late.Stop()
		s.Close()
	}
}

// Questions are answered, and an answer to nothing ends the connection.
func TestTransportAsks(t *testing.T) {
	arrived := make(chan struct{}, 1)
	one, two := carriers(t, func(raftpb.MessageBatch) { arrived <- struct{}{} }, nil)
	here, there := loopback(t)
	two.Accept(1, PurposeMessages, there)
	s, err := one.sender(here, time.Minute, 0)
	if err != nil {
		t.Fatal(err)
	}
	settled := func(done func() bool) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Microsecond) {
			s.mu.Lock()
			ok := done()
			s.mu.Unlock()
			if ok {
				return
			}
			if time.Now().After(end) {
				t.Fatal("waited too long")
			}
		}
	}
	for range 50 {
		before := s.asked
		if err := s.SendMessageBatch(messagesOf(nil)); err != nil {
			t.Fatal(err)
		}
		if s.asked == before {
			t.Fatal("not asked")
		}
		soon(t, arrived)
		settled(func() bool { return !s.owed })
	}
	there.Write([]byte{heard})
	settled(func() bool { return errors.Is(s.why, errMalformed) })
	if err := s.SendMessageBatch(messagesOf(nil)); err == nil {
		t.Error("sent")
	}
}

// Close ends all connections and what reads them, in either direction; afterwards none is let in or made.
func TestTransportClose(t *testing.T) {
	one, two := carriers(t, func(raftpb.MessageBatch) {}, nil)
	var conns []*sender
	for range 5 {
		c, err := one.dial(t.Context(), address(2), PurposeMessages, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	two.Close()
	for _, c := range conns {
		<-c.ended
		if err := c.SendMessageBatch(messagesOf(nil)); err == nil {
			t.Error("sent")
		}
	}
	here, there := loopback(t)
	two.Accept(1, PurposeMessages, there)
	here.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := here.Read(make([]byte, 1)); err != io.EOF {
		t.Error(err)
	}
	one.Close()
	if _, err := one.dial(t.Context(), address(2), PurposeMessages, time.Minute); err != errStopped {
		t.Error(err)
	}
	if len(one.conns)+len(two.conns) != 0 {
		t.Error(len(one.conns), len(two.conns))
	}
}

// octets is a connection that has said all that it will.
type octets struct{ net.Conn }

func (octets) Write(b []byte) (int, error)      { return len(b), nil }
func (octets) SetReadDeadline(time.Time) error  { return nil }
func (octets) SetWriteDeadline(time.Time) error { return nil }

// sealed is a frame that asks, with a checksum yet to come.
func sealed(kind uint8, body []byte) []byte {
	b := append(make([]byte, transportHead), body...)
	binary.LittleEndian.PutUint32(b, uint32(len(body)))
	b[4], b[5] = kind, 1
	return b
}

// samples are what connections of both purposes carry, with all that the engine may put in.
func samples() (messages, chunks []byte) {
	members := raftpb.Membership{ConfigChangeId: 5, Addresses: map[uint64]string{1: address(1), 2: address(2)},
		Removed: map[uint64]bool{3: true}, NonVotings: map[uint64]string{4: address(4)}, Witnesses: map[uint64]string{5: "x"}}
	file := raftpb.SnapshotFile{Filepath: "/file", FileSize: 9, FileId: 8, Metadata: []byte("meta")}
	batch := messagesOf([]byte("command"))
	m := &batch.Requests[0]
	m.Entries = append(m.Entries, raftpb.Entry{Type: raftpb.EncodedEntry, Term: 1 << 40, Index: 1 << 50, Key: 1 << 60, ClientID: 300,
		SeriesID: 2, RespondedTo: 1 << 20, Cmd: make([]byte, 200)}, raftpb.Entry{})
	m.LogTerm, m.LogIndex, m.Commit, m.Reject, m.Hint, m.HintHigh = 1, 1<<40, 3, true, 1<<63, 7
	batch.Requests = append(batch.Requests, *m, raftpb.Message{Type: raftpb.Heartbeat, To: 2, From: 1, Snapshot: raftpb.Snapshot{
		Filepath: "/path", Index: 4, Membership: members, Files: []*raftpb.SnapshotFile{&file}, Checksum: []byte("sum")}})
	chunk := raftpb.Chunk{From: 1, ReplicaID: 2, Data: []byte("data"), Membership: members, HasFileInfo: true, FileInfo: file, Filepath: "/x"}
	return sealed(kindMessages, raftpb.MustMarshal(&batch)), append(sealed(kindChunk, raftpb.MustMarshal(&chunk)), sealed(kindEnd, nil)...)
}

// survive reads what comes over a connection, with checksums that are right as far as frames are whole.
func survive(t *testing.T, purpose uint8, b []byte) {
	for at := 0; len(b)-at >= transportHead; {
		size := int(binary.LittleEndian.Uint32(b[at:]))
		if size > len(b)-at-transportHead {
			break
		}
		one := b[at : at+transportHead+size]
		binary.LittleEndian.PutUint32(one[8:], frameSum(one))
		at += len(one)
	}
	k := &carrier{own: 2, messages: func(b raftpb.MessageBatch) {
		for _, m := range b.Requests {
			if m.To == 0 || m.Type == raftpb.InstallSnapshot {
				t.Fatalf("let through: %+v", m)
			}
		}
	}, chunks: func(raftpb.Chunk) bool { return true }}
	r := frames{c: octets{}, r: bufio.NewReader(bytes.NewReader(b)), purpose: purpose}
	for {
		err := r.next(func(kind uint8, body []byte) error { return k.take(1, kind, body) })
		if err != nil {
			return
		}
	}
}

// A frame takes memory as it comes: a head that says more costs nothing.
func TestTransportMemory(t *testing.T) {
	r := frames{c: octets{}, r: bufio.NewReader(bytes.NewReader(make([]byte, 5*piece/2)))}
	b, err := r.rest(nil, maxMessages)
	if err != io.ErrUnexpectedEOF || len(b) != 2*piece || cap(b) > 6*piece {
		t.Errorf("%d octets of memory, %d of them read: %v", cap(b), len(b), err)
	}
}

// FuzzTransport: whatever comes over a connection, it is read without harm.
func FuzzTransport(f *testing.F) {
	messages, chunks := samples()
	f.Add(PurposeMessages, messages)
	f.Add(PurposeSnapshot, chunks)
	f.Add(PurposeMessages, append(binary.LittleEndian.AppendUint32(nil, maxMessages), kindMessages, 0, 0, 0, 0, 0, 0, 0))
	f.Fuzz(func(t *testing.T, purpose uint8, b []byte) { survive(t, purpose, slices.Clone(b)) })
}

// TestTransportDamaged is the same for what was good before.
func TestTransportDamaged(t *testing.T) {
	rnd := rand.New(rand.NewPCG(seeds.Of(t), 0))
	messages, chunks := samples()
	for i := range 20_000 {
		good, purpose := messages, PurposeMessages
		if i%3 == 0 {
			good, purpose = chunks, PurposeSnapshot
		}
		b := slices.Clone(good)
		for range rnd.IntN(4) {
			at := transportHead + rnd.IntN(len(b)-transportHead)
			switch rnd.IntN(5) {
			case 0:
				b[at] = byte(rnd.Uint32())
			case 1:
				b[at] ^= 1 << rnd.IntN(8)
			case 2:
				for range min(10, len(b)-at) {
					b[at] = 0xff
					at++
				}
			case 3:
				b = slices.Delete(b, at, at+rnd.IntN(len(b)-at))
			case 4:
				b = slices.Insert(b, at, b[transportHead:at]...)
			}
			if len(b) == transportHead {
				break
			}
		}
		binary.LittleEndian.PutUint32(b, uint32(len(b)-transportHead))
		survive(t, purpose, b)
	}
}

// BenchmarkTransport is batches with a proposal of 256 KiB from one member to another, both in this process.
func BenchmarkTransport(b *testing.B) {
	for _, size := range []int{256 << 10, 1 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			done := make(chan struct{})
			got, want := 0, b.N
			one, _ := carriers(b, func(raftpb.MessageBatch) {
				if got++; got == want {
					close(done)
				}
			}, nil)
			c, err := one.GetConnection(b.Context(), address(2))
			if err != nil {
				b.Fatal(err)
			}
			batch := messagesOf(make([]byte, size))
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				if err := c.SendMessageBatch(batch); err != nil {
					b.Fatal(err)
				}
			}
			<-done
		})
	}
}

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

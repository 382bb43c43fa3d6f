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
	"testing"
	"time"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"

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

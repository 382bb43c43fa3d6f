package quorum

import (
	"errors"
	"io"
	"maps"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
)

// signs are a batch of member 1 with a sign of life of each shard.
func signs(hint uint64, shards ...uint64) raftpb.MessageBatch {
	b := raftpb.MessageBatch{SourceAddress: address(1), DeploymentId: 7, BinVer: raftio.TransportBinVersion}
	for _, s := range shards {
		b.Requests = append(b.Requests, raftpb.Message{Type: raftpb.Heartbeat, From: 1, To: 2, ShardID: s, Term: 3, Hint: hint})
	}
	return b
}

// connected is a connection on which something was just sent, so that signs of life may wait.
func connected(t *testing.T, k *carrier) *sender {
	t.Helper()
	s, err := k.dial(t.Context(), address(2), PurposeMessages, messagesPatience)
	if err != nil {
		t.Fatal(err)
	}
	s.pulse, s.every, s.wrote = k.pulse(address(2)), time.Hour, time.Now()
	return s
}

// Signs of life of all shards, sent on several connections, come together, and the next ones, too; what somebody waits for comes at once.
func TestPulse(t *testing.T) {
	got := make(chan raftpb.MessageBatch, 10)
	one, _ := carriers(t, func(b raftpb.MessageBatch) { got <- b }, nil)
	a, b := connected(t, one), connected(t, one)
	for range 3 {
		a.pulse.mu.Lock()
		a.pulse.due = true // as if the last ones were being written: it is said here when they are
		a.pulse.mu.Unlock()
		for s, batch := range map[*sender]raftpb.MessageBatch{a: signs(0, 1, 16), b: signs(0, 17, 18)} {
			if err := s.SendMessageBatch(batch); err != nil {
				t.Fatal(err)
			}
			clear(batch.Requests) // they are the engine's again
		}
		a.pulse.beat()
		shards := map[uint64]bool{}
		for _, m := range soon(t, got).Requests {
			shards[m.ShardID] = m.Type == raftpb.Heartbeat && m.Term == 3
		}
		if want := (map[uint64]bool{1: true, 16: true, 17: true, 18: true}); !maps.Equal(shards, want) {
			t.Fatalf("one frame with %v", shards)
		}
	}
	if err := b.SendMessageBatch(signs(0, 20)); err != nil { // and nobody has to say it
		t.Fatal(err)
	}
	if m := soon(t, got).Requests; len(m) != 1 || m[0].ShardID != 20 {
		t.Fatalf("%v came", m)
	}
	a.pulse.mu.Lock() // whoever waited for the pulse would do so for ever
	for _, x := range []raftpb.MessageBatch{signs(9, 16), messagesOf(nil)} {
		if err := a.SendMessageBatch(x); err != nil {
			t.Fatal(err)
		}
		if m := soon(t, got).Requests[0]; m.Type != x.Requests[0].Type || m.Hint != x.Requests[0].Hint {
			t.Errorf("%v came, not %v", m.Type, x.Requests[0].Type)
		}
	}
	a.wrote = time.Time{} // nothing was sent for so long that this one is to show whether anybody is there
	if err := a.SendMessageBatch(signs(0, 16)); err != nil {
		t.Fatal(err)
	}
	if m := soon(t, got).Requests[0]; m.Type != raftpb.Heartbeat {
		t.Errorf("%v came", m.Type)
	}
	a.pulse.mu.Unlock()
}

// Who sends signs of life hears that the connection has ended, be it that nobody writes on it or that the pulse cannot.
func TestPulseOfTheDead(t *testing.T) {
	one, two := carriers(t, func(raftpb.MessageBatch) {}, nil)
	a, b := connected(t, one), connected(t, one)
	two.Close()
	for _, s := range []*sender{a, b} {
		<-s.ended
		if err := s.SendMessageBatch(signs(0, 16)); !errors.Is(err, io.EOF) {
			t.Errorf("a sign of life on a connection that has ended: %v", err)
		}
	}
	here, _ := loopback(t)
	s, err := one.sender(here, 100*time.Millisecond, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	s.pulse, s.wrote = &pulse{}, time.Now()
	here.(interface{ CloseWrite() error }).CloseWrite()
	if err := s.SendMessageBatch(signs(0, 16)); err != nil {
		t.Fatal(err)
	}
	<-s.ended
	if err := s.SendMessageBatch(signs(0, 16)); err == nil {
		t.Error("sent after a pulse that could not be")
	}
}

package quorum

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4/raftpb"
)

// mast is a Network that can be down. It keeps what it has connected last.
type mast struct {
	wire
	mu     sync.Mutex // guards what follows
	down   bool
	dialed int
	last   net.Conn
}

func (m *mast) Dial(ctx context.Context, member uint64, purpose uint8) (net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dialed++; m.down {
		return nil, errors.New("down")
	}
	c, err := m.wire.Dial(ctx, member, purpose)
	m.last = c
	return c, err
}

func (m *mast) set(down bool) (dialed int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = down
	return m.dialed
}

// TestLine: the engine hears of no error, and messages arrive soon after the network is there, and when a connection has ended.
func TestLine(t *testing.T) {
	got := make(chan struct{}, 1000)
	one, two := carriers(t, func(raftpb.MessageBatch) { got <- struct{}{} }, nil)
	m := &mast{wire: wire{t, two.Transport, 1}, down: true}
	one.Transport.network = m
	c, err := one.GetConnection(t.Context(), address(2))
	if err != nil {
		t.Fatal(err)
	}
	send := func() {
		t.Helper()
		if err := c.SendMessageBatch(messagesOf(nil)); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 {
		send()
	}
	if n := m.set(true); n > 10 {
		t.Errorf("dialed %d times in a moment", n)
	}
	m.set(false)
	for end := time.Now().Add(2 * longLinePause); len(got) == 0; time.Sleep(time.Millisecond) {
		if send(); time.Now().After(end) {
			t.Fatal("nothing arrives, though the network is there")
		}
	}
	for range 5 { // however often it ends
		m.last.Close()
		<-c.(*line).s.ended
		for len(got) > 0 {
			<-got
		}
		send()
		soon(t, got)
	}
	c.Close()
	if len(one.conns) != 0 {
		t.Errorf("%d connections are left", len(one.conns))
	}
}

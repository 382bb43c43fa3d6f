package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// given is a connection that a node under test was handed.
type given struct {
	peer    NodeID
	boot    uint64
	purpose uint8
	net.Conn
}

// owner is a node under test with an owner of connections.
func owner(t *testing.T, id NodeID, change func(*Options)) (*seat, chan given) {
	t.Helper()
	got := make(chan given, 100)
	s := sit(t, id, uint64(id), func(o *Options) {
		o.Accept = func(peer NodeID, boot uint64, purpose uint8, c net.Conn) { got <- given{peer, boot, purpose, c} }
		if change != nil {
			change(o)
		}
	})
	return s, got
}

// dialed is Dial where it must succeed.
func dialed(t *testing.T, s *seat, peer NodeID, purpose uint8) net.Conn {
	t.Helper()
	c, err := s.node.Dial(t.Context(), peer, purpose)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return c
}

// ended waits for the end of a connection on which nothing comes any more.
func ended(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, err := c.Read(make([]byte, 1))
	if e, ok := err.(net.Error); err == nil || ok && e.Timeout() {
		t.Errorf("the connection is still there: %v", err)
	}
}

func (n *Node) countOwned() (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.peers {
		count += len(p.owned)
	}
	return count
}

func TestOwned(t *testing.T) {
	for _, conf := range []*tls.Config{nil, testTLS(t)} {
		t.Run(fmt.Sprint(conf != nil), func(t *testing.T) {
			secured := func(o *Options) { o.TLS = conf }
			a, toA := owner(t, 1, secured)
			b, toB := owner(t, 2, secured)
			if _, err := a.node.Dial(t.Context(), 2, 7); err != ErrUnknown {
				t.Error(err)
			}
			meet(a, b)
			for _, way := range []struct {
				from *seat
				to   chan given
				peer NodeID
			}{{a, toB, 2}, {b, toA, 1}} {
				c := dialed(t, way.from, way.peer, 200+uint8(way.peer))
				g := soon(way.to)
				if id := way.from.node.Identity(); g.peer != id.Node || g.boot != id.Boot || g.purpose != 200+uint8(way.peer) {
					t.Error(g)
				}
				// It is a connection like any other, both ways, until one side closes it.
				for _, pair := range [][2]net.Conn{{c, g}, {g, c}} {
					text := "some octets"
					if _, err := pair[0].Write([]byte(text)); err != nil {
						t.Fatal(err)
					}
					buf := make([]byte, len(text))
					if _, err := io.ReadFull(pair[1], buf); err != nil || string(buf) != text {
						t.Fatalf("%q, %v", buf, err)
					}
				}
				c.Close()
				ended(t, g)
				g.Close()
			}
			if x, y := a.node.countOwned(), b.node.countOwned(); x != 0 || y != 0 {
				t.Errorf("%d and %d connections are still counted", x, y)
			}
		})
	}
}

// Whoever may not have a link may not have a connection with an owner either; both sides learn why.
func TestOwnedRefused(t *testing.T) {
	n, got := owner(t, 9, nil)
	if err := n.node.SetPeers(Book{{ID: 1}}); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		reason Reason
		change func(*Options)
	}{
		{WrongSecret, func(o *Options) { o.Secret = []byte("another") }},
		{WrongCluster, func(o *Options) { o.Identity.Cluster = ClusterID{2} }},
		{UnknownNode, func(o *Options) { o.Identity.Node = 3 }},
	} {
		x := sit(t, 1, 1, tc.change)
		x.node.SetPeers(Book{n.peer()})
		c, err := x.node.Dial(t.Context(), 9, 1)
		var r *Refusal
		if !errors.As(err, &r) || r.Reason != tc.reason || c != nil {
			t.Errorf("%v: %v", tc.reason, err)
		}
	}
	// Where nobody takes them, there are none.
	without, x := sit(t, 8, 1, nil), sit(t, 1, 1, nil)
	meet(without, x)
	var r *Refusal
	if _, err := x.node.Dial(t.Context(), 8, 1); !errors.As(err, &r) || r.Reason != WrongClass {
		t.Error(err)
	}
	// An old copy of a peer.
	if _, err := scripted(t, n, 1, 5, func(o *opening) { o.own.class, o.own.purpose = owning, 3 }); err != nil {
		t.Fatal(err)
	}
	if g := soon(got); g.boot != 5 || g.purpose != 3 {
		t.Error(g)
	}
	_, err := scripted(t, n, 1, 4, func(o *opening) { o.own.class = owning })
	if !errors.As(err, &r) || r.Reason != OldBoot {
		t.Error(err)
	}
	if len(got) != 0 {
		t.Error("a connection was handed over")
	}
}

// The number of connections is bounded, on either side.
func TestOwnedBounded(t *testing.T) {
	a, _ := owner(t, 1, func(o *Options) { o.Owned = 4 })
	b, got := owner(t, 2, func(o *Options) { o.Owned = 3 })
	meet(a, b)
	for range 3 {
		dialed(t, a, 2, 1)
	}
	_, err := a.node.Dial(t.Context(), 2, 1)
	var r *Refusal
	if !errors.As(err, &r) || r.Reason != TooMany || !r.ByPeer || r.Peer != 2 {
		t.Error(err)
	}
	if _, err := b.node.Dial(t.Context(), 1, 1); err != ErrBusy {
		t.Error(err)
	}
	if n := a.node.countOwned(); n != 3 {
		t.Errorf("%d connections are counted", n)
	}
	soon(got).Close()
	dialed(t, a, 2, 1)
}

// The connections of a member that is removed are closed, those of others are not.
func TestOwnedOfRemovedPeer(t *testing.T) {
	for _, conf := range []*tls.Config{nil, testTLS(t)} {
		secured := func(o *Options) { o.TLS = conf }
		a, toA := owner(t, 1, secured)
		b, toB := owner(t, 2, secured)
		c, toC := owner(t, 3, secured)
		meet(a, b, c)
		conns := []net.Conn{dialed(t, a, 2, 1), soon(toB), dialed(t, b, 1, 1), soon(toA)}
		others := []net.Conn{dialed(t, a, 3, 1), soon(toC)}
		if err := a.node.SetPeers(Book{c.peer()}); err != nil {
			t.Fatal(err)
		}
		for _, c := range conns {
			ended(t, c)
		}
		if _, err := others[0].Write([]byte("x")); err != nil {
			t.Error(err)
		}
		others[1].SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.ReadFull(others[1], make([]byte, 1)); err != nil {
			t.Error(err)
		}
		if n := a.node.countOwned(); n != 1 {
			t.Errorf("%d connections are counted", n)
		}
		if _, err := a.node.Dial(t.Context(), 2, 1); err != ErrUnknown {
			t.Error(err)
		}
	}
}

// Close closes all of them, and nobody gets one afterwards.
func TestOwnedOfClosedNode(t *testing.T) {
	a, toA := owner(t, 1, nil)
	b, toB := owner(t, 2, nil)
	meet(a, b)
	conns := []net.Conn{dialed(t, a, 2, 1), soon(toB), dialed(t, b, 1, 1), soon(toA)}
	a.node.Close()
	for _, c := range conns {
		ended(t, c)
	}
	if _, err := a.node.Dial(t.Context(), 2, 1); err != ErrClosed {
		t.Error(err)
	}
	if _, err := b.node.Dial(t.Context(), 1, 1); err == nil {
		t.Error("a closed node was reached")
	}
	if len(toA) != 0 || a.node.countOwned() != 0 {
		t.Error(len(toA), a.node.countOwned())
	}
}

// Whoever dials a peer that says nothing is not kept waiting for ever, and not by a context that has ended; nor is Close.
func TestOwnedOfSilentPeer(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, _ := owner(t, 1, func(o *Options) { o.Silence = 100 * time.Millisecond })
	if err := a.node.SetPeers(Book{{ID: 2, Address: l.Addr().String()}}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.node.Dial(t.Context(), 2, 1); err == nil {
		t.Error("no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.node.Dial(ctx, 2, 1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	dialing := make(chan struct{}, 100)
	slow, _ := owner(t, 1, func(o *Options) {
		o.Silence = time.Minute
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			dialing <- struct{}{}
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	})
	if err := slow.node.SetPeers(Book{{ID: 2, Address: l.Addr().String()}}); err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() {
		_, err := slow.node.Dial(t.Context(), 2, 1)
		result <- err
	}()
	for range 3 { // those of the links, and this one
		soon(dialing)
	}
	slow.node.Close()
	if err := soon(result); err != ErrClosed {
		t.Error(err)
	}
}

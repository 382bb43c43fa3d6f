package cluster

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestRefusals(t *testing.T) {
	for _, tc := range []struct {
		reason Reason
		change func(*opening)
		text   string
	}{
		{WrongSecret, func(o *opening) { o.secret = []byte("another") }, "does not know the secret"},
		{WrongCluster, func(o *opening) { o.own.cluster = ClusterID{2} }, "02000000000000000000000000000000"},
		{UnknownNode, func(o *opening) { o.own.node, o.own.name = 77, "evil\nname" }, "(evil?name)"},
		{SameNode, func(o *opening) { o.own.node = 9 }, "two nodes"},
		{OldBoot, func(o *opening) { o.own.boot = 2 }, "boot number 2 after 3"},
		{OldBoot, func(o *opening) { o.own.incarnation = 99 }, "started twice"},
		{WrongClass, func(o *opening) { o.own.class = 200 }, "class 200"},
		{WrongVersion, func(o *opening) { o.own.versions = Versions{2, 7} }, "one speaks version 1, the other versions 2 to 7"},
	} {
		t.Run(tc.reason.String(), func(t *testing.T) {
			n := alone(t, 9, 1, nil)
			p := play(t, n, 1, 3) // the node knows boot 3
			p.take(take{session: 1, next: 100})
			_, err := scripted(t, n, 1, 3, tc.change)
			var r *Refusal
			if !errors.As(err, &r) || r.Reason != tc.reason || !strings.Contains(r.Text, tc.text) {
				t.Fatal(err)
			}
			n.until("refusal", func() bool { return len(n.refused) == 1 })
			if own := n.refused[0]; own.Reason != tc.reason || own.Text != r.Text || own.ByPeer == r.ByPeer && r.Reason != WrongVersion {
				t.Errorf("%+v here, %+v there", own, r)
			}
			// The connection that was there is still there.
			send(n.stream(1, Data, 1), 1, []byte("x"))
			p.expectData(1, 0, "x")
		})
	}
}

// Two real nodes that refuse each other both say why; the same is not said again and again.
func TestRefusalsOfNodes(t *testing.T) {
	for _, tc := range []struct {
		reason Reason
		change func(*Options)
	}{
		{WrongSecret, func(o *Options) { o.Secret = []byte("another") }},
		{WrongCluster, func(o *Options) { o.Identity.Cluster = ClusterID{2} }},
	} {
		a, b := sit(t, 1, 1, nil), sit(t, 2, 1, tc.change)
		meet(a, b)
		for _, s := range []*seat{a, b} {
			s.until("refusal", func() bool { return len(s.refused) > 0 && s.refused[0].Reason == tc.reason })
		}
		// What was refused is tried again, and reported once for each peer and reason.
		time.Sleep(100 * time.Millisecond)
		for _, s := range []*seat{a, b} {
			s.mu.Lock()
			if len(s.refused) != 1 {
				t.Error(s.refused)
			}
			s.mu.Unlock()
		}
	}
	// One who is not expected at an address.
	a, b := sit(t, 1, 1, nil), sit(t, 2, 1, nil)
	if err := b.node.SetPeers(Book{a.peer()}); err != nil {
		t.Fatal(err)
	}
	if err := a.node.SetPeers(Book{{ID: 2}, {ID: 3, Address: b.addr}}); err != nil {
		t.Fatal(err)
	}
	a.until("refusal", func() bool { return len(a.refused) > 0 })
	if r := a.refused[0]; r.Reason != WrongNode || r.ByPeer {
		t.Error(r)
	}
}

// taped is a connection whose octets are kept.
type taped struct {
	net.Conn
	mu            sync.Mutex
	read, written bytes.Buffer
}

func (c *taped) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read.Write(p[:n])
	return n, err
}

func (c *taped) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.written.Write(p)
	c.mu.Unlock()
	return c.Conn.Write(p)
}

// The secret is never sent, and what was sent once is worth nothing later, in either direction.
func TestNothingReplayable(t *testing.T) {
	n := alone(t, 9, 1, nil)
	var tape *taped
	if _, err := scripted(t, n, 1, 1, func(o *opening) {
		tape = &taped{Conn: o.conn}
		o.conn = tape
	}); err != nil {
		t.Fatal(err)
	}
	tape.mu.Lock()
	read, written := tape.read.Bytes(), tape.written.Bytes()
	tape.mu.Unlock()
	if bytes.Contains(read, secret) || bytes.Contains(written, secret) {
		t.Error("the secret was sent")
	}
	// Somebody says to the node what the other one said.
	c, err := net.Dial("tcp", n.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Write(written); err != nil {
		t.Fatal(err)
	}
	_, _, err = readHello(c)
	if err == nil {
		_, err = listen(c, sayProof, 32)
	}
	var r *Refusal
	if !errors.As(err, &r) || r.Reason != WrongSecret {
		t.Error("a dialer's words are good twice:", err)
	}
	// Somebody says to a dialer what the node said.
	here, there := net.Pipe()
	go func() {
		go io.Copy(io.Discard, there)
		there.Write(read)
	}()
	o := opening{conn: here, dialer: true, own: n.node.hello(Data), secret: secret, check: func(*hello) *Refusal { return nil }}
	here.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := o.run(); !errors.As(err, &r) || r.Reason != WrongSecret || r.ByPeer {
		t.Error("a listener's words are good twice:", err)
	}
	here.Close()
	// Somebody answers a dialer with its own words.
	here, there = net.Pipe()
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := there.Read(buf)
			if err != nil {
				return
			}
			there.Write(buf[:n])
		}
	}()
	here.SetDeadline(time.Now().Add(20 * time.Second))
	o.conn = here
	if _, err := o.run(); !errors.As(err, &r) || r.Reason != WrongSecret || r.ByPeer {
		t.Error("a dialer believes its own words:", err)
	}
	here.Close()
}

// A node in the middle that changes a hello, versions included, is found out.
func TestHelloIsProved(t *testing.T) {
	n := alone(t, 9, 1, nil)
	for _, at := range []int{10, helloHead, helloHead + 1, helloHead + 18, helloHead + 26, helloHead + 42, helloHead + 51} {
		_, err := scripted(t, n, 1, 1, func(o *opening) { o.conn = &meddler{o.conn, at} })
		var r *Refusal
		if !errors.As(err, &r) || r.Reason != WrongSecret {
			t.Errorf("octet %d: %v", at, err)
		}
	}
}

// meddler changes an octet of the first write.
type meddler struct {
	net.Conn
	at int
}

func (m *meddler) Write(p []byte) (int, error) {
	if m.at >= 0 {
		p = bytes.Clone(p)
		p[m.at] ^= 2
		m.at = -1
	}
	return m.Conn.Write(p)
}

// Who says nothing, or too little, is not waited for without end, and does not keep others out.
func TestSlowOpenings(t *testing.T) {
	t.Parallel()
	n := alone(t, 9, 1, func(o *Options) { o.Silence = time.Second })
	var conns []net.Conn
	for range maxHandshakes - 1 {
		c, err := net.Dial("tcp", n.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.Write([]byte(magic)[:len(conns)%8])
		conns = append(conns, c)
	}
	p := play(t, n, 1, 1)
	p.take(take{session: 1, next: 100})
	for _, c := range conns {
		c.SetReadDeadline(time.Now().Add(20 * time.Second))
		_, err := c.Read(make([]byte, 1))
		if e, ok := err.(net.Error); err == nil || ok && e.Timeout() {
			t.Error("the connection is still there")
		}
	}
}

package cluster

import (
	"context"
	"net"
	"sync"
	"time"
)

// owned is a connection that somebody else owns: he reads, writes and closes it, and sets its deadlines. The Node closes it
// when it ends itself, and when the peer is no member any more.
type owned struct {
	net.Conn
	node  *Node
	peer  *peer
	plain net.Conn // below TLS; Conn where there is none
	once  sync.Once
}

// Close closes the connection. Reads and writes that wait return.
func (c *owned) Close() error {
	c.forget()
	return c.Conn.Close()
}

// cut closes the connection at once: TLS would take the time to say goodbye.
func (c *owned) cut() {
	c.forget()
	c.plain.Close()
}

func (c *owned) forget() {
	c.once.Do(func() {
		c.node.mu.Lock()
		delete(c.peer.owned, c)
		c.node.mu.Unlock()
	})
}

// Dial makes a connection to a peer for a purpose that is the caller's to choose, and whose meaning the owner on the other side
// knows, who has got it (Options.Accept) when Dial returns. It is authenticated, and encrypted with TLS, as the links are.
//
// The connection belongs to the caller, who closes it and sets its deadlines: it has none, and nobody else looks whether the
// peer is alive. It breaks when the Node is closed and when the peer leaves the book. A link that is lost does not break it.
//
// Dial ends with the context, and after max(1 s, twice Options.Silence) in any case. The error is ErrUnknown for who is no
// member or has no address, ErrBusy where there are Options.Owned connections already, a Refusal where one of the two sides
// says no.
func (n *Node) Dial(ctx context.Context, id NodeID, purpose uint8) (net.Conn, error) {
	n.mu.Lock()
	p, err := n.roomFor(id)
	if err != nil {
		n.mu.Unlock()
		return nil, err
	}
	address := p.Address
	n.mu.Unlock()
	if address == "" {
		return nil, ErrUnknown
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.quit, cancel)()
	own := n.hello(owning)
	own.purpose = purpose
	var mine *owned
	err = n.reach(ctx, id, address, own, func(c, plain net.Conn, h *hello, stop func() bool) (err error) {
		if mine, err = n.own(c, plain, h); err != nil {
			return err
		}
		if _, err = listen(c, sayGiven, 0); err == nil && !stop() {
			err = net.ErrClosed
		}
		if r, ok := err.(*Refusal); ok {
			r.Peer, r.Addr = h.node, address
		}
		if err != nil {
			mine.cut()
		}
		return err
	})
	if err != nil {
		switch {
		case n.quit.Err() != nil:
			err = ErrClosed
		case ctx.Err() != nil:
			err = ctx.Err()
		}
		return nil, err
	}
	mine.SetDeadline(time.Time{})
	return mine, nil
}

// give hands a connection that a peer has made to its owner.
func (n *Node) give(c, plain net.Conn, h *hello) error {
	mine, err := n.own(c, plain, h)
	if err == ErrBusy {
		r := refuse(TooMany, "there are %d connections of nodes %v and %v", n.o.Owned, n.o.Identity.Node, h.node)
		r.Peer, r.Addr = h.node, c.RemoteAddr().String()
		r.send(c)
		return r
	}
	if err != nil {
		return err
	}
	if err := say(c, sayGiven, nil); err != nil {
		mine.cut()
		return err
	}
	mine.SetDeadline(time.Time{})
	n.o.Accept(h.node, h.boot, h.purpose, mine)
	return nil
}

// own makes a connection to a peer one that has an owner.
func (n *Node) own(c, plain net.Conn, h *hello) (*owned, error) {
	if !n.seen(h) {
		return nil, errReplaced
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	p, err := n.roomFor(h.node)
	if err != nil {
		return nil, err
	}
	mine := &owned{Conn: c, node: n, peer: p, plain: plain}
	p.owned[mine] = struct{}{}
	return mine, nil
}

// roomFor returns a peer that may have one more connection with an owner. The caller holds mu.
func (n *Node) roomFor(id NodeID) (*peer, error) {
	p := n.peers[id]
	switch {
	case n.closed:
		return nil, ErrClosed
	case p == nil:
		return nil, ErrUnknown
	case len(p.owned) >= n.o.Owned:
		return nil, ErrBusy
	}
	return p, nil
}

package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/socket"
)

// Node is this node's end of the links to all others. Its methods may be called concurrently.
type Node struct {
	o           Options
	start       time.Time // what now counts from
	incarnation uint64
	chunks      chunks
	sessions    atomic.Uint64
	farewell    time.Duration   // the most that a link takes to write what was sent, when it is closed
	quit        context.Context // ends with Close
	end         context.CancelFunc
	work        sync.WaitGroup // goroutines that are not a link's own
	openings    chan struct{}  // a slot for each connection that others opened and that is not a link's yet

	mu        sync.Mutex // guards what follows; a leaf
	closed    bool
	listeners []net.Listener
	peers     map[NodeID]*peer
	reported  map[reported]time.Time // when Refused was called
}

// peer is a member other than this node.
type peer struct {
	Peer               // Boot is raised as the peer comes with higher ones
	incarnation uint64 // of that boot; 0 if it has not come yet
	starts      uint64 // that it then said were confirmed, and
	mark        uint64 // its mark
	links       [2]*link
	owned       map[*owned]struct{} // connections that somebody else owns
}

// classes are those that have links, by their place in peer.links.
var classes = [2]Class{Control, Data}

type reported struct {
	peer   NodeID
	reason Reason
	proved bool
}

// Open makes a node that knows no others. It ends with Close.
func Open(o Options) (*Node, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &Node{o: o, incarnation: random64(), start: time.Now(), farewell: 500 * time.Millisecond,
		openings: make(chan struct{}, maxHandshakes), peers: make(map[NodeID]*peer), reported: make(map[reported]time.Time)}
	n.quit, n.end = context.WithCancel(context.Background())
	return n, nil
}

// Identity is who the node is.
func (n *Node) Identity() Identity { return n.o.Identity }

// Listen lets others connect to an address, host:port, and returns the one it is, where the port was 0.
func (n *Node) Listen(address string) (net.Addr, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	return l.Addr(), n.Serve(l)
}

// Serve lets others connect to a listener, which is the Node's from now on.
func (n *Node) Serve(l net.Listener) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		l.Close()
		return ErrClosed
	}
	n.listeners = append(n.listeners, l)
	n.work.Add(1)
	go n.accept(l)
	return nil
}

// ErrClosed is returned by a Node that was closed.
var ErrClosed = errors.New("cluster: closed")

// SetPeers says who the members are. The node itself may be among them. Links to those who are new are opened, those to who
// is gone, or an older copy of what he was, are closed, as are the connections with owners: their streams are dead, also if he comes back. The book is not
// changed afterwards.
func (n *Node) SetPeers(b Book) error {
	if err := b.Check(); err != nil {
		return err
	}
	var gone []*link
	var lost []*owned
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return ErrClosed
	}
	for id, p := range n.peers {
		if m, stays := b.Find(id); !stays || p.incarnation != 0 && m.outdated(p.starts, p.mark) {
			gone = append(gone, p.links[:]...)
			lost = slices.AppendSeq(lost, maps.Keys(p.owned))
			delete(n.peers, id)
		}
	}
	for _, m := range b {
		if m.ID == n.o.Identity.Node {
			continue
		}
		p := n.peers[m.ID]
		if p == nil {
			p = &peer{Peer: m, owned: make(map[*owned]struct{})}
			for i, c := range classes {
				p.links[i] = newLink(n, m.ID, c)
			}
			n.peers[m.ID] = p
		}
		m.Boot = max(m.Boot, p.Boot)
		p.Peer = m
		for _, l := range p.links {
			l.address(m.Address)
		}
	}
	n.mu.Unlock()
	for _, c := range lost {
		c.cut()
	}
	for _, l := range gone {
		l.close()
	}
	for _, l := range gone {
		<-l.done
	}
	return nil
}

// Peers returns the members other than this node, with the highest boot numbers they came with.
func (n *Node) Peers() Book {
	n.mu.Lock()
	defer n.mu.Unlock()
	var b Book
	for _, p := range n.peers {
		b = b.With(p.Peer)
	}
	return b
}

// ErrUnknown is returned for a node that is no member.
var ErrUnknown = errors.New("cluster: unknown node")

// link returns the link of a class to a peer, nil if there is none.
func (n *Node) link(id NodeID, c Class) *link {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.peers[id]; p != nil {
		for i := range classes {
			if classes[i] == c {
				return p.links[i]
			}
		}
	}
	return nil
}

// Close says goodbye to all others, after what was sent before, for half a second at the most, and ends the node.
func (n *Node) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return ErrClosed
	}
	n.closed = true
	listeners, peers := n.listeners, n.peers
	var lost []*owned
	for _, p := range peers {
		lost = slices.AppendSeq(lost, maps.Keys(p.owned))
	}
	n.mu.Unlock()
	n.end()
	for _, c := range lost {
		c.cut()
	}
	for _, l := range listeners {
		l.Close()
	}
	for _, p := range peers {
		for _, l := range p.links {
			l.close()
		}
	}
	for _, p := range peers {
		for _, l := range p.links {
			<-l.done
		}
	}
	n.work.Wait()
	return nil
}

// accept takes in the connections of others.
func (n *Node) accept(l net.Listener) {
	defer n.work.Done()
	pause := time.Duration(0)
	for {
		c, err := l.Accept()
		if err != nil {
			if n.quit.Err() != nil {
				return
			}
			pause = min(max(2*pause, time.Millisecond), 100*time.Millisecond) // out of file descriptors, for instance
			select {
			case <-time.After(pause):
			case <-n.quit.Done():
				return
			}
			continue
		}
		pause = 0
		select {
		case n.openings <- struct{}{}:
			n.work.Add(1)
			go n.welcome(c)
		default:
			c.Close()
		}
	}
}

// welcome is the opening of a connection that another node has made.
func (n *Node) welcome(c net.Conn) {
	defer n.work.Done()
	defer func() { <-n.openings }()
	c = socket.Calm(c)
	plain := c
	stop := context.AfterFunc(n.quit, closing(plain))
	defer stop()
	if n.o.TLS != nil {
		c = tls.Server(c, n.o.TLS)
	}
	c.SetDeadline(time.Now().Add(n.patience()))
	o := opening{conn: c, own: n.hello(0), secret: n.o.Secret, check: func(h *hello) *Refusal { return n.check(h, 0) }}
	h, err := o.run()
	switch l := n.link(h.node, h.class); {
	case err != nil:
	case h.class == joining:
		err = n.join(c, &h)
	case h.class == owning:
		err = n.give(c, plain, &h)
	case l == nil:
		err = ErrUnknown
	default:
		err = l.adopt(c, &h, stop)
	}
	if err != nil {
		c.Close()
		n.refused(err)
	}
}

func closing(c net.Conn) func() { return func() { c.Close() } }

// dial makes a connection of a link.
func (n *Node) dial(ctx context.Context, l *link, address string) error {
	return n.reach(ctx, l.peer, address, n.hello(l.class), func(c, _ net.Conn, h *hello, stop func() bool) error {
		return l.adopt(c, h, stop)
	})
}

// reach makes a connection to a peer, and gives it to take after the opening, with the one below it where that is TLS. It is
// closed when the context ends, until stop is called, and if take has an error.
func (n *Node) reach(ctx context.Context, peer NodeID, address string, own hello,
	take func(c, plain net.Conn, h *hello, stop func() bool) error) error {
	ctx, cancel := context.WithTimeout(ctx, n.patience())
	defer cancel()
	plain, err := n.o.Dial(ctx, address)
	if err != nil {
		return err
	}
	plain = socket.Calm(plain)
	stop := context.AfterFunc(ctx, closing(plain))
	defer stop()
	c, err := n.o.secure(plain, address)
	if err != nil {
		return err
	}
	c.SetDeadline(time.Now().Add(n.patience()))
	o := opening{conn: c, dialer: true, own: own, secret: n.o.Secret,
		check: func(h *hello) *Refusal { return n.check(h, peer) }}
	h, err := o.run()
	if err == nil {
		err = take(c, plain, &h, stop)
	}
	if err != nil {
		c.Close()
		n.refused(err)
	}
	return err
}

// now is the time since the node was opened, which does not jump.
func (n *Node) now() time.Duration { return time.Since(n.start) }

// patience is how long an opening may take.
func (n *Node) patience() time.Duration { return max(2*n.o.Silence, time.Second) }

func (n *Node) hello(c Class) hello { return n.o.hello(c, n.incarnation) }

// check says why not to talk with a node that knows the secret, nil if it is all right. wanted is whom we dialed, 0 if it
// was the other who did.
func (n *Node) check(h *hello, wanted NodeID) *Refusal {
	id := n.o.Identity
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.peers[h.node]
	switch {
	case !n.serves(h.class, wanted != 0):
		return refuse(WrongClass, "%v", h.class)
	case h.node == id.Node && h.incarnation == n.incarnation:
		return refuse(SameNode, "node %v has reached itself", id.Node)
	case h.node == id.Node:
		return refuse(SameNode, "there are two nodes %v; one is a copy of the other", id.Node)
	case h.class == joining:
		return nil // it is neither a member nor of this cluster
	case h.cluster != id.Cluster:
		return refuse(WrongCluster, "node %v belongs to cluster %v, node %v to cluster %v", id.Node, id.Cluster, h.node, h.cluster)
	case wanted != 0 && h.node != wanted:
		return refuse(WrongNode, "node %v was expected, node %v answers", wanted, h.node)
	case p == nil:
		return refuse(UnknownNode, "node %v (%s) is not a member, as far as node %v knows", h.node, printable([]byte(h.name)), id.Node)
	case p.outdated(h.starts, h.mark):
		return refuse(OldBoot, "node %v (%s) comes with an old copy of its data directory, which knows of %d starts, and the cluster has seen start %d: it has forgotten what it promised, and must not come back. 'warren cluster forget %s', and let it join with an empty directory",
			h.node, printable([]byte(h.name)), h.starts, p.Start, printable([]byte(h.name)))
	case h.boot < p.Boot:
		return refuse(OldBoot, "node %v comes with boot number %d after %d: an old copy of its data directory?", h.node, h.boot, p.Boot)
	case h.boot == p.Boot && p.incarnation != 0 && h.incarnation != p.incarnation:
		return refuse(OldBoot, "node %v was started twice with boot number %d: an old copy of its data directory?", h.node, h.boot)
	}
	return nil
}

// serves reports whether a class of connection is there, for who dialed or was dialed.
func (n *Node) serves(c Class, dialer bool) bool {
	switch c {
	case Control, Data:
		return true
	case joining:
		return n.o.Join != nil
	case owning:
		return dialer || n.o.Accept != nil
	}
	return false
}

// seen notes the boot of a peer. It is false for one that is not the latest.
func (n *Node) seen(h *hello) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.peers[h.node]
	if p == nil || p.outdated(h.starts, h.mark) || h.boot < p.Boot || h.boot == p.Boot && p.incarnation != 0 && p.incarnation != h.incarnation {
		return false
	}
	p.Boot, p.incarnation, p.Versions = h.boot, h.incarnation, h.versions
	p.starts, p.mark = h.starts, h.mark
	return true
}

// refused reports a Refusal, unless the same has been reported within a minute.
func (n *Node) refused(err error) {
	var r *Refusal
	if !errors.As(err, &r) || n.o.Refused == nil {
		return
	}
	now, key := time.Now(), reported{r.Peer, r.Reason, r.Proved}
	n.mu.Lock()
	for k, last := range n.reported {
		if now.Sub(last) >= time.Minute {
			delete(n.reported, k)
		}
	}
	_, again := n.reported[key]
	if !again && len(n.reported) < maxReported {
		n.reported[key] = now
	} else {
		again = true
	}
	n.mu.Unlock()
	if !again {
		n.o.Refused(r)
	}
}

package cluster

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Options are the choices in a Node, and what it tells its owner. Identity and Secret must be there; the rest works as it is.
//
// The functions are called with no lock held, and must not wait, nor call Close or SetPeers. What concerns one peer and class comes
// one call after the other: Reset, then Up, then Receive and Answer; of two classes at the same time. nil does nothing.
type Options struct {
	Identity Identity
	Secret   []byte      // shared by all members; it never leaves the node
	TLS      *tls.Config // for both directions, nil for plain TCP. Without ServerName the host of the address is checked

	Window   int           // octets of a stream that may be on their way or not disposed of; 64 KiB to 1 GiB, 0 is 1 MiB
	Backlog  int           // octets that a link keeps until the other side has them; 0 is 16 MiB
	Calls    int           // how many questions a peer may have unanswered; 0 is 256
	Streams  int           // how many streams a link has at the most; 0 is 65,536
	Silence  time.Duration // a peer not heard for so long is down; at least 100 ms, 0 is 2 s
	Patience time.Duration // the most between two attempts to reach a peer; 0 is 1 s

	// Dial opens a connection to an address; nil is net.Dialer.
	Dial func(ctx context.Context, address string) (net.Conn, error)

	// Up: the peer can be reached, by the control class. Down: it has said goodbye, has not been heard for Silence, has been
	// started anew, or is no member any more. They alternate.
	Up, Down func(peer NodeID, boot uint64)
	// Reset: the streams of the link begin anew: what was sent on this one and not answered may have arrived or not, what comes was sent
	// afterwards, and all Credit is void. Send is refused until the Resets of all streams have returned.
	Reset func(*Stream)
	// Receive gets a batch, on the goroutine that reads the connection.
	Receive func(Batch)
	// Answer gets a question, on the goroutine that reads the connection. nil leaves all of them without an answer.
	Answer func(Question)
	// Join is asked by a node that is no member yet; see Join. It may wait for a minute, and ends with the context. nil refuses.
	Join func(context.Context, Joiner) (answer []byte, err error)
	// Refused is told, once a minute at the most for the same reason, why this node and another do not talk.
	Refused func(*Refusal)
}

const (
	maxWindow     = 1 << 30
	minWindow     = 64 << 10
	maxHandshakes = 64 // connections whose opening is not over
)

// withDefaults fills in what is 0.
func (o Options) withDefaults() (Options, error) {
	set := func(n *int, value int) {
		if *n == 0 {
			*n = value
		}
	}
	set(&o.Window, 1<<20)
	set(&o.Backlog, 16<<20)
	set(&o.Calls, 256)
	set(&o.Streams, 1<<16)
	if o.Silence == 0 {
		o.Silence = 2 * time.Second
	}
	if o.Patience == 0 {
		o.Patience = time.Second
	}
	if o.Dial == nil {
		o.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", address)
		}
	}
	id := o.Identity
	switch {
	case id.Node == 0 || id.Boot == 0 || id.Cluster == (ClusterID{}) || len(id.Name) > MaxName:
		return o, errors.New("cluster: a node needs an identity")
	case len(o.Secret) == 0:
		return o, errors.New("cluster: a node needs the secret of its cluster")
	case o.Window < minWindow || o.Window > maxWindow:
		return o, fmt.Errorf("cluster: a window of %d octets", o.Window)
	case o.Backlog < 0 || o.Calls < 0 || o.Streams < 0 || o.Patience < 0 || o.Silence < 100*time.Millisecond:
		return o, errors.New("cluster: an option is out of range")
	}
	return o, nil
}

// Node is this node's end of the links to all others. Its methods may be called concurrently.
type Node struct {
	o           Options
	incarnation uint64
	chunks      chunks
	sessions    atomic.Uint64
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
	links       [2]*link
}

// classes are those that have links, by their place in peer.links.
var classes = [2]Class{Control, Data}

type reported struct {
	peer   NodeID
	reason Reason
}

// Open makes a node that knows no others. It ends with Close.
func Open(o Options) (*Node, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	n := &Node{o: o, incarnation: random64(), openings: make(chan struct{}, maxHandshakes), peers: make(map[NodeID]*peer), reported: make(map[reported]time.Time)}
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
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		l.Close()
		return nil, ErrClosed
	}
	n.listeners = append(n.listeners, l)
	n.work.Add(1)
	go n.accept(l)
	return l.Addr(), nil
}

// ErrClosed is returned by a Node that was closed.
var ErrClosed = errors.New("cluster: closed")

// SetPeers says who the members are. The node itself may be among them. Links to those who are new are opened, those to who
// is gone are closed: their streams are dead, also if he comes back. The book is not changed afterwards.
func (n *Node) SetPeers(b Book) error {
	if err := b.Check(); err != nil {
		return err
	}
	var gone []*link
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return ErrClosed
	}
	for id, p := range n.peers {
		if _, stays := b.Find(id); !stays {
			gone = append(gone, p.links[:]...)
			delete(n.peers, id)
		}
	}
	for _, m := range b {
		if m.ID == n.o.Identity.Node {
			continue
		}
		p := n.peers[m.ID]
		if p == nil {
			p = &peer{Peer: m}
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
	n.mu.Unlock()
	n.end()
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
	stop := context.AfterFunc(n.quit, closing(c))
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

// dial makes a connection to a peer.
func (n *Node) dial(ctx context.Context, l *link, address string) error {
	ctx, cancel := context.WithTimeout(ctx, n.patience())
	defer cancel()
	c, err := n.o.Dial(ctx, address)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, closing(c))
	defer stop()
	if c, err = n.o.secure(c, address); err != nil {
		return err
	}
	c.SetDeadline(time.Now().Add(n.patience()))
	o := opening{conn: c, dialer: true, own: n.hello(l.class), secret: n.o.Secret, check: func(h *hello) *Refusal { return n.check(h, l.peer) }}
	h, err := o.run()
	if err == nil {
		err = l.adopt(c, &h, stop)
	}
	if err != nil {
		c.Close()
		n.refused(err)
	}
	return err
}

// secure begins TLS on a connection made to an address, if it is wanted. After an error the connection is closed.
func (o *Options) secure(c net.Conn, address string) (net.Conn, error) {
	t := o.TLS
	if t == nil {
		return c, nil
	}
	if t.ServerName == "" && !t.InsecureSkipVerify {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			c.Close()
			return nil, err
		}
		t = t.Clone()
		t.ServerName = host
	}
	return tls.Client(c, t), nil
}

// patience is how long an opening may take.
func (n *Node) patience() time.Duration { return max(2*n.o.Silence, time.Second) }

func (n *Node) hello(c Class) hello { return n.o.hello(c, n.incarnation) }

func (o *Options) hello(c Class, incarnation uint64) hello {
	id := o.Identity
	h := hello{versions: Spoken, class: c, cluster: id.Cluster, node: id.Node, boot: id.Boot, incarnation: incarnation,
		window: uint32(o.Window), name: id.Name}
	rand.Read(h.nonce[:]) // never fails
	return h
}

// check says why not to talk with a node that knows the secret, nil if it is all right. wanted is whom we dialed, 0 if it
// was the other who did.
func (n *Node) check(h *hello, wanted NodeID) *Refusal {
	own := n.o.Identity
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.peers[h.node]
	switch {
	case h.class != Control && h.class != Data && (h.class != joining || n.o.Join == nil):
		return refuse(WrongClass, "%v", h.class)
	case h.node == own.Node && h.incarnation == n.incarnation:
		return refuse(SameNode, "node %v has reached itself", own.Node)
	case h.node == own.Node:
		return refuse(SameNode, "there are two nodes %v; one is a copy of the other", own.Node)
	case h.class == joining:
		return nil // it is neither a member nor of this cluster
	case h.cluster != own.Cluster:
		return refuse(WrongCluster, "node %v belongs to cluster %v, node %v to cluster %v", own.Node, own.Cluster, h.node, h.cluster)
	case wanted != 0 && h.node != wanted:
		return refuse(WrongNode, "node %v was expected, node %v answers", wanted, h.node)
	case p == nil:
		return refuse(UnknownNode, "node %v (%s) is not a member, as far as node %v knows", h.node, printable([]byte(h.name)), own.Node)
	case h.boot < p.Boot:
		return refuse(OldBoot, "node %v comes with boot number %d after %d: an old copy of its data directory?", h.node, h.boot, p.Boot)
	case h.boot == p.Boot && p.incarnation != 0 && h.incarnation != p.incarnation:
		return refuse(OldBoot, "node %v was started twice with boot number %d: an old copy of its data directory?", h.node, h.boot)
	}
	return nil
}

// seen notes the boot of a peer. It is false for one that is not the latest.
func (n *Node) seen(h *hello) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.peers[h.node]
	if p == nil || h.boot < p.Boot || h.boot == p.Boot && p.incarnation != 0 && p.incarnation != h.incarnation {
		return false
	}
	p.Boot, p.incarnation, p.Versions = h.boot, h.incarnation, h.versions
	return true
}

// refused reports a Refusal, unless the same has been reported within a minute.
func (n *Node) refused(err error) {
	var r *Refusal
	if !errors.As(err, &r) || n.o.Refused == nil {
		return
	}
	now, key := time.Now(), reported{r.Peer, r.Reason}
	n.mu.Lock()
	last, found := n.reported[key]
	again := found && now.Sub(last) < time.Minute
	if !again {
		if len(n.reported) >= 256 {
			clear(n.reported)
		}
		n.reported[key] = now
	}
	n.mu.Unlock()
	if !again {
		n.o.Refused(r)
	}
}

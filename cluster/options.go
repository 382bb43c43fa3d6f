package cluster

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// Options are the choices in a Node, and what it tells its owner. Identity and Secret must be there; the rest works as it is.
//
// The functions must not wait, nor call Close or SetPeers; they may call everything else. What concerns one peer and class comes
// one call after the other: Reset, then Up, then Receive and Answer; of two classes at the same time. nil does nothing.
type Options struct {
	Identity Identity
	Secret   []byte      // shared by all members; it never leaves the node
	TLS      *tls.Config // for both directions, nil for plain TCP. Without ServerName the host of the address is checked

	Window   int           // octets of a stream that may be on their way or not disposed of; 64 KiB to 1 GiB, 0 is 1 MiB
	Backlog  int           // octets that a link keeps until the other side has them; 0 is 16 MiB
	Calls    int           // how many questions a peer may have unanswered; 0 is 256
	Streams  int           // how many streams a link has at the most; 0 is 65,536
	Owned    int           // how many connections with a peer may have an owner, whoever made them; 0 is 128
	Silence  time.Duration // a peer not heard for so long is down; at least 100 ms, 0 is 2 s. The same on all nodes
	Patience time.Duration // the most between two attempts to reach a peer; 0 is 1 s

	// Dial opens a connection to an address; nil is net.Dialer.
	Dial func(ctx context.Context, address string) (net.Conn, error)

	// Up: the peer can be reached, by the control class. Down: it has said goodbye, has not been heard for Silence, has been
	// started anew, or is no member any more. They alternate.
	Up, Down func(peer NodeID, boot uint64)
	// Reset: the streams of the link begin anew: what was sent on this one and not answered may have arrived or not, what
	// comes was sent afterwards, and all Credit is void. Send is refused until the Resets of all streams have returned.
	Reset func(*Stream)
	// Receive gets a batch, on the goroutine that reads the connection.
	Receive func(Batch)
	// Answer gets a question, on the goroutine that reads the connection. nil leaves all of them without an answer.
	Answer func(Question)
	// Accept gets a connection that a peer's Dial has made, for a purpose that is the peer's to choose, and owns it from then on;
	// see Dial. Several may come at the same time. nil refuses all.
	Accept func(peer NodeID, boot uint64, purpose uint8, c net.Conn)
	// Join is asked by a node that is no member yet; see Join. It may wait for a minute, and ends with the context. nil refuses.
	Join func(context.Context, Joiner) (answer []byte, err error)
	// Refused is told why this node and another do not talk, once a minute at the most for the same node and reason, and not
	// more than 32 times.
	Refused func(*Refusal)
}

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
	set(&o.Owned, 128)
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
	case o.Backlog < 0 || o.Calls < 0 || o.Streams < 0 || o.Owned < 0 || o.Patience < 0 || o.Silence < 100*time.Millisecond:
		return o, errors.New("cluster: an option is out of range")
	}
	return o, nil
}

const (
	maxWindow     = 1 << 30
	minWindow     = 64 << 10
	maxHandshakes = 64 // connections whose opening is not over
	maxReported   = 32 // refusals reported in a minute: who does not know the secret can say any id
)

func (o *Options) hello(c Class, incarnation uint64) hello {
	id := o.Identity
	h := hello{versions: Spoken, class: c, cluster: id.Cluster, node: id.Node, boot: id.Boot, incarnation: incarnation,
		window: uint32(o.Window), name: id.Name, starts: id.Starts, mark: id.Mark}
	rand.Read(h.nonce[:]) // never fails
	return h
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

package cluster

import (
	"context"
	"fmt"
	"net"
	"time"
)

const (
	// MaxJoin is how many octets the request of a Joiner, and the answer, have at the most.
	MaxJoin = 1<<16 - 1

	joinTime = time.Minute
)

// A Joiner is a node that knows the secret and wants to become a member.
type Joiner struct {
	Node    NodeID
	Boot    uint64
	Cluster ClusterID // that it has been in so far, a cluster of its own if it never was in another
	Name    string
	Request []byte
}

// Member is who answered a Joiner.
type Member struct {
	Node    NodeID
	Cluster ClusterID // to Enter, if the answer says that the node is a member now
	Name    string
}

// Join asks the member at an address to make this node one, and returns what it answered. What request and answer mean is
// for the caller and for Options.Join there. The error is a Refusal where the member says no. Of the options only
// Identity, Secret, TLS and Dial are used. No Node need be open.
func Join(ctx context.Context, o Options, address string, request []byte) (Member, []byte, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Member{}, nil, err
	}
	if len(request) > MaxJoin {
		return Member{}, nil, ErrTooLarge
	}
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	c, err := o.Dial(ctx, address)
	if err != nil {
		return Member{}, nil, fmt.Errorf("cluster: %w", err)
	}
	defer context.AfterFunc(ctx, closing(c))()
	if c, err = o.secure(c, address); err != nil {
		return Member{}, nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(joinTime))
	own := o.Identity
	talk := opening{conn: c, dialer: true, own: o.hello(joining, random64()), secret: o.Secret, check: func(h *hello) *Refusal {
		if h.node == own.Node {
			return refuse(SameNode, "node %v would join itself", own.Node)
		}
		return nil
	}}
	h, err := talk.run()
	m := Member{h.node, h.cluster, printable([]byte(h.name))}
	if err != nil {
		return m, nil, err
	}
	if err := say(c, sayJoin, request); err != nil {
		return m, nil, err
	}
	answer, err := listenAny(c, sayJoined, 0, MaxJoin)
	if r, ok := err.(*Refusal); ok {
		r.Peer, r.Addr = h.node, address
	}
	return m, answer, err
}

// join answers a node that is no member yet.
func (n *Node) join(c net.Conn, h *hello) error {
	request, err := listenAny(c, sayJoin, 0, MaxJoin)
	if err != nil {
		return err
	}
	c.SetDeadline(time.Now().Add(joinTime))
	ctx, cancel := context.WithTimeout(n.quit, joinTime)
	defer cancel()
	answer, err := n.o.Join(ctx, Joiner{h.node, h.boot, h.cluster, printable([]byte(h.name)), request})
	if err == nil && len(answer) > MaxJoin {
		err = ErrTooLarge
	}
	if err != nil {
		r := &Refusal{Reason: NotJoined, Text: err.Error(), Peer: h.node, Addr: c.RemoteAddr().String()}
		r.send(c)
		return r
	}
	err = say(c, sayJoined, answer)
	c.Close()
	return err
}

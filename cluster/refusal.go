package cluster

import (
	"fmt"
	"io"
)

// A Reason is why one node does not talk with another.
type Reason uint8

// The reasons. They are part of the protocol.
const (
	WrongVersion Reason = 1  // they have no version of the protocol in common
	WrongSecret  Reason = 2  // the other one does not know the cluster's secret
	WrongCluster Reason = 3  // it belongs to another cluster
	UnknownNode  Reason = 4  // it is not a member
	SameNode     Reason = 5  // it has the id of this node: it is a copy of its data directory, or itself
	WrongNode    Reason = 6  // it is not the one that was expected at this address
	OldBoot      Reason = 7  // its data directory is an old copy: its boot number was used before, or the cluster knows of more starts
	WrongClass   Reason = 8  // it wants a class of connection that is not there
	NotJoined    Reason = 9  // it cannot become a member, for a reason that is not the link's
	TooMany      Reason = 10 // there are too many connections with owners already
)

func (r Reason) String() string {
	switch r {
	case WrongVersion:
		return "no common version"
	case WrongSecret:
		return "wrong secret"
	case WrongCluster:
		return "wrong cluster"
	case UnknownNode:
		return "unknown node"
	case SameNode:
		return "same node"
	case WrongNode:
		return "wrong node"
	case OldBoot:
		return "old copy of a data directory"
	case WrongClass:
		return "unknown class"
	case NotJoined:
		return "cannot join"
	case TooMany:
		return "too many connections"
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// Refusal is an error: two nodes do not talk with each other. Both learn it, with the same reason and text.
type Refusal struct {
	Reason Reason
	Text   string // what differs
	ByPeer bool   // the other node refused this one
	Proved bool   // and had proved that it knows the secret
	Peer   NodeID // who the other node said it was; 0 if it did not come to that
	Addr   string // of the other node
}

func (r *Refusal) Error() string {
	who := "node"
	if r.Peer != 0 {
		who += " " + r.Peer.String()
	}
	if r.Addr != "" {
		who += " at " + r.Addr
	}
	if r.ByPeer {
		return fmt.Sprintf("cluster: refused by %s: %v: %s", who, r.Reason, r.Text)
	}
	return fmt.Sprintf("cluster: %s refused: %v: %s", who, r.Reason, r.Text)
}

// send tells the other node. Whether it hears that does not matter any more.
func (r *Refusal) send(w io.Writer) {
	text := r.Text[:min(len(r.Text), maxOther-1)]
	say(w, sayRefuse, append([]byte{byte(r.Reason)}, text...))
}

func refuse(reason Reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Text: fmt.Sprintf(format, args...)}
}

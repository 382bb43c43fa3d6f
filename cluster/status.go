package cluster

import (
	"cmp"
	"slices"
	"time"
)

// LinkStatus is how a link is doing, for people.
type LinkStatus struct {
	Peer      NodeID
	Class     Class
	Connected bool
	Since     time.Time // of the connection, or of its loss; zero if there never was one
	Address   string    // of the other end of the connection
	Boot      uint64    // of the peer, when it was last there
	Made      uint64    // how many connections there have been
	Lost      error     // why the last one ended; nil if none did
	Held      int       // octets that the peer has not acknowledged
	Waiting   int       // streams that were refused a batch, and wait for room
	Calls     int       // questions to the peer without an answer
}

// Links returns the links in order of peers and classes.
func (n *Node) Links() []LinkStatus {
	n.mu.Lock()
	links := make([]*link, 0, 2*len(n.peers))
	for _, p := range n.peers {
		links = append(links, p.links[:]...)
	}
	n.mu.Unlock()
	status := make([]LinkStatus, len(links))
	for i, l := range links {
		l.mu.Lock()
		s := LinkStatus{Peer: l.peer, Class: l.class, Connected: l.conn != nil, Since: l.since, Boot: l.boot, Made: l.made, Lost: l.why,
			Held: l.out.held(), Waiting: len(l.waiting), Calls: len(l.calls.open)}
		if l.conn != nil {
			s.Address = l.conn.nc.RemoteAddr().String()
		}
		l.mu.Unlock()
		status[i] = s
	}
	slices.SortFunc(status, func(a, b LinkStatus) int {
		return cmp.Or(cmp.Compare(a.Peer, b.Peer), cmp.Compare(a.Class, b.Class))
	})
	return status
}

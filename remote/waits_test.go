package remote

import (
	"testing"

	"github.com/warrenmq/warren/cluster"
)

// TestWaits: as long as a node has not its messages back, its queues are down for others, and then they are there.
func TestWaits(t *testing.T) {
	home, away := start(t, 1, nil, nil), start(t, 2, nil, nil)
	home.host.o.Waits = true
	local := home.classic(7, noLimits)
	q := away.host.NewQueue(home.id, ID{0, 7})
	b := cluster.Book{{ID: home.id, Address: home.relay.l.Addr().String()}, {ID: away.id, Address: away.relay.l.Addr().String()}}
	for _, n := range []*node{home, away} {
		if err := n.link.SetPeers(b); err != nil {
			t.Fatal(err)
		}
	}
	x := home.host.peer(away.id).homes[q.id.lane()]
	eventually(home, "the other to ask", func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.last > 0
	})
	p := away.publisher(q, 1)
	p.publish(3)
	acked, nacked := p.settled()
	same(t, "confirmed by a node that has not its messages back", acked, nil)
	same(t, "refused", nacked, numbers(1, 3))
	if s := local.Stats(); s.Published != 0 {
		t.Fatalf("%+v", s)
	}
	home.host.Serve()
	meet(home, away)
	p.publish(3)
	acked, _ = p.settled()
	same(t, "confirmed", acked, numbers(4, 6))
}

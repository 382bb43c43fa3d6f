package quorum

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/warrenmq/warren/test/seeds"
)

// TestFaults: nodes are killed, cut off in all ways, given up, started again, their logs are cut, leaders change, all of it
// in a random order and under load. Nothing confirmed is lost, nothing comes for the first time twice or out of order, the
// majority goes on, and in the end the replicas are equal.
func TestFaults(t *testing.T) {
	seed := seeds.Of(t)
	rng := rand.New(rand.NewPCG(seed, 2))
	c := newCluster(t, 1)
	l, _ := c.begin(1)
	steps := 14
	if testing.Short() {
		steps = 5
	}
	for range steps {
		away := 1 + rng.Uint64N(3)
		rest := others(away)
		told, cuts := rng.IntN(2) == 0, rng.IntN(3) == 0
		if rng.IntN(3) == 0 { // the one that leads
			if away = c.nodes[rest[0]].host.Slots()[0].Leader; away == 0 {
				away = rest[0]
			}
			rest = others(away)
		}
		x := rng.IntN(7)
		t.Logf("%d: what %d, told %v, cuts %v", away, x, told, cuts)
		during := func() {
			if told {
				c.down(away)
			}
			l.progress(rest...)
			if cuts {
				c.cutLogs(rest...)
				l.progress(rest...)
			}
		}
		switch x {
		case 0, 1: // it dies
			l.leave(away)
			c.kill(away)
			during()
			c.restart(l, away)
		case 2, 3: // it is cut off
			c.net.isolate(away, fault(1+rng.IntN(3)), rest...)
			during()
			c.net.isolate(away, fine, rest...)
		case 4: // it hears nobody, or nobody hears it
			f := fault(1 + rng.IntN(3))
			for _, o := range rest {
				if x == 4 && cuts {
					c.net.set(o, away, f)
				} else {
					c.net.set(away, o, f)
				}
			}
			during()
			c.net.isolate(away, fine, rest...)
		case 5: // nobody hears anybody for a while
			for _, n := range []uint64{1, 2, 3} {
				c.net.isolate(n, fault(1+rng.IntN(3)), others(n)...)
			}
			time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
			for _, n := range []uint64{1, 2, 3} {
				c.net.isolate(n, fine, others(n)...)
			}
			told = false
		case 6: // it shall lead
			_ = c.nodes[rest[0]].host.TransferLeader(0, away)
			c.cutLogs(away)
			told = false
		}
		if told {
			for _, n := range c.nodes {
				n.host.Up(away, 0)
			}
		}
		l.progress(1, 2, 3)
	}
	l.end()
}

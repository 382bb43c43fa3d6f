package cluster

import (
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// relay is the network in front of one node: connections to it pass through here, and can be cut in the middle of a frame,
// stalled in one direction, slowed down, and refused.
type relay struct {
	to   string
	l    net.Listener
	work sync.WaitGroup

	mu      sync.Mutex // guards what follows
	changed *sync.Cond
	rnd     *rand.Rand
	stalled [2]bool // towards the node, and from it
	refuse  bool
	closed  bool
	cut     int // connections before this number are cut
	made    int
	conns   map[net.Conn]bool
}

func newRelay(t testing.TB, to string, seed uint64) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{to: to, l: l, rnd: rand.New(rand.NewPCG(seed, 1)), conns: make(map[net.Conn]bool)}
	r.changed = sync.NewCond(&r.mu)
	r.work.Add(1)
	go r.run()
	t.Cleanup(r.close)
	return r
}

func (r *relay) addr() string { return r.l.Addr().String() }

func (r *relay) set(f func()) {
	r.mu.Lock()
	f()
	r.changed.Broadcast()
	r.mu.Unlock()
}

// sever cuts all connections that there are.
func (r *relay) sever() {
	r.set(func() {
		for c := range r.conns {
			c.Close()
		}
		r.cut = r.made
	})
}

// heal lets everything through.
func (r *relay) heal() { r.set(func() { r.stalled, r.refuse = [2]bool{}, false }) }

func (r *relay) close() {
	r.set(func() { r.closed = true })
	r.sever()
	r.l.Close()
	r.work.Wait()
}

func (r *relay) run() {
	defer r.work.Done()
	for {
		c, err := r.l.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		no := r.refuse || r.closed
		to := r.to
		r.mu.Unlock()
		if no {
			c.Close()
			continue
		}
		d, err := net.Dial("tcp", to)
		if err != nil {
			c.Close()
			continue
		}
		r.set(func() {
			r.made++
			r.conns[c], r.conns[d] = true, true
			r.work.Add(2)
			go r.copy(c, d, 0, r.made)
			go r.copy(d, c, 1, r.made)
		})
	}
}

// copy passes octets on in one direction, in pieces of any size.
func (r *relay) copy(from, to net.Conn, direction, number int) {
	defer r.work.Done()
	defer func() {
		from.Close()
		to.Close()
		r.set(func() { delete(r.conns, from); delete(r.conns, to) })
	}()
	buf := make([]byte, 32<<10)
	for {
		r.mu.Lock()
		size := 1 + r.rnd.IntN(len(buf))
		if r.rnd.IntN(4) == 0 {
			size = 1 + r.rnd.IntN(40)
		}
		r.mu.Unlock()
		n, err := from.Read(buf[:size])
		if err != nil {
			return
		}
		r.mu.Lock()
		for r.stalled[direction] && !r.closed && number > r.cut {
			r.changed.Wait()
		}
		over := r.closed || number <= r.cut
		r.mu.Unlock()
		if over {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// trouble does something bad for a while.
func (r *relay) trouble(rnd *rand.Rand) {
	pause := time.Duration(rnd.IntN(40)) * time.Millisecond
	switch rnd.IntN(6) {
	case 0, 1:
		r.sever()
	case 2:
		r.set(func() { r.refuse = true })
		r.sever()
		time.Sleep(pause)
	case 3:
		r.set(func() { r.stalled[rnd.IntN(2)] = true })
		time.Sleep(pause)
		if rnd.IntN(2) == 0 {
			r.sever()
		}
	case 4:
		r.set(func() { r.stalled = [2]bool{true, true} })
		time.Sleep(5 * pause)
	case 5:
		time.Sleep(pause)
	}
	r.heal()
}

package quorum

import (
	"math"
	"sync"
	"time"

	"github.com/warrenmq/warren/queue"
)

// load publishes to and consumes from one queue on every node of a cluster, all the time, and knows what must come of it.
type load struct {
	c  *cluster
	id uint64

	mu     sync.Mutex
	nodes  map[uint64]*loadNode
	past   []*loadNode
	starts uint64
}

// loadNode is the clients of one node, of one start of it.
type loadNode struct {
	l         *load
	n         *node
	q         *Queue
	base      uint64
	quit      chan struct{}
	running   sync.WaitGroup
	mu        sync.Mutex
	next      uint64
	confirmed map[uint64]bool
	refused   int
	eaters    []*eater
}

// join adds clients of a node that is up.
func (l *load) join(number uint64, q *Queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starts++
	x := &loadNode{l: l, n: l.c.nodes[number], q: q, base: (number<<16 | l.starts) << 32, quit: make(chan struct{}), confirmed: map[uint64]bool{}}
	if l.nodes == nil {
		l.nodes = map[uint64]*loadNode{}
	}
	l.nodes[number] = x
	x.running.Add(1)
	go x.run()
}

// leave stops the clients of a node.
func (l *load) leave(number uint64) {
	l.mu.Lock()
	x := l.nodes[number]
	delete(l.nodes, number)
	if x != nil {
		l.past = append(l.past, x)
	}
	l.mu.Unlock()
	if x != nil {
		x.stop()
	}
}

func (x *loadNode) stop() {
	select {
	case <-x.quit:
	default:
		close(x.quit)
	}
	x.running.Wait()
}

func (x *loadNode) run() {
	defer x.running.Done()
	x.eat()
	for i := 0; ; i++ {
		select {
		case <-x.quit:
			return
		case <-time.After(2 * time.Millisecond):
		}
		x.eat()
		x.mu.Lock()
		waiting := x.next - uint64(len(x.confirmed))
		x.mu.Unlock()
		if waiting < 200 && x.q.Stats().Ready < 200 {
			x.publish(1 + i%8)
		}
	}
}

// eat has a consumer, and another one when it was cancelled.
func (x *loadNode) eat() {
	x.mu.Lock()
	n := len(x.eaters)
	x.mu.Unlock()
	if n > 0 {
		last := x.eaters[n-1]
		last.mu.Lock()
		cancelled := last.cancelled
		last.mu.Unlock()
		if !cancelled {
			return
		}
	}
	k := x.n.eat(x.q, queue.ConsumerSpec{Prefetch: 10})
	x.mu.Lock()
	x.eaters = append(x.eaters, k)
	x.mu.Unlock()
}

func (x *loadNode) publish(count int) {
	b := queue.Batch{Confirms: x}
	x.mu.Lock()
	for range count {
		x.next++
		b.Messages = append(b.Messages, x.n.message(x.base|x.next, 200))
		b.Numbers = append(b.Numbers, x.next)
	}
	x.mu.Unlock()
	var w queue.Wake
	x.q.Publish(&b, &w)
	w.Flush()
}

// Settled implements queue.Confirms.
func (x *loadNode) Settled(ranges []queue.Range, ok bool, _ *queue.Wake) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, r := range ranges {
		for n := r.First; n <= r.Last; n++ {
			if !ok {
				x.refused++
			} else if x.confirmed[n] {
				x.l.c.Errorf("message %x is confirmed twice", x.base|n)
			}
			x.confirmed[n] = ok
		}
	}
}

func (x *loadNode) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.confirmed)
}

// progress waits until clients of each node of a list have more confirmed.
func (l *load) progress(numbers ...uint64) {
	l.c.Helper()
	for _, number := range numbers {
		l.mu.Lock()
		x := l.nodes[number]
		l.mu.Unlock()
		had := x.count()
		begun := time.Now()
		until(l.c, "confirms", func() bool {
			if time.Since(begun) > 18*time.Second {
				begun = time.Now()
				l.tell(x)
			}
			return x.count() >= had+10
		})
	}
}

// tell logs who holds what, as a node sees it.
func (l *load) tell(x *loadNode) {
	m := x.q.slot.machine
	m.mu.Lock()
	r := m.queues[l.id]
	l.c.Logf("%+v, leads %+v, applied %d", r.state.Stats(), m.leads, m.applied)
	for h := range r.state.Holders() {
		var ids []queue.Range
		for d := range r.state.Held(h.ID) {
			ids = appendRange(ids, queue.Range{First: d.ID, Last: d.ID})
		}
		l.c.Logf("consumer %d of node %d, start %d holds %v, late %v", h.ID, h.Session>>32, h.Session&math.MaxUint32, ids, h.Late)
	}
	for _, o := range m.origins {
		l.c.Logf("node %d, start %d: %d", o.Node, o.Boot, o.Last)
	}
	m.mu.Unlock()
	for number, y := range l.nodes {
		l.c.Logf("node %d: %+v, %d confirmed of %d", number, y.n.host.Slots(), len(y.confirmed), y.next)
		l.c.Logf("%v", y.q.slot.proposer)
		y.q.mu.Lock()
		for id, c := range y.q.consumers {
			l.c.Logf("node %d, start %d has consumer %d: last %d, pending %d, blocked %v", number, y.n.host.boot, id, c.last, len(c.pending), c.blocked)
		}
		y.q.mu.Unlock()
	}
}

// end stops publishing, waits for what is due, and checks everything. All nodes are up and connected.
func (l *load) end() {
	c := l.c
	c.Helper()
	l.mu.Lock()
	all := l.past
	var up []*loadNode
	for _, x := range l.nodes {
		all, up = append(all, x), append(up, x)
	}
	l.mu.Unlock()
	for _, x := range up {
		x.stop()
		until(c, "all confirms", func() bool { return uint64(x.count()) == x.next })
	}
	for _, x := range up {
		begun := time.Now()
		until(c, "everything is consumed", func() bool {
			if time.Since(begun) > 18*time.Second {
				begun = time.Now()
				l.tell(x)
			}
			for _, y := range up {
				y.eat()
			}
			st := x.q.Stats()
			return st.Ready+st.Unacked == 0
		})
	}
	c.agree()
	firsts, seen := map[uint64]int{}, map[uint64]bool{}
	confirmed, again := 0, 0
	for _, x := range all {
		for _, k := range x.eaters {
			k.mu.Lock()
			last := map[uint64]uint64{}
			for i, n := range k.numbers {
				seen[n] = true
				if k.got[i].Redelivered {
					again++
					continue
				}
				if firsts[n]++; firsts[n] > 1 {
					c.Errorf("message %x is delivered for the first time twice", n)
				}
				if n <= last[n>>32] {
					c.Errorf("message %x comes behind %x", n, last[n>>32])
				}
				last[n>>32] = n
			}
			k.mu.Unlock()
		}
	}
	for _, x := range all {
		x.mu.Lock()
		for n, ok := range x.confirmed {
			if ok {
				if confirmed++; !seen[x.base|n] {
					c.Errorf("message %x was confirmed, and is lost", x.base|n)
				}
			}
		}
		x.mu.Unlock()
	}
	for _, x := range up {
		if x.refused > 0 {
			c.Errorf("%d messages were refused", x.refused)
		}
	}
	c.Logf("%d confirmed, %d delivered, %d of them again", confirmed, len(seen), again)
}

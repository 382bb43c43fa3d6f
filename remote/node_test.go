package remote

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/cluster"
	"github.com/warrenmq/warren/queue"
)

// node is a node with a link to others, and classic queues in memory.
type node struct {
	testing.TB
	id    cluster.NodeID
	boot  uint64
	relay *relay // in front of it
	pool  *queue.Pool
	clock *queue.Clock
	link  *cluster.Node
	host  *Host

	mu      sync.Mutex // guards what follows
	changed *sync.Cond
	queues  map[ID]queue.Queue
	ups     map[cluster.NodeID]int
	downs   map[cluster.NodeID]int
	soft    []string
	direct  []string
	broken  []error
}

var noLimits = queue.Config{TTL: -1, MaxLength: -1, MaxBytes: -1, DeliveryLimit: -1}

const silence = 2 * time.Second

// start starts a node. before is what it was until now, or nil.
func start(t testing.TB, id cluster.NodeID, before *node, change func(*cluster.Options)) *node {
	t.Helper()
	n := &node{TB: t, id: id, boot: 1, pool: queue.NewPool(256 << 20), clock: queue.NewClock(), queues: map[ID]queue.Queue{},
		ups: map[cluster.NodeID]int{}, downs: map[cluster.NodeID]int{}}
	n.changed = sync.NewCond(&n.mu)
	n.pool.Poison = true
	n.host = Open(Options{
		Pool: n.pool, Clock: n.clock,
		Find: func(id ID) queue.Queue {
			n.mu.Lock()
			defer n.mu.Unlock()
			if q, ok := n.queues[id]; ok {
				return q
			}
			return nil
		},
		Direct: func(p cluster.NodeID, kind uint8, body []byte) {
			n.note(func() { n.direct = append(n.direct, fmt.Sprint(uint64(p), " ", kind, " ", string(body))) })
		},
		Changed: func(p cluster.NodeID, cs []Change) {
			n.note(func() {
				for _, c := range cs {
					if c.Drop {
						n.soft = append(n.soft, fmt.Sprintf("%d -%s", uint64(p), c.Key))
					} else {
						n.soft = append(n.soft, fmt.Sprintf("%d %s=%s", uint64(p), c.Key, c.Value))
					}
				}
			})
		},
		Broken: func(_ cluster.NodeID, err error) { n.note(func() { n.broken = append(n.broken, err) }) },
	})
	o := cluster.Options{
		Secret: []byte("secret"), Silence: silence, Patience: 50 * time.Millisecond,
		Up: func(p cluster.NodeID, boot uint64) {
			n.host.Up(p, boot)
			n.note(func() { n.ups[p]++ })
		},
		Down: func(p cluster.NodeID, boot uint64) {
			n.host.Down(p, boot)
			n.note(func() { n.downs[p]++ })
		},
		Reset: n.host.Reset,
		Receive: func(b cluster.Batch) {
			if b.Stream.Class() == cluster.Data && Owns(b.Stream.ID()) {
				n.host.Receive(b)
			}
		},
	}
	if before != nil {
		n.boot = before.boot + 1
	}
	o.Identity = cluster.Identity{Node: id, Boot: n.boot, Cluster: cluster.ClusterID{1}, Name: fmt.Sprint("n", uint64(id))}
	if change != nil {
		change(&o)
	}
	var err error
	if n.link, err = cluster.Open(o); err != nil {
		t.Fatal(err)
	}
	n.host.Start(n.link)
	t.Cleanup(n.stop)
	a, err := n.link.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if before == nil {
		n.relay = newRelay(t, a.String())
	} else {
		n.relay = before.relay
		n.relay.set(func() { n.relay.to = a.String() })
	}
	return n
}

func (n *node) stop() {
	if n.link.Close() == nil {
		n.host.Close()
		n.clock.Close()
	}
}

// lost is how many times another node was down.
func (n *node) lost(other *node) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.downs[other.id]
}

func (n *node) note(f func()) {
	n.mu.Lock()
	f()
	n.changed.Broadcast()
	n.mu.Unlock()
}

// meet makes all of them members.
func meet(ns ...*node) {
	var b cluster.Book
	for _, n := range ns {
		b = b.With(cluster.Peer{ID: n.id, Address: n.relay.l.Addr().String()})
	}
	for _, n := range ns {
		if err := n.link.SetPeers(b); err != nil {
			n.Fatal(err)
		}
	}
	for _, n := range ns {
		for _, other := range ns {
			if other != n {
				n.until("up", func() bool { return n.ups[other.id] > n.downs[other.id] })
				eventually(n, "the lanes to be open", func() bool { return n.reaches(other) })
			}
		}
	}
}

// reaches says that all queues of another node can be asked.
func (n *node) reaches(other *node) bool {
	for i := range uint64(lanes) {
		if n.host.NewQueue(other.id, ID{1, i}).Down() {
			return false
		}
	}
	return true
}

// until waits for what must come true under n.mu.
func (n *node) until(what string, done func() bool) {
	n.Helper()
	wait(n, &n.mu, n.changed, what, done)
}

func wait(t testing.TB, mu *sync.Mutex, c *sync.Cond, what string, done func() bool) {
	t.Helper()
	late := false
	timer := time.AfterFunc(20*time.Second, func() {
		mu.Lock()
		late = true
		c.Broadcast()
		mu.Unlock()
	})
	defer timer.Stop()
	mu.Lock()
	defer mu.Unlock()
	for !done() {
		if late {
			t.Fatal("waited for ", what)
		}
		c.Wait()
	}
}

// eventually looks until something is true that nobody tells.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited for ", what)
		}
	}
}

// classic makes a queue on this node.
func (n *node) classic(number uint64, config queue.Config) *queue.Classic {
	q := queue.NewClassic(queue.ClassicRules(0), config, n.pool, n.clock, nil)
	n.note(func() { n.queues[ID{0, number}] = q })
	return q
}

// message is a message whose body begins with two numbers.
func (n *node) message(who, number uint64, size int) queue.Message {
	body := make([]byte, max(size, 16))
	binary.BigEndian.PutUint64(body, who)
	binary.BigEndian.PutUint64(body[8:], number)
	header := binary.BigEndian.AppendUint64([]byte{0, 60, 0, 0}, uint64(len(body)))
	m := n.pool.NewMessage([]byte("x"), []byte("k"), append(header, 0, 0), func(yield func([]byte) bool) { yield(body) }, len(body), 1)
	m.TTL, m.Priority, m.Flags = 600_000, 3, queue.Persistent|queue.HasPriority
	return m
}

// numbersOf reads what message wrote, and checks the rest.
func (n *node) numbersOf(m queue.Message) (who, number uint64) {
	b := queue.ParseStored(n.pool.Bytes(m.Ref)).AppendBody(nil)
	if len(b) != int(m.Size) || m.TTL != 600_000 || m.Priority != 3 || m.Flags&queue.HasPriority == 0 {
		n.Errorf("a message has become %+v", m)
	}
	return binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
}

// publisher publishes to a queue, with confirms, messages numbered from 1.
type publisher struct {
	*node
	q    queue.Queue
	who  uint64
	size int

	mu      sync.Mutex // guards what follows
	more    *sync.Cond
	last    uint64
	acked   []uint64 // in the order of the confirms
	nacked  []uint64
	heardOf map[uint64]bool
}

func (n *node) publisher(q queue.Queue, who uint64) *publisher {
	p := &publisher{node: n, q: q, who: who, size: 16, heardOf: map[uint64]bool{}}
	p.more = sync.NewCond(&p.mu)
	return p
}

func (p *publisher) Settled(ranges []queue.Range, ok bool, _ *queue.Wake) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range ranges {
		for n := r.First; n <= r.Last; n++ {
			if p.heardOf[n] || n == 0 || n > p.last {
				p.Errorf("publisher %d hears of %d again, or has not published it", p.who, n)
			}
			p.heardOf[n] = true
			if ok {
				p.acked = append(p.acked, n)
			} else {
				p.nacked = append(p.nacked, n)
			}
		}
	}
	p.more.Broadcast()
}

func (p *publisher) publish(count int) (pressed bool) {
	b := queue.Batch{Confirms: p}
	p.mu.Lock()
	for range count {
		p.last++
		b.Messages = append(b.Messages, p.message(p.who, p.last, p.size))
		b.Numbers = append(b.Numbers, p.last)
	}
	p.mu.Unlock()
	var w queue.Wake
	p.q.Publish(&b, &w)
	w.Flush()
	return b.Pressed
}

// settled waits for all confirms.
func (p *publisher) settled() (acked, nacked []uint64) {
	p.Helper()
	wait(p, &p.mu, p.more, "confirms", func() bool { return len(p.acked)+len(p.nacked) == int(p.last) })
	return p.acked, p.nacked
}

// client is a consumer, or a getter: an outlet that keeps what it is offered.
type client struct {
	*node
	q  queue.Queue
	id queue.ConsumerID

	mu        sync.Mutex // guards what follows
	more      *sync.Cond
	got       []delivery
	total     int
	limit     int // full from so many octets on; 0: never
	octets    int
	window    int // deliveries between two Ready
	room      int
	was       bool // it said that it is full
	attached  bool
	err       error
	cancelled int
	active    []bool
}

type delivery struct {
	id          queue.DeliveryID
	who, number uint64
	redelivered bool
}

func (n *node) client(q queue.Queue) *client {
	k := &client{node: n, q: q}
	k.more = sync.NewCond(&k.mu)
	return k
}

// attach attaches, and waits for the answer.
func (k *client) attach(spec queue.ConsumerSpec) error {
	k.Helper()
	k.window = int(spec.Window)
	if k.window == 0 {
		k.window = queue.DefaultWindow
	}
	k.room = k.window
	var w queue.Wake
	answered := false
	k.q.Attach(spec, k, &w, func(id queue.ConsumerID, err error) {
		k.mu.Lock()
		k.id, k.err, k.attached, answered = id, err, err == nil, true
		k.more.Broadcast()
		k.mu.Unlock()
	})
	w.Flush()
	wait(k, &k.mu, k.more, "an answer to attach", func() bool { return answered })
	return k.err
}

func (k *client) must(err error) *client {
	k.Helper()
	if err != nil {
		k.Fatal(err)
	}
	return k
}

func (k *client) Offer(ds []queue.Offered, w *queue.Wake) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.attached {
		k.Error("offered before it was attached")
	}
	if k.was {
		k.Error("offered although it was full")
	}
	if k.room -= len(ds); k.room < 0 {
		k.Error("offered beyond its window")
	}
	for _, d := range ds {
		who, number := k.numbersOf(d.Message)
		k.got = append(k.got, delivery{d.ID, who, number, d.Redelivered})
		k.octets += int(d.Message.Ref.Len)
		k.pool.Release(d.Message.Ref.Slab, 1)
	}
	k.total += len(ds)
	k.more.Broadcast()
	k.was = k.limit > 0 && k.octets >= k.limit
	return !k.was
}

func (k *client) Cancelled(*queue.Wake) {
	k.mu.Lock()
	k.cancelled++
	if !k.attached {
		k.Error("cancelled before it was attached")
	}
	k.more.Broadcast()
	k.mu.Unlock()
}

// cancels is how many times it was cancelled.
func (k *client) cancels() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.cancelled
}

func (k *client) TimedOut(*queue.Wake) {}

func (k *client) Activity(active bool) {
	k.mu.Lock()
	k.active = append(k.active, active)
	k.more.Broadcast()
	k.mu.Unlock()
}

// wait waits for that many deliveries at least, and takes all.
func (k *client) wait(n int) []delivery {
	k.Helper()
	wait(k, &k.mu, k.more, fmt.Sprint(n, " deliveries"), func() bool { return len(k.got) >= n })
	return k.take()
}

func (k *client) take() []delivery {
	k.mu.Lock()
	defer k.mu.Unlock()
	ds := k.got
	k.got = nil
	return ds
}

// ready says that all was taken.
func (k *client) ready() {
	k.mu.Lock()
	// What room there was may be used up before the queue hears of the new one.
	k.octets, k.was, k.room = 0, false, min(k.room, k.window)+k.window
	k.mu.Unlock()
	k.flushed(func(w *queue.Wake) { k.q.Ready(k.id, w) })
}

func (k *client) flushed(f func(w *queue.Wake)) {
	var w queue.Wake
	f(&w)
	w.Flush()
}

func (k *client) settle(o queue.Outcome, ds ...delivery) {
	var rs []queue.Range
	for _, d := range ds {
		rs = appendNumber(rs, d.id)
	}
	k.flushed(func(w *queue.Wake) { k.q.Settle(k.id, rs, o, w) })
}

func (k *client) detach(how queue.Detachment) {
	k.Helper()
	done := make(chan bool, 1)
	k.flushed(func(w *queue.Wake) { k.q.Detach(k.id, how, w, func() { done <- true }) })
	within(k, "an answer to detach", done)
}

// get takes one message.
func (k *client) get(noAck bool) (d delivery, ready uint64, ok bool) {
	k.Helper()
	done := make(chan bool, 1)
	k.flushed(func(w *queue.Wake) {
		k.q.Get(k.id, noAck, w, func(o queue.Offered, n uint64, found bool) {
			if found {
				who, number := k.numbersOf(o.Message)
				d = delivery{o.ID, who, number, o.Redelivered}
				k.pool.Release(o.Message.Ref.Slab, 1)
			}
			ready = n
			done <- found
		})
	})
	return d, ready, within(k, "an answer to get", done)
}

func within[T any](t testing.TB, what string, c chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("waited for ", what)
		panic("")
	}
}

type count struct {
	n   uint64
	err error
}

func (n *node) delete(q queue.Queue, ifUnused, ifEmpty bool) count {
	n.Helper()
	done := make(chan count, 1)
	var w queue.Wake
	q.Delete(ifUnused, ifEmpty, &w, func(k uint64, err error) { done <- count{k, err} })
	w.Flush()
	return within(n, "an answer to delete", done)
}

func (n *node) purge(q queue.Queue) uint64 {
	n.Helper()
	done := make(chan uint64, 1)
	var w queue.Wake
	q.Purge(&w, func(k uint64) { done <- k })
	w.Flush()
	return within(n, "an answer to purge", done)
}

func (n *node) ask(q *Queue) (queue.Stats, error) {
	n.Helper()
	type answer struct {
		queue.Stats
		error
	}
	done := make(chan answer, 1)
	var w queue.Wake
	q.Ask(&w, func(s queue.Stats, err error) { done <- answer{s, err} })
	w.Flush()
	a := within(n, "counts", done)
	return a.Stats, a.error
}

// drained says that nothing of a node's message memory is held: but for the slab that small messages are put into, all is free.
func (n *node) drained() {
	n.Helper()
	eventually(n, "all references to be released", func() bool { return n.pool.InUse() <= queue.SlabSize })
}

// relay is the network in front of a node.
type relay struct {
	l    net.Listener
	work sync.WaitGroup

	mu      sync.Mutex // guards what follows
	changed *sync.Cond
	to      string
	stalled [2]bool // towards the node, and from it
	refuse  bool
	closed  bool
	cut     int // connections before this number are cut
	made    int
	conns   map[net.Conn]bool
}

func newRelay(t testing.TB, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{to: to, l: l, conns: map[net.Conn]bool{}}
	r.changed = sync.NewCond(&r.mu)
	r.work.Go(r.run)
	t.Cleanup(func() {
		r.set(func() { r.closed = true })
		r.sever()
		l.Close()
		r.work.Wait()
	})
	return r
}

func (r *relay) set(f func()) {
	r.mu.Lock()
	f()
	r.changed.Broadcast()
	r.mu.Unlock()
}

// sever cuts all connections.
func (r *relay) sever() {
	r.set(func() {
		for c := range r.conns {
			c.Close()
		}
		r.cut = r.made
	})
}

func (r *relay) heal() { r.set(func() { r.stalled, r.refuse = [2]bool{}, false }) }

func (r *relay) run() {
	for {
		c, err := r.l.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		no, to := r.refuse || r.closed, r.to
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
			number := r.made
			r.conns[c], r.conns[d] = true, true
			r.work.Go(func() { r.copy(c, d, 0, number) })
			r.work.Go(func() { r.copy(d, c, 1, number) })
		})
	}
}

func (r *relay) copy(from, to net.Conn, direction, number int) {
	defer func() {
		from.Close()
		to.Close()
		r.set(func() { delete(r.conns, from); delete(r.conns, to) })
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
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

// trouble does something bad for less than a second.
func (r *relay) trouble(rnd *rand.Rand) {
	pause := time.Duration(rnd.IntN(30)) * time.Millisecond
	switch rnd.IntN(4) {
	case 0:
		r.sever()
	case 1:
		r.set(func() { r.refuse = true })
		r.sever()
		time.Sleep(pause)
	case 2:
		r.set(func() { r.stalled[rnd.IntN(2)] = true })
		time.Sleep(pause)
		r.sever()
	case 3:
		time.Sleep(pause)
	}
	r.heal()
}

package cluster

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/test/seeds"
)

// A batch of the model says which one it is: the boot and the life of its sender, and its number in that.
//
//	boot u64 | life u64 | number u64 | crc u32 of the rest | rest
const modelHead = 28

type modelKey struct {
	peer  NodeID
	class Class
	id    uint32
}

// model is a node that sends numbered batches on some streams to all others, and checks what comes: every batch of a sender's life,
// once and in order, until both ends are told that the streams begin anew.
type model struct {
	*seat
	boot uint64

	mu       sync.Mutex // guards what follows
	rnd      *rand.Rand
	out      map[modelKey]*modelOut
	in       map[modelKey]*modelIn
	failures []string
	largest  int
	owed     []Credit
	resets   int
}

type modelOut struct {
	stream    *Stream
	life, num uint64
}

type modelIn struct {
	boot, life, num uint64
	fresh           bool // nothing has come since the streams began anew
}

func newModel(t *testing.T, id NodeID, boot uint64, seed uint64) *model {
	m := &model{boot: boot, rnd: rand.New(rand.NewPCG(seed, uint64(id)<<32+boot)), out: make(map[modelKey]*modelOut), in: make(map[modelKey]*modelIn)}
	m.seat = sit(t, id, boot, func(o *Options) {
		o.Window, o.Backlog, o.Silence = minWindow, 4*minWindow, 250*time.Millisecond
		o.Reset = m.reset
	})
	m.seat.receive = m.receiveOne
	return m
}

func (m *model) reset(s *Stream) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := modelKey{s.Peer(), s.Class(), s.ID()}
	m.resets++
	if o := m.out[k]; o != nil {
		o.life++
		o.num = 0
	}
	if in := m.in[k]; in != nil {
		in.fresh = true
	}
}

func (m *model) receiveOne(b Batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := modelKey{b.Stream.Peer(), b.Stream.Class(), b.Stream.ID()}
	in := m.in[k]
	if in == nil {
		in = &modelIn{fresh: true}
		m.in[k] = in
	}
	boot, life, num := binary.LittleEndian.Uint64(b.Body), binary.LittleEndian.Uint64(b.Body[8:]), binary.LittleEndian.Uint64(b.Body[16:])
	switch {
	case crc32.ChecksumIEEE(b.Body[modelHead:]) != binary.LittleEndian.Uint32(b.Body[24:]):
		m.failures = append(m.failures, fmt.Sprintf("%v: damaged", k))
	case boot != b.Boot:
		m.failures = append(m.failures, fmt.Sprintf("%v: sent in boot %d, received as of %d", k, boot, b.Boot))
	case in.fresh && num == 0 && (boot != in.boot || life != in.life || in.num == 0):
	case !in.fresh && boot == in.boot && life == in.life && num == in.num:
	default:
		m.failures = append(m.failures, fmt.Sprintf("%v: boot %d, life %d, number %d after %+v", k, boot, life, num, *in))
	}
	*in = modelIn{boot: boot, life: life, num: num + 1}
	m.owed = append(m.owed, b.Credit)
	if m.rnd.IntN(3) == 0 {
		m.pay()
	}
}

// pay returns some credit, of any batches. The caller holds mu.
func (m *model) pay() {
	m.rnd.Shuffle(len(m.owed), func(i, j int) { m.owed[i], m.owed[j] = m.owed[j], m.owed[i] })
	n := m.rnd.IntN(len(m.owed) + 1)
	for _, c := range m.owed[:n] {
		c.Return()
	}
	m.owed = m.owed[n:]
}

// sendOne tries to send a batch on one of the streams.
func (m *model) sendOne(k modelKey) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.out[k]
	if o == nil {
		s, err := m.node.Stream(k.peer, k.class, k.id)
		if err != nil {
			m.failures = append(m.failures, err.Error())
			return false
		}
		o = &modelOut{stream: s}
		m.out[k] = o
	}
	size := m.rnd.IntN(3000)
	switch m.rnd.IntN(200) {
	case 0:
		size = m.rnd.IntN(3 * maxFrame)
	case 1, 2, 3:
		size = m.rnd.IntN(2 * minWindow)
	case 4:
		size = 0
	}
	rest := make([]byte, size)
	for i := 0; i < size; i += 97 {
		rest[i] = byte(i + size)
	}
	head := binary.LittleEndian.AppendUint64(nil, m.boot)
	head = binary.LittleEndian.AppendUint64(head, o.life)
	head = binary.LittleEndian.AppendUint64(head, o.num)
	head = binary.LittleEndian.AppendUint32(head, crc32.ChecksumIEEE(rest))
	m.largest = max(m.largest, size)
	if len(m.owed) > 0 && m.rnd.IntN(4) == 0 {
		m.pay()
	}
	if !o.stream.Send(3, head, rest[:size/2], rest[size/2:]) {
		return false
	}
	o.num++
	// What is kept for sending again has its bound.
	l := o.stream.link
	l.mu.Lock()
	held, chunks := l.out.held(), len(l.out.chunks)
	l.mu.Unlock()
	limit := 4*minWindow + m.largest + (4<<10)*frameHead
	if held > limit || chunks > held/chunkSize+2+limit/chunkSize {
		m.failures = append(m.failures, fmt.Sprintf("%v: %d octets in %d chunks are held", k, held, chunks))
	}
	return true
}

func (m *model) check(t *testing.T) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.failures) > 0 {
		t.Fatalf("node %d: %q", m.node.o.Identity.Node, m.failures[:min(len(m.failures), 5)])
	}
}

// network is nodes that reach each other through relays, and a load.
type network struct {
	t      *testing.T
	rnd    *rand.Rand
	models []*model
	relays []*relay // by node, what the others reach it through
	sent   int
}

func newNetwork(t *testing.T, nodes int) *network {
	seed := seeds.Of(t)
	w := &network{t: t, rnd: rand.New(rand.NewPCG(seed, 0))}
	for i := range nodes {
		m := newModel(t, NodeID(i+1), 1, seed)
		w.models = append(w.models, m)
		w.relays = append(w.relays, newRelay(t, m.addr, seed+uint64(i)))
	}
	w.introduce()
	return w
}

func (w *network) introduce() {
	var b Book
	for i, m := range w.models {
		b = b.With(Peer{ID: m.node.o.Identity.Node, Address: w.relays[i].addr()})
	}
	for _, m := range w.models {
		if err := m.node.SetPeers(b); err != nil {
			w.t.Fatal(err)
		}
	}
}

// load sends for a while, from all to all.
func (w *network) load(for_ time.Duration) {
	end := time.Now().Add(for_)
	for time.Now().Before(end) {
		any := false
		for range 200 {
			from, to := w.rnd.IntN(len(w.models)), w.rnd.IntN(len(w.models))
			if from != to && w.models[from].sendOne(modelKey{NodeID(to + 1), classes[w.rnd.IntN(2)], uint32(w.rnd.IntN(3))}) {
				any = true
				w.sent++
			}
		}
		if !any {
			time.Sleep(time.Millisecond)
		}
		if w.rnd.IntN(40) == 0 { // connections of both sides at the same moment
			from, to := w.rnd.IntN(len(w.models)), w.rnd.IntN(len(w.models))
			if from != to {
				for _, p := range [][2]int{{from, to}, {to, from}, {from, to}} {
					n := w.models[p[0]].node
					l := n.link(NodeID(p[1]+1), classes[w.rnd.IntN(2)])
					addr := w.relays[p[1]].addr()
					n.work.Add(1)
					go func() {
						defer n.work.Done()
						n.dial(l.quit, l, addr)
					}()
				}
			}
		}
	}
}

// settle waits until everything sent has come.
func (w *network) settle() {
	w.t.Helper()
	for _, r := range w.relays {
		r.heal()
	}
	end := time.Now().Add(40 * time.Second)
	for {
		missing := ""
		for i, m := range w.models {
			m.mu.Lock()
			m.pay()
			for k, o := range m.out {
				to := w.models[k.peer-1]
				num := o.num
				life := o.life
				m.mu.Unlock()
				to.mu.Lock()
				in := to.in[modelKey{NodeID(i + 1), k.class, k.id}]
				if num > 0 && (in == nil || in.num != num || in.life != life || in.boot != m.boot || in.fresh) {
					missing = fmt.Sprintf("of node %d to %+v: %d sent in life %d, %+v received", i+1, k, num, life, in)
				}
				to.mu.Unlock()
				m.mu.Lock()
			}
			m.mu.Unlock()
		}
		for _, m := range w.models {
			m.check(w.t)
		}
		if missing == "" {
			return
		}
		if time.Now().After(end) {
			w.t.Fatal(missing)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// disturb makes trouble until stop is closed.
func (w *network) disturb(stop chan struct{}) (done chan struct{}) {
	done = make(chan struct{})
	rnd := rand.New(rand.NewPCG(w.rnd.Uint64(), 7))
	relays := append([]*relay(nil), w.relays...)
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(rnd.IntN(60)) * time.Millisecond):
				relays[rnd.IntN(len(relays))].trouble(rnd)
			}
		}
	}()
	return done
}

// TestModelFaults: as long as all nodes live, whatever the network does, everything comes once and in order, and nobody
// is told of a beginning.
func TestModelFaults(t *testing.T) {
	w := newNetwork(t, 3)
	for range 3 {
		stop := make(chan struct{})
		done := w.disturb(stop)
		w.load(time.Second)
		close(stop)
		<-done
		w.settle()
	}
	for i, m := range w.models {
		m.mu.Lock()
		if m.resets > 0 {
			t.Errorf("node %d: %d times anew", i+1, m.resets)
		}
		m.mu.Unlock()
	}
	made := 0
	for _, r := range w.relays {
		r.set(func() { made += r.made })
	}
	t.Logf("%d batches, connections made: %d", w.sent, made)
}

// TestModelRestarts: nodes are also started anew.
func TestModelRestarts(t *testing.T) {
	w := newNetwork(t, 3)
	for range 12 {
		stop := make(chan struct{})
		done := w.disturb(stop)
		w.load(150 * time.Millisecond)
		i := w.rnd.IntN(3)
		old := w.models[i]
		if w.rnd.IntN(2) == 0 { // at once, as if killed
			w.relays[i].set(func() { w.relays[i].refuse = true })
			for _, r := range w.relays {
				r.sever()
			}
		}
		old.node.Close()
		old.check(t)
		m := newModel(t, NodeID(i+1), old.boot+1, w.rnd.Uint64())
		w.models[i] = m
		w.relays[i].set(func() { w.relays[i].to, w.relays[i].refuse = m.addr, false })
		w.introduce()
		w.load(50 * time.Millisecond)
		close(stop)
		<-done
		w.settle()
	}
	t.Logf("%d batches", w.sent)
}

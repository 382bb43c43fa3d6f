package remote

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/warrenmq/warren/cluster"
	"github.com/warrenmq/warren/queue"
)

const (
	// lanes is over how many streams the queues of a node are spread.
	lanes = 4
	// maxBacklog is how many octets may wait for a peer before publishers rest; they go on below half of it.
	maxBacklog = 16 << 20
)

// Streams of a link, all of class cluster.Data.
const (
	firstStream  = 0x52000000
	commandsAt   = firstStream
	reportsAt    = firstStream + lanes
	softStream   = firstStream + 2*lanes
	directStream = softStream + 1
	lastStream   = directStream
)

// Owns says whether a stream of class cluster.Data is this package's.
func Owns(id uint32) bool { return id >= firstStream && id <= lastStream }

// Options say what a Host works with. The functions must not wait.
type Options struct {
	Pool  *queue.Pool
	Clock *queue.Clock
	// Find returns the queue of this node that has an id, nil if there is none. Called without locks.
	Find func(ID) queue.Queue
	// Direct gets what a peer gave to Send; body is valid during the call. nil drops it.
	Direct func(peer cluster.NodeID, kind uint8, body []byte)
	// Changed is told how the soft state of a peer has changed, one call after the other for the same peer. nil: nobody is.
	Changed func(peer cluster.NodeID, changes []Change)
	// Broken is told that a peer sends what cannot be read. Nothing is heard from it on that stream until the link begins
	// anew: see to it that it does, once Broken has returned.
	Broken func(peer cluster.NodeID, err error)
	// Waits: the queues of this node are down for others until Serve: they have not back yet what they had.
	Waits bool
}

// Host has this node's queues that live elsewhere, and serves those of its own that others ask for. Its methods may be called
// concurrently.
//
//	h := Open(...)
//	n, err := cluster.Open(...)  // with h's Up, Down, Reset, and Receive for the streams that it Owns
//	h.Start(n)                   // before n has peers
//	n.Close()
//	h.Close()
type Host struct {
	o       Options
	node    *cluster.Node
	undoing sync.WaitGroup // goroutines that end consumers whose session ended before they had come
	dropped atomic.Uint64
	serving atomic.Bool
	pressed queue.Press // has a reason for each peer for which too much waits

	mu    sync.Mutex // guards what follows; a leaf
	peers map[cluster.NodeID]*peer

	soft softState
}

// peer is what there is with another node.
type peer struct {
	host     *Host
	id       cluster.NodeID
	lanes    [lanes]*lane
	homes    [lanes]*home
	soft     *softPeer
	up       atomic.Bool
	load     atomic.Int64 // octets that wait in the lanes
	crowded  atomic.Int32 // lanes whose home has no room
	pressing atomic.Bool  // publishers rest for it
}

// Counters are totals since the start.
type Counters struct {
	Dropped uint64 // publishes without confirms whose queue's home was down
}

// Open makes a host that knows no node yet.
func Open(o Options) *Host {
	h := &Host{o: o, pressed: queue.Press{Pool: o.Pool, Why: queue.BlockedByLinks}, peers: map[cluster.NodeID]*peer{}}
	h.soft.items = map[string]*softItem{}
	return h
}

// serves reports whether this node's queues are there for others.
func (h *Host) serves() bool { return !h.o.Waits || h.serving.Load() }

// Serve says that this node's queues are there, of a host that waits for it.
func (h *Host) Serve() {
	h.serving.Store(true)
	for _, p := range h.all() {
		for _, x := range p.homes {
			x.serve()
		}
	}
}

// Start gives the host the node whose Options name its functions.
func (h *Host) Start(n *cluster.Node) { h.node = n }

// Close waits for what is going on by itself. The node is closed already.
func (h *Host) Close() { h.undoing.Wait() }

// Counters are the totals of now.
func (h *Host) Counters() Counters { return Counters{Dropped: h.dropped.Load()} }

// NewQueue makes this node's end of a queue that lives on another one, which need not be up, nor known yet. There is one for
// each id, until it is forgotten.
func (h *Host) NewQueue(home cluster.NodeID, id ID) *Queue {
	l := h.peer(home).lanes[id.lane()]
	q := &Queue{id: id, lane: l}
	l.mu.Lock()
	l.queues[id] = q
	l.mu.Unlock()
	return q
}

// lane is the number of the lane that a queue's commands and reports go by.
func (id ID) lane() int { return int((id.Number ^ id.Scope) % lanes) }

func (h *Host) peer(id cluster.NodeID) *peer {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.peers[id]
	if p == nil {
		p = &peer{host: h, id: id}
		for i := range lanes {
			p.lanes[i], p.homes[i] = newLane(p), newHome(p)
			p.lanes[i].number, p.homes[i].number = uint32(i), uint32(i)
		}
		p.soft = newSoftPeer(p)
		h.peers[id] = p
	}
	return p
}

// all are the peers there have been.
func (h *Host) all() []*peer {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]*peer, 0, len(h.peers))
	for _, p := range h.peers {
		list = append(list, p)
	}
	return list
}

// stream is one of the link to the peer, nil if that is no member.
func (p *peer) stream(id uint32) *cluster.Stream {
	if p.host.node == nil {
		return nil
	}
	s, err := p.host.node.Stream(p.id, cluster.Data, id)
	if err != nil {
		return nil
	}
	return s
}

// Up is cluster.Options.Up.
func (h *Host) Up(id cluster.NodeID, _ uint64) {
	p := h.peer(id)
	p.up.Store(true)
	for _, l := range p.lanes {
		l.opened()
	}
	p.soft.opened()
}

// Down is cluster.Options.Down.
func (h *Host) Down(id cluster.NodeID, _ uint64) {
	p := h.peer(id)
	p.up.Store(false)
	for i := range lanes {
		p.lanes[i].end(true)
		p.homes[i].end(true)
	}
	p.soft.closed()
}

// Reset is cluster.Options.Reset.
func (h *Host) Reset(s *cluster.Stream) {
	if s.Class() != cluster.Data || !Owns(s.ID()) {
		return
	}
	p := h.peer(s.Peer())
	switch id := s.ID(); {
	case id < reportsAt:
		p.homes[id-commandsAt].anew()
		l := p.lanes[id-commandsAt]
		l.mu.Lock()
		l.broken = false
		l.mu.Unlock()
		l.end(false)
	case id == softStream:
		p.soft.anew()
	}
}

// Receive is cluster.Options.Receive for the streams of this package.
func (h *Host) Receive(b cluster.Batch) {
	defer b.Credit.Return()
	p := h.peer(b.Stream.Peer())
	id, ok := b.Stream.ID(), true
	switch {
	case id == directStream:
		if h.o.Direct != nil {
			h.o.Direct(p.id, b.Kind, b.Body)
		}
	case id == softStream:
		ok = p.soft.receive(b.Kind, b.Body)
	case id < reportsAt && b.Kind == batchCommands:
		x := p.homes[id-commandsAt]
		if ok = x.receive(b.Boot, b.Body); !ok {
			x.end(false)
			x.mu.Lock()
			x.broken = true
			x.mu.Unlock()
		}
	case id >= reportsAt && b.Kind == batchReports:
		l := p.lanes[id-reportsAt]
		if ok = l.receive(b.Body); !ok {
			l.mu.Lock()
			l.broken = true
			l.mu.Unlock()
			l.end(false)
		}
	case id >= reportsAt && b.Kind == batchEnded:
		ok = p.lanes[id-reportsAt].ended(b.Body)
	default:
		ok = false
	}
	if !ok && h.o.Broken != nil {
		h.o.Broken(p.id, fmt.Errorf("%w: stream %#x, kind %d, %d octets", errFormat, id, b.Kind, len(b.Body)))
	}
}

// Send gives a peer a message of a kind that is the caller's to choose, for its Options.Direct, made of parts, which it copies.
// It does not wait. It returns false, and the message is dropped, if the peer is down or has too much on its way.
func (h *Host) Send(id cluster.NodeID, kind uint8, parts ...[]byte) bool {
	h.mu.Lock()
	p := h.peers[id]
	h.mu.Unlock()
	if p == nil || !p.up.Load() {
		return false
	}
	s := p.stream(directStream)
	return s != nil && s.Send(kind, parts...)
}

// press has publishers rest while too much waits for the peer, or it has no room.
func (p *peer) press() {
	for {
		on := p.pressing.Load()
		load := p.load.Load()
		want := load > maxBacklog || on && load > maxBacklog/2 || p.crowded.Load() > 0
		if on == want {
			return
		}
		if p.pressing.CompareAndSwap(on, want) {
			p.host.pressed.Set(want)
		}
	}
}

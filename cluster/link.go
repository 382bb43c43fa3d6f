package cluster

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// link is what this node has of the connection of one class to one peer, whether it is there at the moment or not: the log
// of what is to be sent, the streams, and the connection.
//
// Locks are taken in the order adopting, telling, mu. Only the first two are held while a callback runs.
type link struct {
	node  *Node
	peer  NodeID
	class Class
	lower bool            // this node has the lower id: it says which connection is used
	wake  chan struct{}   // something has changed for keep; one slot
	done  chan struct{}   // keep has ended
	quit  context.Context // ends with close
	end   context.CancelFunc

	adopting sync.Mutex // held by who makes a connection the link's
	last     take       // of the higher id: what the lower one said last
	lastBoot uint64     // the boot in which it said so
	next     uint64     // the tie to begin with when the logs begin anew; drawn by the lower id, 0 if not yet

	telling sync.Mutex // held while Up, Down and Reset are called
	told    uint64     // the boot that Up was called with, 0 after Down

	// in is what has come. It belongs to the goroutine that reads the connection, and between two of them to the one that adopts.
	in struct {
		octets uint64
		frames uint16
	}
	received atomic.Uint64 // in.octets, for the writer
	heard    atomic.Int64  // when something came last, in the node's time

	mu        sync.Mutex // guards what follows; above chunks only
	addr      string
	closed    bool
	left      bool      // the peer has said goodbye
	candidate net.Conn  // of whom the lower id waits to hear that it is taken
	conn      *conn     // nil if there is none
	since     time.Time // there has been, or has not been, a connection
	made      uint64    // how many connections there have been
	why       error     // the last one ended
	tie       uint64    // what the logs of both sides belong to; 0 if they begin anew in any case
	begun     bool      // there has been a tie: something may have been sent
	life      uint64    // how many times they have begun anew
	holding   bool      // Reset is being told: nothing may be sent
	boot      uint64    // of the peer
	window    int       // of the peer's streams
	out       sendLog
	streams   map[uint32]*Stream
	waiting   []*Stream // those that refused a batch, and have not said that there is room
	calls     calls
}

func newLink(n *Node, id NodeID, c Class) *link {
	l := &link{node: n, peer: id, class: c, lower: n.o.Identity.Node < id, wake: make(chan struct{}, 1), done: make(chan struct{}),
		streams: make(map[uint32]*Stream), out: sendLog{pool: &n.chunks}}
	l.quit, l.end = context.WithCancel(n.quit)
	go l.keep()
	return l
}

func (l *link) stir() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *link) address(a string) {
	l.mu.Lock()
	changed := l.addr != a
	l.addr = a
	l.mu.Unlock()
	if changed {
		l.stir()
	}
}

// close begins the end of the link, which is over when done is closed.
func (l *link) close() {
	l.end()
	l.mu.Lock()
	l.closed = true
	if l.candidate != nil {
		l.candidate.Close()
	}
	c := l.conn
	if c != nil {
		c.leaving = true
		c.rouse()
	}
	l.mu.Unlock()
	l.stir()
}

var (
	errReplaced = errors.New("cluster: replaced by another connection")
	errBroken   = errors.New("cluster: the two sides disagree on what was sent")
)

// adopt makes a connection the link's, after its opening. When it returns nil, the connection has goroutines of its own and stop
// has been called; else the caller closes it.
func (l *link) adopt(nc net.Conn, h *hello, stop func() bool) error {
	if l.lower {
		return l.adoptLower(nc, h, stop)
	}
	return l.adoptHigher(nc, h, stop)
}

func (l *link) adoptLower(nc net.Conn, h *hello, stop func() bool) error {
	l.mu.Lock()
	if l.candidate != nil {
		l.candidate.Close() // a later one is more likely to live
	}
	l.candidate = nc
	l.mu.Unlock()
	l.adopting.Lock()
	defer l.adopting.Unlock()
	if !l.isCandidate(nc) || !l.node.seen(h) {
		return errReplaced
	}
	defer l.isNoCandidate(nc)
	l.halt()
	for l.next == 0 {
		l.next = random64()
	}
	t := take{session: l.node.sessions.Add(1), tie: l.currentTie(), next: l.next, received: l.in.octets}
	if err := say(nc, sayTake, t.append(nil)); err != nil {
		return err
	}
	b, err := listen(nc, sayTaken, takenSize)
	if err != nil {
		return err
	}
	var answer taken
	answer.decode(b)
	if !answer.resumed {
		l.restart(t.next, h)
		l.next = 0
	}
	return l.begin(nc, h, answer.received, stop)
}

func (l *link) adoptHigher(nc net.Conn, h *hello, stop func() bool) error {
	b, err := listen(nc, sayTake, takeSize)
	if err != nil {
		return err
	}
	var t take
	t.decode(b)
	if t.next == 0 {
		return errOpening
	}
	l.adopting.Lock()
	defer l.adopting.Unlock()
	if h.boot < l.lastBoot || h.boot == l.lastBoot && t.session <= l.last.session || !l.node.seen(h) {
		return errReplaced // the lower id has taken another one since
	}
	l.lastBoot, l.last = h.boot, t
	l.halt()
	tie, from := l.currentTie(), t.received
	answer := taken{resumed: t.tie != 0 && t.tie == tie}
	if !answer.resumed {
		from = 0
		// With next we may have begun already, and the lower id did not hear that: it has neither sent nor received anything.
		if tie != t.next {
			l.restart(t.next, h)
		}
	}
	answer.received = l.in.octets
	if err := say(nc, sayTaken, answer.append(nil)); err != nil {
		return err
	}
	return l.begin(nc, h, from, stop)
}

func (l *link) currentTie() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tie
}

func (l *link) isCandidate(nc net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.candidate == nc && !l.closed
}

func (l *link) isNoCandidate(nc net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.candidate == nc {
		l.candidate = nil
	}
}

// halt ends the connection that the link has, and waits until nobody reads or writes it. The caller is adopting.
func (l *link) halt() {
	l.mu.Lock()
	c := l.conn
	l.mu.Unlock()
	if c != nil {
		c.fail(errReplaced)
		<-c.done
	}
}

// restart begins the logs anew, with a new tie. There is no connection, and the caller is adopting.
func (l *link) restart(tie uint64, h *hello) {
	l.in.octets, l.in.frames = 0, 0
	l.received.Store(0)
	l.mu.Lock()
	anew := l.begun
	l.tie, l.begun, l.holding, l.window = tie, true, true, int(h.window)
	l.out.reset()
	l.life++
	streams := make([]*Stream, 0, len(l.streams))
	for _, s := range l.streams {
		s.restart()
		streams = append(streams, s)
	}
	lost := l.calls.restart()
	l.mu.Unlock()
	for _, f := range lost {
		f(nil, ErrReset)
	}
	if !anew {
		return
	}
	slices.SortFunc(streams, func(a, b *Stream) int { return cmp.Compare(a.id, b.id) })
	l.telling.Lock()
	defer l.telling.Unlock()
	l.tellDown() // it has been started anew; or it had forgotten us, which is no better
	if f := l.node.o.Reset; f != nil {
		for _, s := range streams {
			f(s)
		}
	}
}

// begin starts a connection where the other side has received the log up to from. The caller is adopting.
func (l *link) begin(nc net.Conn, h *hello, from uint64, stop func() bool) error {
	c := newConn(l, nc)
	l.mu.Lock()
	switch {
	case l.closed || !stop():
		l.mu.Unlock()
		return ErrClosed
	case !l.out.rewind(from):
		l.tie = 0
		l.mu.Unlock()
		return errBroken
	}
	nc.SetDeadline(time.Time{})
	l.conn, l.left, l.boot, l.since = c, false, h.boot, time.Now()
	l.made++
	l.heard.Store(int64(l.node.now()))
	l.mu.Unlock()
	l.tellUp(h.boot)
	l.mu.Lock()
	l.holding = false
	rooms := l.roomy(nil)
	l.mu.Unlock()
	for _, f := range rooms {
		f()
	}
	go c.read()
	go c.write()
	l.stir()
	return nil
}

// tellUp and tellDown tell the owner whether the peer is there. For tellDown the caller holds telling.
func (l *link) tellUp(boot uint64) {
	l.telling.Lock()
	defer l.telling.Unlock()
	if l.told == boot {
		return
	}
	l.tellDown()
	l.told = boot
	if f := l.node.o.Up; f != nil && l.class == Control {
		f(l.peer, boot)
	}
}

func (l *link) tellDown() {
	boot := l.told
	l.told = 0
	if f := l.node.o.Down; boot != 0 && f != nil && l.class == Control {
		f(l.peer, boot)
	}
}

// ended is told by a connection that nobody reads or writes any more.
func (l *link) ended(why error) {
	l.mu.Lock()
	l.conn, l.why, l.since = nil, why, time.Now()
	l.mu.Unlock()
	l.stir()
}

// broke is told that the other side does not keep to the protocol, or has lost what it had: the logs begin anew, and both
// sides are told.
func (l *link) broke() {
	l.mu.Lock()
	l.tie = 0
	l.mu.Unlock()
}

// roomy appends what those have asked for that there is room for now. The caller holds mu, and calls them without it.
func (l *link) roomy(rooms []func()) []func() {
	rest := l.waiting[:0]
	for _, s := range l.waiting {
		if !s.fits(s.want) {
			rest = append(rest, s)
			continue
		}
		s.want = 0
		if s.room != nil {
			rooms = append(rooms, s.room)
		}
	}
	clear(l.waiting[len(rest):])
	l.waiting = rest
	return rooms
}

// rouse sees to it that what is in the log is written. The caller holds mu.
func (l *link) rouse() {
	if c := l.conn; c != nil {
		c.rouse()
	}
}

package cluster

import (
	"encoding/binary"
	"slices"
)

// A Stream is a sequence of batches to a peer, and another one back, under a number that both sides know it by. Batches arrive
// once and in the order of the calls of Send, as long as both nodes live; see Options.Reset. Its methods may be called
// concurrently.
type Stream struct {
	link *link
	id   uint32

	// Guarded by link.mu.
	credit      int    // octets that may be sent; below 0 after a batch larger than half the window
	want        int    // what a batch took that was refused; 0 if none is waited for
	room        func() // to be called when it would not be
	outstanding int    // octets that have come and were not given back to the sender
	back        int    // of those, what will be given back with the next credit

	// Of the reader.
	part []byte // of a batch in several frames
	left int    // octets of it that are to come
	kind uint8
	owed Credit // for it
}

// Stream returns the stream of a peer, class and number: the same one for the same three, made when either side first speaks of
// it. It is dead, and nothing can be sent on it, when the peer is no member any more.
func (n *Node) Stream(peer NodeID, class Class, id uint32) (*Stream, error) {
	l := n.link(peer, class)
	if l == nil {
		return nil, ErrUnknown
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stream(id)
	if s == nil {
		return nil, ErrBusy
	}
	return s, nil
}

// stream returns the stream of a number, nil if there are too many. The caller holds mu.
func (l *link) stream(id uint32) *Stream {
	s := l.streams[id]
	if s == nil && len(l.streams) < l.node.o.Streams {
		s = &Stream{link: l, id: id, credit: l.window}
		l.streams[id] = s
	}
	return s
}

// Peer is the node at the other end.
func (s *Stream) Peer() NodeID { return s.link.peer }

// Class is the class of the connection that the stream is part of.
func (s *Stream) Class() Class { return s.link.class }

// ID is the stream's number.
func (s *Stream) ID() uint32 { return s.id }

// restart begins anew. The caller holds mu, and nobody reads.
func (s *Stream) restart() {
	s.credit, s.outstanding, s.back = s.link.window, 0, 0
	s.part, s.left, s.owed = nil, 0, Credit{}
}

// fits reports whether a batch that takes so much can be sent. The caller holds mu.
func (s *Stream) fits(cost int) bool {
	l := s.link
	return l.begun && !l.holding && !l.closed &&
		s.credit >= min(cost, l.window/2) &&
		(l.out.held()+cost <= l.node.o.Backlog || l.out.held() <= l.node.o.Backlog/2)
}

// Send sends a batch made of parts, which it copies: at most MaxBatch octets, of a kind that is the sender's to choose. It
// does not wait, and does not allocate in the steady state. It returns false, and has done nothing, if there is no room: the
// receiver has too much that it has not disposed of, or the peer is away and too much waits for it, or it has never been
// there. Then the function given to Room is called when there is.
//
// The peer need not be there: it gets the batch when it comes back, unless it was started anew meanwhile.
func (s *Stream) Send(kind uint8, parts ...[]byte) bool {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	if size > MaxBatch {
		panic("cluster: batch above MaxBatch")
	}
	cost := frameHead + size
	l := s.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.fits(cost) {
		if s.want == 0 && !l.closed {
			l.waiting = append(l.waiting, s)
		}
		s.want = cost
		return false
	}
	s.credit -= cost
	f := frame{typ: frameData, kind: kind, stream: s.id}
	if size <= maxFrame {
		l.out.appendHead(&f, size)
		for _, p := range parts {
			l.out.append(p)
		}
	} else {
		l.sendPieces(&f, size, parts)
	}
	l.rouse()
	return true
}

// sendPieces cuts a batch into frames.
func (l *link) sendPieces(f *frame, left int, parts [][]byte) {
	open := 0 // octets that the current frame lacks
	for _, p := range parts {
		for len(p) > 0 {
			if open == 0 {
				open = min(left, maxFrame)
				left -= open
				f.left = uint32(left)
				l.out.appendHead(f, open)
			}
			n := min(open, len(p))
			l.out.append(p[:n])
			open -= n
			p = p[n:]
		}
	}
}

// Room says what to call when there is room for a batch of the size that Send refused last: once, until Send refuses again, by
// a goroutine that must not wait. It replaces what was said before.
func (s *Stream) Room(f func()) {
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	s.room = f
}

// A Batch is one that has come.
type Batch struct {
	Stream *Stream
	Boot   uint64 // of the sender
	Kind   uint8
	Body   []byte // valid during the call
	Credit Credit // to be returned when the batch has been disposed of
}

// Credit is what a batch has taken of the window of its stream. Whoever gets a batch returns it once, and so says that
// he can take that much more.
type Credit struct {
	stream *Stream
	life   uint64
	octets int
}

// Return gives the credit back to the sender. It may be called by any goroutine, during Receive as well. It does nothing if
// the stream has begun anew since.
func (c Credit) Return() {
	if c.stream == nil {
		return
	}
	s, l := c.stream, c.stream.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.life != l.life {
		return
	}
	s.back += c.octets
	if s.back > s.outstanding {
		panic("cluster: the credit of a batch was returned twice")
	}
	if s.back >= l.node.o.Window/4 {
		f := frame{typ: frameCredit, stream: s.id}
		l.out.appendHead(&f, 8)
		var body [8]byte
		binary.LittleEndian.PutUint64(body[:], uint64(s.back))
		l.out.append(body[:])
		s.outstanding -= s.back
		s.back = 0
		l.rouse()
	}
}

func (c *conn) gotCredit(id uint32, n uint64) error {
	l := c.link
	l.mu.Lock()
	s := l.streams[id]
	if s == nil || n > uint64(l.window-s.credit) {
		l.mu.Unlock()
		return errBroken
	}
	s.credit += int(n)
	rooms := c.rooms[:0]
	if s.want > 0 && s.fits(s.want) {
		s.want = 0
		l.waiting = slices.DeleteFunc(l.waiting, func(w *Stream) bool { return w == s })
		if s.room != nil {
			rooms = append(rooms, s.room)
		}
	}
	l.mu.Unlock()
	c.tell(rooms)
	return nil
}

// gotData takes in a batch, or a piece of one.
func (l *link) gotData(f *frame) error {
	l.mu.Lock()
	s := l.stream(f.stream)
	size := len(f.body) + int(f.left)
	if s == nil {
		l.mu.Unlock()
		return errBroken
	}
	if s.left == 0 { // a new batch
		cost, window := frameHead+size, l.node.o.Window
		if window-s.outstanding < min(cost, window/2) {
			l.mu.Unlock()
			return errBroken
		}
		s.outstanding += cost
		s.owed = Credit{s, l.life, cost}
	} else if size != s.left || f.kind != s.kind {
		l.mu.Unlock()
		return errBroken
	}
	boot := l.boot
	l.mu.Unlock()
	body := f.body
	if f.left > 0 || s.left > 0 {
		if s.left == 0 {
			s.part, s.kind = make([]byte, 0, size), f.kind
		}
		s.part = append(s.part, f.body...)
		s.left = int(f.left)
		if s.left > 0 {
			return nil
		}
		body, s.part = s.part, nil
	}
	if receive := l.node.o.Receive; receive != nil {
		receive(Batch{Stream: s, Boot: boot, Kind: f.kind, Body: body, Credit: s.owed})
	} else {
		s.owed.Return()
	}
	return nil
}

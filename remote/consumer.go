package remote

import (
	"encoding/binary"
	"sync"

	"github.com/warrenmq/warren/queue"
)

// consumer is one of this node, or a getter.
type consumer struct {
	queue  *Queue
	handle uint32
	out    queue.Outlet
	noAck  bool
	getter bool
	window int

	// Guarded by lane.mu.
	attached  bool
	detaching bool
	done      func(queue.ConsumerID, error) // until attached

	mu      sync.Mutex // guards what follows; above lane.mu. Outlets lock under it
	waiting []queue.Offered
	room    int  // deliveries until the outlet must say Ready
	full    bool // it said so
	gone    bool // gets nothing more
	// What it was given and the home does not know of.
	passed, octets int
}

// offered takes deliveries, in the order of their coming. It returns false, and takes none, when the consumer is gone.
func (c *consumer) offered(ds []queue.Offered, w *queue.Wake) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return false
	}
	if len(c.waiting) > 0 || c.full || len(ds) > c.room {
		c.waiting = append(c.waiting, ds...)
		c.pass(w)
		return true
	}
	c.offer(ds, w)
	c.tell(w)
	return true
}

// pass offers what waits, as far as the outlet has room. Called with c.mu.
func (c *consumer) pass(w *queue.Wake) {
	for len(c.waiting) > 0 && !c.full && c.room > 0 && !c.gone {
		n := min(c.room, len(c.waiting))
		c.offer(c.waiting[:n], w)
		c.waiting = c.waiting[n:]
	}
	if len(c.waiting) == 0 {
		c.waiting = nil
	}
	c.tell(w)
}

// offer gives deliveries to the outlet. Called with c.mu.
func (c *consumer) offer(ds []queue.Offered, w *queue.Wake) {
	for i := range ds {
		c.octets += int(ds[i].Message.Ref.Len)
	}
	c.passed += len(ds)
	c.room -= len(ds)
	if !c.out.Offer(ds, w) {
		c.full = true
	}
}

// tell tells the home that it may send as much again, when it is worth it. Called with c.mu.
func (c *consumer) tell(w *queue.Wake) {
	if c.passed < max(1, windowOf(c.window)/4) && c.octets < windowOctets/4 {
		return
	}
	l := c.queue.lane
	l.mu.Lock()
	if l.up {
		from := len(l.text.list)
		dst := binary.AppendUvarint(appendCommand(l.text.list, cmdReady, c.queue.id), uint64(c.handle))
		l.text.list = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(c.passed)), uint64(c.octets))
		l.wrote(from)
		l.wake(w)
	}
	l.mu.Unlock()
	c.passed, c.octets = 0, 0
}

// end takes what waits for the outlet: it gets nothing more. What is settled by being handed over is handed over.
func (c *consumer) end(w *queue.Wake) (back []queue.Range) {
	c.mu.Lock()
	waiting := c.waiting
	c.waiting = nil
	if c.gone {
		waiting = nil
	}
	c.gone = true
	if c.noAck && len(waiting) > 0 {
		c.out.Offer(waiting, w)
		waiting = nil
	}
	c.mu.Unlock()
	release := queue.Releaser{Pool: c.queue.lane.host.o.Pool}
	for i := range waiting {
		release.Add(waiting[i].Message.Ref.Slab)
		back = appendNumber(back, waiting[i].ID)
	}
	release.Flush()
	return back
}

// cancelled ends a consumer that was attached.
func (c *consumer) cancelled(w *queue.Wake) {
	c.end(w)
	c.out.Cancelled(w)
}

// lost ends a consumer whose home is down.
func (c *consumer) lost(w *queue.Wake) {
	l := c.queue.lane
	l.mu.Lock()
	attached, detaching, done := c.attached, c.detaching, c.done
	c.done = nil
	l.mu.Unlock()
	switch {
	case !attached:
		done(0, ErrDown)
	case detaching: // it is answered
		c.end(w)
	default:
		c.cancelled(w)
	}
}

package propose

import "sync/atomic"

const (
	// maxLane is how many octets of a lane may wait before publishers to it rest, and minLane how many always may.
	maxLane = 4 << 20
	minLane = 128 << 10
	// maxWaiting is what all lanes share: the less is left of it, the less may wait in each.
	maxWaiting = 16 << 20
)

// Lane is the way of the commands of one queue to the log: they are proposed in the order in which they were added, and the lanes of
// a Proposer have turns. The zero value is empty.
type Lane[B Batched[B]] struct {
	full atomic.Bool // publishers rest; written with the proposer's lock

	// Guarded by the proposer's lock.
	parcels []B // of MaxBatch octets or more, behind each other, before
	open    B   // to which commands are added; nil: there is none
	octets  int // of all of them
	credit  int // octets that may be taken in this turn; below 0: more was
	busy    bool
	listed  bool     // in one of the lines
	next    *Lane[B] // in it
	waiters []func()
}

// line is lanes in the order of their turns.
type line[B Batched[B]] struct{ head, tail *Lane[B] }

func (x *line[B]) push(l *Lane[B]) {
	l.next = nil
	if x.head == nil {
		x.head = l
	} else {
		x.tail.next = l
	}
	x.tail = l
}

func (x *line[B]) pop() *Lane[B] {
	l := x.head
	x.head = l.next
	return l
}

// first is the parcel that is taken next, or nil.
func (l *Lane[B]) first() B {
	if len(l.parcels) > 0 {
		return l.parcels[0]
	}
	return l.open
}

// Full reports whether too much of a lane waits: who publishes to it should rest.
func (l *Lane[B]) Full() bool { return l.full.Load() }

// WaitForRoom calls wake once, without locks, when a lane is not full any more, which may be at once.
func (p *Proposer[B, R]) WaitForRoom(l *Lane[B], wake func()) {
	p.mu.Lock()
	full := l.full.Load()
	if full {
		l.waiters = append(l.waiters, wake)
	}
	p.mu.Unlock()
	if !full {
		wake()
	}
}

// share is how many octets of a lane may wait. A lane that fills leaves the others half of what is left, so that there is always
// something for one that is almost empty. Called with p.mu held.
func (p *Proposer[B, R]) share() int { return max(minLane, min(maxLane, (maxWaiting-p.waiting)/2)) }

// put has encode append to a lane, and returns by how many octets it grew. Called with p.mu held.
func (p *Proposer[B, R]) put(l *Lane[B], encode func(b B)) int {
	var none B
	if l.open == none {
		l.open = p.fresh(l.busy)
		p.parcels++
	}
	b := l.open
	before := b.Octets()
	encode(b)
	n := b.Octets() - before
	l.octets += n
	p.waiting += n
	if b.Octets()+HeaderLen >= p.MaxBatch {
		l.parcels = append(l.parcels, b)
		l.open = none
	}
	if l == &p.urgent {
		return n
	}
	if !l.listed {
		l.listed, l.credit = true, p.MaxBatch
		p.sparse.push(l)
	}
	if l.octets > p.share() {
		l.full.Store(true)
	}
	return n
}

// turn is the lane whose turn it is, which is not empty, or nil. Called with p.mu held.
//
// What is of no queue goes first. The others have turns of MaxBatch octets: one that was given more has none until the others have
// had as much. A lane to which something comes when it has long been empty has its first turn before those that always have
// something. Having had that it stands behind them, although it may be empty again, so that it cannot do so at every message.
// (These are the two lists of flows of FQ-CoDel, RFC 8290 §4.2.)
func (p *Proposer[B, R]) turn() *Lane[B] {
	var none B
	if p.urgent.first() != none {
		return &p.urgent
	}
	for {
		from := &p.sparse
		if from.head == nil {
			from = &p.steady
		}
		l := from.head
		switch {
		case l == nil:
			return nil
		case l.credit <= 0:
			l.credit += p.MaxBatch
			p.steady.push(from.pop())
		case l.first() != none:
			return l
		case from == &p.sparse && p.steady.head != nil:
			p.steady.push(from.pop())
		default:
			from.pop().listed = false
		}
	}
}

// take takes the first parcel of a lane. Called with p.mu held.
func (p *Proposer[B, R]) take(l *Lane[B]) (b B) {
	if len(l.parcels) > 0 {
		b = l.parcels[0]
		n := copy(l.parcels, l.parcels[1:])
		clear(l.parcels[n:])
		l.parcels = l.parcels[:n]
	} else {
		var none B
		b, l.open = l.open, none
	}
	n := b.Octets()
	l.octets -= n
	l.credit -= n
	l.busy = n > smallBuffer/2
	p.waiting -= n
	p.parcels--
	if l == p.latest {
		p.alone += n
	} else if l != &p.urgent {
		p.latest, p.alone = l, n
	}
	if l.full.Load() && l.octets <= p.share()/2 {
		l.full.Store(false)
		p.rested = append(p.rested, l.waiters...)
		l.waiters = nil
	}
	return b
}

// gather makes a batch of what waits, or returns nil. Called with p.mu held.
func (p *Proposer[B, R]) gather() (b B) {
	var none B
	for {
		l := p.turn()
		if l == nil || b != none && HeaderLen+b.Octets()+l.first().Octets() > p.MaxBatch {
			return b
		}
		x := p.take(l)
		x.Seal()
		if b == none {
			b = x
			continue
		}
		if cap(b.batch().Buf) <= smallBuffer { // it would grow, and there would be fewer small ones
			first := b
			b = p.fresh(true)
			b.Seal()
			b.Merge(first)
			p.recycle(first)
		}
		b.Merge(x)
		p.recycle(x)
	}
}

// bringForward has all that waits be proposed before what will be added. Called with p.mu held.
func (p *Proposer[B, R]) bringForward() {
	var none B
	u := &p.urgent
	if u.open != none {
		u.parcels, u.open = append(u.parcels, u.open), none
	}
	for _, from := range [...]*line[B]{&p.sparse, &p.steady} {
		for l := from.head; l != nil; l = l.next {
			for l.first() != none {
				x := p.take(l)
				u.parcels = append(u.parcels, x)
				u.octets += x.Octets()
				p.waiting += x.Octets()
				p.parcels++
			}
		}
	}
}

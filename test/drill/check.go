package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/warrenmq/warren/test/message"
)

// fate is what is known of a message in one queue.
type fate struct {
	state     uint8 // of its end there, below
	delivered bool  // ever
	held      bool  // handed out in this life, and not given back
	life      int   // of the last delivery
	first     int   // index of the event in which it was settled, for the reader
	present   bool  // found by the drain
}

const (
	open      uint8 = iota // never settled
	doubtful               // settled, but a crash may have undone it
	settled                // settled, and that is safe
	forwarded              // rejected: it goes to the dead letters
)

// sent is a published message.
type sent struct {
	route       uint8
	persistent  bool
	life        int // in which it was published
	begin       int // event
	confirmed   int // event; 0: not
	confirmedIn int // life
}

type place struct {
	queue   uint8
	message message.ID
}

// settlement is one whose safety is not yet known.
type settlement struct {
	place
	event int // of its beginning; once processed, that of the synced event
}

// checker replays a history and holds it against the promises.
type checker struct {
	h        *history
	sent     map[message.ID]*sent
	fates    map[place]*fate
	pending  map[uint16][]settlement // by actor, not known to be handled
	handled  []settlement            // handled, not known to be written; ascending
	life     int
	last     map[[2]uint64]message.ID // last message seen for the first time, by queue and publisher
	fresh    map[[3]uint64]message.ID // last message not redelivered, by queue, actor and publisher
	holders  map[uint16][]place
	purges   map[uint8]int // event at which one began
	deletes  map[uint8]int
	draining map[uint8]bool
	ending   bool // the life is: what a client sent may not have arrived
	// undecided are the queues whose deletion was under way when a life ended, with what they owed: they are whole, or gone.
	undecided map[uint8]*undecided
	// sweepable are the messages of the queues that are emptied or deleted, which were not yet settled.
	sweepable map[uint8][]message.ID
	complete  bool // all queues were drained
	wrong     []string
	counts    counts
}

// undecided is a queue that may have been deleted.
type undecided struct {
	event int                 // in which its deletion began
	owed  map[message.ID]bool // confirmed and not settled before, and not seen since
	back  bool                // something was seen
}

// counts are figures for the reader.
type counts struct {
	Published, Confirmed, Deliveries, Settled, Redelivered, Doubtful, BackAgain, Lives int
	Deletions, Undone                                                                  int // under way when a life ended; of these: the queue was there again
}

const maxWrong = 20

// check returns what in a history breaks which promise.
func check(h *history) ([]string, counts) {
	c := &checker{h: h, sent: map[message.ID]*sent{}, fates: map[place]*fate{}, pending: map[uint16][]settlement{}, last: map[[2]uint64]message.ID{},
		fresh: map[[3]uint64]message.ID{}, holders: map[uint16][]place{}, purges: map[uint8]int{}, deletes: map[uint8]int{}, draining: map[uint8]bool{}, undecided: map[uint8]*undecided{}, sweepable: map[uint8][]message.ID{},
		wrong: slices.Clone(h.wrong)}
	for i := range h.events {
		c.event(i, &h.events[i])
	}
	c.end()
	return c.wrong, c.counts
}

func (c *checker) fail(i int, format string, args ...any) {
	if len(c.wrong) < maxWrong {
		c.wrong = append(c.wrong, fmt.Sprintf("event %d, %.6f s, life %d: ", i, c.h.events[i].at.Seconds(), c.life)+fmt.Sprintf(format, args...))
	}
}

func (c *checker) fate(q uint8, m message.ID) *fate {
	p := place{q, m}
	f := c.fates[p]
	if f == nil {
		f = &fate{}
		c.fates[p] = f
	}
	return f
}

func (c *checker) event(i int, e *event) {
	switch e.kind {
	case published:
		c.sent[e.message] = &sent{route: e.queue, persistent: e.flag, life: c.life, begin: i}
		for _, q := range routes[e.queue].queues {
			if q == qPurged || q == qReborn {
				c.sweepable[q] = append(c.sweepable[q], e.message)
			}
		}
		c.counts.Published++
	case confirmed:
		s := c.sent[e.message]
		s.confirmed, s.confirmedIn = i, c.life
		c.counts.Confirmed++
		if s.persistent && !queues[routes[s.route].queues[0]].noAck { // that may be handed over and never written
			// The journal is one sequence: what was handled before this message was sent is written, too. Quorum queues
			// have several: only what was handled of the same queue is in the same one for sure.
			n := 0
			for n < len(c.handled) && c.handled[n].event < s.begin {
				n++
			}
			kept := c.handled[:0]
			for _, x := range c.handled[:n] {
				if c.h.quorum && !slices.Contains(routes[s.route].queues, x.queue) {
					kept = append(kept, x)
				} else {
					c.safe(x.place)
				}
			}
			c.handled = append(kept, c.handled[n:]...)
		}
	case delivered:
		c.delivery(i, e)
	case acked:
		c.settle(i, e, doubtful)
	case rejected:
		c.settle(i, e, forwarded)
	case requeued:
		c.fate(e.queue, e.message).held = false
	case synced:
		c.process(i, e.actor)
	case closing:
		for _, p := range c.holders[e.actor] {
			c.fates[p].held = false
		}
		delete(c.holders, e.actor)
	case purging:
		c.purges[e.queue] = i
		c.sweep(e.queue, func(*sent) bool { return true }, e.actor, i, false)
	case purged:
		from := c.purges[e.queue]
		delete(c.purges, e.queue)
		c.sweep(e.queue, func(s *sent) bool { return s.confirmed > 0 && s.confirmed < from }, e.actor, i, true)
		c.sweep(e.queue, func(s *sent) bool { return true }, e.actor, i, false)
		c.process(i, e.actor)
	case emptied:
		c.decide(i, e.queue)
	case deleting:
		delete(c.undecided, e.queue)
		c.deletes[e.queue] = i
		c.sweep(e.queue, func(*sent) bool { return true }, e.actor, i, false)
	case deleted: // answered when it is safe
		from := c.deletes[e.queue]
		delete(c.deletes, e.queue)
		c.sweep(e.queue, func(s *sent) bool { return s.begin < from }, e.actor, i, true)
		c.process(i, e.actor)
		for _, s := range c.handled {
			if s.queue == e.queue {
				c.safe(s.place)
			}
		}
		c.handled = slices.DeleteFunc(c.handled, func(s settlement) bool { return s.queue == e.queue })
	case up:
		c.life++
		c.ending = false
		c.counts.Lives++
	case ending:
		c.ending = true
	case down:
		c.crash()
	case stopped:
		for _, s := range c.handled {
			c.safe(s.place)
		}
		c.handled = nil
		c.crash()
	case draining:
		c.draining[e.queue] = true
	case drained:
		c.decide(i, e.queue)
		c.complete = c.complete || e.queue == uint8(len(queues)-1)
	}
}

// sweep notes that a purge or deletion took or may have taken messages of a queue.
func (c *checker) sweep(queue uint8, which func(*sent) bool, actor uint16, i int, certain bool) {
	list := c.sweepable[queue]
	kept := list[:0]
	for _, m := range list {
		f := c.fate(queue, m)
		if f.state == settled {
			continue
		}
		kept = append(kept, m)
		if !which(c.sent[m]) {
			continue
		}
		if f.state == open {
			f.state, f.first = doubtful, i
		}
		f.held = false
		if certain {
			c.pending[actor] = append(c.pending[actor], settlement{place{queue, m}, i})
		}
	}
	c.sweepable[queue] = kept
}

func (c *checker) settle(i int, e *event, to uint8) {
	f := c.fate(e.queue, e.message)
	if f.state != settled {
		f.state = to
	}
	f.first = i
	c.counts.Settled++
	if to == doubtful {
		c.pending[e.actor] = append(c.pending[e.actor], settlement{place{e.queue, e.message}, i})
	}
}

// process notes that the node has handled what an actor settled.
func (c *checker) process(i int, actor uint16) {
	for _, s := range c.pending[actor] {
		s.event = i
		c.handled = append(c.handled, s)
	}
	c.pending[actor] = c.pending[actor][:0]
}

func (c *checker) safe(p place) {
	if f := c.fates[p]; f.state == doubtful {
		f.state = settled
	}
}

// doubt notes that a queue may have been deleted, or be there with everything that it owes.
func (c *checker) doubt(queue uint8, from int) {
	u := &undecided{event: from, owed: map[message.ID]bool{}}
	for _, m := range c.sweepable[queue] {
		if f, s := c.fate(queue, m), c.sent[m]; f.state == doubtful && f.first == from && s.persistent && s.confirmed > 0 {
			u.owed[m] = true
		}
	}
	c.counts.Deletions++
	c.undecided[queue] = u
}

// decide is told that all that a queue had was seen.
func (c *checker) decide(i int, queue uint8) {
	u := c.undecided[queue]
	if u == nil {
		return
	}
	delete(c.undecided, queue)
	if !u.back {
		return
	}
	c.counts.Undone++
	for _, m := range slices.Sorted(maps.Keys(u.owed)) {
		s := c.sent[m]
		c.fail(i, "%s is there, though its deletion was begun at event %d, and without message %v, published at event %d and confirmed at event %d of life %d",
			queues[queue].name, u.event, m, s.begin, s.confirmed, s.confirmedIn)
	}
}

// crash ends a life: nobody holds anything, and what is not known to be written is in doubt for good.
func (c *checker) crash() {
	for queue, from := range c.deletes {
		c.doubt(queue, from)
	}
	clear(c.deletes)
	c.counts.Doubtful += len(c.handled)
	for _, list := range c.pending {
		c.counts.Doubtful += len(list)
	}
	clear(c.pending)
	c.handled = nil
	clear(c.holders)
	clear(c.fresh)
}

func (c *checker) delivery(i int, e *event) {
	c.counts.Deliveries++
	if u := c.undecided[e.queue]; u != nil && u.owed[e.message] {
		u.back = true
		delete(u.owed, e.message)
	}
	if e.flag {
		c.counts.Redelivered++
	}
	q := &queues[e.queue]
	s := c.sent[e.message]
	if s == nil {
		c.fail(i, "%s delivers message %v, which nobody published", q.name, e.message)
		return
	}
	if !slices.Contains(routes[s.route].queues, e.queue) && !(q.copies && queues[routes[s.route].queues[0]].source) {
		c.fail(i, "%s delivers message %v, which was published to %s", q.name, e.message, routes[s.route].name)
		return
	}
	if !s.persistent && s.life != c.life && !c.h.quorum { // where all messages are persistent
		c.fail(i, "%s delivers message %v, which is transient and of life %d", q.name, e.message, s.life)
	}
	f := c.fate(e.queue, e.message)
	if !q.copies {
		switch {
		case f.state == settled:
			c.fail(i, "%s delivers message %v again, though it was settled at event %d and that was safe", q.name, e.message, f.first)
		case f.held && f.life == c.life && !c.ending:
			c.fail(i, "%s delivers message %v twice without having got it back", q.name, e.message)
		case f.state == doubtful && f.delivered && f.life == c.life && !c.ending && c.purges[e.queue] == 0 && c.deletes[e.queue] == 0:
			c.fail(i, "%s delivers message %v again, though it was settled at event %d in the same life", q.name, e.message, f.first)
		case f.delivered && !e.flag:
			c.fail(i, "%s delivers message %v again and does not call it redelivered", q.name, e.message)
		}
		if f.state == doubtful && f.delivered {
			c.counts.BackAgain++
		}
		if f.state == doubtful {
			f.state = open // it is back
		}
		c.order(i, e, f)
	}
	if q.noAck {
		c.settle(i, e, doubtful)
	}
	f.delivered, f.held, f.life = true, !q.noAck, c.life
	if c.draining[e.queue] {
		f.present = true
		return
	}
	if !q.noAck {
		c.holders[e.actor] = append(c.holders[e.actor], place{e.queue, e.message})
	}
}

// order holds a delivery against those before it.
func (c *checker) order(i int, e *event, f *fate) {
	p := uint64(e.message.Publisher())
	// What was handed out once, seen or not, goes behind all that came back before it in a quorum queue.
	if queues[e.queue].ordered && !f.delivered && !(c.h.quorum && e.flag) {
		k := [2]uint64{uint64(e.queue), p}
		if last := c.last[k]; e.message < last {
			c.fail(i, "%s delivers message %v for the first time after %v", queues[e.queue].name, e.message, last)
		}
		c.last[k] = max(c.last[k], e.message)
	}
	if !e.flag {
		k := [3]uint64{uint64(e.queue), uint64(e.actor), p}
		if last := c.fresh[k]; e.message < last {
			c.fail(i, "%s delivers message %v to one consumer after %v, both for the first time", queues[e.queue].name, e.message, last)
		}
		c.fresh[k] = e.message
	}
}

// end looks for what is missing.
func (c *checker) end() {
	if len(c.h.events) == 0 {
		return
	}
	last := len(c.h.events) - 1
	if !c.complete {
		return
	}
	for _, m := range slices.Sorted(maps.Keys(c.sent)) {
		s := c.sent[m]
		if s.confirmed == 0 || !s.persistent && s.confirmedIn != c.life {
			continue
		}
		for _, q := range routes[s.route].queues {
			if queues[q].noAck || c.there(q, m) || queues[q].source && (c.there(qDead, m) || c.h.quorum) { // those route dead letters at most once
				continue
			}
			c.fail(last, "%s has lost message %v, published at event %d and confirmed at event %d of life %d", queues[q].name, m, s.begin, s.confirmed, s.confirmedIn)
		}
	}
}

// there reports whether a message is where it was sent, or was settled by somebody.
func (c *checker) there(q uint8, m message.ID) bool {
	f := c.fates[place{q, m}]
	return f != nil && (f.present || f.state == doubtful || f.state == settled)
}

package main

import (
	"fmt"
	"slices"
	"sort"

	"github.com/warrenmq/warren/test/message"
)

// A quorum queue counts how often it has handed out a message, and tells: the times in which it was handed out are in an order
// that does not depend on when clients heard of them. That makes the checks exact though a node that was cut off, or stopped,
// may be late with a delivery that has long been given to somebody else.

// sent is a published message.
type sent struct {
	channel   uint32
	confirmed int // event; 0: not
	begin     int // event
	route     uint8
}

type place struct {
	queue   uint8
	message message.ID
}

// fate is what is known of a message in one queue.
type fate struct {
	counts  []uint32 // with which it was delivered
	highest int      // of counts, with the event in which that was delivered
	at      int
	acked   bool // at least once: it may be gone
	settled int  // event of the answer that proves it to be settled for good; 0: not
	with    uint32
}

// settlement is one whose safety is not yet known.
type settlement struct {
	place
	count uint32
}

// key tells the messages of a publisher's channel in a queue, which have an order, from others.
type key struct{ queue, channel uint32 }

// peak is the highest message of a key that was delivered for the first time up to an event.
type peak struct {
	event   int
	message message.ID
}

// checker holds a history against the promises, event by event.
type checker struct {
	h       *history
	next    int // event
	sent    map[message.ID]*sent
	fates   map[place]*fate
	began   map[uint32]int           // by actor: event of its consuming
	pending map[uint32][]settlement  // by actor: not answered
	fresh   map[[2]uint32]message.ID // by actor and publisher's channel: the last one delivered for the first time
	peaks   map[key][]peak
	drained map[uint8]bool
	wrong   []string
	counts  counts
}

// counts are figures for the reader.
type counts struct{ Published, Confirmed, Refused, Delivered, Redelivered, Acked, Safe, Undecided int }

const maxWrong = 20

func newChecker(h *history) *checker {
	return &checker{h: h, sent: map[message.ID]*sent{}, fates: map[place]*fate{}, began: map[uint32]int{}, pending: map[uint32][]settlement{},
		fresh: map[[2]uint32]message.ID{}, peaks: map[key][]peak{}, drained: map[uint8]bool{}}
}

// check returns what in a whole history breaks which promise.
func check(h *history) ([]string, counts) {
	c := newChecker(h)
	c.advance()
	c.end()
	return append(h.failures(), c.wrong...), c.counts
}

// advance looks at what has happened since it was called last.
func (c *checker) advance() {
	es := c.h.since(c.next)
	for i := range es {
		c.event(c.next, &es[i])
		c.next++
	}
}

func (c *checker) fail(i int, at float64, format string, args ...any) {
	if len(c.wrong) < maxWrong {
		c.wrong = append(c.wrong, fmt.Sprintf("event %d, %.6f s: ", i, at)+fmt.Sprintf(format, args...))
	}
}

func (c *checker) fate(q uint8, m message.ID) *fate {
	p := place{q, m}
	f := c.fates[p]
	if f == nil {
		f = &fate{highest: -1}
		c.fates[p] = f
	}
	return f
}

func (c *checker) event(i int, e *event) {
	switch e.kind {
	case published:
		c.sent[e.message] = &sent{channel: e.actor, begin: i, route: e.queue}
		c.counts.Published++
	case confirmed:
		c.sent[e.message].confirmed = i
		c.counts.Confirmed++
	case refused:
		c.counts.Refused++
	case consuming:
		c.began[e.actor] = i
	case delivered:
		c.delivery(i, e)
	case acked:
		c.counts.Acked++
		c.fate(e.queue, e.message).acked = true
		c.pending[e.actor] = append(c.pending[e.actor], settlement{place{e.queue, e.message}, e.count})
	case synced:
		for _, s := range c.pending[e.actor] {
			c.settle(i, e, s)
		}
		delete(c.pending, e.actor)
	case ended:
		c.counts.Undecided += len(c.pending[e.actor])
		delete(c.pending, e.actor)
	case drained:
		c.drained[e.queue] = true
	}
}

// settle notes that a message is gone for good.
func (c *checker) settle(i int, e *event, s settlement) {
	c.counts.Safe++
	f := c.fates[s.place]
	if f.highest > int(s.count) {
		c.fail(i, e.at.Seconds(), "%s has settled message %v, handed out with count %d, though it was handed out again with count %d (event %d): two had it at a time",
			queues[s.queue].name, s.message, s.count, f.highest, f.at)
	}
	if f.settled == 0 {
		f.settled, f.with = i, s.count
	}
}

func (c *checker) delivery(i int, e *event) {
	c.counts.Delivered++
	if e.flag {
		c.counts.Redelivered++
	}
	name := queues[e.queue].name
	fail := func(format string, args ...any) {
		c.fail(i, e.at.Seconds(), "%s delivers message %v %s", name, e.message, fmt.Sprintf(format, args...))
	}
	s := c.sent[e.message]
	if s == nil {
		fail("that nobody published")
		return
	}
	if !slices.Contains(routes[s.route].queues, e.queue) {
		fail("that was published to %s", routes[s.route].name)
		return
	}
	f := c.fate(e.queue, e.message)
	began := c.began[e.actor]
	if e.flag != (e.count > 0) {
		fail("with count %d and redelivered %v", e.count, e.flag)
	}
	switch {
	case slices.Contains(f.counts, e.count) && e.count == 0:
		fail("for the first time twice")
	case slices.Contains(f.counts, e.count):
		fail("twice with count %d", e.count)
	case f.settled > 0 && (e.count > f.with || began > f.settled):
		fail("again (count %d), though it was settled with count %d, answered at event %d", e.count, f.with, f.settled)
	case f.highest > int(e.count) && began > f.at:
		fail("with count %d to a consumer that came when it had been handed out with count %d (event %d)", e.count, f.highest, f.at)
	}
	f.counts = append(f.counts, e.count)
	if int(e.count) > f.highest {
		f.highest, f.at = int(e.count), i
	}
	if !e.flag {
		c.order(i, e, s, began, fail)
	}
}

// order holds a first delivery against those before it: behind its consumer's, and behind all that were seen before that
// consumer came.
func (c *checker) order(i int, e *event, s *sent, began int, fail func(string, ...any)) {
	k := [2]uint32{e.actor, s.channel}
	if last := c.fresh[k]; e.message < last {
		fail("to one consumer after %v, both for the first time", last)
	}
	c.fresh[k] = max(c.fresh[k], e.message)
	ps := c.peaks[key{uint32(e.queue), s.channel}]
	if n := sort.Search(len(ps), func(n int) bool { return ps[n].event >= began }); n > 0 && ps[n-1].message > e.message {
		fail("for the first time to a consumer that came after %v was delivered for the first time (event %d)", ps[n-1].message, ps[n-1].event)
	}
	if n := len(ps); n == 0 || ps[n-1].message < e.message {
		c.peaks[key{uint32(e.queue), s.channel}] = append(ps, peak{i, e.message})
	}
}

// end looks for what is missing, when all queues have been emptied.
func (c *checker) end() {
	for _, list := range c.pending {
		c.counts.Undecided += len(list)
	}
	var missing []message.ID
	for m, s := range c.sent {
		if s.confirmed == 0 {
			continue
		}
		for _, q := range routes[s.route].queues {
			if f := c.fates[place{q, m}]; c.drained[q] && (f == nil || !f.acked) {
				missing = append(missing, m)
				break
			}
		}
	}
	slices.Sort(missing)
	for _, m := range missing {
		s := c.sent[m]
		for _, q := range routes[s.route].queues {
			if f := c.fates[place{q, m}]; c.drained[q] && (f == nil || !f.acked) {
				c.fail(c.next, c.h.since(s.confirmed)[0].at.Seconds(), "%s has lost message %v, published at event %d and confirmed at event %d (%d lost in all)",
					queues[q].name, m, s.begin, s.confirmed, len(missing))
			}
		}
	}
}

package queue

import (
	"cmp"
	"fmt"
	"slices"
)

// Recovery builds a State again after a restart, from a consumption record, from what the journal says has gone since,
// and from what is stored. The calls come in this order:
//
//	r, err := Restore(rules, record)      // record: nil if none was ever written
//	r.Gone(range)...                      // journal records newer than the record, in any order
//	switch r.Found(extent) { ... }        // stored extents
//	alive := r.FoundMessage(meta)...      // stored messages: of the journal, and of Mixed extents
//	s := r.State(config, log, unclean)    // the Log has by now what was alive, and nothing else
//	s.Tick(now, fx)                       // expiry and limits act, as after any command
//
// Nothing is ready that was not found; what was lost, and transient messages, of which nothing is stored, thus vanish.
// Every message is told of once, in an extent that is Alive or by FoundMessage. Whatever the record and the journal do
// not say is gone comes back, each message at its place, but what was handed out before comes back returned and
// redelivered. With Rules.Returns the order among what was handed out after the record is that of places.
//
// A place that has gone tells where the cursor was: messages leave a level in order, or after they were handed out. What
// lies between the record's cursor and the highest place gone was therefore in flight.
//
// Not safe for concurrent use.
type Recovery struct {
	rules    Rules
	levels   []recovering
	turns    uint64 // turns given to candidates
	expiring uint64
	octets   uint64
	sorted   bool // no more Gone
}

// recovering is what is known of a level.
type recovering struct {
	after, next, again uint64 // as in level
	recorded           uint64 // the record's cursor
	candidates         []candidate
	gone               []Range // places; in any order, may overlap
	stored             uint64  // found behind the cursor
	found              []revenant
}

// candidate is a run of places that come back if something is found there.
type candidate struct {
	first, last      uint64
	turn             uint64 // with Rules.Requeue == Returns: those of lower turn are served first
	acquired, failed uint32
}

// revenant is a message that was handed out before the restart.
type revenant struct {
	flight
	turn uint64
}

// Fate is what Recovery says of an extent.
type Fate uint8

const (
	Dead  Fate = iota // nothing in it is alive
	Alive             // everything in it is alive, and counted
	Mixed             // tell of its messages one by one
)

// Extent is a stretch of stored messages of one level, with sums over them.
type Extent struct {
	SeqRange
	Count    uint64 // messages; there may be fewer than places
	Octets   uint64 // their Size
	Expiring uint64 // how many have an expiry
}

// Restore starts from a consumption record, which may be empty: then everything that is found and not gone is ready. The
// rules must be those of the State that was encoded. Errors: ErrRecord; the queue can then be restored without it, and
// what it told was settled comes back. Nothing of record is kept.
func Restore(rules Rules, record []byte) (*Recovery, error) {
	r := &Recovery{rules: rules, levels: make([]recovering, levelsOf(rules))}
	for i := range r.levels {
		r.levels[i].next = 1
	}
	if len(record) > 0 {
		if err := r.decode(record); err != nil {
			return nil, err
		}
	}
	for i := range r.levels {
		lv := &r.levels[i]
		lv.recorded = lv.after
		slices.SortFunc(lv.candidates, func(a, b candidate) int { return cmp.Compare(a.first, b.first) })
		for j := 1; j < len(lv.candidates); j++ {
			if lv.candidates[j].first <= lv.candidates[j-1].last {
				return nil, fmt.Errorf("%w: place %d of level %d twice", ErrRecord, lv.candidates[j].first, i)
			}
		}
	}
	return r, nil
}

// Gone says that what was stored in a range has left: a range of Removed or Discards, or a Delivery that was Settled. It
// panics after Found, FoundMessage and State. A range that this queue cannot have is an error, and changes nothing.
func (r *Recovery) Gone(g SeqRange) error {
	if r.sorted {
		panic("queue: gone after found")
	}
	if !r.known(g) {
		return fmt.Errorf("queue: no places %d to %d in levels %d to %d", g.First.place(), g.Last.place(), g.First.Level(), g.Last.Level())
	}
	lv, p := &r.levels[g.First.Level()], Range{g.First.place(), g.Last.place()}
	lv.after = max(lv.after, p.Last)
	lv.next = max(lv.next, p.Last+1)
	if n := len(lv.gone); n > 0 && lv.gone[n-1].Last+1 == p.First {
		lv.gone[n-1].Last = p.Last
	} else {
		lv.gone = append(lv.gone, p)
	}
	return nil
}

// known reports whether a range can be one of this queue.
func (r *Recovery) known(g SeqRange) bool {
	return g.First.Level() == g.Last.Level() && int(g.First.Level()) < len(r.levels) &&
		0 < g.First.place() && g.First <= g.Last && g.Last.place() < maxPlace
}

// sort ends the first part: the cursors stand, and the candidates are what may be alive before them.
func (r *Recovery) sort() {
	if r.sorted {
		return
	}
	r.sorted = true
	for i := range r.levels {
		lv := &r.levels[i]
		if lv.after > lv.recorded {
			c := candidate{first: lv.recorded + 1, last: lv.after, turn: r.turns}
			if r.rules.CountReturns {
				c.acquired = 1
			}
			lv.candidates = append(lv.candidates, c)
			r.turns++
		}
		slices.SortFunc(lv.gone, func(a, b Range) int { return cmp.Compare(a.First, b.First) })
		lv.candidates = without(lv.candidates, lv.gone)
		lv.gone = nil
	}
}

// without is what is left of the runs, which ascend, when places are taken out.
func without(runs []candidate, gone []Range) []candidate {
	if len(gone) == 0 {
		return runs
	}
	var left []candidate
	for _, c := range runs {
		for len(gone) > 0 && gone[0].Last < c.first {
			gone = gone[1:]
		}
		for i := 0; i < len(gone) && gone[i].First <= c.last && c.first <= c.last; i++ {
			g := gone[i]
			if g.First > c.first {
				before := c
				before.last = g.First - 1
				left = append(left, before)
			}
			c.first = max(c.first, g.Last+1)
		}
		if c.first <= c.last {
			left = append(left, c)
		}
	}
	return left
}

// Found tells of an extent. Dead and Alive are answers that need no look at its messages; an extent that straddles the
// cursor, or may hold messages that were in flight, is Mixed and not counted. So is one that spans levels.
func (r *Recovery) Found(e Extent) Fate {
	r.sort()
	if e.First.Level() != e.Last.Level() {
		return Mixed
	}
	if !r.known(e.SeqRange) || e.Count == 0 {
		return Dead
	}
	lv := &r.levels[e.First.Level()]
	if e.First.place() > lv.after {
		lv.stored += e.Count
		lv.next = max(lv.next, e.Last.place()+1)
		r.octets += e.Octets
		r.expiring += e.Expiring
		return Alive
	}
	if e.Last.place() > lv.after {
		return Mixed
	}
	if c := lv.candidate(e.First.place()); c != nil && c.first <= e.Last.place() {
		return Mixed
	}
	return Dead
}

// FoundMessage tells of one message and reports whether it is alive.
func (r *Recovery) FoundMessage(m Meta) bool {
	r.sort()
	if !r.known(SeqRange{m.Seq, m.Seq}) {
		return false
	}
	lv, place := &r.levels[m.Seq.Level()], m.Seq.place()
	if place > lv.after {
		lv.stored++
		lv.next = max(lv.next, place+1)
	} else {
		c := lv.candidate(place)
		if c == nil || c.first > place {
			return false
		}
		f := flight{seq: m.Seq, expiry: m.Expiry, size: m.Size, acquired: c.acquired, failed: c.failed, redelivered: true}
		lv.found = append(lv.found, revenant{f, c.turn})
	}
	r.octets += uint64(m.Size)
	if m.Expiry != 0 {
		r.expiring++
	}
	return true
}

// candidate is the first run that ends at place or behind it, or nil.
func (lv *recovering) candidate(place uint64) *candidate {
	i, _ := slices.BinarySearchFunc(lv.candidates, place, func(c candidate, place uint64) int { return cmp.Compare(c.last, place) })
	if i == len(lv.candidates) {
		return nil
	}
	return &lv.candidates[i]
}

// State is the result: no consumers, everything that was found alive is ready. After an unclean stop all of it counts as
// delivered before, as in RabbitMQ; after a clean one only what was, provided the record was the last word: journal
// records newer than it do not say what was handed out and came back. The Recovery is used up.
func (r *Recovery) State(config Config, log Log, unclean bool) *State {
	r.sort()
	s := New(r.rules, config, log)
	s.level(0)
	s.level(len(r.levels) - 1)
	s.expiring, s.stats.ReadyBytes = r.expiring, r.octets
	var back []revenant
	for i := range r.levels {
		from, lv := &r.levels[i], s.level(i)
		lv.after, lv.next, lv.again, lv.stored = from.after, from.next, from.again, from.stored
		if unclean {
			lv.again = lv.next
		}
		s.stats.Ready += from.stored + uint64(len(from.found))
		if from.stored > 0 || len(from.found) > 0 && r.rules.Requeue == Original {
			s.busy[i>>6] |= 1 << (i & 63)
		}
		if r.rules.Requeue == Returns {
			back = append(back, from.found...)
			continue
		}
		slices.SortFunc(from.found, func(a, b revenant) int { return cmp.Compare(a.seq, b.seq) })
		for _, b := range from.found { // ascending, and thus a heap
			lv.returned = append(lv.returned, b.flight)
		}
	}
	slices.SortFunc(back, func(a, b revenant) int {
		return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(a.seq, b.seq))
	})
	for _, b := range back {
		s.turns++
		s.returns.Append(s.turns, b.flight)
	}
	return s
}

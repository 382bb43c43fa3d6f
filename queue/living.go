package queue

import (
	"cmp"
	"iter"
	"slices"
)

// Living are the places of a queue at one moment that may hold a message that is not settled, as ascending ranges that do
// not overlap or touch, none across levels. It is a value: it may be used without the queue's lock, and what it says is
// gone stays gone.
type Living []SeqRange

// Living appends what may be alive to dst[:0]: all places behind the cursors, and what is in flight or returned. It takes
// n log n of the latter, nothing for the backlog.
func (s *State) Living(dst Living) Living { return s.living(dst, nil) }

// living is Living; what is leaving is alive.
func (s *State) living(dst Living, leaving []SeqRange) Living {
	dst = dst[:0]
	list := s.exceptions(nil, leaving)
	slices.SortFunc(list, bySeq)
	add := func(r SeqRange) {
		if n := len(dst); n > 0 && dst[n-1].Last+1 == r.First {
			dst[n-1].Last = r.Last
		} else {
			dst = append(dst, r)
		}
	}
	for i, lv := range s.levels.All() {
		for ; len(list) > 0 && int(list[0].seq.Level()) == i; list = list[1:] {
			add(SeqRange{list[0].seq, list[0].seq})
		}
		if lv.stored > 0 {
			add(SeqRange{seqOf(uint8(i), lv.after+1), seqOf(uint8(i), lv.next-1)})
		}
	}
	return dst
}

// Within are the parts of l that lie from first to last, both included, which may be in different levels.
func (l Living) Within(first, last Seq) iter.Seq[SeqRange] {
	return func(yield func(SeqRange) bool) {
		for i := l.seek(first); i < len(l) && l[i].First <= last; i++ {
			if !yield(SeqRange{max(l[i].First, first), min(l[i].Last, last)}) {
				return
			}
		}
	}
}

// Any reports whether something from first to last, both included, may be alive.
func (l Living) Any(first, last Seq) bool {
	i := l.seek(first)
	return i < len(l) && l[i].First <= last
}

// Low is the lowest Seq of a level that may be alive, false if there is none.
func (l Living) Low(level uint8) (Seq, bool) {
	i := l.seek(seqOf(level, 0))
	if i == len(l) || l[i].First.Level() != level {
		return 0, false
	}
	return l[i].First, true
}

// seek is the index of the first range that ends at seq or behind it.
func (l Living) seek(seq Seq) int {
	i, _ := slices.BinarySearchFunc(l, seq, func(r SeqRange, seq Seq) int { return cmp.Compare(r.Last, seq) })
	return i
}

// Cursor is the Seq up to which everything of a level was passed: what is alive before it is in flight or returned, and
// behind it everything is.
func (s *State) Cursor(level uint8) Seq {
	lv := s.levels.Has(int(level))
	if lv == nil {
		return seqOf(level, 0)
	}
	return seqOf(level, lv.after)
}

// exceptions appends to dst what is alive at or before the cursors, in the order in which it would be served if all
// consumers were gone, and with the counts that it would have then. What is leaving is among them.
func (s *State) exceptions(dst []flight, leaving []SeqRange) []flight {
	for _, f := range s.returns.Range(0, s.turns) {
		dst = append(dst, *f)
	}
	for _, x := range s.sortedDelayed() {
		dst = append(dst, x.flight)
	}
	for _, x := range s.kept.Range(0, s.keys) {
		dst = append(dst, x.flight)
	}
	listed := len(dst)
	for _, lv := range s.levels.All() {
		dst = append(dst, lv.returned...)
	}
	for _, c := range s.consumers {
		for _, f := range c.inFlight.Range(0, c.lastID) {
			back := *f
			if s.rules.CountReturns {
				back.acquired = increment(back.acquired)
			}
			dst = append(dst, back)
		}
	}
	for _, r := range leaving {
		for seq := r.First; seq <= r.Last; seq++ {
			dst = append(dst, flight{seq: seq})
		}
	}
	slices.SortFunc(dst[listed:], bySeq)
	return dst
}

func bySeqFirst(a, b SeqRange) int { return cmp.Compare(a.First, b.First) }

func bySeq(a, b flight) int { return cmp.Compare(a.seq, b.seq) }

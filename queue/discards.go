package queue

import (
	"iter"
	"slices"
)

// kept is a dead letter that stays until it has arrived at its targets.
type kept struct {
	flight // failed is what the dead letter brings along
	reason Reason
	marked bool // as Discarded.Failed
}

func (k *kept) discarded() Discarded {
	return Discarded{SeqRange: SeqRange{k.seq, k.seq}, Reason: k.reason, Failed: k.marked, Direct: -1, Failures: k.failed}
}

// discard lets a message go to the dead-letter exchange, or keeps it until it has got there. failed says that the delivery
// that ends now counts as one more failure.
func (s *State) discard(f *flight, reason Reason, failed bool, fx *Effects) {
	x := kept{flight: *f, reason: reason, marked: failed}
	if s.rules.CountReturns {
		if failed {
			x.failed = increment(x.failed)
		}
		x.marked = x.failed > 0
	}
	if !s.config.KeepDiscards || reason == MaxLen {
		fx.Discards = add(fx.Discards, x.discarded())
		return
	}
	fx.Kept = add(fx.Kept, x.discarded())
	s.keep(x)
}

func (s *State) keep(x kept) {
	if s.keptAt == nil {
		s.keptAt = map[Seq]uint64{}
	}
	s.keys++
	s.kept.Append(s.keys, x)
	s.keptAt[x.seq] = s.keys
	s.stats.Kept++
	s.stats.KeptBytes += uint64(x.size)
}

// release forgets the dead letter under key.
func (s *State) release(key uint64) {
	x, _ := s.kept.Remove(key)
	delete(s.keptAt, x.seq)
	s.stats.Kept--
	s.stats.KeptBytes -= uint64(x.size)
}

// Buried says that the dead letters kept in ranges have arrived: they leave. Places in the ranges that hold none are
// passed over. Ranges cost what they hold, or all that is kept if they are wider.
func (s *State) Buried(at Time, ranges []SeqRange, fx *Effects) {
	s.begin(at, fx)
	for _, r := range ranges {
		var seqs []Seq
		if r.First > r.Last {
			continue
		} else if uint64(r.Last-r.First) < uint64(s.kept.Len()) {
			for i := range uint64(r.Last-r.First) + 1 {
				if seq := r.First + Seq(i); s.keptAt[seq] != 0 {
					seqs = append(seqs, seq)
				}
			}
		} else {
			for _, x := range s.kept.Range(0, s.keys) {
				if r.First <= x.seq && x.seq <= r.Last {
					seqs = append(seqs, x.seq)
				}
			}
			slices.Sort(seqs)
		}
		for _, seq := range seqs {
			s.release(s.keptAt[seq])
			fx.remove(seq)
		}
	}
	s.end(fx)
}

// KeptDiscards are the dead letters that wait for Buried, in the order in which they died, one message each. No command may
// run meanwhile. Whoever begins to route them starts with these, and goes on with Effects.Kept.
func (s *State) KeptDiscards() iter.Seq[Discarded] {
	return func(yield func(Discarded) bool) {
		for _, x := range s.kept.Range(0, s.keys) {
			if !yield(x.discarded()) {
				return
			}
		}
	}
}

func (s *State) purgeKept(fx *Effects) (n uint64) {
	for _, x := range s.kept.Range(0, s.keys) {
		fx.remove(x.seq)
	}
	n = s.stats.Kept
	s.kept.Clear()
	s.keptAt, s.stats.Kept, s.stats.KeptBytes = nil, 0, 0
	return n
}

// add adds one message to a list, as part of the last range where it continues that.
func add(list []Discarded, d Discarded) []Discarded {
	if n := len(list); n > 0 {
		last := &list[n-1]
		if last.Direct < 0 && last.Reason == d.Reason && last.Failed == d.Failed && last.Failures == d.Failures && last.Last+1 == d.First {
			last.Last = d.First
			return list
		}
	}
	return append(list, d)
}

package queue

import "math/bits"

// fromReturns stands for the list of returned messages where a level number is meant.
const fromReturns = -1

// checkout does the work that follows every command: heads expire, consumers that have room get what is ready, limits
// are enforced, until nothing of it is left to do or the budget is used up.
func (s *State) checkout(fx *Effects) {
	for {
		if s.expiring > 0 && !s.expire(fx) {
			return
		}
		if s.listed == 0 || s.stats.Ready == 0 {
			break
		}
		from, f, ok := s.top()
		if !ok {
			break
		}
		if s.budget == 0 {
			fx.More = true
			return
		}
		c := s.nextConsumer()
		if c == nil {
			break
		}
		n := 1
		if c.next == c && c.gate == nil && s.expiring == 0 && from != fromReturns && len(s.levels[from].returned) == 0 {
			n = s.runStored(c, from, fx)
		} else {
			s.pop(from, &f)
			fx.Deliver = append(fx.Deliver, s.hand(c, &f, c.noAck))
		}
		s.budget -= n
		s.handed(c, n)
	}
	if s.drop(fx) && s.expiring > 0 {
		s.expire(fx)
	}
}

// top is the message to go out next: the first returned one where they have a list, else the head of the highest level.
// It is false when nothing is ready, and when the head is not in memory: messages of lower levels do not overtake it.
func (s *State) top() (from int, f flight, ok bool) {
	if s.returns.Len() > 0 {
		_, first := s.returns.First()
		return fromReturns, *first, true
	}
	if len(s.levels) == 1 {
		f, ok = s.head(0)
		return 0, f, ok
	}
	for w := len(s.busy) - 1; w >= 0; w-- {
		if s.busy[w] != 0 {
			from = w<<6 + bits.Len64(s.busy[w]) - 1
			f, ok = s.head(from)
			return from, f, ok
		}
	}
	return 0, f, false
}

// head is the first ready message of level i.
func (s *State) head(i int) (f flight, ok bool) {
	lv := &s.levels[i]
	if len(lv.returned) > 0 {
		return lv.returned[0], true
	}
	if lv.stored == 0 || lv.cold {
		return f, false
	}
	if !lv.known {
		if lv.head, lv.known = s.log.Next(seqOf(uint8(i), lv.after)); !lv.known {
			lv.cold, s.cold = true, true
			return f, false
		}
	}
	m := &lv.head
	return flight{seq: m.Seq, expiry: m.Expiry, size: m.Size, redelivered: m.Flags&WasDelivered != 0}, true
}

// pop takes f, the head of what from names, out of the ready messages.
func (s *State) pop(from int, f *flight) {
	s.stats.Ready--
	s.stats.ReadyBytes -= uint64(f.size)
	if f.expiry != 0 {
		s.expiring--
	}
	if from == fromReturns {
		key, _ := s.returns.First()
		s.returns.Remove(key)
		return
	}
	lv := &s.levels[from]
	if len(lv.returned) > 0 {
		lv.pull()
	} else {
		lv.after = f.seq.place()
		lv.stored--
		lv.known = false
	}
	if lv.stored == 0 && len(lv.returned) == 0 {
		s.busy[from>>6] &^= 1 << (from & 63)
	}
}

// expire discards the heads whose time has come: of the returns, then of each level from the highest. It is false when
// the budget ended first.
func (s *State) expire(fx *Effects) bool {
	if s.returns.Len() > 0 && !s.expireRun(fromReturns, fx) {
		return false
	}
	for w := len(s.busy) - 1; w >= 0; w-- {
		for rest := s.busy[w]; rest != 0; {
			bit := bits.Len64(rest) - 1
			rest &^= 1 << bit
			if !s.expireRun(w<<6+bit, fx) {
				return false
			}
		}
	}
	return true
}

func (s *State) expireRun(from int, fx *Effects) bool {
	for {
		var f flight
		if from == fromReturns {
			_, first := s.returns.First()
			if first == nil {
				return true
			}
			f = *first
		} else {
			var ok bool
			if f, ok = s.head(from); !ok {
				return true
			}
		}
		if !f.expired(s.now) {
			return true
		}
		if s.budget == 0 {
			fx.More = true
			return false
		}
		s.budget--
		s.discardHead(from, &f, Expired, fx)
	}
}

// discardHead takes the head of what from names out of the queue.
func (s *State) discardHead(from int, f *flight, reason Reason, fx *Effects) {
	s.pop(from, f)
	if reason == Expired {
		s.stats.Expired++
	} else {
		s.stats.Dropped++
	}
	fx.discard(f.seq, reason, false)
}

// drop discards what is ready beyond the limits of a drop-head queue, the next to go out first. It is true when it
// dropped any.
func (s *State) drop(fx *Effects) (dropped bool) {
	for s.config.Overflow == DropHead && s.over() {
		from, f, ok := s.top()
		if !ok {
			break
		}
		if s.budget == 0 {
			fx.More = true
			break
		}
		s.budget--
		dropped = true
		s.discardHead(from, &f, MaxLen, fx)
	}
	return dropped
}

// dropBefore enforces the limits on returned messages before consumers have their turn, where the rules say so.
func (s *State) dropBefore(fx *Effects) {
	if s.rules.DropBefore {
		s.drop(fx)
	}
}

// earliest is the first expiry among the heads, 0 if none expires.
func (s *State) earliest() (due Time) {
	sooner := func(t Time) {
		if t != 0 && (due == 0 || t < due) {
			due = t
		}
	}
	if _, first := s.returns.First(); first != nil {
		sooner(first.expiry)
	}
	for w := range s.busy {
		for rest := s.busy[w]; rest != 0; rest &= rest - 1 {
			if f, ok := s.head(w<<6 + bits.TrailingZeros64(rest)); ok {
				sooner(f.expiry)
			}
		}
	}
	return due
}

// remove adds seq to the removed, as part of the last range where it continues that.
func (e *Effects) remove(seq Seq) {
	if n := len(e.Removed); n > 0 && e.Removed[n-1].Last+1 == seq {
		e.Removed[n-1].Last = seq
		return
	}
	e.Removed = append(e.Removed, SeqRange{seq, seq})
}

// discard adds seq to the discarded, as part of the last range where it continues that.
func (e *Effects) discard(seq Seq, reason Reason, failed bool) {
	if n := len(e.Discards); n > 0 {
		last := &e.Discards[n-1]
		if last.Direct < 0 && last.Reason == reason && last.Failed == failed && last.Last+1 == seq {
			last.Last = seq
			return
		}
	}
	e.Discards = append(e.Discards, Discarded{SeqRange: SeqRange{seq, seq}, Reason: reason, Failed: failed, Direct: -1})
}

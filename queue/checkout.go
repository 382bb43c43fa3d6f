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
		if c.next == c && c.gate == nil && s.expiring == 0 && from != fromReturns && len(s.levels.Has(from).returned) == 0 {
			n = s.runStored(c, from, fx)
		} else {
			s.pop(from, &f)
			fx.Deliver = append(fx.Deliver, s.hand(c, &f, c.noAck))
		}
		s.budget -= n
		s.handed(c, n)
	}
	if s.drops && s.drop(fx) && s.expiring > 0 {
		s.expire(fx)
	}
}

// top is the message to go out next: the first returned one where they have a list, else the head of the highest level.
// It is false when nothing is ready, and when the head is not in memory: messages of lower levels do not overtake it.
func (s *State) top() (from int, f flight, ok bool) {
	if s.returns.Len() > 0 {
		f, ok = s.head(fromReturns)
		return fromReturns, f, ok
	}
	if s.highest == 0 {
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

// returned is the first returned message of what from names, or nil, and where it is noted that it is not in memory.
func (s *State) returned(from int) (f *flight, missing *Seq) {
	if from == fromReturns {
		_, f = s.returns.First()
		return f, &s.missing
	}
	lv := s.levels.Has(from)
	if len(lv.returned) == 0 {
		return nil, nil
	}
	return &lv.returned[0], &lv.missing
}

// resident reports whether the bytes of a returned message are in memory; if not it is noted in missing, and the Log is
// not asked for this one again until Loaded.
func (s *State) resident(seq Seq, missing *Seq) bool {
	if seq == *missing {
		return false
	}
	if s.log.Resident(seq) {
		return true
	}
	*missing, s.cold = seq, true
	return false
}

// head is the first ready message of what from names, if it is in memory.
func (s *State) head(from int) (f flight, ok bool) {
	if f, missing := s.returned(from); f != nil {
		return *f, s.resident(f.seq, missing)
	}
	if from == fromReturns {
		return f, false
	}
	lv := s.levels.Has(from)
	if lv.stored == 0 || lv.cold {
		return f, false
	}
	if !lv.known {
		if lv.head, lv.known = s.log.Next(seqOf(uint8(from), lv.after)); !lv.known {
			lv.cold, s.cold = true, true
			return f, false
		}
	}
	m := &lv.head
	f = flight{seq: m.Seq, expiry: m.Expiry, size: m.Size, redelivered: m.Flags&WasDelivered != 0 || m.Seq.place() < lv.again}
	if m.Flags&WasDelivered != 0 {
		f.failed = s.brought(m.Flags)
	}
	return f, true
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
	lv := s.levels.Has(from)
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
		if f, _ := s.returned(from); f != nil && !f.expired(s.now) { // its bytes do not matter
			return true
		}
		f, ok := s.head(from)
		if !ok || !f.expired(s.now) {
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
	s.discard(f, reason, false, fx)
}

// drop discards what is ready beyond the limits of a drop-head queue, the next to go out first. It is true when it
// dropped any.
func (s *State) drop(fx *Effects) (dropped bool) {
	for s.drops && s.over() {
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

// earliest is the first expiry among the heads, 0 if none expires. A head whose time has come but that is not in memory
// has nothing to wait for but Loaded.
func (s *State) earliest() (due Time) {
	look := func(from int) {
		f, missing := s.returned(from)
		if f == nil {
			if from == fromReturns {
				return
			}
			head, ok := s.head(from)
			if !ok {
				return
			}
			f = &head
		} else if f.expired(s.now) && !s.resident(f.seq, missing) {
			return
		}
		if f.expiry != 0 && (due == 0 || f.expiry < due) {
			due = f.expiry
		}
	}
	look(fromReturns)
	for w := range s.busy {
		for rest := s.busy[w]; rest != 0; rest &= rest - 1 {
			look(w<<6 + bits.TrailingZeros64(rest))
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

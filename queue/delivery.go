package queue

import "slices"

// direct gives messages of the batch from index i on, but before end, straight to consumers, as long as there is one to
// take them, and returns how many that were. Nothing may be ready.
func (s *State) direct(batch []Message, i, end int, fx *Effects) int {
	from := i
	for i < end {
		c := s.nextConsumer()
		if c == nil {
			break
		}
		n := 1
		if c.next == c && c.gate == nil { // nobody else's turn comes in between
			n = min(end-i, c.capacity())
		}
		s.run(c, batch, i, i+n, fx)
		i += n
	}
	return i - from
}

// run gives the messages of the batch from index i on, but before end, to c, which has room for them.
func (s *State) run(c *consumer, batch []Message, i, end int, fx *Effects) {
	n := end - i
	fx.Deliver = slices.Grow(fx.Deliver, n)
	lv, number := s.levels.Has(0), uint8(0) // of a queue that has one
	var octets, again uint64
	for ; i < end; i++ {
		m := &batch[i]
		if s.highest > 0 {
			number = s.levelOf(m)
			lv = s.level(int(number))
		}
		lv.after = lv.next
		lv.next++
		d := fx.deliver(c)
		d.Seq, d.Redelivered = seqOf(number, lv.after), m.Flags&WasDelivered != 0
		failed := uint32(0)
		if d.Redelivered {
			again++
			if failed = s.brought(m.Flags); failed > 0 {
				d.Acquired, d.Failed = failed, failed
			}
		}
		if c.noAck {
			d.Direct = int32(i)
			continue
		}
		octets += uint64(m.Size)
		expiry := s.expiry(m)
		s.log.Put(d.Seq, expiry, m)
		c.inFlight.Append(d.ID, flight{seq: d.Seq, expiry: expiry, size: m.Size, failed: failed, redelivered: d.Redelivered})
	}
	s.stats.Published += uint64(n)
	s.stats.Redelivered += again
	if !c.noAck {
		s.stats.Unacked += uint64(n)
		s.stats.UnackedBytes += octets
	}
	s.handed(c, n)
}

// runStored gives c, which is alone in its group, messages from behind the cursor of level i, as many as it has room for
// and the budget allows, and returns how many that were. The level is the highest one that has any, its head is known,
// and nothing expires, so that nothing else can come in between.
func (s *State) runStored(c *consumer, i int, fx *Effects) (n int) {
	lv := s.levels.Has(i)
	m, number, below := lv.head, uint8(i), seqOf(uint8(i), lv.again)
	most := int(min(lv.stored, uint64(min(c.capacity(), s.budget))))
	fx.Deliver = slices.Grow(fx.Deliver, most)
	var octets, again uint64
	for {
		n++
		octets += uint64(m.Size)
		d := fx.deliver(c)
		d.Seq, d.Redelivered = m.Seq, m.Flags&WasDelivered != 0 || m.Seq < below
		failed := uint32(0)
		if d.Redelivered {
			again++
			if failed = s.brought(m.Flags); failed > 0 {
				d.Acquired, d.Failed = failed, failed
			}
		}
		if !c.noAck {
			c.inFlight.Append(d.ID, flight{seq: m.Seq, size: m.Size, failed: failed, redelivered: d.Redelivered})
		}
		if n == most {
			break
		}
		after := m.Seq
		var ok bool
		if m, ok = s.log.Next(after); !ok { // not in memory, as who asks next will note
			m.Seq = after
			break
		}
	}
	lv.after, lv.known = m.Seq.place(), false
	lv.stored -= uint64(n)
	if lv.stored == 0 {
		s.busy[number>>6] &^= 1 << (number & 63)
	}
	s.stats.Ready -= uint64(n)
	s.stats.ReadyBytes -= octets
	s.stats.Redelivered += again
	if !c.noAck {
		s.stats.Unacked += uint64(n)
		s.stats.UnackedBytes += octets
	}
	return n
}

// handed ends the turn of a consumer that was given n messages.
func (s *State) handed(c *consumer, n int) {
	if c.noAck {
		s.stats.DeliveredNoAck += uint64(n)
	} else {
		s.stats.Delivered += uint64(n)
		if s.rules.CountReturns {
			s.arm(c, n)
		}
	}
	c.room -= uint32(n)
	c.group.first = c.next
	if c.capacity() == 0 {
		s.review(c)
	}
}

// hand makes the delivery of f to c, and keeps it in flight unless it needs no acknowledgement.
func (s *State) hand(c *consumer, f *flight, noAck bool) Delivery {
	c.lastID++
	if f.redelivered {
		s.stats.Redelivered++
	}
	if !noAck {
		c.inFlight.Append(c.lastID, *f)
		s.stats.Unacked++
		s.stats.UnackedBytes += uint64(f.size)
	}
	acquired := f.acquired
	if acquired == 0 { // of a dead letter, which brought its failures but not how often it was acquired
		acquired = f.failed
	}
	return Delivery{
		Seq: f.seq, ID: c.lastID, Consumer: c.id, Direct: -1, Settled: noAck,
		Redelivered: f.redelivered, Acquired: acquired, Failed: f.failed, Session: c.session,
	}
}

// brought is the failed count with which a message starts.
func (s *State) brought(flags Flags) uint32 {
	if !s.rules.CountReturns {
		return 0
	}
	return flags.Failures()
}

// settle applies the outcome to the deliveries of c with ids in r.
func (s *State) settle(c *consumer, r Range, o Outcome, fx *Effects) {
	var octets uint64
	n := c.inFlight.RemoveRange(r.First, r.Last, func(_ uint64, f *flight) {
		octets += uint64(f.size)
		switch o {
		case Ack:
			fx.remove(f.seq)
		case Return, ReturnFailed:
			s.giveBack(*f, o == ReturnFailed, fx)
		case Discard, DiscardFailed:
			s.discard(f, Rejected, o == DiscardFailed, fx)
		}
	})
	s.stats.Unacked -= uint64(n)
	s.stats.UnackedBytes -= octets
	switch o {
	case Ack:
		s.stats.Acked += uint64(n)
	case Discard, DiscardFailed:
		s.stats.Rejected += uint64(n)
	}
}

// giveBack makes a message ready again, now or later, unless it has failed too often.
func (s *State) giveBack(f flight, failed bool, fx *Effects) {
	s.stats.Returned++
	f.redelivered = true
	if s.rules.CountReturns {
		f.acquired = increment(f.acquired)
		if failed {
			f.failed = increment(f.failed)
		}
		if limit := s.config.DeliveryLimit; limit >= 0 && int64(f.failed) > limit {
			s.stats.Rejected++
			s.discard(&f, DeliveryLimited, false, fx)
			return
		}
		if wait := s.config.delay(f.failed, failed); wait > 0 {
			s.postpone(delayed{flight: f, due: s.now + Time(wait)})
			return
		}
	}
	s.requeue(&f)
}

// requeue makes a message ready again, at its own place or at the end of the returns.
func (s *State) requeue(f *flight) {
	s.stats.Ready++
	s.stats.ReadyBytes += uint64(f.size)
	if f.expiry != 0 {
		s.expiring++
	}
	if s.rules.Requeue == Returns {
		s.turns++
		s.returns.Append(s.turns, *f)
		return
	}
	i := f.seq.Level()
	s.levels.Has(int(i)).push(*f)
	s.busy[i>>6] |= 1 << (i & 63)
}

func increment(n uint32) uint32 {
	if n+1 == 0 {
		return n
	}
	return n + 1
}

// deliver adds the next delivery to c, of a message that was put and never handed out. There must be room for it.
func (e *Effects) deliver(c *consumer) *Delivery {
	c.lastID++
	n := len(e.Deliver)
	e.Deliver = e.Deliver[:n+1]
	d := &e.Deliver[n]
	*d = Delivery{ID: c.lastID, Consumer: c.id, Direct: -1, Settled: c.noAck, Session: c.session}
	return d
}

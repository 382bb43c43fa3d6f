package queue

import "slices"

// lock says when deliveries of one consumer time out: those from first on, up to the next lock's.
type lock struct {
	first DeliveryID
	at    Time // 0: never
}

// longest is the most milliseconds that anything waits, some thousand years: sums with it are still times.
const longest = 1 << 45

// arm notes when the last n deliveries of c time out, which were just handed out.
func (s *State) arm(c *consumer, n int) {
	timeout := c.timeout
	if timeout == 0 {
		timeout = s.config.ConsumerTimeout
	}
	at := Time(0)
	if timeout > 0 {
		at = s.now + Time(min(timeout, longest))
	}
	s.lock(c, c.lastID-DeliveryID(n)+1, at)
	if at != 0 {
		s.lockDue = sooner(s.lockDue, at)
	}
}

// lock notes when deliveries from first on time out.
func (s *State) lock(c *consumer, first DeliveryID, at Time) {
	if n := len(c.locks); n == 0 && at == 0 || n > 0 && c.locks[n-1].at == at {
		return
	}
	if len(c.locks) >= 64+2*c.inFlight.Len() {
		c.tidy()
	}
	c.locks = append(c.locks, lock{first, at})
}

// holds reports whether something in flight is under the lock with this index, and names the last delivery that may be.
func (c *consumer) holds(i int) (last DeliveryID, some bool) {
	last = c.lastID
	if i+1 < len(c.locks) {
		last = c.locks[i+1].first - 1
	}
	id, f := c.inFlight.At(c.locks[i].first)
	return last, f != nil && id <= last
}

// tidy forgets the locks under which nothing is in flight, but for the last, under which something will be.
func (c *consumer) tidy() {
	n := 0
	for i := range c.locks {
		if _, some := c.holds(i); some || i == len(c.locks)-1 {
			c.locks[n] = c.locks[i]
			n++
		}
	}
	c.locks = c.locks[:n]
}

// timeOut returns the deliveries that were not settled in time, and learns when the next ones are due (RabbitMQ 4.3 docs:
// delivery acknowledgement timeout). Their consumers get nothing more, nor are they active ones, until catchUp.
func (s *State) timeOut(fx *Effects) {
	s.lockDue = 0
	for _, c := range slices.Clone(s.consumers) {
		if len(c.locks) == 0 {
			continue
		}
		n := c.inFlight.Len()
		for i := range c.locks {
			last, some := c.holds(i)
			switch at := c.locks[i].at; {
			case !some || at == 0:
			case at > s.now:
				s.lockDue = sooner(s.lockDue, at)
			default:
				s.timeOutRange(c, c.locks[i].first, last, fx)
			}
		}
		if c.tidy(); c.inFlight.Len() == n {
			continue
		}
		c.overdue = true
		if s.active == c {
			s.active, s.quiescing = nil, false
			fx.Activity = append(fx.Activity, Activation{c.id, false})
		}
		s.drained(c, fx)
		if !c.cancelled {
			s.review(c)
		}
	}
	s.activate(fx)
}

func (s *State) timeOutRange(c *consumer, first, last DeliveryID, fx *Effects) {
	n := c.inFlight.RemoveRange(first, last, func(id DeliveryID, f *flight) {
		s.stats.UnackedBytes -= uint64(f.size)
		s.giveBack(*f, false, fx)
		fx.timedOut(c, id)
		if !c.getter && !c.cancelled {
			c.late = with(c.late, id)
		}
	})
	s.stats.Unacked -= uint64(n)
}

// timedOut notes that a delivery has timed out, as part of the last range where it continues that.
func (e *Effects) timedOut(c *consumer, id DeliveryID) {
	if n := len(e.TimedOut); n > 0 && e.TimedOut[n-1].Consumer == c.id && e.TimedOut[n-1].Last+1 == id {
		e.TimedOut[n-1].Last = id
		return
	}
	e.TimedOut = append(e.TimedOut, TimedOut{c.id, Range{id, id}})
}

// catchUp notes that deliveries were settled which may have timed out: with the last of them the consumer is like the
// others again.
func (s *State) catchUp(c *consumer, ids []Range, fx *Effects) {
	for _, r := range ids {
		c.late = lessRange(c.late, r)
	}
	if len(c.late) == 0 {
		c.late = nil
		s.activate(fx)
	}
}

// with adds an id to ranges, none of which ends behind it but that it is not in.
func with(ranges []Range, id uint64) []Range {
	i, _ := slices.BinarySearchFunc(ranges, id, func(r Range, id uint64) int {
		if r.Last < id {
			return -1
		}
		return 1
	})
	switch before, behind := i > 0 && ranges[i-1].Last+1 == id, i < len(ranges) && ranges[i].First == id+1; {
	case before && behind:
		ranges[i-1].Last = ranges[i].Last
		return slices.Delete(ranges, i, i+1)
	case before:
		ranges[i-1].Last = id
		return ranges
	case behind:
		ranges[i].First = id
		return ranges
	}
	return slices.Insert(ranges, i, Range{id, id})
}

// lessRange is what is left of the ranges, which ascend, without r.
func lessRange(ranges []Range, r Range) []Range {
	var left []Range
	for _, x := range ranges {
		if x.Last < r.First || x.First > r.Last {
			left = append(left, x)
			continue
		}
		if x.First < r.First {
			left = append(left, Range{x.First, r.First - 1})
		}
		if x.Last > r.Last {
			left = append(left, Range{r.Last + 1, x.Last})
		}
	}
	return left
}

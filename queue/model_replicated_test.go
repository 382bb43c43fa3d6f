package queue

import (
	"cmp"
	"math"
	"slices"
)

// What follows is the model of what only replicated queues do.

// limits are those that act with the rules.
func limits(rules Rules, c Config) Config {
	if !rules.CountReturns {
		c.DelayType, c.ConsumerTimeout, c.KeepDiscards = 0, 0, false
	}
	return c
}

// counted is what the limits count.
func (m *model) counted() (n int, octets uint64) {
	n, octets = m.ready()
	for _, x := range slices.Concat(m.delayed, m.kept) {
		n++
		octets += uint64(x.size)
	}
	return n, octets
}

// pace decides whether publishes are refused from now on.
func (m *model) pace() {
	if m.config.Overflow != RejectPublish || m.rules.RejectBefore {
		m.refusing = false
		return
	}
	n, octets := m.counted()
	above := func(part float64) bool {
		return m.config.MaxLength >= 0 && n > int(math.Trunc(part*float64(m.config.MaxLength))) ||
			m.config.MaxBytes >= 0 && octets > uint64(math.Trunc(part*float64(m.config.MaxBytes)))
	}
	if above(1) {
		m.refusing = true
	} else if !above(0.8) {
		m.refusing = false
	}
}

// wait is how long a message is delayed that came back.
func (m *model) wait(x *modelMessage, failed bool) int64 {
	c := m.config
	if c.DelayType == DelayNone || c.DelayMin <= 0 || c.DelayType == DelayFailed && !failed || c.DelayType == DelayReturned && failed {
		return 0
	}
	if c.DelayMax <= 0 {
		c.DelayMax = c.DelayMin
	}
	wait := int64(0)
	for n := uint32(0); n < max(x.failed, 1); n++ {
		wait += c.DelayMin
	}
	return min(wait, c.DelayMax)
}

func (m *model) sortDelayed() {
	slices.SortFunc(m.delayed, func(a, b *modelMessage) int {
		return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.seq, b.seq))
	})
}

func (m *model) promote() {
	for m.sortDelayed(); len(m.delayed) > 0 && m.delayed[0].due <= m.now; m.delayed = m.delayed[1:] {
		if m.budget == 0 {
			m.out.More = true
			return
		}
		m.budget--
		m.requeue(m.delayed[0])
	}
}

// lock is when a delivery made now times out.
func (m *model) lock(c *modelConsumer) Time {
	timeout := m.config.ConsumerTimeout
	if c.spec.Timeout != 0 {
		timeout = c.spec.Timeout
	}
	if timeout == 0 || !m.rules.CountReturns {
		return 0
	}
	m.lockDue = sooner(m.lockDue, m.now+Time(timeout))
	return m.now + Time(timeout)
}

func (m *model) timeOut() {
	if m.lockDue == 0 || m.lockDue > m.now {
		return
	}
	m.lockDue = 0
	for _, c := range slices.Clone(m.consumers) {
		var keep []modelHeld
		for _, h := range c.held {
			if h.lock == 0 || h.lock > m.now {
				keep = append(keep, h)
				m.lockDue = sooner(m.lockDue, h.lock)
				continue
			}
			m.out.TimedOut = append(m.out.TimedOut, TimedOut{c.id, Range{h.id, h.id}})
			m.giveBack(h.m, false)
			if !c.cancelled && !c.spec.Getter {
				c.late = append(c.late, h.id)
			}
		}
		if len(keep) < len(c.held) && m.active == c {
			m.active, m.quiescing = nil, false
			m.out.Activity = append(m.out.Activity, Activation{c.id, false})
		}
		c.held = keep
	}
	m.forget()
	m.relist()
	m.choose()
	m.relist()
}

func (m *model) catchUp(c *modelConsumer, ids []Range) {
	if len(c.late) == 0 {
		return
	}
	c.late = slices.DeleteFunc(c.late, func(id DeliveryID) bool {
		return slices.ContainsFunc(ids, func(r Range) bool { return r.First <= id && id <= r.Last })
	})
	if len(c.late) == 0 {
		m.choose()
	}
}

// credit is how many more deliveries the consumer may hold.
func (m *model) credit(c *modelConsumer) int {
	prefetch := c.spec.Prefetch
	if prefetch == 0 {
		prefetch = m.rules.PrefetchZero
	}
	if c.spec.NoAck || prefetch == 0 {
		return math.MaxInt
	}
	return int(prefetch) - len(c.held)
}

func (m *model) leave(c *modelConsumer) {
	c.cancelled, c.late = true, nil
	if m.active == c {
		m.active, m.quiescing = nil, false
	}
	m.relist()
}

func (m *model) down(at Time, gone func(uint64) bool) outcome {
	return m.command(at, func() {
		some := false
		for _, c := range slices.Clone(m.consumers) {
			if gone(c.spec.Session) {
				some = true
				if c.spec.Getter || c.cancelled {
					for _, h := range c.held {
						m.out.TimedOut = append(m.out.TimedOut, TimedOut{c.id, Range{h.id, h.id}})
					}
				}
				m.leave(c)
				m.takeBack(c, 0, 1<<62, ReturnFailed)
			}
		}
		m.forget()
		m.choose()
		m.relist()
		if some && m.rules.DropBefore {
			m.drop()
		}
	})
}

func (m *model) buried(at Time, ranges []SeqRange) outcome {
	return m.command(at, func() {
		for _, r := range ranges {
			var gone []Seq
			m.kept = slices.DeleteFunc(m.kept, func(x *modelMessage) bool {
				if x.seq < r.First || x.seq > r.Last {
					return false
				}
				gone = append(gone, x.seq)
				return true
			})
			slices.Sort(gone)
			m.out.Removed = append(m.out.Removed, gone...)
		}
	})
}

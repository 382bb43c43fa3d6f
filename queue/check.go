package queue

import "fmt"

// Check verifies what must hold between two commands, for tests: every message is in exactly one place, sums agree with
// what they sum, and exactly those consumers stand in line that can take a message. It takes time in proportion to the
// whole queue; what the Log does not have in memory it leaves out.
func (s *State) Check() error {
	c := checker{s: s, seen: map[Seq]string{}}
	c.ready()
	c.waiting()
	c.consumers()
	st := s.stats
	if !c.partial {
		c.expect(c.count == st.Ready && c.octets == st.ReadyBytes, "%d messages of %d octets are ready, not %d of %d", c.count, c.octets, st.Ready, st.ReadyBytes)
		c.expect(c.expiring == s.expiring, "%d ready messages expire, not %d", c.expiring, s.expiring)
	}
	c.expect(c.unacked == st.Unacked && c.unackedOctets == st.UnackedBytes, "%d messages of %d octets are in flight, not %d of %d", c.unacked, c.unackedOctets, st.Unacked, st.UnackedBytes)
	return c.err
}

type checker struct {
	s                       *State
	seen                    map[Seq]string
	count, octets, expiring uint64
	unacked, unackedOctets  uint64
	partial                 bool // the Log did not show all
	err                     error
}

func (c *checker) expect(ok bool, format string, args ...any) {
	if !ok && c.err == nil {
		c.err = fmt.Errorf("queue state: "+format, args...)
	}
}

func (c *checker) at(seq Seq, place string) {
	c.expect(c.seen[seq] == "", "%d/%d is %s and %s", seq.Level(), seq.place(), c.seen[seq], place)
	c.seen[seq] = place
}

func (c *checker) found(seq Seq, size uint32, expiry Time, place string) {
	c.at(seq, place)
	c.count++
	c.octets += uint64(size)
	if expiry != 0 {
		c.expiring++
	}
}

func (c *checker) passed(f *flight, place string) {
	after := c.s.Cursor(f.seq.Level()).place()
	c.expect(f.seq.place() <= after, "%d/%d is %s but lies behind the cursor %d", f.seq.Level(), f.seq.place(), place, after)
}

// ready looks at the messages that are ready.
func (c *checker) ready() {
	for _, f := range c.s.returns.Range(0, c.s.turns) {
		c.passed(f, "returned")
		c.found(f.seq, f.size, f.expiry, "returned")
	}
	for i, lv := range c.s.levels.All() {
		busy := c.s.busy[i>>6]>>(i&63)&1 == 1
		c.expect(busy == (lv.stored > 0 || len(lv.returned) > 0), "level %d: marked busy is %v", i, busy)
		c.expect(lv.after < lv.next, "level %d: cursor %d, next place %d", i, lv.after, lv.next)
		c.expect(lv.stored < lv.next-lv.after, "level %d: %d ready behind cursor %d, next place %d", i, lv.stored, lv.after, lv.next)
		c.expect(lv.again <= lv.next, "level %d: redelivered below %d, next place %d", i, lv.again, lv.next)
		for j := range lv.returned {
			f := &lv.returned[j]
			c.expect(int(f.seq.Level()) == i, "level %d holds a message of level %d", i, f.seq.Level())
			c.expect(j == 0 || lv.returned[(j-1)/2].seq < f.seq, "level %d: returned messages out of order", i)
			c.passed(f, "returned")
			c.found(f.seq, f.size, f.expiry, "returned")
		}
		after := seqOf(uint8(i), lv.after)
		for range lv.stored {
			m, ok := c.s.log.Next(after)
			if !ok {
				c.partial = true
				break
			}
			c.found(m.Seq, m.Size, m.Expiry, "ready")
			after = m.Seq
		}
	}
}

// waiting looks at what is neither ready nor in flight.
func (c *checker) waiting() {
	st, count, octets := c.s.stats, uint64(0), uint64(0)
	for i := range c.s.delayed {
		x := &c.s.delayed[i]
		c.expect(i == 0 || byDue(c.s.delayed[(i-1)/2], *x) < 0, "delayed messages out of order")
		c.passed(&x.flight, "delayed")
		c.at(x.seq, "delayed")
		count++
		octets += uint64(x.size)
	}
	c.expect(count == st.Delayed && octets == st.DelayedBytes, "%d messages of %d octets are delayed, not %d of %d", count, octets, st.Delayed, st.DelayedBytes)
	count, octets = 0, 0
	for key, x := range c.s.kept.Range(0, c.s.keys) {
		c.expect(c.s.keptAt[x.seq] == key, "%x is kept under %d, not %d", x.seq, key, c.s.keptAt[x.seq])
		c.passed(&x.flight, "kept")
		c.at(x.seq, "kept")
		count++
		octets += uint64(x.size)
	}
	c.expect(count == st.Kept && octets == st.KeptBytes && len(c.s.keptAt) == int(count), "%d messages of %d octets are kept, not %d of %d", count, octets, st.Kept, st.KeptBytes)
	c.expect(count == 0 || c.s.config.KeepDiscards, "%d dead letters kept without the rule", count)
	c.expect(!c.s.refusing || c.s.soft, "refusing without the rule")
}

// consumers looks at consumers, what they hold, and who stands in line.
func (c *checker) consumers() {
	s := c.s
	attached, members, listed := uint64(0), 0, 0
	for i, k := range s.consumers {
		c.expect(i == 0 || s.consumers[i-1].id < k.id, "consumers out of order")
		c.expect(!k.cancelled || k.inFlight.Len() > 0, "consumer %d is gone but remembered", k.id)
		if !k.getter && !k.cancelled {
			attached++
		}
		for id, f := range k.inFlight.Range(0, k.lastID) {
			c.expect(id >= 1 && id <= k.lastID, "consumer %d holds delivery %d", k.id, id)
			c.passed(f, "in flight")
			c.at(f.seq, "in flight")
			c.unacked++
			c.unackedOctets += uint64(f.size)
		}
		for j, r := range k.late {
			c.expect(r.First <= r.Last && r.Last <= k.lastID && (j == 0 || k.late[j-1].Last+1 < r.First), "consumer %d is late with %d", k.id, k.late)
			c.expect(k.inFlight.Find(r.First) == nil, "consumer %d holds %d although it timed out", k.id, r.First)
		}
		for j := range k.locks {
			_, some := k.holds(j)
			c.expect(j == 0 || k.locks[j-1].first < k.locks[j].first, "locks of consumer %d out of order", k.id)
			c.expect(!some || k.locks[j].at == 0 || s.lockDue != 0 && s.lockDue <= k.locks[j].at, "consumer %d times out at %d, before %d", k.id, k.locks[j].at, s.lockDue)
		}
		able := k.next != nil
		s.review(k)
		c.expect(able == (k.next != nil), "consumer %d stands in line: %v", k.id, able)
	}
	c.expect(attached == s.stats.Consumers, "%d consumers, not %d", attached, s.stats.Consumers)
	for i, g := range s.groups {
		c.expect(i == 0 || s.groups[i-1].priority > g.priority, "groups out of order")
		c.expect(g.members > 0, "a group without members")
		members += g.members
		for k := g.first; k != nil; k = k.next {
			c.expect(k.group == g && k.next.prev == k, "the line of consumer %d is broken", k.id)
			if listed++; k.next == g.first || c.err != nil {
				break
			}
		}
	}
	c.expect(uint64(members) == attached, "%d members of groups, %d consumers", members, attached)
	c.expect(listed == s.listed, "%d consumers in line, not %d", listed, s.listed)
	if s.config.SingleActive {
		c.expect((s.active != nil) == (s.foremost() != nil), "%d consumers, active is %v", attached, s.active)
	} else {
		c.expect(s.active == nil, "an active consumer without the rule")
	}
}

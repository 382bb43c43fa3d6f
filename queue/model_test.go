package queue

import (
	"cmp"
	"slices"
)

// model is the consumption machine written again without thought for speed or memory: every message is a struct in a
// plain slice, and whatever can be counted is counted. It is what State is compared with.
type model struct {
	rules  Rules
	config Config
	limit  int
	now    Time

	levels    [][]*modelMessage // ready messages, by place
	places    []uint64          // last place given out, by level
	returns   []*modelMessage
	coldFrom  []uint64     // by level: never handed out messages from this place on are not in memory
	away      map[Seq]bool // nor are these
	consumers []*modelConsumer
	line      []*modelConsumer // those who can take a message, longest waiting first
	ids       ConsumerID
	active    *modelConsumer
	quiescing bool
	stats     Stats

	delayed  []*modelMessage
	kept     []*modelMessage
	refusing bool
	lockDue  Time

	budget int
	out    outcome
}

type modelMessage struct {
	seq                   Seq
	expiry                Time
	size                  uint32
	acquired, failed      uint32
	redelivered, returned bool
	due                   Time   // of a delayed one
	reason                Reason // of a kept one
}

type modelConsumer struct {
	id                          ConsumerID
	spec                        ConsumerSpec
	room, window                uint32
	last                        DeliveryID
	held                        []modelHeld
	cancelled, blocked, refused bool
	late                        []DeliveryID
}

type modelHeld struct {
	id   DeliveryID
	m    *modelMessage
	lock Time
}

// outcome is what a command did, message by message.
type outcome struct {
	Deliver  []Delivery
	Removed  []Seq
	Discards []Discarded // one message each
	Kept     []Discarded
	TimedOut []TimedOut // one delivery each
	Refused  []uint32
	Activity []Activation
	Due      Time
	More     bool
}

func newModel(rules Rules, config Config, limit int) *model {
	n := max(rules.Levels, 1)
	m := &model{rules: rules, config: limits(rules, config), limit: limit, levels: make([][]*modelMessage, n), places: make([]uint64, n), coldFrom: make([]uint64, n), away: map[Seq]bool{}}
	m.warm()
	return m
}

func (m *model) warm() {
	for i := range m.coldFrom {
		m.coldFrom[i] = 1 << 60
	}
	clear(m.away)
}

// command runs f between what precedes and what follows every command.
func (m *model) command(at Time, f func()) outcome {
	m.now = max(m.now, at)
	m.budget = m.limit
	m.out = outcome{}
	m.promote()
	m.expire()
	if f != nil {
		f()
	}
	m.timeOut()
	m.work()
	if !m.out.More {
		m.pace()
	}
	for _, x := range m.delayed {
		m.out.Due = sooner(m.out.Due, x.due)
	}
	m.out.Due = sooner(m.out.Due, m.lockDue)
	for _, q := range m.queues() {
		h := m.head(q)
		if h == nil && len(*q) > 0 && (*q)[0].returned && (*q)[0].expiry > m.now {
			h = (*q)[0] // its expiry is known without its bytes
		}
		if h != nil && h.expiry != 0 && (m.out.Due == 0 || h.expiry < m.out.Due) {
			m.out.Due = h.expiry
		}
	}
	return m.out
}

// queues are the lists of ready messages in the order in which they are served.
func (m *model) queues() (qs []*[]*modelMessage) {
	qs = append(qs, &m.returns)
	for i := len(m.levels) - 1; i >= 0; i-- {
		qs = append(qs, &m.levels[i])
	}
	return qs
}

func (m *model) head(q *[]*modelMessage) *modelMessage {
	if len(*q) == 0 {
		return nil
	}
	h := (*q)[0]
	if m.away[h.seq] || !h.returned && h.seq.place() >= m.coldFrom[h.seq.Level()] {
		return nil
	}
	return h
}

func (m *model) top() *[]*modelMessage {
	for _, q := range m.queues() {
		if len(*q) > 0 {
			if m.head(q) == nil {
				return nil
			}
			return q
		}
	}
	return nil
}

func (m *model) ready() (n int, octets uint64) {
	for _, q := range m.queues() {
		n += len(*q)
		for _, x := range *q {
			octets += uint64(x.size)
		}
	}
	return n, octets
}

func (m *model) expire() bool {
	for _, q := range m.queues() {
		for h := m.head(q); h != nil && h.expiry != 0 && h.expiry <= m.now; h = m.head(q) {
			if m.budget == 0 {
				m.out.More = true
				return false
			}
			m.budget--
			m.discard(h, Expired, false)
			*q = (*q)[1:]
		}
	}
	return true
}

func (m *model) discard(x *modelMessage, reason Reason, failed bool) {
	d := Discarded{SeqRange{x.seq, x.seq}, reason, failed, -1, 0}
	if m.rules.CountReturns {
		if failed && reason == Rejected {
			x.failed++
		}
		d.Failed, d.Failures = x.failed > 0, x.failed
	}
	if m.config.KeepDiscards && reason != MaxLen {
		x.reason = reason
		m.kept = append(m.kept, x)
		m.out.Kept = append(m.out.Kept, d)
	} else {
		m.out.Discards = append(m.out.Discards, d)
	}
	switch reason {
	case Expired:
		m.stats.Expired++
	case MaxLen:
		m.stats.Dropped++
	default:
		m.stats.Rejected++
	}
}

func (m *model) drop() (dropped bool) {
	for m.config.Overflow == DropHead || m.config.Overflow == RejectPublishDLX && !m.rules.RejectBefore {
		n, octets := m.counted()
		if !(m.config.MaxLength >= 0 && n > int(m.config.MaxLength) || m.config.MaxBytes >= 0 && octets > uint64(m.config.MaxBytes)) {
			break
		}
		q := m.top()
		if q == nil {
			break
		}
		if m.budget == 0 {
			m.out.More = true
			break
		}
		m.budget--
		dropped = true
		m.discard((*q)[0], MaxLen, false)
		*q = (*q)[1:]
	}
	return dropped
}

func (m *model) work() {
	for {
		if !m.expire() {
			return
		}
		q := m.top()
		if q == nil || len(m.line) == 0 {
			break
		}
		if m.budget == 0 {
			m.out.More = true
			return
		}
		c := m.pick()
		if c == nil {
			break
		}
		m.budget--
		x := (*q)[0]
		*q = (*q)[1:]
		m.out.Deliver = append(m.out.Deliver, m.give(c, x, c.spec.NoAck, -1))
		m.turn(c)
	}
	if m.drop() {
		m.expire()
	}
}

func (m *model) able(c *modelConsumer) bool {
	if c.spec.Getter || c.cancelled || c.blocked || c.refused || c.room == 0 && !m.rules.NoWindow || len(c.late) > 0 {
		return false
	}
	if m.config.SingleActive && (m.active != c || m.quiescing) {
		return false
	}
	prefetch := c.spec.Prefetch
	if prefetch == 0 {
		prefetch = m.rules.PrefetchZero
	}
	return c.spec.NoAck || prefetch == 0 || len(c.held) < int(prefetch)
}

func (m *model) relist() {
	m.line = slices.DeleteFunc(m.line, func(c *modelConsumer) bool { return !m.able(c) })
	for _, c := range m.consumers {
		if m.able(c) && !slices.Contains(m.line, c) {
			m.line = append(m.line, c)
		}
	}
}

func (m *model) pick() *modelConsumer {
	for len(m.line) > 0 {
		best := m.line[0]
		for _, c := range m.line {
			if c.spec.Priority > best.spec.Priority {
				best = c
			}
		}
		if best.spec.Gate == nil || best.spec.Gate.Acquire() {
			return best
		}
		best.refused = true
		m.relist()
	}
	return nil
}

// turn ends a consumer's turn.
func (m *model) turn(c *modelConsumer) {
	c.room--
	m.line = slices.DeleteFunc(m.line, func(k *modelConsumer) bool { return k == c })
	m.relist()
	if c.spec.NoAck {
		m.stats.DeliveredNoAck++
	} else {
		m.stats.Delivered++
	}
}

func (m *model) give(c *modelConsumer, x *modelMessage, noAck bool, direct int32) Delivery {
	c.last++
	if !noAck {
		c.held = append(c.held, modelHeld{c.last, x, m.lock(c)})
	}
	if x.redelivered {
		m.stats.Redelivered++
	}
	d := Delivery{x.seq, c.last, c.id, direct, noAck, x.redelivered, 0, 0, c.spec.Session}
	if m.rules.CountReturns {
		d.Acquired, d.Failed = x.acquired, x.failed
		if x.acquired == 0 {
			d.Acquired = x.failed
		}
	}
	return d
}

func (m *model) publish(at Time, batch []Message) outcome {
	return m.command(at, func() {
		for i, msg := range batch {
			if m.refusing {
				m.out.Refused = append(m.out.Refused, uint32(i))
				m.stats.Dropped++
				continue
			}
			n, octets := m.counted()
			if m.rules.RejectBefore && m.config.Overflow != DropHead &&
				(m.config.MaxLength >= 0 && n+1 > int(m.config.MaxLength) || m.config.MaxBytes >= 0 && octets+uint64(msg.Size) > uint64(m.config.MaxBytes)) {
				if m.config.Overflow == RejectPublish {
					m.out.Refused = append(m.out.Refused, uint32(i))
				} else {
					m.out.Discards = append(m.out.Discards, Discarded{Reason: MaxLen, Direct: int32(i)})
				}
				m.stats.Dropped++
				continue
			}
			m.stats.Published++
			level := m.rules.DefaultLevel
			if msg.Flags&HasPriority != 0 {
				level = msg.Priority
			}
			if int(level) >= len(m.levels) {
				level = uint8(len(m.levels) - 1)
			}
			m.places[level]++
			x := &modelMessage{seq: Seq(level)<<56 | Seq(m.places[level]), size: msg.Size, redelivered: msg.Flags&WasDelivered != 0}
			if x.redelivered && m.rules.CountReturns {
				x.failed = msg.Flags.Failures()
			}
			ttl := msg.TTL
			if ttl < 0 || m.config.TTL >= 0 && m.config.TTL < ttl {
				ttl = m.config.TTL
			}
			if ttl == 0 {
				ttl = m.rules.ZeroTTL
			}
			if ttl >= 0 {
				x.expiry = m.now + Time(ttl)
			}
			if n, _ := m.ready(); n == 0 {
				if c := m.pick(); c != nil {
					direct := int32(-1)
					if c.spec.NoAck {
						direct = int32(i)
					}
					m.out.Deliver = append(m.out.Deliver, m.give(c, x, c.spec.NoAck, direct))
					m.turn(c)
					continue
				}
			}
			m.levels[level] = append(m.levels[level], x)
			if len(m.line) == 0 {
				m.drop()
				m.expire()
				m.pace()
			}
		}
	})
}

func (m *model) find(id ConsumerID) *modelConsumer {
	for _, c := range m.consumers {
		if c.id == id {
			return c
		}
	}
	return nil
}

func (m *model) attach(at Time, spec ConsumerSpec) (id ConsumerID, err error, o outcome) {
	if m.rules.ExclusiveConsumers && !spec.Getter {
		if spec.Exclusive && m.config.SingleActive {
			return 0, ErrExclusive, o
		}
		for _, c := range m.consumers {
			if !c.spec.Getter && !c.cancelled && (spec.Exclusive || c.spec.Exclusive) {
				return 0, ErrExclusive, o
			}
		}
	}
	o = m.command(at, func() {
		m.ids++
		id = m.ids
		c := &modelConsumer{id: id, spec: spec, room: spec.Window, window: spec.Window}
		if spec.Window == 0 {
			c.room, c.window = DefaultWindow, DefaultWindow
		}
		m.consumers = append(m.consumers, c)
		m.choose()
		m.relist()
	})
	return id, err, o
}

// best is who should be active: highest priority, then age.
func (m *model) best() (best *modelConsumer) {
	for _, c := range m.consumers {
		if c.spec.Getter || c.cancelled || len(c.late) > 0 {
			continue
		}
		if best == nil || c.spec.Priority > best.spec.Priority ||
			c.spec.Priority == best.spec.Priority && m.rules.Preempt && m.credit(c) > m.credit(best) {
			best = c
		}
	}
	return best
}

func (m *model) choose() {
	if !m.config.SingleActive {
		return
	}
	best := m.best()
	if m.active == nil {
		if best != nil {
			m.active = best
			m.out.Activity = append(m.out.Activity, Activation{best.id, true})
		}
	} else if m.rules.Preempt && best.spec.Priority > m.active.spec.Priority {
		m.quiescing = true
	}
	m.swap()
}

func (m *model) swap() {
	if m.active == nil || !m.quiescing || len(m.active.held) > 0 {
		return
	}
	m.quiescing = false
	if best := m.best(); best != m.active {
		m.out.Activity = append(m.out.Activity, Activation{m.active.id, false}, Activation{best.id, true})
		m.active = best
	}
}

func (m *model) detach(at Time, id ConsumerID, how Detachment) outcome {
	return m.command(at, func() {
		c := m.find(id)
		if c == nil {
			return
		}
		m.leave(c)
		if how == Remove {
			m.takeBack(c, 0, 1<<62, ReturnFailed)
		}
		m.choose()
		m.forget()
		m.relist()
		if how == Remove && m.rules.DropBefore {
			m.drop()
		}
	})
}

func (m *model) forget() {
	m.consumers = slices.DeleteFunc(m.consumers, func(c *modelConsumer) bool { return c.cancelled && len(c.held) == 0 })
}

func (m *model) takeBack(c *modelConsumer, first, last DeliveryID, o Outcome) {
	var keep []modelHeld
	for _, h := range c.held {
		if h.id < first || h.id > last {
			keep = append(keep, h)
			continue
		}
		x := h.m
		switch o {
		case Ack:
			m.stats.Acked++
			m.out.Removed = append(m.out.Removed, x.seq)
			continue
		case Discard, DiscardFailed:
			m.discard(x, Rejected, o == DiscardFailed)
			continue
		}
		m.giveBack(x, o == ReturnFailed)
	}
	c.held = keep
}

func (m *model) giveBack(x *modelMessage, failed bool) {
	m.stats.Returned++
	x.acquired++
	x.redelivered, x.returned = true, true
	if failed {
		x.failed++
	}
	if m.rules.CountReturns && m.config.DeliveryLimit >= 0 && int64(x.failed) > m.config.DeliveryLimit {
		m.discard(x, DeliveryLimited, true)
		return
	}
	if wait := m.wait(x, failed); wait > 0 {
		x.due = m.now + Time(wait)
		m.delayed = append(m.delayed, x)
		return
	}
	m.requeue(x)
}

func (m *model) requeue(x *modelMessage) {
	if m.rules.Requeue == Returns {
		m.returns = append(m.returns, x)
		return
	}
	l := &m.levels[x.seq.Level()]
	*l = append(*l, x)
	slices.SortFunc(*l, func(a, b *modelMessage) int { return cmp.Compare(a.seq, b.seq) })
}

func (m *model) settle(at Time, id ConsumerID, ids []Range, o Outcome) outcome {
	return m.command(at, func() {
		c := m.find(id)
		if c == nil {
			return
		}
		for _, r := range ids {
			m.takeBack(c, r.First, r.Last, o)
		}
		m.catchUp(c, ids)
		m.forget()
		m.swap()
		m.relist()
		if (o == Return || o == ReturnFailed) && m.rules.DropBefore {
			m.drop()
		}
	})
}

func (m *model) readyFor(at Time, id ConsumerID) outcome {
	return m.command(at, func() {
		if c := m.find(id); c != nil {
			c.room, c.blocked, c.refused = c.window, false, false
			m.relist()
		}
	})
}

func (m *model) gate(id ConsumerID, g Gate) (held int) {
	c := m.find(id)
	if c == nil {
		return 0
	}
	c.spec.Gate = g
	return len(c.held)
}

func (m *model) block(id ConsumerID) {
	if c := m.find(id); c != nil {
		c.blocked = true
		m.relist()
	}
}

func (m *model) get(at Time, id ConsumerID, noAck bool) (d Delivery, ok bool, o outcome) {
	o = m.command(at, func() {
		c := m.find(id)
		if c == nil || !c.spec.Getter || c.cancelled {
			return
		}
		for {
			q := m.top()
			if q == nil {
				if n, _ := m.ready(); n == 0 {
					m.stats.GetEmpty++
				}
				return
			}
			x := (*q)[0]
			*q = (*q)[1:]
			if x.expiry != 0 && x.expiry <= m.now {
				m.discard(x, Expired, false)
				continue
			}
			d, ok = m.give(c, x, noAck, -1), true
			if noAck {
				m.stats.GotNoAck++
			} else {
				m.stats.Got++
			}
			return
		}
	})
	return d, ok, o
}

func (m *model) purge(at Time) (n uint64, o outcome) {
	o = m.command(at, func() {
		gone := append([]*modelMessage(nil), m.returns...)
		m.returns = nil
		for i, l := range m.levels {
			gone = append(gone, l...)
			m.levels[i] = nil
		}
		m.sortDelayed()
		gone = append(append(gone, m.delayed...), m.kept...)
		m.delayed, m.kept = nil, nil
		for _, x := range gone {
			m.out.Removed = append(m.out.Removed, x.seq)
		}
		n = uint64(len(gone))
	})
	return n, o
}

func (m *model) configure(at Time, config Config) outcome {
	return m.command(at, func() {
		single := m.config.SingleActive
		m.config = limits(m.rules, config)
		if !m.config.KeepDiscards {
			for _, x := range m.kept {
				m.out.Removed = append(m.out.Removed, x.seq)
			}
			m.kept = nil
		}
		m.refusing = m.refusing && config.Overflow == RejectPublish && (config.MaxLength >= 0 || config.MaxBytes >= 0)
		if single != config.SingleActive {
			m.active, m.quiescing = nil, false
			m.choose()
			m.relist()
		}
	})
}

func (m *model) counts() Stats {
	st := m.stats
	n, octets := m.ready()
	st.Ready, st.ReadyBytes = uint64(n), octets
	for _, c := range m.consumers {
		if !c.spec.Getter && !c.cancelled {
			st.Consumers++
		}
		st.Unacked += uint64(len(c.held))
		for _, h := range c.held {
			st.UnackedBytes += uint64(h.m.size)
		}
	}
	for _, x := range m.delayed {
		st.Delayed++
		st.DelayedBytes += uint64(x.size)
	}
	for _, x := range m.kept {
		st.Kept++
		st.KeptBytes += uint64(x.size)
	}
	if m.active != nil {
		st.Active = m.active.id
	}
	return st
}

// live are the Seqs that the log must have: of every message in the queue, in order.
func (m *model) live() (seqs []Seq) {
	for _, q := range m.queues() {
		for _, x := range *q {
			seqs = append(seqs, x.seq)
		}
	}
	for _, x := range slices.Concat(m.delayed, m.kept) {
		seqs = append(seqs, x.seq)
	}
	for _, c := range m.consumers {
		for _, h := range c.held {
			seqs = append(seqs, h.m.seq)
		}
	}
	slices.Sort(seqs)
	return seqs
}

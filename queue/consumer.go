package queue

import (
	"errors"
	"math"
	"slices"
)

// ErrExclusive refuses a consumer: another has the queue for itself, or this one wants it for itself and cannot have it
// (basic.consume answers 403, "in exclusive use").
var ErrExclusive = errors.New("queue: in exclusive use")

// consumer is what the machine keeps of one consumer or getter.
type consumer struct {
	id       ConsumerID
	priority int32
	prefetch uint32 // 0: no limit
	window   uint32 // deliveries it may be given between two Ready
	room     uint32 // what is left of window
	noAck    bool
	getter   bool

	cancelled bool // gets nothing more; stays until what it holds is settled
	blocked   bool // by Block, until Ready
	gated     bool // refused by its gate, until Ready
	gate      Gate

	lastID   DeliveryID
	inFlight Window[flight]

	session uint64
	timeout int64   // milliseconds; 0: that of the queue
	locks   []lock  // when what is in flight times out
	late    []Range // deliveries that have timed out and were not settled since; it gets nothing more until then
	overdue bool    // some delivery has timed out, ever

	group      *group
	prev, next *consumer // neighbours in the group's line; nil when not in it
}

// group are the consumers of one priority. Those that can take a message stand in a circular line, next one first.
type group struct {
	priority int32
	members  int // in the line or not
	first    *consumer
}

// Attach adds a consumer. ErrExclusive refuses it, with nothing changed and no effects.
func (s *State) Attach(at Time, spec ConsumerSpec, fx *Effects) (ConsumerID, error) {
	if s.rules.ExclusiveConsumers && !spec.Getter {
		if s.exclusive != nil || spec.Exclusive && (s.stats.Consumers > 0 || s.config.SingleActive) {
			return 0, ErrExclusive
		}
	}
	s.begin(at, fx)
	s.lastID++
	c := &consumer{
		id: s.lastID, priority: spec.Priority, prefetch: spec.Prefetch, window: spec.Window,
		noAck: spec.NoAck, getter: spec.Getter, gate: spec.Gate, session: spec.Session,
	}
	if s.rules.CountReturns {
		c.timeout = spec.Timeout
	}
	if c.prefetch == 0 {
		c.prefetch = s.rules.PrefetchZero
	}
	if c.window == 0 {
		c.window = DefaultWindow
	}
	if s.rules.NoWindow {
		c.window = math.MaxUint32
	}
	if c.noAck {
		c.prefetch = 0
	}
	c.room = c.window
	s.consumers = append(s.consumers, c)
	if !c.getter {
		s.stats.Consumers++
		s.join(c)
		if s.rules.ExclusiveConsumers && spec.Exclusive {
			s.exclusive = c
		}
		s.activate(fx)
		s.review(c)
	}
	s.end(fx)
	return c.id, nil
}

// Detach ends a consumer. With Cancel what it holds stays in flight, and the consumer is remembered until that is
// settled; with Remove it all returns, as failed. A cancelled consumer may still be removed.
func (s *State) Detach(at Time, id ConsumerID, how Detachment, fx *Effects) {
	s.begin(at, fx)
	if c := s.consumer(id); c != nil {
		s.leave(c)
		if how == Remove {
			s.settle(c, Range{0, c.lastID}, ReturnFailed, fx)
		}
		s.activate(fx)
		s.drained(c, fx)
		if how == Remove {
			s.dropBefore(fx)
		}
	}
	s.end(fx)
}

// Down ends all consumers of a session, as Detach does with Remove.
func (s *State) Down(at Time, session uint64, fx *Effects) {
	s.DownWhere(at, func(id uint64) bool { return id == session }, fx)
}

// DownWhere ends all consumers of the sessions for which gone is true, as Detach does with Remove, in the order in which
// they came. gone must do nothing else.
func (s *State) DownWhere(at Time, gone func(session uint64) bool, fx *Effects) {
	s.begin(at, fx)
	var ended []*consumer
	for _, c := range s.consumers {
		if gone(c.session) {
			ended = append(ended, c)
		}
	}
	for _, c := range ended {
		if c.getter || c.cancelled {
			for id := range c.inFlight.Range(0, c.lastID) {
				fx.timedOut(c, id)
			}
		}
		s.leave(c)
		s.settle(c, Range{0, c.lastID}, ReturnFailed, fx)
		s.drained(c, fx)
	}
	if len(ended) > 0 {
		s.activate(fx)
		s.dropBefore(fx)
	}
	s.end(fx)
}

// consumer finds a consumer, or nil.
func (s *State) consumer(id ConsumerID) *consumer {
	if n := len(s.consumers); n > 0 && s.consumers[n-1].id == id {
		return s.consumers[n-1]
	}
	if i, ok := s.index(id); ok {
		return s.consumers[i]
	}
	return nil
}

// index is where the consumer stands in s.consumers.
func (s *State) index(id ConsumerID) (int, bool) {
	return slices.BinarySearchFunc(s.consumers, id, func(c *consumer, id ConsumerID) int { return int(c.id) - int(id) })
}

// join makes the consumer a member of the group of its priority.
func (s *State) join(c *consumer) {
	i, ok := slices.BinarySearchFunc(s.groups, c.priority, func(g *group, priority int32) int {
		return int(priority) - int(g.priority)
	})
	if !ok {
		s.groups = slices.Insert(s.groups, i, &group{priority: c.priority})
	}
	c.group = s.groups[i]
	c.group.members++
}

// leave ends the consumer's part in everything but its deliveries in flight.
func (s *State) leave(c *consumer) {
	if c.cancelled {
		return
	}
	c.cancelled, c.late = true, nil
	s.review(c)
	if c.getter {
		return
	}
	s.stats.Consumers--
	if c.group.members--; c.group.members == 0 {
		i := slices.Index(s.groups, c.group)
		s.groups = slices.Delete(s.groups, i, i+1)
	}
	if s.exclusive == c {
		s.exclusive = nil
	}
	if s.active == c {
		s.active, s.quiescing = nil, false
	}
}

// drained does what waits for the consumer's last delivery in flight: a cancelled consumer is forgotten, a quiescing one
// yields.
func (s *State) drained(c *consumer, fx *Effects) {
	if c.inFlight.Len() > 0 {
		return
	}
	if c.cancelled {
		if i, ok := s.index(c.id); ok {
			s.consumers = slices.Delete(s.consumers, i, i+1)
			fx.Left = append(fx.Left, c.id)
		}
	} else if s.active == c && s.quiescing {
		s.yield(fx)
	}
}

// activate sees to it that a single-active-consumer queue has its active consumer: the first to come; when it ends, the
// foremost one. With Rules.Preempt a newcomer of higher priority takes over.
func (s *State) activate(fx *Effects) {
	if !s.config.SingleActive {
		return
	}
	if s.active == nil {
		if c := s.foremost(); c != nil {
			s.active = c
			fx.Activity = append(fx.Activity, Activation{c.id, true})
			s.review(c)
		}
		return
	}
	if s.rules.Preempt && !s.quiescing && s.foremost().priority > s.active.priority {
		s.quiescing = true
		s.review(s.active)
		s.drained(s.active, fx)
	}
}

// yield hands the active role to the foremost consumer, which may be the same one again.
func (s *State) yield(fx *Effects) {
	old := s.active
	s.active, s.quiescing = s.foremost(), false
	if s.active != old {
		fx.Activity = append(fx.Activity, Activation{old.id, false}, Activation{s.active.id, true})
	}
	s.review(old)
	s.review(s.active)
}

// foremost is the oldest of the consumers of highest priority, or nil; with Rules.Preempt the one of these that may take
// most. None whose deliveries have timed out is.
func (s *State) foremost() (best *consumer) {
	for _, c := range s.consumers {
		if !c.getter && !c.cancelled && len(c.late) == 0 && (best == nil || c.priority > best.priority ||
			c.priority == best.priority && s.rules.Preempt && c.credit() > best.credit()) {
			best = c
		}
	}
	return best
}

// credit is how many more deliveries the consumer may hold.
func (c *consumer) credit() int {
	if c.prefetch == 0 {
		return math.MaxInt
	}
	return int(c.prefetch) - c.inFlight.Len()
}

// capacity is how many messages the consumer may be given by its window and its prefetch.
func (c *consumer) capacity() int {
	if c.prefetch == 0 {
		return int(c.room)
	}
	return min(int(c.room), int(c.prefetch)-c.inFlight.Len())
}

// review puts the consumer at the end of its group's line when it has become able to take a message, and out of the line
// when it no longer is.
func (s *State) review(c *consumer) {
	able := s.able(c)
	if able == (c.next != nil) {
		return
	}
	if able {
		s.enlist(c)
		return
	}
	g := c.group
	s.listed--
	if g.first == c {
		g.first = c.next
		if c.next == c {
			g.first = nil
		}
	}
	c.prev.next, c.next.prev = c.next, c.prev
	c.prev, c.next = nil, nil
}

// able reports whether the consumer can take a message.
func (s *State) able(c *consumer) bool {
	return !c.getter && !c.cancelled && !c.blocked && !c.gated && len(c.late) == 0 && c.capacity() > 0 &&
		(!s.config.SingleActive || s.active == c && !s.quiescing)
}

// enlist puts the consumer at the end of its group's line.
func (s *State) enlist(c *consumer) {
	g := c.group
	s.listed++
	if g.first == nil {
		c.prev, c.next, g.first = c, c, c
		return
	}
	c.prev, c.next = g.first.prev, g.first
	c.prev.next, c.next.prev = c, c
}

// nextConsumer is the one whose turn it is, with its gate passed, or nil when none can take a message.
func (s *State) nextConsumer() *consumer {
	for _, g := range s.groups {
		for c := g.first; c != nil; c = g.first {
			if c.gate == nil || c.gate.Acquire() {
				return c
			}
			c.gated = true
			s.review(c)
		}
	}
	return nil
}

package queue

import "slices"

// State is the consumption machine: the order of one queue's messages, who gets which, and what becomes of each. It is a
// pure value. Commands come with a time and fill an Effects; there is no lock, clock, I/O, goroutine or randomness in it,
// so that a classic queue runs it under its lock, replicas replay it, and tests drive it by the million.
//
// A message is in one of five places. Ready messages that were never given out lie in the Log behind their level's
// cursor and cost nothing here. Messages in flight are entries in their consumer's window. Returned messages are ready
// again and wait ahead of the cursor; delayed ones will be returned later; dead letters are kept until they have arrived.
// The last two only replicated queues have. Memory therefore grows with what is in flight, returned or dead, never with
// the backlog.
//
// Every command ends with the same work: what was not settled in time returns, heads that have expired leave, ready
// messages go to consumers that have room, and then limits are enforced. That work stops after MaxEffects messages and goes on with the next command, usually
// Continue; what a command was called for is always done in full.
//
// Effects refer to messages by Seq. The caller carries them out before the next command.
type State struct {
	rules  Rules
	config Config
	log    Log
	now    Time

	highest uint8          // level
	levels  Levels[level]  // those that were used
	busy    [4]uint64      // bit per level that has ready messages
	returns Window[flight] // returned messages, with Rules.Requeue == Returns, in the order they came back
	turns   uint64         // keys given out in returns

	consumers  []*consumer // ascending ids; getters and cancelled ones that still hold messages included
	groups     []*group    // descending priorities; none empty of members
	listed     int         // consumers that stand in their group's line
	lastID     ConsumerID
	active     *consumer // of a single-active-consumer queue
	quiescing  bool      // the active consumer gets nothing more and yields its place when it has drained
	exclusive  *consumer
	stats      Stats
	expiring   uint64 // ready messages that have an expiry
	budget     int    // messages that the running command may still move on its own account
	maxEffects int
	cold       bool // a head was not in memory
	missing    Seq  // the first of returns, if the Log did not have it in memory; 0: none

	drops    bool         // there are limits, and what is ready beyond gives way
	soft     bool         // there are limits, and publishes are refused while there is more
	refusing bool         // with soft, from too much until there is a fifth less than that
	delayed  []delayed    // a heap, first due first
	lockDue  Time         // no delivery in flight times out before; 0: none does
	kept     Window[kept] // dead letters that wait for Buried, in the order they died
	keys     uint64       // keys given out in kept
	keptAt   map[Seq]uint64
}

// flight is a message that is in flight or returned.
type flight struct {
	seq         Seq
	expiry      Time
	size        uint32
	acquired    uint32 // kept with Rules.CountReturns only
	failed      uint32
	redelivered bool
}

// New is the state of an empty queue whose messages log will keep.
func New(rules Rules, config Config, log Log) *State {
	s := &State{rules: rules, log: log, maxEffects: MaxEffects}
	s.limit(config)
	s.highest = uint8(levelsOf(rules) - 1)
	if s.highest == 0 {
		s.level(0)
	}
	return s
}

// level is a level, which is made when it is first used. It is valid until another one is.
func (s *State) level(i int) *level {
	if lv := s.levels.Has(i); lv != nil {
		return lv
	}
	return s.levels.Make(i, level{next: 1})
}

// limit sets the limits.
func (s *State) limit(config Config) {
	if !s.rules.CountReturns {
		config.DelayType, config.ConsumerTimeout, config.KeepDiscards = DelayNone, 0, false
	}
	s.config = config
	limited := config.MaxLength >= 0 || config.MaxBytes >= 0
	s.soft = limited && config.Overflow == RejectPublish && !s.rules.RejectBefore
	s.drops = limited && (config.Overflow == DropHead || config.Overflow == RejectPublishDLX && !s.rules.RejectBefore)
	s.refusing = s.refusing && s.soft
}

func levelsOf(rules Rules) int { return min(max(rules.Levels, 1), 256) }

// Publish enqueues batch in order. Messages that a consumer takes at once without acknowledging it are never Put: their
// Delivery names them by index, as does the Discarded of a message refused with reject-publish-dlx.
func (s *State) Publish(at Time, batch []Message, fx *Effects) {
	s.begin(at, fx)
	refuses := s.rules.RejectBefore && s.config.Overflow != DropHead && (s.config.MaxLength >= 0 || s.config.MaxBytes >= 0)
	for i := 0; i < len(batch); i++ {
		if s.refusing || refuses && s.overflows(batch[i].Size) {
			s.refuse(i, fx)
			continue
		}
		// With nothing ready whoever has room may take the message past all order.
		if s.stats.Ready == 0 && s.listed > 0 {
			end := len(batch)
			if refuses {
				end = i + 1
			}
			if n := s.direct(batch, i, end, fx); n > 0 {
				i += n - 1
				continue
			}
		}
		s.place(&batch[i], fx)
	}
	s.end(fx)
}

// Ready says that everything given to the consumer so far has been taken: it may get a full window again.
func (s *State) Ready(at Time, id ConsumerID, fx *Effects) {
	s.begin(at, fx)
	if c := s.consumer(id); c != nil {
		c.room, c.blocked, c.gated = c.window, false, false
		s.review(c)
	}
	s.end(fx)
}

// Gate sets the gate of a consumer and returns how many deliveries it holds.
func (s *State) Gate(id ConsumerID, g Gate) (held int) {
	c := s.consumer(id)
	if c == nil {
		return 0
	}
	c.gate = g
	return c.inFlight.Len()
}

// Block says that the consumer can take nothing more until Ready.
func (s *State) Block(id ConsumerID) {
	if c := s.consumer(id); c != nil {
		c.blocked = true
		s.review(c)
	}
}

// Get takes the next message for a consumer attached with Getter. It returns false when there is none, and when the next
// one is not in memory; Cold tells the cases apart. The delivery is not listed in fx.
func (s *State) Get(at Time, id ConsumerID, noAck bool, fx *Effects) (d Delivery, ok bool) {
	s.begin(at, fx)
	c := s.consumer(id)
	if c == nil || !c.getter || c.cancelled {
		s.end(fx)
		return d, false
	}
	for {
		from, f, found := s.top()
		if !found {
			if s.stats.Ready == 0 {
				s.stats.GetEmpty++
			}
			break
		}
		if f.expired(s.now) { // left over by the budget
			s.discardHead(from, &f, Expired, fx)
			continue
		}
		s.pop(from, &f)
		d, ok = s.hand(c, &f, noAck), true
		if noAck {
			s.stats.GotNoAck++
		} else {
			s.arm(c, 1)
			s.stats.Got++
		}
		break
	}
	s.end(fx)
	return d, ok
}

// Settle applies the outcome to the consumer's deliveries whose ids are in ids; those not in flight are passed over.
func (s *State) Settle(at Time, id ConsumerID, ids []Range, o Outcome, fx *Effects) {
	s.begin(at, fx)
	if c := s.consumer(id); c != nil {
		for _, r := range ids {
			s.settle(c, r, o, fx)
		}
		if len(c.late) > 0 {
			s.catchUp(c, ids, fx)
		}
		if s.rules.NoWindow {
			c.room = c.window
		}
		s.drained(c, fx)
		s.review(c)
		if o == Return || o == ReturnFailed {
			s.dropBefore(fx)
		}
	}
	s.end(fx)
}

// Purge drops all messages that are ready, delayed or kept, and reports how many there were.
func (s *State) Purge(at Time, fx *Effects) uint64 {
	s.begin(at, fx)
	n := s.stats.Ready
	for _, f := range s.returns.Range(0, s.turns) {
		fx.remove(f.seq)
	}
	s.returns.Clear()
	for i, lv := range s.levels.All() {
		lv.purge(uint8(i), fx)
	}
	s.busy, s.cold, s.missing = [4]uint64{}, false, 0
	s.stats.Ready, s.stats.ReadyBytes, s.expiring = 0, 0, 0
	n += s.purgeDelayed(fx) + s.purgeKept(fx)
	s.end(fx)
	return n
}

// Tick lets time pass: heads whose time has come expire.
func (s *State) Tick(at Time, fx *Effects) { s.Continue(at, fx) }

// Continue goes on with work that an earlier command left over (Effects.More).
func (s *State) Continue(at Time, fx *Effects) {
	s.begin(at, fx)
	s.end(fx)
}

// Loaded says that the Log has in memory what it had not when Next or Resident returned false.
func (s *State) Loaded(at Time, fx *Effects) {
	s.cold, s.missing = false, 0
	for _, lv := range s.levels.All() {
		lv.cold, lv.missing = false, 0
	}
	s.Continue(at, fx)
}

// Unloaded says that messages may have left memory since the Log told of them: it will be asked again.
func (s *State) Unloaded() {
	for _, lv := range s.levels.All() {
		lv.known = false
	}
}

// Lost says that the Log cannot read what is stored in a stretch of one level: it shows none of it any more, and the
// queue goes on without. The sums are those of the messages behind the Cursor; what is returned the machine knows itself,
// and what is in flight stays there until it is settled, or lost again when it comes back. It also does what Loaded does.
func (s *State) Lost(at Time, e Extent, fx *Effects) (n uint64) {
	i := e.First.Level()
	lv := s.level(int(i))
	within := func(f *flight) bool { return e.First <= f.seq && f.seq <= e.Last }
	forget := func(f *flight) {
		n++
		s.stats.ReadyBytes -= uint64(f.size)
		if f.expiry != 0 {
			s.expiring--
		}
	}
	lv.returned = slices.DeleteFunc(lv.returned, func(f flight) bool {
		if within(&f) {
			forget(&f)
			return true
		}
		return false
	})
	slices.SortFunc(lv.returned, bySeq) // a heap again
	for key, f := s.returns.At(0); f != nil; key, f = s.returns.At(key + 1) {
		if within(f) {
			forget(f)
			s.returns.Remove(key)
		}
	}
	if e.Last.place() > lv.after {
		count := min(e.Count, lv.stored)
		n += count
		lv.stored -= count
		s.stats.ReadyBytes -= min(e.Octets, s.stats.ReadyBytes)
		s.expiring -= min(e.Expiring, s.expiring)
		lv.known = false
	}
	s.stats.Ready -= n
	n += s.lostElsewhere(e.SeqRange)
	if lv.stored == 0 && len(lv.returned) == 0 {
		s.busy[i>>6] &^= 1 << (i & 63)
	}
	s.Loaded(at, fx)
	return n
}

// Configure replaces the limits. A lower limit takes effect at once where it drops from the head; a new TTL is that of
// messages still to come.
func (s *State) Configure(at Time, config Config, fx *Effects) {
	s.begin(at, fx)
	single := s.config.SingleActive
	s.limit(config)
	if !s.config.KeepDiscards {
		s.purgeKept(fx)
	}
	if single != config.SingleActive {
		s.active, s.quiescing = nil, false
		s.activate(fx)
		for _, c := range s.consumers {
			s.review(c)
		}
	}
	s.end(fx)
}

// Stats are the counts of now and the totals since New. Published are the messages that were taken; Dropped those that
// gave way to a limit or were refused for one; Rejected those that consumers discarded, or returned as failed too often;
// Returned what consumers gave back, that last kind included.
func (s *State) Stats() Stats {
	st := s.stats
	if s.active != nil {
		st.Active = s.active.id
	}
	return st
}

// Cold reports whether something waits for a message that is not in memory, and thus for Loaded or Lost. After a Get
// that found nothing it tells whether there was something.
func (s *State) Cold() bool {
	_, cold := s.Wants()
	return cold
}

// Wants is the message that should be loaded first: the Seq of a returned one, or the lowest that the next one behind a
// level's cursor may have. It is false when nothing waits for Loaded. What comes after it is wanted soon, too.
func (s *State) Wants() (Seq, bool) {
	if !s.cold {
		return 0, false
	}
	if _, f := s.returns.First(); f != nil && f.seq == s.missing {
		return f.seq, true
	}
	for i, lv := range s.levels.Down() {
		if len(lv.returned) > 0 {
			if seq := lv.returned[0].seq; seq == lv.missing {
				return seq, true
			}
		} else if lv.cold && lv.stored > 0 {
			return seqOf(uint8(i), lv.after+1), true
		}
	}
	return 0, false
}

// begin starts a command: time moves on, and what has expired meanwhile is out of everyone's way.
func (s *State) begin(at Time, fx *Effects) {
	s.now = max(s.now, at)
	s.budget = s.maxEffects
	if len(s.delayed) > 0 {
		s.promote(fx)
	}
	if s.expiring > 0 {
		s.expire(fx)
	}
}

// end does the work that follows every command.
func (s *State) end(fx *Effects) {
	if s.lockDue != 0 && s.lockDue <= s.now {
		s.timeOut(fx)
	}
	s.checkout(fx)
	if s.soft && !fx.More {
		s.pace()
	}
	fx.Due = 0
	if s.expiring > 0 {
		fx.Due = s.earliest()
	}
	if len(s.delayed) > 0 {
		fx.Due = sooner(fx.Due, s.delayed[0].due)
	}
	fx.Due = sooner(fx.Due, s.lockDue)
}

// sooner is the earlier one of two times, none of which may be.
func sooner(a, b Time) Time {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// place puts a message behind its level, and lets limits and a TTL of zero act on it unless a consumer is still to have
// its turn.
func (s *State) place(m *Message, fx *Effects) {
	i := s.levelOf(m)
	lv := s.level(int(i))
	seq, expiry := seqOf(i, lv.next), s.expiry(m)
	lv.next++
	lv.stored++
	s.busy[i>>6] |= 1 << (i & 63)
	s.log.Put(seq, expiry, m)
	s.stats.Published++
	s.stats.Ready++
	s.stats.ReadyBytes += uint64(m.Size)
	if expiry != 0 {
		s.expiring++
	}
	if s.listed == 0 {
		if s.drops {
			s.drop(fx)
		}
		if s.expiring > 0 {
			s.expire(fx)
		}
		if s.soft {
			s.pace()
		}
	}
}

// refuse turns away the message at index i of the batch.
func (s *State) refuse(i int, fx *Effects) {
	s.stats.Dropped++
	if s.config.Overflow == RejectPublishDLX {
		fx.Discards = append(fx.Discards, Discarded{Reason: MaxLen, Direct: int32(i)})
	} else {
		fx.Refused = append(fx.Refused, uint32(i))
	}
}

// levelOf is the level of a message: its priority, at most the highest level.
func (s *State) levelOf(m *Message) uint8 {
	switch {
	case s.highest == 0:
		return 0
	case m.Flags&HasPriority == 0:
		return min(s.rules.DefaultLevel, s.highest)
	default:
		return min(m.Priority, s.highest)
	}
}

// expiry is when a message published now expires: after the queue's TTL or its own, whichever is shorter.
func (s *State) expiry(m *Message) Time {
	ttl := s.config.TTL
	if m.TTL >= 0 && (ttl < 0 || m.TTL < ttl) {
		ttl = m.TTL
	}
	if ttl < 0 {
		return 0
	}
	if ttl == 0 {
		ttl = s.rules.ZeroTTL
	}
	return s.now + Time(ttl)
}

// overflows reports whether one more message of the given size would be too much.
func (s *State) overflows(size uint32) bool {
	return s.exceeds(s.config.MaxLength, s.config.MaxBytes, 1, uint64(size))
}

// over reports whether there is more than the limits allow.
func (s *State) over() bool { return s.exceeds(s.config.MaxLength, s.config.MaxBytes, 0, 0) }

// exceeds reports whether what counts for the limits, and so much more, is above length or octets, -1 being none. What is
// in flight does not count.
func (s *State) exceeds(length, octets int64, messages, size uint64) bool {
	st := &s.stats
	return length >= 0 && st.Ready+st.Delayed+st.Kept+messages > uint64(length) ||
		octets >= 0 && st.ReadyBytes+st.DelayedBytes+st.KeptBytes+size > uint64(octets)
}

// pace decides whether publishes are refused from now on: from when there is more than the limits allow until there is no
// more than four fifths of each (RabbitMQ 4.3: with limits 1, 2 and 10 it takes again at 0, 1 and 8).
func (s *State) pace() {
	if s.over() {
		s.refusing = true
	} else if s.refusing {
		s.refusing = s.exceeds(fourFifths(s.config.MaxLength), fourFifths(s.config.MaxBytes), 0, 0)
	}
}

func fourFifths(limit int64) int64 {
	if limit < 0 {
		return limit
	}
	return limit/5*4 + limit%5*4/5
}

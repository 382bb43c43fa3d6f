package queue

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/warrenmq/warren/octet"
)

// A snapshot is a whole State, consumers and all, so that a replica goes on with it as if it had seen every command. What
// the Log keeps is not in it: its size grows with what is in flight, returned, delayed or kept, never with the backlog.
// Neither are rules and limits, nor gates, which queues that have snapshots do not know. Equal states give equal bytes.
//
//	version    octet, 1
//	flags      octet: 1 refusing, 2 quiescing
//	now, lastID, active, exclusive, lockDue   uvarints; consumers by id, 0 none
//	totals     12 uvarints, in the order of Stats
//	backlog    octets, expiring: uvarints, sums over what is ready behind the cursors
//	levels     uvarint: how many the rules have
//	used       uvarint, then for each level that is not as New makes it
//	   level, after, ahead, again, stored   uvarints; ahead is the next place, less after
//	   returned   messages, with Rules.Requeue == Original
//	returns    messages
//	delayed    uvarint, then each: due uvarint | message, in the order they will be ready
//	kept       uvarint, then each: reason | mark<<7 octet | message, in the order they died
//	consumers  uvarint, then each, ids ascending
//	   id         uvarint, less that of the one before
//	   flags      octet: 1 no-ack, 2 getter, 4 cancelled, 8 blocked, 16 gated, 32 overdue
//	   priority varint | prefetch, window, room, session uvarints | timeout varint | last delivery id uvarint
//	   late       uvarint, then each: first uvarint, less the last of the one before | more uvarint
//	   in flight  uvarint, then each: id uvarint, less that of the one before, <<1 | 1 if its lock differs from that of the
//	              one before | the lock uvarint, if so | message
//	line       uvarint, then each: consumer id uvarint, those of one priority next one first
//	check      4 octets, little endian: CRC-32C of all that precedes
//
//	messages   uvarint, then each
//	message    octet: 1 redelivered, 2 it expires, 4 it has counts, 8 its Seq follows that of the message written before,
//	           16 its size is that of the message written before
//	           then what is not said so: Seq varint, less that of the message before | size | expiry | acquired, failed
const snapshotVersion = 1

// AppendSnapshot appends the snapshot of the state, as it is between two commands whose effects were carried out.
func (s *State) AppendSnapshot(dst []byte) []byte {
	start := len(dst)
	w := writer{b: append(dst, snapshotVersion, bit(s.refusing, 1)|bit(s.quiescing, 2))}
	w.uvarint(uint64(s.now), uint64(s.lastID), idOf(s.active), idOf(s.exclusive), uint64(s.lockDue))
	for _, n := range s.stats.totals() {
		w.uvarint(*n)
	}
	octets, expiring := s.backlog()
	w.uvarint(octets, expiring, uint64(s.highest)+1)
	w.levels(&s.levels)
	w.uvarint(uint64(s.returns.Len()))
	for _, f := range s.returns.Range(0, s.turns) {
		w.message(f)
	}
	w.uvarint(uint64(len(s.delayed)))
	for _, x := range s.sortedDelayed() {
		w.uvarint(uint64(x.due))
		w.message(&x.flight)
	}
	w.uvarint(uint64(s.kept.Len()))
	for _, x := range s.kept.Range(0, s.keys) {
		w.b = append(w.b, byte(x.reason)|bit(x.marked, 0x80))
		w.message(&x.flight)
	}
	w.uvarint(uint64(len(s.consumers)))
	last := ConsumerID(0)
	for _, c := range s.consumers {
		w.uvarint(uint64(c.id - last))
		last = c.id
		w.consumer(c)
	}
	w.uvarint(uint64(s.listed))
	for _, g := range s.groups {
		for c := g.first; c != nil; {
			w.uvarint(uint64(c.id))
			if c = c.next; c == g.first {
				break
			}
		}
	}
	return binary.LittleEndian.AppendUint32(w.b, crc32.Checksum(w.b[start:], castagnoli))
}

// totals are the counts that only ever grow.
func (st *Stats) totals() [12]*uint64 {
	return [...]*uint64{
		&st.Published, &st.Delivered, &st.DeliveredNoAck, &st.Got, &st.GotNoAck, &st.GetEmpty, &st.Redelivered, &st.Acked,
		&st.Expired, &st.Rejected, &st.Dropped, &st.Returned,
	}
}

// backlog sums up what is ready behind the cursors.
func (s *State) backlog() (octets, expiring uint64) {
	octets, expiring = s.stats.ReadyBytes, s.expiring
	less := func(f *flight) {
		octets -= uint64(f.size)
		if f.expiry != 0 {
			expiring--
		}
	}
	for _, f := range s.returns.Range(0, s.turns) {
		less(f)
	}
	for _, lv := range s.levels.All() {
		for j := range lv.returned {
			less(&lv.returned[j])
		}
	}
	return octets, expiring
}

func idOf(c *consumer) uint64 {
	if c == nil {
		return 0
	}
	return uint64(c.id)
}

func bit(set bool, bit byte) byte {
	if set {
		return bit
	}
	return 0
}

// The bits of a message.
const (
	snapRedelivered = 1 << iota
	snapExpires
	snapCounts
	snapFollows
	snapSameSize
)

// writer appends the parts of a snapshot to b.
type writer struct {
	b    []byte
	seq  Seq    // of the message written last
	size uint32 // likewise
}

func (w *writer) uvarint(list ...uint64) {
	for _, n := range list {
		w.b = binary.AppendUvarint(w.b, n)
	}
}

func (w *writer) message(f *flight) {
	flags := bit(f.redelivered, snapRedelivered) | bit(f.expiry != 0, snapExpires) |
		bit(f.acquired|f.failed != 0, snapCounts) | bit(f.seq == w.seq+1, snapFollows) | bit(f.size == w.size, snapSameSize)
	w.b = append(w.b, flags)
	if flags&snapFollows == 0 {
		w.b = binary.AppendVarint(w.b, int64(f.seq-w.seq))
	}
	if flags&snapSameSize == 0 {
		w.uvarint(uint64(f.size))
	}
	if flags&snapExpires != 0 {
		w.uvarint(uint64(f.expiry))
	}
	if flags&snapCounts != 0 {
		w.uvarint(uint64(f.acquired), uint64(f.failed))
	}
	w.seq, w.size = f.seq, f.size
}

func (w *writer) levels(levels *Levels[level]) {
	unused := func(lv *level) bool { return lv.next == 1 && lv.again == 0 }
	n := 0
	for _, lv := range levels.All() {
		if !unused(lv) {
			n++
		}
	}
	w.uvarint(uint64(n))
	for i, lv := range levels.All() {
		if unused(lv) {
			continue
		}
		w.uvarint(uint64(i), lv.after, lv.next-lv.after, lv.again, lv.stored, uint64(len(lv.returned)))
		slices.SortFunc(lv.returned, bySeq) // still a heap
		for j := range lv.returned {
			w.message(&lv.returned[j])
		}
	}
}

func (w *writer) consumer(c *consumer) {
	w.b = append(w.b, bit(c.noAck, 1)|bit(c.getter, 2)|bit(c.cancelled, 4)|bit(c.blocked, 8)|bit(c.gated, 16)|bit(c.overdue, 32))
	w.b = binary.AppendVarint(w.b, int64(c.priority))
	w.uvarint(uint64(c.prefetch), uint64(c.window), uint64(c.room), c.session)
	w.b = binary.AppendVarint(w.b, c.timeout)
	w.uvarint(c.lastID, uint64(len(c.late)))
	last := DeliveryID(0)
	for _, r := range c.late {
		w.uvarint(r.First-last, r.Last-r.First)
		last = r.Last
	}
	w.uvarint(uint64(c.inFlight.Len()))
	last, locks, at := 0, c.locks, Time(0)
	for id, f := range c.inFlight.Range(0, c.lastID) {
		before := at
		for len(locks) > 0 && locks[0].first <= id {
			at, locks = locks[0].at, locks[1:]
		}
		if step := (id - last) << 1; at == before {
			w.uvarint(step)
		} else {
			w.uvarint(step|1, uint64(at))
		}
		w.message(f)
		last = id
	}
}

// RestoreSnapshot is the State whose snapshot is given: with the rules and limits of that one, and a log of what is in the
// queue, it answers every command as that one does. Errors wrap ErrRecord: the snapshot is damaged, or of another queue.
// Nothing of snapshot is kept.
func RestoreSnapshot(rules Rules, config Config, log Log, snapshot []byte) (*State, error) {
	n := len(snapshot) - 4
	if n < 0 || crc32.Checksum(snapshot[:n], castagnoli) != binary.LittleEndian.Uint32(snapshot[n:]) {
		return nil, fmt.Errorf("%w: snapshot of %d octets, wrong checksum", ErrRecord, len(snapshot))
	}
	r := reader{Reader: octet.Reader{B: snapshot[:n]}, s: New(rules, config, log)}
	if version := r.Octet(); version != snapshotVersion {
		return nil, fmt.Errorf("%w: snapshot of version %d", ErrRecord, version)
	}
	r.state()
	r.expect(!r.Bad && len(r.B) == 0, "snapshot does not end where it should")
	if r.err != nil {
		return nil, r.err
	}
	return r.s, nil
}

// reader takes the parts of a snapshot off b, and puts them into s.
type reader struct {
	octet.Reader
	s    *State
	seq  Seq
	size uint32
	err  error
}

// expect notes the first thing that cannot be.
func (r *reader) expect(ok bool, format string, args ...any) bool {
	if !ok && r.err == nil {
		r.err = fmt.Errorf("%w: "+format, append([]any{ErrRecord}, args...)...)
	}
	return ok
}

func (r *reader) time() Time { return Time(r.Most(1<<63 - 1)) }

func (r *reader) state() {
	s := r.s
	flags := r.Octet()
	r.expect(flags < 4, "snapshot with flags %x", flags)
	s.refusing, s.quiescing = flags&1 != 0, flags&2 != 0
	s.now = r.time()
	s.lastID = ConsumerID(r.U32())
	active, exclusive := ConsumerID(r.U32()), ConsumerID(r.U32())
	s.lockDue = r.time()
	for _, n := range s.stats.totals() {
		*n = r.Uvarint()
	}
	octets, expiring := r.Most(1<<63), r.Most(1<<63)
	stored := r.levels()
	r.expect(expiring <= stored && (stored > 0 || octets == 0), "%d of %d messages expire, all have %d octets", expiring, stored, octets)
	s.stats.ReadyBytes += octets
	s.expiring += expiring
	for n := r.Count(); n > 0 && !r.Bad; n-- {
		f := r.message()
		s.turns++
		s.returns.Append(s.turns, f)
		r.ready(&f)
	}
	r.expect(s.returns.Len() == 0 || s.rules.Requeue == Returns, "returns in a queue without")
	r.delayed()
	for n := r.Count(); n > 0 && !r.Bad; n-- {
		reason := r.Octet()
		x := kept{flight: r.message(), reason: Reason(reason &^ 0x80), marked: reason&0x80 != 0}
		if r.expect(x.reason <= DeliveryLimited && s.keptAt[x.seq] == 0, "%x died of reason %d", x.seq, reason) {
			s.keep(x)
		}
	}
	r.expect((s.config.KeepDiscards || s.kept.Len() == 0) && (s.soft || !s.refusing), "snapshot of a queue with other limits")
	for n := r.Count(); n > 0 && !r.Bad; n-- {
		r.consumer()
	}
	r.roles(active, exclusive)
	r.line()
}

func (r *reader) ready(f *flight) {
	st := &r.s.stats
	st.Ready++
	st.ReadyBytes += uint64(f.size)
	if f.expiry != 0 {
		r.s.expiring++
	}
}

func (r *reader) levels() (stored uint64) {
	s := r.s
	if n := r.Most(256); !r.expect(n == uint64(s.highest)+1, "%d levels, not %d", n, s.highest+1) {
		return 0
	}
	last := -1
	for n := r.Count(); n > 0 && !r.Bad; n-- {
		i := int(r.Most(255))
		if !r.expect(last < i && i <= int(s.highest), "level %d behind %d", i, last) {
			return 0
		}
		last = i
		lv := s.level(i)
		lv.after, lv.next = r.Most(maxPlace), r.Most(maxPlace)
		lv.next += lv.after
		lv.again, lv.stored = r.Most(maxPlace), r.Most(maxPlace)
		if !r.expect(lv.stored < lv.next-lv.after && lv.next <= maxPlace && lv.again <= lv.next,
			"level %d: cursor %d, next place %d, %d ready, redelivered below %d", i, lv.after, lv.next, lv.stored, lv.again) {
			return 0
		}
		stored += lv.stored
		for n := r.Count(); n > 0 && !r.Bad; n-- {
			f := r.message()
			j := len(lv.returned)
			r.expect(int(f.seq.Level()) == i && (j == 0 || lv.returned[j-1].seq < f.seq), "level %d: %x returned", i, f.seq)
			lv.returned = append(lv.returned, f)
			r.ready(&f)
		}
		r.expect(len(lv.returned) == 0 || s.rules.Requeue == Original, "level %d: messages returned to it", i)
		if lv.stored > 0 || len(lv.returned) > 0 {
			s.busy[i>>6] |= 1 << (i & 63)
		}
	}
	s.stats.Ready += stored
	return stored
}

// message reads a message, which must lie at or before its level's cursor.
func (r *reader) message() (f flight) {
	flags := r.Octet()
	f.seq, f.size, f.redelivered = r.seq+1, r.size, flags&snapRedelivered != 0
	if flags&snapFollows == 0 {
		f.seq = r.seq + Seq(r.Varint())
	}
	if flags&snapSameSize == 0 {
		f.size = r.U32()
	}
	if flags&snapExpires != 0 {
		f.expiry = r.time()
	}
	if flags&snapCounts != 0 {
		f.acquired, f.failed = r.U32(), r.U32()
	}
	i := int(f.seq.Level())
	lv := r.s.levels.Has(i)
	r.expect(flags < 32 && lv != nil && 0 < f.seq.place() && f.seq.place() <= lv.after,
		"message %x with flags %x", f.seq, flags)
	r.seq, r.size = f.seq, f.size
	return f
}

func (r *reader) delayed() {
	s := r.s
	for n := r.Count(); n > 0 && !r.Bad; n-- {
		x := delayed{due: r.time()}
		x.flight = r.message()
		j := len(s.delayed)
		r.expect(x.due != 0 && (j == 0 || byDue(s.delayed[j-1], x) < 0), "%x delayed until %d", x.seq, x.due)
		s.delayed = append(s.delayed, x) // ascending, and thus a heap
		s.stats.Delayed++
		s.stats.DelayedBytes += uint64(x.size)
	}
}

func (r *reader) consumer() {
	s := r.s
	c := &consumer{}
	if n := len(s.consumers); n > 0 {
		c.id = s.consumers[n-1].id
	}
	step := ConsumerID(r.U32())
	c.id += step
	flags := r.Octet()
	c.noAck, c.getter, c.cancelled, c.blocked, c.gated = flags&1 != 0, flags&2 != 0, flags&4 != 0, flags&8 != 0, flags&16 != 0
	c.overdue = flags&32 != 0
	priority := r.Varint()
	c.priority = int32(priority)
	c.prefetch, c.window, c.room, c.session = r.U32(), r.U32(), r.U32(), r.Uvarint()
	c.timeout, c.lastID = r.Varint(), r.Most(1<<63-1)
	if !r.expect(step > 0 && c.id >= step && c.id <= s.lastID && int64(c.priority) == priority && flags < 64 && c.room <= c.window,
		"consumer %d of %d", c.id, s.lastID) {
		return
	}
	last := DeliveryID(0)
	for n := r.Count(); n > 0 && !r.Bad; n-- {
		x := Range{First: last + r.Most(c.lastID-last)}
		x.Last = x.First + r.Most(c.lastID-x.First)
		r.expect(x.First > last, "consumer %d is late with %d", c.id, x)
		c.late = append(c.late, x)
		last = x.Last
	}
	last, at := 0, Time(0)
	for n := r.Count(); n > 0 && !r.Bad; n-- {
		step := r.Uvarint()
		id := last + step>>1
		if step&1 != 0 {
			at = r.time()
		}
		if !r.expect(last < id && id <= c.lastID, "consumer %d holds %d behind %d of %d", c.id, id, last, c.lastID) {
			return
		}
		last = id
		f := r.message()
		c.inFlight.Append(id, f)
		s.lock(c, id, at)
		s.stats.Unacked++
		s.stats.UnackedBytes += uint64(f.size)
	}
	r.expect(!c.cancelled || c.inFlight.Len() > 0 && len(c.late) == 0, "consumer %d is gone but remembered", c.id)
	s.consumers = append(s.consumers, c)
	if !c.getter && !c.cancelled {
		s.stats.Consumers++
		s.join(c)
	}
}

// roles finds the active and the exclusive consumer.
func (r *reader) roles(active, exclusive ConsumerID) {
	s := r.s
	role := func(id ConsumerID) *consumer {
		if id == 0 {
			return nil
		}
		c := s.consumer(id)
		if !r.expect(c != nil && c.group != nil, "consumer %d has a role", id) {
			return nil
		}
		return c
	}
	s.active, s.exclusive = role(active), role(exclusive)
	if s.active != nil {
		r.expect(s.config.SingleActive && len(s.active.late) == 0, "consumer %d is active", active)
	} else {
		r.expect(!s.quiescing && (!s.config.SingleActive || s.foremost() == nil), "no active consumer")
	}
}

// line puts the consumers in line.
func (r *reader) line() {
	s := r.s
	for n := r.Count(); n > 0 && !r.Bad; n-- {
		id := ConsumerID(r.U32())
		c := s.consumer(id)
		if !r.expect(c != nil && c.next == nil && s.able(c), "consumer %d stands in line", id) {
			return
		}
		s.enlist(c)
	}
	for _, c := range s.consumers {
		r.expect(s.able(c) == (c.next != nil), "consumer %d stands in line: %v", c.id, c.next != nil)
	}
}

package remote

import (
	"encoding/binary"

	"github.com/warrenmq/warren/octet"
	"github.com/warrenmq/warren/queue"
)

// home is what this node does for a peer's clients in some of its queues: it carries out the commands of the peer's lane,
// and its pipe takes the reports.
type home struct {
	pipe
	host *Host
	peer *peer

	// Guarded by mu.
	session     *session // nil: there is none, or it has ended
	boot, last  uint64   // boot and epoch of the last one
	broken      bool     // the peer sent nonsense; nothing is heard until the link begins anew
	appointment queue.Appointment

	// The reader's own.
	wakes    queue.Wake
	messages []queue.Message
	batch    queue.Batch
	ranges   []queue.Range
}

// session is the peer's lane in one epoch: what the peer's consumers have ends with it.
type session struct {
	home *home

	// Guarded by home.mu.
	ended     bool
	consumers map[uint32]*served
	watches   map[ID]*watch
	crowded   bool // the peer was told that there is no room here
}

// watch is a queue whose counts the peer wants to know.
type watch struct {
	queue queue.Queue
	until queue.Time
	told  queue.Stats
}

const (
	// watchStep and watchLasts are how often counts are told, and for how long, in milliseconds.
	watchStep, watchLasts = 1000, 10_000
)

func newHome(p *peer) *home {
	h := &home{host: p.host, peer: p}
	h.pool, h.kind = p.host.o.Pool, batchReports
	h.room = h.roomy
	return h
}

// begin returns the session of an epoch, nil if it is over.
func (h *home) begin(boot, epoch uint64) *session {
	s := h.peer.stream(reportsAt + h.number)
	h.mu.Lock()
	if h.bind(s) {
		h.broken = false
	}
	if h.broken {
		h.mu.Unlock()
		return nil
	}
	if boot == h.boot && epoch <= h.last {
		now := h.session
		if epoch < h.last {
			now = nil
		}
		h.waked = h.waked || now != nil // receive flushes
		h.mu.Unlock()
		return now
	}
	over := h.close()
	if !h.host.serves() { // noted, so that it can be ended
		h.boot, h.last, h.pipe.epoch = boot, epoch, epoch
		h.mu.Unlock()
		over.detach(h.pool)
		return nil
	}
	begun := &session{home: h, consumers: map[uint32]*served{}, watches: map[ID]*watch{}}
	h.session, h.boot, h.last, h.pipe.epoch, h.waked = begun, boot, epoch, epoch, true
	h.say = append(h.say[:0], batchReports) // with nothing in it
	h.mu.Unlock()
	over.detach(h.pool)
	return begun
}

// leftover is what an ended session leaves to be done without locks.
type leftover struct {
	messages  []queue.Message
	consumers []*served
}

// close ends the session. Called with mu.
func (h *home) close() (over leftover) {
	s := h.session
	if s == nil {
		return over
	}
	h.session, s.ended = nil, true
	over.messages = h.empty()
	for _, k := range s.consumers {
		k.gone = true
		for _, o := range k.waiting.waiting() {
			over.messages = append(over.messages, o.Message)
		}
		k.waiting, k.octets = fifo[queue.Offered]{}, 0
		if k.local != 0 {
			over.consumers = append(over.consumers, k)
		}
	}
	return over
}

// detach ends the consumers: what they hold returns, as failed.
func (o *leftover) detach(pool *queue.Pool) {
	releaseAll(pool, o.messages)
	var w queue.Wake
	for _, k := range o.consumers {
		k.queue.Detach(k.local, queue.Remove, &w, func() {})
	}
	w.Flush()
}

// end ends the session; with tell the peer hears of it when it can.
func (h *home) end(tell bool) {
	h.mu.Lock()
	ended := h.session != nil
	over := h.close()
	if tell && ended {
		h.say = append(h.say, batchEnded)
	}
	h.mu.Unlock()
	over.detach(h.pool)
	h.flush()
}

// serve ends the epoch that the peer has begun while this node did not serve: with the next one it is answered.
func (h *home) serve() {
	h.mu.Lock()
	if h.session == nil && h.last > 0 {
		h.say = append(h.say, batchEnded)
	}
	h.mu.Unlock()
	h.flush()
}

// anew forgets the epochs: the peer's next commands are the first of a new link.
func (h *home) anew() {
	h.end(false)
	h.mu.Lock()
	h.empty()
	h.boot, h.last, h.broken = 0, 0, false
	h.mu.Unlock()
}

// receive does what commands say. It returns false if they cannot be read.
func (h *home) receive(boot uint64, body []byte) bool {
	r := newReader(body)
	epoch := r.Uvarint()
	if r.Bad {
		return false
	}
	s := h.begin(boot, epoch)
	if s == nil {
		return true
	}
	for len(r.B) > 0 && !r.Bad {
		h.command(s, &r, &h.wakes)
	}
	h.wakes.Flush()
	h.flush()
	return !r.Bad
}

// write adds a report, unless the session has ended. Whoever calls it flushes, or has no Wake.
func (s *session) write(encode func(dst []byte) []byte) {
	h := s.home
	h.mu.Lock()
	defer h.mu.Unlock()
	s.put(encode)
}

// put is write with mu held.
func (s *session) put(encode func(dst []byte) []byte) {
	if !s.ended {
		s.home.pipe.write(encode)
		s.home.later()
	}
}

func (h *home) command(s *session, r *reader, w *queue.Wake) {
	c, id := command(r.Octet()), r.id()
	switch c {
	case cmdPublish:
		h.publish(s, id, r, w)
	case cmdAttach:
		h.attach(s, id, r, w)
	case cmdDetach:
		h.detach(s, r, w)
	case cmdReady:
		handle, passed, octets := r.U32(), r.U32(), r.U32()
		if k := s.consumer(handle); k != nil && !r.Bad && k.took(int(passed), int(octets)) {
			k.queue.Ready(k.local, w)
		}
	case cmdSettle:
		handle, o := r.U32(), queue.Outcome(r.Below(byte(queue.DiscardFailed)+1))
		h.ranges = r.ranges(h.ranges[:0])
		if k := s.consumer(handle); k != nil && !r.Bad {
			k.settled(h.ranges)
			k.queue.Settle(k.local, h.ranges, o, w)
		}
	case cmdGet:
		ask, handle, noAck := r.U32(), r.U32(), r.Below(2) == 1
		if !r.Bad {
			h.get(s, ask, s.consumer(handle), noAck, w)
		}
	case cmdPurge:
		ask := r.U32()
		if r.Bad {
			return
		}
		done := func(n uint64) {
			s.write(func(dst []byte) []byte { return binary.AppendUvarint(appendReport(dst, repPurged, uint64(ask)), n) })
		}
		if q := h.host.o.Find(id); q != nil {
			q.Purge(w, done)
		} else {
			done(0)
		}
	case cmdConfigure:
		config := queue.ReadConfig(&r.Reader)
		if r.Bad {
			return
		}
		if q := h.host.o.Find(id); q != nil {
			q.Configure(config, w)
		}
	case cmdDelete:
		ask, flags := r.U32(), r.Below(deleteFlags)
		if r.Bad {
			return
		}
		done := func(n uint64, err error) {
			s.write(func(dst []byte) []byte {
				return append(binary.AppendUvarint(appendReport(dst, repDeleted, uint64(ask)), n), byte(codeOf(err)))
			})
		}
		if q := h.host.o.Find(id); q != nil {
			q.Delete(flags&deleteIfUnused != 0, flags&deleteIfEmpty != 0, w, done)
		} else {
			done(0, queue.ErrDeleted)
		}
	case cmdForget:
		if r.Bad {
			return
		}
		if q := h.host.o.Find(id); q != nil {
			q.Forget(w)
		}
	case cmdStats:
		ask := r.U32()
		if !r.Bad {
			s.tell(uint64(ask), id, h.host.o.Find(id))
		}
	case cmdWatch:
		if r.Bad {
			return
		}
		if q := h.host.o.Find(id); q != nil {
			s.watch(id, q)
		}
	default:
		r.Fail()
	}
}

// consumer finds one that is attached, or nil.
func (s *session) consumer(handle uint32) *served {
	s.home.mu.Lock()
	defer s.home.mu.Unlock()
	if k := s.consumers[handle]; k != nil && k.local != 0 {
		return k
	}
	return nil
}

func (h *home) publish(s *session, id ID, r *reader, w *queue.Wake) {
	first := r.Most(1<<63 - 1)
	ms, octets := h.messages[:0], uint64(0)
	for n := r.Count(); n > 0 && !r.Bad; n-- {
		m := r.meta()
		octets += uint64(m.Ref.Len)
		ms = append(ms, m)
	}
	h.messages = ms
	body := r.Take(octets)
	if r.Bad || len(ms) == 0 {
		return
	}
	b := &h.batch
	*b = queue.Batch{Messages: ms, Numbers: b.Numbers[:0]}
	if first > 0 {
		b.Confirms = s
		for i := range ms {
			b.Numbers = append(b.Numbers, first+uint64(i))
		}
	}
	q := h.host.o.Find(id)
	if q == nil { // deleted, or the peer knows of it before this node does
		if first > 0 {
			s.Settled([]queue.Range{{First: first, Last: first + uint64(len(ms)) - 1}}, false, w)
		}
		return
	}
	place(h.pool, ms, itself, body)
	q.Publish(b, w)
	if b.Pressed {
		s.write(func(dst []byte) []byte { return appendID(append(dst, byte(repPressed)), id) })
	}
	if h.pool.Full(queue.BlockedByLinks) {
		s.crowd()
	}
	if cap(ms) > keepItems {
		h.messages, h.batch = nil, queue.Batch{}
	}
}

// crowd has the peer's publishers wait until there is room here. What this node waits for at others is no reason: two that wait for
// each other would do so for ever.
func (s *session) crowd() {
	h := s.home
	h.mu.Lock()
	was := s.crowded || s.ended
	if !was {
		s.crowded = true
		s.put(func(dst []byte) []byte { return append(dst, byte(repFull), 1) })
	}
	h.mu.Unlock()
	if was {
		return
	}
	h.pool.WaitForRoom(queue.BlockedByLinks, func() {
		h.mu.Lock()
		s.crowded = false
		s.put(func(dst []byte) []byte { return append(dst, byte(repFull), 0) })
		h.mu.Unlock()
	})
}

// Settled implements queue.Confirms for everything that the session publishes.
func (s *session) Settled(ranges []queue.Range, ok bool, w *queue.Wake) {
	h := s.home
	h.mu.Lock()
	defer h.mu.Unlock()
	if !s.ended {
		before := len(h.text.list)
		h.text.list = queue.AppendRanges(append(h.text.list, byte(repSettled), octet.Of(ok)), ranges)
		h.wrote(before)
		h.wake(w)
	}
}

func (h *home) attach(s *session, id ID, r *reader, w *queue.Wake) {
	handle, flags := r.U32(), r.Below(attachFlags)
	spec := queue.ConsumerSpec{NoAck: flags&attachNoAck != 0, Exclusive: flags&attachExclusive != 0, Getter: flags&attachGetter != 0}
	spec.Prefetch, spec.Priority = r.U32(), int32(r.Varint())
	window := r.Most(1 << 30)
	spec.Timeout, spec.Session = r.Varint(), r.Uvarint()
	if r.Bad {
		return
	}
	k := &served{session: s, handle: handle, noAck: spec.NoAck, window: windowOf(int(window))}
	spec.Window = uint32(window)
	h.mu.Lock()
	if s.consumers[handle] != nil {
		r.Fail()
	} else if !s.ended {
		s.consumers[handle] = k
	}
	h.mu.Unlock()
	if r.Bad {
		return
	}
	done := func(local queue.ConsumerID, err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if err != nil {
			delete(s.consumers, handle)
		} else if k.local = local; s.ended {
			h.host.undoing.Go(func() { (&leftover{consumers: []*served{k}}).detach(h.pool) })
		}
		s.put(func(dst []byte) []byte {
			return append(appendReport(dst, repAttached, uint64(handle)), byte(codeOf(err)))
		})
	}
	if k.queue = h.host.o.Find(id); k.queue == nil {
		done(0, queue.ErrDeleted)
		return
	}
	k.queue.Attach(spec, k, w, done)
}

func (h *home) detach(s *session, r *reader, w *queue.Wake) {
	ask, handle, how := r.U32(), r.U32(), queue.Detachment(r.Below(byte(queue.Remove)+1))
	if r.Bad {
		return
	}
	answer := func(dst []byte) []byte { return appendReport(dst, repDetached, uint64(ask)) }
	k := s.consumer(handle)
	switch {
	case k == nil:
		s.write(answer)
	case how == queue.Cancel:
		k.queue.Detach(k.local, how, w, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			k.finish()
			s.put(answer)
			if k.cancelled = true; k.held <= 0 {
				delete(s.consumers, handle)
			}
		})
	default:
		h.mu.Lock()
		k.gone = true
		var ms []queue.Message
		for _, o := range k.waiting.waiting() {
			ms = append(ms, o.Message)
		}
		k.waiting, k.octets = fifo[queue.Offered]{}, 0
		delete(s.consumers, handle)
		h.mu.Unlock()
		releaseAll(h.pool, ms)
		k.queue.Detach(k.local, how, w, func() { s.write(answer) })
	}
}

// get takes a message for a getter, which may be nil. The answer may come later, on another goroutine.
func (h *home) get(s *session, ask uint32, k *served, noAck bool, w *queue.Wake) {
	done := func(o queue.Offered, ready uint64, ok bool) {
		h.mu.Lock()
		if s.ended {
			h.mu.Unlock()
			if ok {
				h.pool.Release(o.Message.Ref.Slab, 1)
			}
			return
		}
		s.put(func(dst []byte) []byte {
			dst = binary.AppendUvarint(appendReport(dst, repGot, uint64(ask)), ready)
			dst = append(dst, octet.Of(ok))
			if ok {
				dst = appendOffered(dst, &o, 0)
			}
			return dst
		})
		if ok {
			h.body(o.Message)
			if !noAck {
				k.held++
			}
		}
		h.mu.Unlock()
	}
	if k == nil {
		done(queue.Offered{}, 0, false)
		return
	}
	k.queue.Get(k.local, noAck, w, done)
}

// tell tells the counts of a queue, nil if there is none, in answer to a question or, with 0, to none.
func (s *session) tell(ask uint64, id ID, q queue.Queue) {
	var stats queue.Stats
	err := error(queue.ErrDeleted)
	if q != nil {
		stats, err = q.Stats(), nil
	}
	s.home.mu.Lock()
	defer s.home.mu.Unlock()
	s.count(ask, id, q, err, &stats)
}

// count tells counts. Called with home.mu.
func (s *session) count(ask uint64, id ID, q queue.Queue, err error, stats *queue.Stats) {
	active := uint32(0)
	if stats.Active != 0 { // on the peer it goes by another number, if it is there at all
		for _, k := range s.consumers {
			if k.queue == q && k.local == stats.Active {
				active = k.handle
			}
		}
	}
	s.put(func(dst []byte) []byte {
		dst = append(appendID(appendReport(dst, repStats, ask), id), byte(codeOf(err)))
		return appendStats(dst, stats, active)
	})
}

// watch has the counts of a queue be told now, and when they change.
func (s *session) watch(id ID, q queue.Queue) {
	stats, now := q.Stats(), s.home.host.o.Clock.Now()
	s.home.mu.Lock()
	defer s.home.mu.Unlock()
	s.watches[id] = &watch{q, now + watchLasts, stats}
	s.count(0, id, q, nil, &stats)
	s.home.host.o.Clock.Set(&s.home.appointment, s.home, now+watchStep)
}

// Tick implements queue.Ticker: it tells what has changed.
func (h *home) Tick(now queue.Time) {
	h.mu.Lock()
	s := h.session
	if s == nil {
		h.mu.Unlock()
		return
	}
	list := make(map[ID]*watch, len(s.watches))
	for id, x := range s.watches {
		if x.until < now {
			delete(s.watches, id)
		} else {
			list[id] = x
		}
	}
	h.mu.Unlock()
	for id, x := range list {
		stats := x.queue.Stats()
		h.mu.Lock()
		if stats != x.told {
			x.told = stats
			s.count(0, id, x.queue, nil, &stats)
		}
		h.mu.Unlock()
	}
	if len(list) > 0 {
		h.mu.Lock()
		h.host.o.Clock.Set(&h.appointment, h, now+watchStep)
		h.mu.Unlock()
	}
}

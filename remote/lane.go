package remote

import (
	"github.com/warrenmq/warren/queue"
)

// ErrDown says that the node where a queue lives cannot be reached.
var ErrDown = queue.ErrDown

const (
	// pressedOctets is what waits in a lane before its publishers slow down.
	pressedOctets = 4 << 20
	// watchRenewed is after how long, in milliseconds, a home is asked again to tell the counts.
	watchRenewed = 4000
	// pressedFor is for how many milliseconds publishers are slowed down when a queue's consumers cannot keep up.
	pressedFor = 20
)

// lane is what this node's clients ask of some of the queues of a peer: the pipe of the commands, and what the reports that
// come back are for. Numbers of consumers, asks and publishes are given out once in its life, so that a report of an
// epoch that is over finds nothing.
type lane struct {
	pipe
	host *Host
	peer *peer

	// Guarded by mu.
	up         bool // the home can be reached: the peer is up, and has answered to this epoch
	peerUp     bool
	answered   bool
	broken     bool // it sent nonsense; nothing is heard until the link begins anew
	queues     map[ID]*Queue
	consumers  map[uint32]*consumer
	lastHandle uint32
	asks       map[uint32]ask
	lastAsk    uint32
	open       fifo[open]
	firstOpen  uint64 // number of the first one in open
	crowded    bool   // the home has no room

	// The reader's own.
	wakes    queue.Wake
	heard    []heard
	ranges   []queue.Range
	offereds []queue.Offered
}

// open is a publish that waits for its confirm; confirms is nil when it has it.
type open struct {
	confirms queue.Confirms
	number   uint64
}

// heard are publishes of a channel that have been settled.
type heard struct {
	confirms queue.Confirms
	ranges   []queue.Range
}

// ask is a question to the home. One of the functions is set.
type ask struct {
	answer   report // what answers it
	detached func()
	got      func(queue.Offered, uint64, bool)
	purged   func(uint64)
	deleted  func(uint64, error)
	stats    func(queue.Stats, error)
	handle   uint32 // of detached
}

// fail answers it for a home that is down.
func (a *ask) fail() {
	switch {
	case a.detached != nil:
		a.detached()
	case a.got != nil:
		a.got(queue.Offered{}, 0, false)
	case a.purged != nil:
		a.purged(0)
	case a.deleted != nil:
		a.deleted(0, ErrDown)
	case a.stats != nil:
		a.stats(queue.Stats{}, ErrDown)
	}
}

func newLane(p *peer) *lane {
	l := &lane{host: p.host, peer: p, queues: map[ID]*Queue{}, consumers: map[uint32]*consumer{}, asks: map[uint32]ask{}, firstOpen: 1}
	l.pool, l.kind, l.epoch = p.host.o.Pool, batchCommands, 1
	l.room = l.roomy
	l.load = func(octets int) { p.load.Add(int64(octets)) }
	l.after = p.press
	return l
}

// opened is told that the peer is up.
func (l *lane) opened() {
	l.mu.Lock()
	if l.bind(l.peer.stream(commandsAt + l.number)) {
		l.broken, l.answered = false, false
		l.say = append(l.say[:0], batchCommands)
	}
	l.peerUp = true
	l.up = l.answered && !l.broken
	l.mu.Unlock()
	l.flush()
}

// end ends the epoch: what it has not brought will not come. The home hears of the next one, and it begins when the home has
// answered. With down the peer is not up any more.
func (l *lane) end(down bool) {
	l.mu.Lock()
	l.peerUp, l.answered, l.up = l.peerUp && !down, false, false
	l.epoch++
	ms := l.empty()
	list := l.open.waiting()
	l.firstOpen += uint64(l.open.len())
	l.open = fifo[open]{}
	asks, consumers := l.asks, l.consumers
	l.asks, l.consumers = map[uint32]ask{}, map[uint32]*consumer{}
	l.say = append(l.say, batchCommands)
	l.crowd(false)
	l.mu.Unlock()
	releaseAll(l.pool, ms)
	l.peer.press()

	var w queue.Wake
	var nacked heard
	for _, o := range list {
		if o.confirms == nil {
			continue
		}
		if o.confirms != nacked.confirms {
			nacked.tell(false, &w)
			nacked = heard{confirms: o.confirms}
		}
		nacked.ranges = appendNumber(nacked.ranges, o.number)
	}
	nacked.tell(false, &w)
	for _, c := range consumers {
		c.lost(&w)
	}
	for _, a := range asks {
		a.fail()
	}
	w.Flush()
	l.flush()
}

func (h *heard) tell(ok bool, w *queue.Wake) {
	if len(h.ranges) > 0 {
		h.confirms.Settled(h.ranges, ok, w)
	}
}

// crowd is told whether the home has room. Called with mu.
func (l *lane) crowd(on bool) {
	if l.crowded != on {
		l.crowded = on
		if on {
			l.peer.crowded.Add(1)
		} else {
			l.peer.crowded.Add(-1)
		}
	}
}

// ended is told that the home has ended the epoch.
func (l *lane) ended(body []byte) bool {
	r := newReader(body)
	epoch := r.Uvarint()
	l.mu.Lock()
	current := epoch == l.epoch
	l.mu.Unlock()
	if current && !r.Bad {
		l.end(false)
	}
	return !r.Bad
}

// receive does what reports say. It returns false if they cannot be read.
func (l *lane) receive(body []byte) bool {
	r := newReader(body)
	epoch := r.Uvarint()
	l.mu.Lock()
	current := epoch == l.epoch && !l.broken
	if current {
		l.answered, l.up = true, l.peerUp
	}
	l.mu.Unlock()
	if !current {
		return !r.Bad
	}
	for len(r.B) > 0 && !r.Bad {
		l.report(&r, &l.wakes)
	}
	l.wakes.Flush()
	l.peer.press()
	return !r.Bad
}

func (l *lane) report(r *reader, w *queue.Wake) {
	switch report(r.Octet()) {
	case repSettled:
		l.settled(r, w)
	case repDeliver:
		l.deliver(r, w)
	case repAttached:
		handle, err := r.U32(), r.err()
		if !r.Bad {
			l.attached(handle, err)
		}
	case repDetached:
		l.detached(l.answer(r, repDetached), w)
	case repGot:
		l.got(r)
	case repPurged:
		a, n := l.answer(r, repPurged), r.Uvarint()
		if a.purged != nil {
			a.purged(n)
		}
	case repDeleted:
		a, n, err := l.answer(r, repDeleted), r.Uvarint(), r.err()
		if a.deleted != nil {
			a.deleted(n, err)
		}
	case repStats:
		a, id, err, s := l.answer(r, repStats), r.id(), r.err(), r.stats()
		l.mu.Lock()
		q := l.queues[id]
		l.mu.Unlock()
		if q != nil && err == nil && !r.Bad {
			q.told(s)
		}
		if a.stats != nil {
			a.stats(s, err)
		}
	case repCancelled:
		if c := l.take(r.U32()); c != nil {
			c.cancelled(w)
		}
	case repTimedOut:
		if c := l.consumer(r.U32()); c != nil {
			c.out.TimedOut(w)
		}
	case repActivity:
		c, active := l.consumer(r.U32()), r.Below(2) == 1
		if c != nil && !r.Bad {
			c.mu.Lock()
			if !c.gone {
				c.out.Activity(active)
			}
			c.mu.Unlock()
		}
	case repPressed:
		id := r.id()
		l.mu.Lock()
		q := l.queues[id]
		l.mu.Unlock()
		if q != nil {
			q.pressed.Store(int64(l.host.o.Clock.Now()) + pressedFor)
		}
	case repFull:
		on := r.Below(2) == 1
		l.mu.Lock()
		if !r.Bad && l.up {
			l.crowd(on)
		}
		l.mu.Unlock()
	default:
		r.Fail()
	}
}

// answer takes the number of a question that is answered by such a report and finds it, once.
func (l *lane) answer(r *reader, by report) ask {
	n := r.U32()
	l.mu.Lock()
	defer l.mu.Unlock()
	a, asked := l.asks[n]
	if asked && a.answer != by {
		r.Fail()
		return ask{}
	}
	delete(l.asks, n)
	return a
}

// consumer finds one that is attached, or nil.
func (l *lane) consumer(handle uint32) *consumer {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.consumers[handle]; c != nil && c.attached {
		return c
	}
	return nil
}

// take finds one that is attached and does not wait for the answer to a Detach, and takes it out.
func (l *lane) take(handle uint32) *consumer {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.consumers[handle]
	if c == nil || !c.attached || c.detaching {
		return nil
	}
	delete(l.consumers, handle)
	return c
}

// settled tells the channels what became of their publishes.
func (l *lane) settled(r *reader, w *queue.Wake) {
	ok := r.Below(2) == 1
	l.ranges = r.ranges(l.ranges[:0])
	if r.Bad {
		return
	}
	heard := l.heard[:0]
	l.mu.Lock()
	for _, s := range l.ranges {
		if s.Last >= l.firstOpen+uint64(l.open.len()) {
			r.Fail()
			break
		}
		for n := max(s.First, l.firstOpen); n <= s.Last; n++ {
			o := l.open.at(int(n - l.firstOpen))
			if o.confirms == nil {
				continue
			}
			k := len(heard)
			if k == 0 || heard[k-1].confirms != o.confirms {
				if heard = heard[:min(k+1, cap(heard))]; len(heard) == k {
					heard = append(heard, l.noneHeard())
				}
				heard[k].confirms, heard[k].ranges = o.confirms, heard[k].ranges[:0]
				k++
			}
			heard[k-1].ranges = appendNumber(heard[k-1].ranges, o.number)
			o.confirms = nil
		}
	}
	n := 0
	for n < l.open.len() && l.open.at(n).confirms == nil {
		n++
	}
	l.open.drop(n)
	l.firstOpen += uint64(n)
	l.mu.Unlock()
	for i := range heard {
		heard[i].tell(ok, w)
		heard[i].confirms = nil
	}
	l.heard = heard[:0]
}

func (l *lane) noneHeard() heard { return heard{ranges: make([]queue.Range, 0, 4)} }

// deliver gives deliveries to their consumer.
func (l *lane) deliver(r *reader, w *queue.Wake) {
	c := l.consumer(r.U32())
	ds, octets, last := l.offereds[:0], uint64(0), uint64(0)
	for n := r.Count(); n > 0 && !r.Bad; n-- {
		o := r.offered(last)
		last = o.ID
		octets += uint64(o.Message.Ref.Len)
		ds = append(ds, o)
	}
	l.offereds = ds
	b := r.Take(octets)
	if r.Bad || c == nil || len(ds) == 0 {
		return
	}
	place(l.pool, ds, messageOf, b)
	if !c.offered(ds, w) {
		release := queue.Releaser{Pool: l.pool}
		for i := range ds {
			release.Add(ds[i].Message.Ref.Slab)
		}
		release.Flush()
	}
	if cap(ds) > keepItems {
		l.offereds = nil
	}
}

// attached takes the answer to an Attach.
func (l *lane) attached(handle uint32, err error) {
	l.mu.Lock()
	c := l.consumers[handle]
	l.mu.Unlock()
	if c == nil {
		return
	}
	c.mu.Lock() // before done has returned nobody else tells the outlet anything
	defer c.mu.Unlock()
	l.mu.Lock()
	done := c.done
	if l.consumers[handle] != c || done == nil {
		l.mu.Unlock()
		return
	}
	c.done, c.attached = nil, err == nil
	if err != nil {
		delete(l.consumers, handle)
	}
	l.mu.Unlock()
	if err != nil {
		done(0, err)
	} else {
		done(queue.ConsumerID(handle), nil)
	}
}

// detached takes the answer to a Detach.
func (l *lane) detached(a ask, w *queue.Wake) {
	if a.detached == nil {
		return
	}
	l.mu.Lock()
	c := l.consumers[a.handle]
	if c != nil && c.attached {
		delete(l.consumers, a.handle)
	} else {
		c = nil
	}
	l.mu.Unlock()
	if c != nil {
		if back := c.end(w); len(back) > 0 {
			c.queue.Settle(queue.ConsumerID(a.handle), back, queue.Return, w)
		}
	}
	a.detached()
}

func (l *lane) got(r *reader) {
	a, left, ok := l.answer(r, repGot), r.Uvarint(), r.Below(2) == 1
	if !ok {
		if a.got != nil {
			a.got(queue.Offered{}, 0, false)
		}
		return
	}
	o := r.offered(0)
	b := r.Take(uint64(o.Message.Ref.Len))
	if a.got == nil {
		return
	}
	if r.Bad {
		a.got(queue.Offered{}, 0, false)
		return
	}
	one := [1]queue.Offered{o}
	place(l.pool, one[:], messageOf, b)
	a.got(one[0], left, true)
}

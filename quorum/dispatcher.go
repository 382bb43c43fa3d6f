package quorum

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/storage"
)

// readOctets is how much the dispatcher reads from a run at a time.
const readOctets = queue.SlabSize

// maxTries is how often dead letters are read when that fails: everything else waits meanwhile.
const maxTries = 10

// retryRead is how long a read that failed rests.
const retryRead = 100 * time.Millisecond

// dispatcher carries out what the machine asks for, on one goroutine: deliveries and answers have one order.
type dispatcher struct {
	machine  *machine
	proposer *proposer
	pool     *queue.Pool
	log      *slog.Logger
	leads    func() // called when this node has come to lead; nil: nobody wants to know
	wake     queue.Wake
	offers   []queue.Offered
	ranges   []queue.Range
	refused  []queue.Range
	letters  []queue.DeadLetter
	release  queue.Releaser
	rounds   []*round
	ready    []*consumer
	cursor   *storage.Cursor
	chunks   []queue.Ref
	settling []*consumer // that have taken messages they do not acknowledge
}

func newDispatcher(m *machine, p *proposer) *dispatcher {
	return &dispatcher{machine: m, proposer: p, pool: m.pool, log: m.log, release: queue.Releaser{Pool: m.pool}}
}

// run works until quit is closed and nothing is left.
func (d *dispatcher) run(quit <-chan struct{}) {
	for {
		d.step()
		select {
		case <-d.machine.ring.kick:
		case <-quit:
			d.step()
			return
		}
	}
}

// step carries out what has gathered.
func (d *dispatcher) step() {
	ring := d.machine.ring
	d.rounds, d.ready = ring.take(d.rounds[:0], d.ready[:0])
	for i, r := range d.rounds {
		d.carryOut(r)
		ring.recycle(r)
		d.rounds[i] = nil
	}
	for i, c := range d.ready {
		d.goOn(c)
		d.ready[i] = nil
	}
	for i, c := range d.settling {
		d.settleTaken(c)
		d.settling[i] = nil
	}
	d.settling = d.settling[:0]
	d.release.Flush()
	d.wake.Flush()
}

// carryOut does what a round asks for: what stands in its commands' order first, the confirms last.
func (d *dispatcher) carryOut(r *round) {
	var b *batch
	if r.mine {
		b = d.proposer.Claim(r.number)
	}
	for i := range r.ops {
		x := &r.ops[i]
		switch x.kind {
		case opResult:
			answer := &r.answer.results[x.from]
			if b != nil && int(answer.ordinal) < len(b.waiters) {
				b.waiters[answer.ordinal](d, answer)
			} else if answer.body.Size > 0 || answer.body.Ref.Len > 0 {
				d.release.Add(answer.body.Ref.Slab)
			}
		case opDeliver:
			d.deliver(x.queue, x.consumer, r.deliveries[x.from:x.to])
		case opLetters:
			d.bury(x.queue, r.letters[x.from:x.to])
		case opTimedOut:
			d.dropTimedOut(x.queue, x.consumer, x.ids)
		case opCancel:
			if c := x.queue.forget(x.consumer); c != nil {
				c.out.Cancelled(&d.wake)
			}
		case opLeft:
			x.queue.left(x.consumer)
		case opActivity:
			x.queue.activity(x.consumer, x.active)
		case opContinue:
			x.queue.propose(cmdContinue)
		case opReload:
			d.reload(r.reload)
		case opLeads:
			if d.leads != nil {
				d.leads()
			}
		case opDeleted, opEnded:
			for _, c := range x.queue.end() {
				c.out.Cancelled(&d.wake)
			}
		}
	}
	if b != nil {
		d.confirm(b, r.answer.refused)
		d.proposer.Finish(b)
	}
}

// confirm tells publishers what became of a batch, those of one channel that follow each other together.
func (d *dispatcher) confirm(b *batch, refused []refusal) {
	for i := 0; i < len(b.publishes); {
		to := b.publishes[i].confirms
		ok, not := d.ranges[:0], d.refused[:0]
		for ; i < len(b.publishes) && b.publishes[i].confirms == to; i++ {
			p := &b.publishes[i]
			if len(refused) == 0 || refused[0].publish != uint32(i) {
				for _, r := range b.numbers[p.from:p.to] {
					ok = appendRange(ok, r)
				}
				continue
			}
			index := uint32(0)
			for _, r := range b.numbers[p.from:p.to] {
				for n := r.First; n <= r.Last; n++ {
					if len(refused) > 0 && refused[0] == (refusal{uint32(i), index}) {
						refused = refused[1:]
						not = appendRange(not, queue.Range{First: n, Last: n})
					} else {
						ok = appendRange(ok, queue.Range{First: n, Last: n})
					}
					index++
				}
			}
			for len(refused) > 0 && refused[0].publish == uint32(i) { // of a channel without confirms
				refused = refused[1:]
			}
		}
		if to != nil && len(ok) > 0 {
			to.Settled(ok, true, &d.wake)
		}
		if to != nil && len(not) > 0 {
			to.Settled(not, false, &d.wake)
		}
		d.ranges, d.refused = ok, not
	}
}

// appendRange appends r, as part of the last range where it continues that.
func appendRange(rs []queue.Range, r queue.Range) []queue.Range {
	if n := len(rs); n > 0 && rs[n-1].Last+1 == r.First {
		rs[n-1].Last = r.Last
		return rs
	}
	return append(rs, r)
}

// deliver offers messages to a consumer, or keeps their ids until there is room for them.
func (d *dispatcher) deliver(q *Queue, id queue.ConsumerID, ds []delivery) {
	q.mu.Lock()
	c := q.consumers[id]
	if c != nil && len(ds) > 0 {
		c.last = ds[len(ds)-1].id
	}
	if c == nil || c.blocked || len(c.pending) > 0 {
		if c != nil {
			for i := range ds {
				c.pending = append(c.pending, pendingOf(&ds[i]))
			}
		}
		q.mu.Unlock()
		for i := range ds {
			if ds[i].held {
				d.release.Add(ds[i].message.Ref.Slab)
			}
		}
		return
	}
	n := 0
	for n < len(ds) && ds[n].held {
		n++
	}
	d.offer(c, ds[:n])
	for i := n; i < len(ds); i++ {
		c.pending = append(c.pending, pendingOf(&ds[i]))
		if ds[i].held {
			d.release.Add(ds[i].message.Ref.Slab)
		}
	}
	more := len(c.pending) > 0 && !c.blocked
	q.mu.Unlock()
	if more {
		d.goOn(c)
	}
}

// offer hands messages to a consumer's outlet. Called with the queue's lock.
func (d *dispatcher) offer(c *consumer, ds []delivery) {
	if len(ds) == 0 {
		return
	}
	offers := d.offers[:0]
	for i := range ds {
		x := &ds[i]
		offers = append(offers, queue.Offered{Message: d.outward(x.message), ID: x.id, Redelivered: x.redelivered, Acquired: x.acquired, Failed: x.failed})
	}
	d.offers = offers
	c.blocked = !c.out.Offer(offers, &d.wake)
	if c.noAck {
		if len(c.taken) == 0 {
			d.settling = append(d.settling, c)
		}
		for i := range ds {
			c.taken = appendRange(c.taken, queue.Range{First: ds[i].id, Last: ds[i].id})
		}
	}
}

// goOn offers what waits for a consumer, as long as there is room.
func (d *dispatcher) goOn(c *consumer) {
	const step = 256
	q := c.queue
	for {
		q.mu.Lock()
		c.posted = false
		if c.gone || c.blocked || len(c.pending) == 0 {
			q.mu.Unlock()
			return
		}
		next := append([]pending(nil), c.pending[:min(step, len(c.pending))]...)
		q.mu.Unlock()
		ds, damaged, err := d.fetch(q, next)
		if err != nil { // of the disk: it may pass
			d.log.Error("messages on disk cannot be read; it will be tried again", "queue", q.id, "error", err.Error())
			time.AfterFunc(retryRead, func() { d.machine.ring.post(c) })
			return
		}
		q.mu.Lock()
		n := 0
		for i := range ds {
			if ds[i].held {
				ds[n] = ds[i]
				n++
			}
		}
		c.pending = append(c.pending[:0], c.pending[len(ds):]...)
		d.offer(c, ds[:n])
		q.mu.Unlock()
		if len(damaged) > 0 {
			q.settle(c.id, damaged, queue.Ack)
		}
	}
}

// settleTaken acknowledges for a consumer what its connection has taken.
func (d *dispatcher) settleTaken(c *consumer) {
	c.queue.mu.Lock()
	taken := c.taken
	c.taken = nil
	c.queue.mu.Unlock()
	if len(taken) > 0 {
		c.queue.settle(c.id, taken, outcomeTaken)
	}
}

// fetch finds the first of the messages that wait, in memory or on disk, with a reference each. It returns fewer than asked
// for where that is less work, but at least one. Some may not be there: damaged are the ids of those that cannot be read
// any more; others have left the queue, because the machine took them from the consumer, who will hear of it.
func (d *dispatcher) fetch(q *Queue, next []pending) (ds []delivery, damaged []queue.Range, err error) {
	ds = make([]delivery, 0, len(next))
	cold := false
	m := d.machine
	m.mu.Lock()
	r := m.queues[q.id]
	var log storage.LogID
	if r != nil {
		log = r.log.id
	}
	for i := range next {
		x := next[i].delivery()
		if r != nil {
			x.message, x.held = r.log.find(x.seq)
		}
		if x.held {
			m.pool.Hold(x.message.Ref.Slab, 1)
		} else if cold = r != nil; cold {
			break
		}
		ds = append(ds, x)
	}
	m.mu.Unlock()
	if len(ds) > 0 || !cold {
		return ds, nil, nil
	}
	const gap = 16
	to := 1 // those that lie close to each other on disk are read at once
	for to < len(next) && next[to].seq > next[to-1].seq && next[to].seq-next[to-1].seq <= gap {
		to++
	}
	for i := range next[:to] {
		ds = append(ds, next[i].delivery())
	}
	n := 0
	last, damage, err := d.read(log, queue.SeqRange{First: ds[0].seq, Last: ds[to-1].seq}, func(seq queue.Seq, msg queue.Message) bool {
		for n < len(ds) && ds[n].seq < seq {
			n++
		}
		if n == len(ds) || ds[n].seq != seq {
			return false
		}
		ds[n].message, ds[n].held = msg, true
		return true
	})
	if err != nil {
		return nil, nil, err
	}
	n = 0
	for n < len(ds) && ds[n].seq <= last {
		if x := &ds[n]; !x.held && damage != nil && damage.First <= uint64(x.seq) && uint64(x.seq) <= damage.Last {
			damaged = appendRange(damaged, queue.Range{First: x.id, Last: x.id})
		}
		n++
	}
	return ds[:n], damaged, nil
}

// read reads messages of a queue's log from disk, from the first of a range on and as many as are read at a time. wants is told
// of each, in ascending order, and says whether it keeps the reference. What is up to last has been seen, or is not there.
func (d *dispatcher) read(log storage.LogID, r queue.SeqRange, wants func(queue.Seq, queue.Message) bool) (last queue.Seq, damage *storage.RunDamage, err error) {
	if d.cursor == nil {
		d.cursor = d.machine.disk.runs.Cursor(log)
	} else {
		d.cursor.Reset(log)
	}
	last = r.First
	n, err := d.cursor.Read(uint64(r.First), uint64(r.Last), readOctets, d.alloc, func(chunk, offset int, rec storage.Record) {
		at := d.chunks[chunk]
		msg := queue.Message{
			Ref:  queue.Ref{Slab: at.Slab, Off: at.Off + uint32(offset), Len: uint32(len(rec.Bytes))},
			Size: rec.Size, TTL: -1, Priority: rec.Priority, Flags: queue.Flags(rec.Flags),
		}
		last = queue.Seq(rec.Seq)
		if wants(last, msg) {
			d.pool.Hold(at.Slab, 1)
		}
	})
	for _, ref := range d.chunks {
		d.pool.Release(ref.Slab, 1)
	}
	d.chunks = d.chunks[:0]
	switch {
	case errors.As(err, &damage):
		d.log.Error("messages of a quorum queue on disk are lost", "error", err.Error())
		return min(r.Last, max(last, queue.Seq(damage.Last))), damage, nil
	case err != nil:
		return 0, nil, err
	case n == 0:
		return r.Last, nil, nil
	}
	return last, nil, nil
}

// alloc is memory for the cursor, with one reference.
func (d *dispatcher) alloc(n int) []byte {
	if n <= queue.SlabSize/4 || n > queue.SlabSize {
		ref, b := d.pool.Room(n, 1)
		d.chunks = append(d.chunks, ref)
		return b
	}
	s := d.pool.Get()
	d.chunks = append(d.chunks, queue.Ref{Slab: s.ID, Len: uint32(n)})
	return s.Buf[:n]
}

// dropTimedOut forgets deliveries that wait for room while the machine has given up waiting for their settlement. The
// consumer will not settle what it never sees.
func (d *dispatcher) dropTimedOut(q *Queue, id queue.ConsumerID, ids queue.Range) {
	var dropped []queue.Range
	q.mu.Lock()
	c := q.consumers[id]
	if c != nil {
		c.pending = slices.DeleteFunc(c.pending, func(p pending) bool {
			if p.id < ids.First || p.id > ids.Last {
				return false
			}
			dropped = appendRange(dropped, queue.Range{First: p.id, Last: p.id})
			return true
		})
	}
	q.mu.Unlock()
	q.settle(id, dropped, queue.Ack)
	if c == nil {
		return
	}
	c.out.TimedOut(&d.wake)
}

// bury hands dead letters on. Those that are kept leave their queue when they have arrived.
func (d *dispatcher) bury(q *Queue, ls []letter) {
	if len(ls) > 0 && ls[0].kept { // then all are
		d.sendKept(q, ls)
		return
	}
	letters := d.letters[:0]
	for i := range ls {
		l := &ls[i]
		add := func(_ queue.Seq, m queue.Message) {
			m.Flags = m.Flags.WithFailures(l.failures)
			letters = append(letters, queue.DeadLetter{Message: d.outward(m), Reason: l.Reason, Failed: l.Failed})
		}
		if l.cold {
			d.readLetters(q, l, add)
		} else {
			add(0, l.Message)
		}
	}
	if q.dead != nil {
		q.dead.Discard(letters, &d.wake, nil)
	} else {
		for i := range letters {
			d.release.Add(letters[i].Message.Ref.Slab)
		}
	}
	clear(letters)
	d.letters = letters[:0]
}

// readLetters reads dead letters from disk, and gives a reference to each. It is false if some cannot be read.
func (d *dispatcher) readLetters(q *Queue, l *letter, give func(queue.Seq, queue.Message)) bool {
	for r, tries := l.seqs, 0; r.First <= r.Last; {
		last, _, err := d.read(l.log, r, func(seq queue.Seq, m queue.Message) bool {
			give(seq, m)
			return true
		})
		if err == nil {
			r.First = last + 1
			continue
		}
		if tries++; tries == maxTries {
			d.log.Error("dead letters on disk cannot be read, and do not go anywhere", "queue", q.id, "error", err.Error())
			return false
		}
		time.Sleep(retryRead)
	}
	return true
}

// outward is a message as others see it: within a slot its size counts properties as well, as limits do.
func (d *dispatcher) outward(m queue.Message) queue.Message {
	m.Size = queue.BodySize(d.pool.Bytes(m.Ref))
	return m
}

package queue

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/warrenmq/warren/storage"
)

const (
	loaders  = 2        // I/O workers
	minAhead = 16 << 10 // octets read ahead for a queue at first
	maxAhead = SlabSize // while its consumers keep asking
	allAhead = 32 << 20 // for all queues together
)

// loader has the queues that wait for messages on disk, and the workers that read them.
type loader struct {
	store *Store

	mu      sync.Mutex // guards what follows; a leaf
	more    sync.Cond
	work    []func(*storage.Cursor)
	closing bool
	reads   [][]read // for a worker to gather in, one each
}

// gather takes a slice to gather in, and gathered gives it back: millions of messages pass through it.
func (l *loader) gather() (got []read) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.reads); n > 0 {
		got, l.reads = l.reads[n-1], l.reads[:n-1]
	}
	return got
}

func (l *loader) gathered(got []read) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.reads) < loaders {
		l.reads = append(l.reads, got[:0])
	}
}

// share is how much may be read ahead for one queue, given how many wait.
func (l *loader) share() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(allAhead/(len(l.work)+loaders), minAhead)
}

func (l *loader) start(ctx context.Context, running *sync.WaitGroup) {
	l.more.L = &l.mu
	for range loaders {
		running.Add(1)
		go func() {
			defer running.Done()
			l.run()
		}()
	}
	running.Add(1)
	go func() {
		defer running.Done()
		<-ctx.Done()
		l.mu.Lock()
		l.closing = true
		l.more.Broadcast()
		l.mu.Unlock()
	}()
}

func (l *loader) run() {
	cursor := l.store.runs.Cursor(0)
	for {
		l.mu.Lock()
		for len(l.work) == 0 && !l.closing {
			l.more.Wait()
		}
		if len(l.work) == 0 { // what was begun is finished: dead letters may be on their way
			l.mu.Unlock()
			return
		}
		f := l.work[0]
		l.work = l.work[1:]
		l.mu.Unlock()
		f(cursor)
	}
}

// ends reports whether the store is being closed.
func (l *loader) ends() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closing
}

// after has a worker run f when some time has passed.
func (l *loader) after(d time.Duration, f func(*storage.Cursor)) {
	time.AfterFunc(d, func() { l.do(f) })
}

// crowded reports whether others wait for a worker.
func (l *loader) crowded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.work) > 0
}

// do has a worker run f.
func (l *loader) do(f func(*storage.Cursor)) {
	l.mu.Lock()
	l.work = append(l.work, f)
	l.more.Signal()
	l.mu.Unlock()
}

// chunks is memory that a cursor reads into; each message read holds a reference to its own.
type chunks struct {
	pool *Pool
	refs []Ref
	own  bool // no chunk shares its slab with what stays longer
}

func (c *chunks) alloc(n int) []byte {
	if n <= SlabSize/4 && !c.own || n > SlabSize {
		ref, b := c.pool.Room(n, 1)
		c.refs = append(c.refs, ref)
		return b
	}
	s := c.pool.Get()
	c.refs = append(c.refs, Ref{Slab: s.ID, Len: uint32(n)})
	return s.Buf[:n]
}

// message is the message that a record in chunk holds, with a reference.
func (c *chunks) message(chunk, offset int, r *storage.Record) resident {
	at := c.refs[chunk]
	c.pool.Hold(at.Slab, 1)
	return resident{
		expiry: Time(r.Expiry),
		message: Message{
			Ref: Ref{Slab: at.Slab, Off: at.Off + uint32(offset), Len: uint32(len(r.Bytes))}, Size: r.Size, TTL: -1, Priority: r.Priority, Flags: Flags(r.Flags),
		},
	}
}

func (c *chunks) release() {
	for _, r := range c.refs {
		c.pool.Release(r.Slab, 1)
	}
	c.refs = c.refs[:0]
}

// read is a message that was read from disk.
type read struct {
	seq Seq
	resident
}

// load reads what the queue wants until it wants nothing more. A worker calls it. Others have their turn between two reads.
func (q *Classic) load(cursor *storage.Cursor) { q.read(cursor, false) }

// drop is load for a queue that drops what it reads: a step of the background.
func (q *Classic) drop(cursor *storage.Cursor) { q.read(cursor, true) }

func (q *Classic) read(cursor *storage.Cursor, drops bool) {
	if !drops || cursor.Log() != q.id {
		cursor.Reset(q.id)
	}
	c := chunks{pool: q.pool, own: drops}
	got := q.store.loads.gather()
	defer func() { q.store.loads.gathered(got) }()
	for {
		q.mu.Lock()
		want, ok := q.state.Wants()
		if q.deleted || !ok {
			q.loading = false
			waiting := q.waiting
			q.waiting = nil
			q.mu.Unlock()
			for _, retry := range waiting {
				retry()
			}
			return
		}
		from, to, size := want, want, 1
		behind := want > q.state.Cursor(want.Level())
		if behind {
			lv := &q.log.levels[want.Level()]
			if place := want.place() - 1; place < lv.from || place > lv.read {
				lv.from, lv.read = place, place
			}
			from, to = seqOf(want.Level(), lv.read+1), seqOf(want.Level(), lv.cold)
			q.ahead = min(max(2*q.ahead, minAhead), maxAhead)
			size = min(q.ahead, q.store.loads.share())
			if drops {
				size = stepOctets
			}
		}
		let := q.drops
		q.mu.Unlock()

		got = got[:0]
		n, err := cursor.Read(uint64(from), uint64(to), size, c.alloc, func(chunk, offset int, r storage.Record) {
			got = append(got, read{Seq(r.Seq), c.message(chunk, offset, &r)})
		})
		c.release()
		switch done, dropped := q.loaded(from, to, behind, let, got, n, err); {
		case !done: // an error of the disk: it may pass
			q.store.loads.after(100*time.Millisecond, q.load)
			return
		case dropped:
			q.store.background.after(q.strain(), q.drop)
			return
		case drops:
			q.store.loads.do(q.load)
			return
		case q.store.loads.crowded():
			q.store.loads.do(q.load)
			return
		}
	}
}

// loaded takes what was read of the stretch from to to, which was behind the cursor or is a returned message, and says
// whether the disk gave it, and whether some of it was discarded. If what was read ahead has been dropped since, it is not
// taken.
func (q *Classic) loaded(from, to Seq, behind bool, drops int, got []read, n int, err error) (done, dropped bool) {
	var w Wake
	defer w.Flush()
	release := Releaser{Pool: q.pool}
	defer release.Flush()
	var damage *storage.RunDamage
	if err != nil && !errors.As(err, &damage) {
		q.store.o.Log.Error("messages could not be read from disk; it will be tried again", "queue", q.id, "error", err.Error())
		for i := range got {
			release.Add(got[i].message.Ref.Slab)
		}
		return false, false
	}
	taken := false
	q.do(&w, nil, func(now Time, fx *Effects) {
		if behind && drops != q.drops {
			q.state.Loaded(now, fx) // and it asks again
			return
		}
		taken = true
		level := from.Level()
		lv := &q.log.levels[level]
		want, wanted := q.state.Wants()
		wanted = wanted && want == from // a returned message may have been purged meanwhile
		for i := range got {
			r := &got[i]
			switch {
			case behind && r.seq > q.state.Cursor(level):
				if last, _ := lv.ahead.Last(); lv.ahead.Len() > 0 && last >= r.seq.place() {
					release.Add(r.message.Ref.Slab)
					continue
				}
				lv.ahead.Append(r.seq.place(), r.resident)
			case !behind && wanted && !q.log.Resident(r.seq):
				if q.log.again == nil {
					q.log.again = make(map[Seq]resident)
				}
				q.log.again[r.seq] = r.resident
			default:
				release.Add(r.message.Ref.Slab)
				continue
			}
			q.log.change++
			got[i].message.Ref = Ref{}
		}
		lost := damage != nil
		switch {
		case !behind && !wanted:
		case behind && len(got) > 0:
			lv.read = max(lv.read, got[len(got)-1].seq.place())
		case behind && damage != nil:
			lv.read = max(lv.read, Seq(damage.Last).place())
		case behind && n == 0:
			lv.read = max(lv.read, to.place())
		case !behind && len(got) == 0: // a returned message that is no longer on disk
			lost = true
		}
		if lost {
			q.lose(now, from, to, damage, fx)
			return
		}
		q.state.Loaded(now, fx)
		dropped = len(fx.Discards) > 0
	})
	if !taken { // the queue was deleted, or asks for something else now
		for i := range got {
			release.Add(got[i].message.Ref.Slab)
		}
	}
	return true, dropped
}

// dropAhead lets go of what was read ahead: there is a copy on disk, and memory is wanted for what has none.
func (q *Classic) dropAhead() {
	release := Releaser{Pool: q.pool}
	q.mu.Lock()
	q.drops++
	for i := range q.log.levels {
		lv := &q.log.levels[i]
		q.log.change -= lv.ahead.RemoveRange(0, maxPlace, func(_ uint64, r *resident) { release.Add(r.message.Ref.Slab) })
		lv.from, lv.read = 0, 0
	}
	q.state.Unloaded()
	waiting := q.log.changed()
	q.mu.Unlock()
	release.Flush()
	q.pool.Charge(waiting * waitingCost)
}

// lose goes on without messages that cannot be read. Called with q.mu held.
func (q *Classic) lose(now Time, from, to Seq, damage *storage.RunDamage, fx *Effects) {
	e := Extent{SeqRange: SeqRange{from, to}}
	reason := "they are no longer there"
	if damage != nil {
		e = Extent{SeqRange: SeqRange{max(from, Seq(damage.First)), min(to, Seq(damage.Last))}, Count: uint64(damage.Records)}
		reason = damage.Error()
	}
	n := q.state.Lost(now, e, fx)
	q.store.o.Log.Error("messages on disk are lost", "queue", q.id, "messages", n, "error", reason)
}

// readLetters reads messages that are dead-lettered while they are on disk only, and sends them. A worker calls it. What it
// could not read when the store closes stays in limbo, and is back after the next start.
func (q *Classic) readLetters(cursor *storage.Cursor, ranges []coldLetters) {
	cursor.Reset(q.id)
	c := chunks{pool: q.pool}
	var w Wake
	for _, cold := range ranges {
		var letters []DeadLetter
		ticket := cold.ticket
		for from := cold.First; from <= cold.Last; {
			n, err := cursor.Read(uint64(from), uint64(cold.Last), maxAhead, c.alloc, func(chunk, offset int, r storage.Record) {
				letters = append(letters, DeadLetter{c.message(chunk, offset, &r).message, cold.reason, cold.failed})
				from = Seq(r.Seq) + 1
			})
			c.release()
			var damage *storage.RunDamage
			switch {
			case err == nil:
				if n == 0 {
					from = cold.Last + 1
				}
			case errors.As(err, &damage): // passed over from now on
				q.store.o.Log.Error("dead letters on disk are lost", "queue", q.id, "error", err.Error())
				from = max(from, min(cold.Last, Seq(damage.Last))+1)
			case q.store.loads.ends():
				q.abandon(ticket)
				ticket, from = 0, cold.Last+1
			default: // it may pass
				q.store.o.Log.Error("dead letters could not be read from disk; it will be tried again", "queue", q.id, "error", err.Error())
				time.Sleep(100 * time.Millisecond)
			}
		}
		q.send(letters, ticket, &w)
	}
	w.Flush()
}

// coldLetters are messages on disk that are to be dead-lettered.
type coldLetters struct {
	SeqRange
	reason Reason
	failed bool
	ticket uint64 // in limbo
}

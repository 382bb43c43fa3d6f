package slots

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/stream"
)

const (
	// turnMessages and turnOctets are how much a consumer gets before others have their turn. All of a node together get no more
	// than allTurns in one turn each, if that is leastTurn or more: twice as much may wait for a slow peer, and be on its way to it.
	turnMessages = 256
	turnOctets   = 256 << 10
	leastTurn    = 32 << 10
	allTurns     = 4 << 20
	// maxHeader is how long a content header may be that is delivered: it must fit into a frame.
	maxHeader = 128<<10 - 8
)

// consumer is a consumer of this node: a reader, and how much it may be given.
type consumer struct {
	queue    *Queue
	id       queue.ConsumerID
	out      queue.FrameOutlet
	head     []byte // of frames for out, and
	frameMax int    // how long those may be
	spec     stream.Consumer

	generation uint64        // of its name
	committing atomic.Uint64 // the offset that waits to be committed, plus one; 0: none does
	log        *stream.Log
	reader     *stream.Reader // used by the worker whose turn it is

	mu       sync.Mutex // guards what follows; outlets lock under it
	prefetch int        // how many it may hold
	inFlight int        // how many it holds
	blocked  bool       // its outlet is full, until Ready
	waiting  bool       // at the end of the stream, until that grows
	stuck    bool       // at damage, until it is made good
	retry    bool       // it was
	gone     bool       // gets nothing more
	stage    stage
	progress stream.Progress // of one with a name
}

// stage says where a consumer is with the workers.
type stage uint8

const (
	resting stage = iota
	inLine
	running
	runAgain // running, and something came up meanwhile
)

// schedule has a worker look at the consumer, before others if that is urgent. Called with c.mu held.
func (c *consumer) schedule(urgent bool) {
	switch c.stage {
	case resting:
		c.stage = inLine
		c.queue.host.workers.push(c, urgent)
	case running:
		c.stage = runAgain
	}
}

// room is how many messages the consumer may be given now. Called with c.mu held.
func (c *consumer) room() int {
	if c.gone || c.blocked || c.stuck {
		return 0
	}
	return max(0, c.prefetch-c.inFlight)
}

// run implements task: it is the consumer's turn.
func (c *consumer) run(w *worker) {
	c.mu.Lock()
	c.stage, c.waiting = running, false
	room, retry := c.room(), c.retry
	c.retry = false
	c.mu.Unlock()
	more := false
	if retry {
		c.reader.Retry()
	}
	if room > 0 {
		more = c.read(w, min(room, turnMessages))
		c.reader.Release()
	}
	c.mu.Lock()
	again := c.stage == runAgain || more && c.room() > 0
	c.stage = resting
	switch {
	case c.gone:
		c.reader.Close()
	case again:
		c.schedule(false)
	}
	c.mu.Unlock()
}

// leave says that the consumer gets nothing more. Called with c.mu held.
func (c *consumer) leave() {
	if !c.gone {
		c.queue.host.consumers.Add(-1)
	}
	c.gone = true
	if c.stage == resting { // otherwise the worker does it
		c.reader.Close()
	}
}

// read offers up to n messages, and reports whether there may be more to read at once.
func (c *consumer) read(w *worker, n int) (more bool) {
	w.frames.Begin(c.head, c.frameMax)
	w.turn = max(leastTurn, min(turnOctets, allTurns/max(1, int(c.queue.host.consumers.Load()))))
	more = true
	for octets := 0; n > 0 && octets < w.turn; {
		had := c.log.Next()
		err := c.reader.Next(&w.record)
		if err == nil {
			if size := c.write(w); size > 0 {
				octets += size
				n--
			}
			continue
		}
		if more = c.trouble(w, err, had); !more {
			break
		}
	}
	c.offer(w)
	return more
}

// trouble takes what a reader has to say besides a record. It returns whether there is more to read at once. had is where the
// stream ended before the reader looked.
func (c *consumer) trouble(w *worker, err error, had uint64) (more bool) {
	q := c.queue
	var removed *stream.RemovedError
	var damage *stream.DamageError
	switch {
	case errors.Is(err, stream.ErrEnd):
		c.mu.Lock()
		c.waiting = true
		more = c.log.Next() != had
		c.waiting = !more
		c.mu.Unlock()
		return more
	case errors.As(err, &removed):
		q.host.Counters.Jumped.Add(removed.To - removed.From)
		return true
	case errors.As(err, &damage):
		if damage.From < q.skip() {
			q.host.Counters.Skipped.Add(damage.To - damage.From)
			c.reader.Skip()
			return true
		}
		if q.damaged(c, damage) {
			return false
		}
	case errors.Is(err, stream.ErrClosed):
		if c.move() {
			return true
		}
	default:
		q.host.o.Log.Error("a stream cannot be read; the consumer is cancelled", "queue", q.name, "offset", c.reader.Offset(), "error", err.Error())
	}
	c.offer(w)
	q.cancel(c, &w.wake)
	return false
}

// move has the consumer go on in other files, if the stream has others now. It reports whether it has.
func (c *consumer) move() bool {
	m := c.queue.slot.machine
	m.mu.Lock()
	r := m.streams[c.queue.id]
	ok := r != nil && r.log != c.log
	m.mu.Unlock()
	if !ok {
		return false
	}
	at := c.reader.Offset()
	c.reader.Close()
	c.log, c.reader = r.log, r.log.Read(at, c.spec.Filter)
	return true
}

// write makes frames of the record, and returns how many octets they have: 0 if AMQP 0-9-1 cannot carry it.
func (c *consumer) write(w *worker) int {
	d := &w.delivery
	if err := d.Decode(w.record.Body, w.record.Offset); err != nil || len(d.Header) > maxHeader {
		c.queue.host.Counters.Unreadable.Add(1)
		return 0
	}
	exchange, key := d.Exchange, d.Key
	if !d.From {
		key = c.queue.key
	}
	return w.frames.Add(w.record.Offset, exchange, key, d.Header, d.Body, d.Size)
}

// offer hands over what was read.
func (c *consumer) offer(w *worker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		w.frames.Release()
		return
	}
	frames := w.frames.Frames()
	if c.spec.Name != "" {
		c.advance(frames)
	}
	if len(frames) == 0 {
		return
	}
	n := 0
	for _, f := range frames {
		n += f.N
	}
	c.inFlight += n
	c.queue.delivered.Add(uint64(n))
	c.blocked = !c.out.OfferFrames(frames, w.turn, &w.wake)
	w.frames.Begin(c.head, c.frameMax)
}

// advance notes what is handed over to a consumer with a name, and what the filter may have passed over. Called with c.mu held.
func (c *consumer) advance(frames []queue.Frames) {
	before := c.progress.Next()
	for _, f := range frames {
		for id := f.First; id < f.First+uint64(f.N); id++ {
			c.progress.Delivered(id)
			if sabotageCommit {
				c.progress.Acked(id, id)
			}
		}
	}
	if at := c.reader.Offset(); c.waiting && at <= c.log.Next() {
		c.progress.Passed(at)
	}
	if next := c.progress.Next(); next > before {
		c.queue.slot.proposer.commit(c, next)
	}
}

// maxHeld is how many messages a named consumer may have acknowledged, or still hold, behind one that it has not.
const maxHeld = 100_000

// settled takes the acknowledgement of deliveries, which is credit whatever it says of them. What is given back stays to be
// read: the committed offset does not pass it. over: the consumer has left, and holds nothing any more. stuck: it has gone on
// for too long without what it has not acknowledged.
func (c *consumer) settled(ids []queue.Range, o queue.Outcome) (over, stuck bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, raised := 0, false
	read := c.spec.Name != "" && o != queue.Return && o != queue.ReturnFailed
	for _, r := range ids {
		n += int(r.Last - r.First + 1)
		if read && c.progress.Acked(r.First, r.Last) {
			raised = true
		}
	}
	c.inFlight = max(0, c.inFlight-n)
	c.queue.acked.Add(uint64(n))
	if raised {
		c.queue.slot.proposer.commit(c, c.progress.Next())
	}
	if c.room() > 0 && !c.waiting {
		c.schedule(false)
	}
	return c.gone && c.inFlight == 0, !c.gone && c.progress.Flight()-c.inFlight > maxHeld
}

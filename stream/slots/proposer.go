package slots

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/quorum"
	"github.com/warrenmq/warren/stream"
)

const (
	// maxBatch is how many octets are proposed at once, unless one message has more.
	maxBatch = 512 << 10
	// maxChunk is how many octets a chunk has, unless one message has more.
	maxChunk = 1 << 20
	// maxFlight and maxFlightOctets are how much may be proposed and not applied.
	maxFlight       = 16
	maxFlightOctets = 4 << 20
	// maxInbox is how many octets may wait, or be in flight, before publishers rest.
	maxInbox = 16 << 20
	// proposeTimeout is after how long the Raft engine gives an outcome up as unknown; with other members a proposal may be lost on
	// its way to the leader, and is made again sooner.
	proposeTimeout          = 5 * time.Second
	proposeTimeoutClustered = 2 * time.Second
	// A proposer rests after a refusal: pause first, twice as long each time that nothing has got through since, up to longPause. A
	// new leader ends the rest.
	pause     = 5 * time.Millisecond
	longPause = 500 * time.Millisecond
	// commitPause is how long commits of offsets wait for something else to ride with.
	commitPause = 50 * time.Millisecond
)

// batch is commands of this node on their way through the log, and who waits for what becomes of them.
type batch struct {
	buf       []byte // room for the header, then commands
	number    uint64 // in the origin's sequence, when it was proposed
	chunks    []*building
	building  map[uint64]*building // chunks, by stream
	size      int                  // octets of all of it, as they are accounted for
	publishes []published
	numbers   []queue.Range // publish numbers of publishes
	waiters   []func(*result, *queue.Wake)
	done      bool // everyone has heard
}

// building is a chunk that is being built for a stream.
type building struct {
	id uint64
	stream.Builder
}

// published is a publish of a batch: whose, and which of the batch's numbers.
type published struct {
	confirms queue.Confirms // nil: nobody wants to know
	from, to int            // in numbers
}

// proposal is a batch that was handed to the Raft engine.
type proposal struct {
	quorum.Proposal
	number uint64
}

// proposer gathers what this node has for one slot into batches, messages into a chunk for each stream, and sees them through
// the log, each exactly once and in order: what it does not know the outcome of it proposes again, with everything behind it,
// and the machine passes over what it has applied.
type proposer struct {
	node, boot uint64
	pool       *queue.Pool
	now        func() int64
	propose    func(b []byte, timeout time.Duration) (quorum.Proposal, error)
	block      func(on bool) // publishers shall rest, or go on; called without locks
	timeout    time.Duration // of a proposal
	kick       chan struct{} // there may be something to propose; one slot
	elected    chan struct{} // there is a new leader: what was proposed to the one before may be lost; one slot

	mu      sync.Mutex // guards what follows; a leaf
	open    *batch     // commands are added to it
	full    []*batch   // behind each other, before open
	flight  []*batch   // proposed or about to be, ascending numbers
	sent    int        // how many of flight are with the Raft engine
	octets  int        // of all of them
	flying  int        // octets of flight
	last    uint64     // number given out last
	free    []*batch
	spare   []*building
	dirty   []*consumer // with offsets to be committed
	blocked bool
	closed  bool // takes no more
	idle    sync.Cond
}

func newProposer(node, boot uint64, pool *queue.Pool, now func() int64, block func(bool)) *proposer {
	p := &proposer{node: node, boot: boot, pool: pool, now: now, block: block, timeout: proposeTimeout, kick: make(chan struct{}, 1), elected: make(chan struct{}, 1)}
	p.idle.L = &p.mu
	return p
}

// add has encode append to the batch it is given. It returns false, and calls nothing, when the proposer is closed.
func (p *proposer) add(encode func(b *batch)) bool {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return false
	}
	b := p.open
	if b == nil {
		b = p.fresh()
		p.open = b
	}
	before := b.size
	encode(b)
	grown := b.size - before
	p.octets += grown
	if b.size >= maxBatch {
		p.full = append(p.full, b)
		p.open = nil
	}
	block := !p.blocked && p.octets > maxInbox
	p.blocked = p.blocked || block
	p.mu.Unlock()
	p.pool.Charge(grown)
	if block {
		p.block(true)
	}
	p.wake()
	return true
}

func (p *proposer) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// command adds a command of a stream, behind what was published to it.
func (p *proposer) command(k kind, id uint64, rest func(dst []byte) []byte, answer func(*result, *queue.Wake)) bool {
	return p.add(func(b *batch) {
		b.close(p, id)
		p.commits(b)
		before := len(b.buf)
		b.buf = appendCommand(b.buf, k, id)
		if rest != nil {
			b.buf = rest(b.buf)
		}
		b.size += len(b.buf) - before
		if answer != nil {
			b.waiters = append(b.waiters, answer)
		}
	})
}

// publish adds an entry for each message of m.
func (p *proposer) publish(q *Queue, m *converted, confirms queue.Confirms) bool {
	return p.add(func(b *batch) {
		x := published{confirms: confirms, from: len(b.numbers)}
		from := 0
		for i := range m.entries {
			e := &m.entries[i]
			c := b.chunk(p, q)
			if c.Entries() > 0 && c.Len()+e.end-from > maxChunk || c.Entries() == stream.MaxEntries {
				b.close(p, q.id)
				c = b.chunk(p, q)
			}
			_ = c.Add(m.buf[from:e.end], e.filter) // one that is full was closed above
			b.size += e.end - from + 4
			from = e.end
			if confirms != nil {
				n := queue.Range{First: e.number, Last: e.number}
				if len(b.numbers) > x.from {
					b.numbers = appendRange(b.numbers, n)
				} else {
					b.numbers = append(b.numbers, n)
				}
			}
		}
		x.to = len(b.numbers)
		b.publishes = append(b.publishes, x)
	})
}

// chunk is the chunk that is being built for a stream. Called with p.mu held.
func (b *batch) chunk(p *proposer, q *Queue) *building {
	if c := b.building[q.id]; c != nil {
		return c
	}
	var c *building
	if n := len(p.spare); n > 0 {
		c, p.spare = p.spare[n-1], p.spare[:n-1]
	} else {
		c = new(building)
	}
	c.id = q.id
	c.Reset(q.filter)
	b.size += stream.HeaderLen
	if b.building == nil {
		b.building = map[uint64]*building{}
	}
	b.building[q.id] = c
	b.chunks = append(b.chunks, c)
	return c
}

// close ends the chunk of a stream, if there is one. Called with p.mu held.
func (b *batch) close(p *proposer, id uint64) {
	if c := b.building[id]; c != nil {
		b.finish(p, c)
		for i := range b.chunks {
			if b.chunks[i] == c {
				b.chunks = append(b.chunks[:i], b.chunks[i+1:]...)
				break
			}
		}
	}
}

// finish appends a chunk to the batch. Called with p.mu held.
func (b *batch) finish(p *proposer, c *building) {
	chunk := c.Finish(p.now(), epoch)
	b.buf = appendCommand(b.buf, cmdChunk, c.id)
	b.buf = binary.AppendUvarint(b.buf, uint64(len(chunk)))
	b.buf = append(b.buf, chunk...)
	delete(b.building, c.id)
	if c.Len() <= maxBatch && len(p.spare) < 64 {
		p.spare = append(p.spare, c)
	}
}

// epoch is what stands in chunks as the stream's epoch: offsets never turn back, so that there is one only.
const epoch = 1

// seal ends all chunks. Called with p.mu held.
func (p *proposer) seal(b *batch) {
	for i, c := range b.chunks {
		b.finish(p, c)
		b.chunks[i] = nil
	}
	b.chunks = b.chunks[:0]
	p.commits(b)
}

// commits appends what consumers have acknowledged, which is not worth being accounted for. Called with p.mu held.
func (p *proposer) commits(b *batch) {
	for i, c := range p.dirty {
		p.dirty[i] = nil
		b.buf = appendCommand(b.buf, cmdCommit, c.queue.id)
		b.buf = appendName(b.buf, c.spec.Name)
		b.buf = binary.AppendUvarint(b.buf, c.generation)
		b.buf = binary.AppendUvarint(b.buf, c.committing.Swap(0)-1)
	}
	p.dirty = p.dirty[:0]
}

// commit has an offset be committed with the next batch. Only the newest of a consumer's is.
func (p *proposer) commit(c *consumer, next uint64) {
	if c.committing.Swap(next+1) != 0 {
		return // it waits already, with less
	}
	p.mu.Lock()
	if !p.closed {
		p.dirty = append(p.dirty, c)
	}
	p.mu.Unlock()
	p.wake()
}

// fresh is an empty batch. Called with p.mu held.
func (p *proposer) fresh() *batch {
	if n := len(p.free); n > 0 {
		b := p.free[n-1]
		p.free = p.free[:n-1]
		return b
	}
	return &batch{buf: make([]byte, headerLen, 64<<10), size: headerLen}
}

// recycle takes back a batch. Called with p.mu held.
func (p *proposer) recycle(b *batch) {
	clear(b.publishes)
	clear(b.waiters)
	*b = batch{buf: b.buf[:headerLen], size: headerLen, chunks: b.chunks[:0], building: b.building, publishes: b.publishes[:0], numbers: b.numbers[:0], waiters: b.waiters[:0]}
	if cap(b.buf) <= 3*maxBatch && cap(b.publishes) <= 8<<10 && cap(b.waiters) <= 8<<10 && len(p.free) < maxFlight+2 {
		p.free = append(p.free, b)
	}
}

// claim is the batch of a number if nobody has heard yet what became of it, or nil. It is used until finish.
func (p *proposer) claim(number uint64) *batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.flight) == 0 || number < p.flight[0].number || number-p.flight[0].number >= uint64(len(p.flight)) {
		return nil
	}
	if b := p.flight[number-p.flight[0].number]; !b.done {
		return b
	}
	return nil
}

// finish says that everyone has heard what became of a batch.
func (p *proposer) finish(b *batch) {
	p.mu.Lock()
	b.done = true
	p.mu.Unlock()
	p.wake()
}

// retire lets go of batches that are done, from the front, and reports whether there were any.
func (p *proposer) retire() bool {
	p.mu.Lock()
	n, freed := 0, 0
	for n < len(p.flight) && p.flight[n].done {
		freed += p.flight[n].size - headerLen
		p.recycle(p.flight[n])
		n++
	}
	p.flight = append(p.flight[:0], p.flight[n:]...)
	p.sent = max(0, p.sent-n)
	p.flying -= freed
	p.octets -= freed
	unblock := p.blocked && p.octets < maxInbox/2
	p.blocked = p.blocked && !unblock
	if p.quiet() {
		p.idle.Broadcast()
	}
	p.mu.Unlock()
	if freed > 0 {
		p.pool.Charge(-freed)
	}
	if unblock {
		p.block(false)
	}
	return n > 0
}

// quiet reports whether nothing is left to do. Called with p.mu held.
func (p *proposer) quiet() bool {
	return len(p.flight) == 0 && p.open == nil && len(p.full) == 0 && len(p.dirty) == 0
}

// next is the batch to be proposed next, or nil: with its header, as one of those in flight. lone: commits of offsets, and
// nothing else, are something to propose, too. waiting: there are such commits only. The first batch of a start goes alone, so that
// who has a second one in the log is known to have applied the log up to its first.
func (p *proposer) next(lone bool) (b *batch, waiting bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sent == len(p.flight) {
		if n := len(p.flight); n >= maxFlight || n > 0 && (p.flying >= maxFlightOctets || p.flight[0].number == 1) {
			return nil, false
		}
		switch {
		case len(p.full) > 0:
			b = p.full[0]
			p.full = append(p.full[:0], p.full[1:]...)
		case p.open != nil:
			b, p.open = p.open, nil
		case len(p.dirty) > 0 && lone:
			b = p.fresh()
		default:
			return nil, len(p.dirty) > 0
		}
		p.seal(b)
		p.last++
		b.number = p.last
		p.flight = append(p.flight, b)
		p.flying += b.size - headerLen
	}
	b = p.flight[p.sent]
	h := header{at: p.now(), node: p.node, boot: p.boot, number: b.number, done: p.flight[0].number - 1}
	h.put(b.buf)
	p.sent++
	return b, false
}

// rewind has everything proposed again that is not known to be applied.
func (p *proposer) rewind() {
	p.mu.Lock()
	p.sent = 0
	p.mu.Unlock()
}

// run proposes until quit is closed.
func (p *proposer) run(quit <-chan struct{}) {
	var sent []proposal
	var rest time.Duration // the next one
	var rested <-chan time.Time
	lone := false
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	timed := false // the timer runs for lone commits
	for {
		if p.retire() {
			rest = 0
		}
		for failed := false; rested == nil && !failed; {
			b, waiting := p.next(lone || p.ended())
			if b == nil {
				if waiting && !timed {
					timer.Reset(commitPause)
					timed = true
				}
				break
			}
			lone = false
			state, err := p.propose(b.buf, p.timeout)
			if failed = err != nil; !failed {
				sent = append(sent, proposal{state, b.number})
				continue
			}
			sent, rest, rested = giveUp(sent, rest)
		}
		var outcome <-chan quorum.Outcome
		if len(sent) > 0 {
			outcome = sent[0].C()
		}
		select {
		case o := <-outcome:
			value, ok := quorum.Applied(o)
			known := ok && value >= sent[0].number
			sent[0].Release()
			if sent = append(sent[:0], sent[1:]...); !known { // it, or one before it, may not have been applied
				sent, rest, rested = giveUp(sent, rest)
			}
		case <-rested:
			rested = nil
			p.rewind()
		case <-p.elected:
			sent, rest, rested = forget(sent), 0, nil
			p.rewind()
		case <-p.kick:
		case <-timer.C:
			timed, lone = false, true
		case <-quit:
			return
		}
	}
}

// giveUp forgets what is with the Raft engine, whatever becomes of it: all of it will be proposed again after a rest.
func giveUp(sent []proposal, rest time.Duration) (none []proposal, next time.Duration, rested <-chan time.Time) {
	rest = max(rest, pause)
	return forget(sent), min(2*rest, longPause), time.After(rest)
}

// forget forgets proposals. Their states are not released: the engine may still write to them.
func forget(sent []proposal) []proposal {
	clear(sent)
	return sent[:0]
}

// ended reports whether nothing more is taken.
func (p *proposer) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// drain refuses further commands and returns when all have been applied, or after the time given.
func (p *proposer) drain(most time.Duration) (all bool) {
	expired := false
	timer := time.AfterFunc(most, func() {
		p.mu.Lock()
		expired = true
		p.idle.Broadcast()
		p.mu.Unlock()
	})
	defer timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.wake()
	for !p.quiet() && !expired {
		p.idle.Wait()
	}
	return p.quiet()
}

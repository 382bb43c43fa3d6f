package quorum

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4"

	"github.com/warrenmq/warren/queue"
)

const (
	// maxBatch is how many octets are proposed at once, unless one command has more.
	maxBatch = 256 << 10
	// maxFlight and maxFlightOctets are how much may be proposed and not applied.
	maxFlight       = 16
	maxFlightOctets = 4 << 20
	// maxInbox is how many octets of commands may wait, or be in flight, before publishers rest.
	maxInbox = 16 << 20
	// proposeTimeout is after how long the Raft engine gives an outcome up as unknown; with other members a proposal may be
	// lost on its way to the leader, and is made again sooner.
	proposeTimeout          = 5 * time.Second
	proposeTimeoutClustered = 2 * time.Second
	// A proposer rests after a refusal: pause first, twice as long each time that nothing has got through since, up to
	// longPause. A new leader ends the rest.
	pause     = 5 * time.Millisecond
	longPause = 500 * time.Millisecond
)

// batch is commands of this node on their way through the log, and who waits for what becomes of them.
type batch struct {
	buf       []byte // room for the header, then commands
	number    uint64 // in the origin's sequence, when it was proposed
	publishes []published
	numbers   []queue.Range // publish numbers of publishes
	waiters   []func(*dispatcher, *result)
	done      bool // everyone has heard
}

// published is a publish of a batch: whose, and which of the batch's numbers.
type published struct {
	confirms queue.Confirms // nil: nobody wants to know
	from, to int            // in numbers
}

// proposal is a batch that was handed to the Raft engine.
type proposal struct {
	state  *dragonboat.RequestState
	number uint64
}

// engine is what a proposer asks of the Raft engine.
type engine interface {
	// propose hands a batch over. b may be used again when it returns. An error says that it was not taken.
	propose(b []byte, timeout time.Duration) (*dragonboat.RequestState, error)
}

// proposer gathers the commands of this node for one slot into batches and sees them through the log, each exactly once
// and in order: what it does not know the outcome of it proposes again, with everything behind it, and the machine passes
// over what it has applied.
type proposer struct {
	node, boot uint64
	pool       *queue.Pool
	now        func() queue.Time
	engine     engine
	block      func(on bool) // publishers shall rest, or go on; called without locks
	kick       chan struct{} // there may be something to propose; one slot
	elected    chan struct{} // there is a new leader; one slot
	timeout    atomic.Int64  // of a proposal, ns

	mu      sync.Mutex // guards what follows; a leaf
	open    *batch     // commands are added to it
	full    []*batch   // behind each other, before open
	flight  []*batch   // proposed or about to be, ascending numbers
	sent    int        // how many of flight are with the Raft engine
	octets  int        // of all of them
	flying  int        // octets of flight
	last    uint64     // number given out last
	free    []*batch
	blocked bool
	closed  bool // takes no more
	idle    sync.Cond
}

func newProposer(node, boot uint64, pool *queue.Pool, now func() queue.Time, e engine, block func(bool)) *proposer {
	p := &proposer{node: node, boot: boot, pool: pool, now: now, engine: e, block: block, kick: make(chan struct{}, 1), elected: make(chan struct{}, 1)}
	p.timeout.Store(int64(proposeTimeout))
	p.idle.L = &p.mu
	return p
}

// add has encode append one command to the batch it is given. It returns false, and calls nothing, when the proposer is
// closed.
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
	before := len(b.buf)
	encode(b)
	grown := len(b.buf) - before
	if before == headerLen {
		grown += headerLen
	}
	p.octets += grown
	if len(b.buf) >= maxBatch {
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
	select {
	case p.kick <- struct{}{}:
	default:
	}
	return true
}

// fresh is an empty batch. Called with p.mu held.
func (p *proposer) fresh() *batch {
	if n := len(p.free); n > 0 {
		b := p.free[n-1]
		p.free = p.free[:n-1]
		return b
	}
	return &batch{buf: make([]byte, headerLen, 64<<10)}
}

// recycle takes back a batch. Called with p.mu held.
func (p *proposer) recycle(b *batch) {
	clear(b.publishes)
	clear(b.waiters)
	*b = batch{buf: b.buf[:headerLen], publishes: b.publishes[:0], numbers: b.numbers[:0], waiters: b.waiters[:0]}
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

// unheard are the numbers up to last of batches of which nobody has heard what became of them.
func (p *proposer) unheard(last uint64) (numbers []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.flight {
		if !b.done && b.number <= last {
			numbers = append(numbers, b.number)
		}
	}
	return numbers
}

// finish says that everyone has heard what became of a batch.
func (p *proposer) finish(b *batch) {
	p.mu.Lock()
	b.done = true
	p.mu.Unlock()
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// retire lets go of batches that are done, from the front, and reports whether there were any.
func (p *proposer) retire() bool {
	p.mu.Lock()
	n, freed := 0, 0
	for n < len(p.flight) && p.flight[n].done {
		freed += len(p.flight[n].buf)
		p.recycle(p.flight[n])
		n++
	}
	p.flight = append(p.flight[:0], p.flight[n:]...)
	p.sent = max(0, p.sent-n)
	p.flying -= freed
	p.octets -= freed
	unblock := p.blocked && p.octets < maxInbox/2
	p.blocked = p.blocked && !unblock
	if p.octets == 0 {
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

// next is the batch to be proposed next, or nil: with its header, as one of those in flight. The first of a start goes alone,
// so that who has a second one in the log is known to have applied the log up to its first.
func (p *proposer) next() *batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sent == len(p.flight) {
		if n := len(p.flight); n >= maxFlight || n > 0 && (p.flying >= maxFlightOctets || p.flight[0].number == 1) {
			return nil
		}
		var b *batch
		if len(p.full) > 0 {
			b = p.full[0]
			p.full = append(p.full[:0], p.full[1:]...)
		} else {
			b, p.open = p.open, nil
		}
		if b == nil {
			return nil
		}
		p.last++
		b.number = p.last
		p.flight = append(p.flight, b)
		p.flying += len(b.buf)
	}
	b := p.flight[p.sent]
	h := header{at: p.now(), node: p.node, boot: p.boot, number: b.number, done: p.flight[0].number - 1}
	h.put(b.buf)
	p.sent++
	return b
}

// rewind has everything proposed again that is not known to be applied.
func (p *proposer) rewind() {
	p.mu.Lock()
	p.sent = 0
	p.mu.Unlock()
}

// newLeader says that what was proposed to the leader before may be lost.
func (p *proposer) newLeader() {
	select {
	case p.elected <- struct{}{}:
	default:
	}
}

// run proposes until quit is closed.
func (p *proposer) run(quit <-chan struct{}) {
	var sent []proposal
	var rest time.Duration // the next one
	var rested <-chan time.Time
	for {
		if p.retire() {
			rest = 0
		}
		for failed := false; rested == nil && !failed; {
			b := p.next()
			if b == nil {
				break
			}
			state, err := p.engine.propose(b.buf, time.Duration(p.timeout.Load()))
			if failed = err != nil; !failed {
				sent = append(sent, proposal{state, b.number})
				continue
			}
			sent, rest, rested = p.giveUp(sent, rest)
		}
		var result <-chan dragonboat.RequestResult
		if len(sent) > 0 {
			result = sent[0].state.ResultC()
		}
		select {
		case r := <-result:
			known := r.Completed() && r.GetResult().Value >= sent[0].number
			sent[0].state.Release()
			if sent = append(sent[:0], sent[1:]...); !known { // it, or one before it, may not have been applied
				sent, rest, rested = p.giveUp(sent, rest)
			}
		case <-rested:
			rested = nil
			p.rewind()
		case <-p.elected:
			sent, rest, rested = forgetAll(sent), 0, nil
			p.rewind()
		case <-p.kick:
		case <-quit:
			return
		}
	}
}

// giveUp forgets what is with the Raft engine, whatever becomes of it: all of it will be proposed again after a rest.
func (p *proposer) giveUp(sent []proposal, rest time.Duration) (none []proposal, next time.Duration, rested <-chan time.Time) {
	rest = max(rest, pause)
	return forgetAll(sent), min(2*rest, longPause), time.After(rest)
}

// forgetAll forgets proposals. Their states are not released: the engine may still write to them.
func forgetAll(sent []proposal) []proposal {
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
	for p.octets > 0 && !expired {
		p.idle.Wait()
	}
	p.closed = true
	return p.octets == 0
}

package propose

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/queue"
)

const (
	// MaxFlight is how many batches may be proposed and not applied, and maxFlightOctets how many octets: what comes next waits for
	// them, whoever it is of. Where one lane alone has brought aloneOctets the last, there is nobody else to wait, and the log is
	// written a little faster with maxFlightAlone.
	MaxFlight       = 16
	maxFlightOctets = 1 << 20
	maxFlightAlone  = 4 << 20
	aloneOctets     = 64 << 20
	// maxInbox is how many octets of commands may wait, or be in flight, before all publishers rest. Those of a lane that is full
	// rest long before.
	maxInbox = 32 << 20
	// patience is after how long the Raft engine gives an outcome up as unknown; with other members a proposal may be lost on its
	// way to the leader, and is made again sooner.
	patience          = 5 * time.Second
	patienceClustered = 2 * time.Second
	// A proposer rests after a refusal: Pause first, twice as long each time that nothing has got through since, up to longPause. A
	// new leader ends the rest.
	Pause     = 5 * time.Millisecond
	longPause = 500 * time.Millisecond
	// smallBuffer is up to how many octets of room make a batch a small one, smallFree how many of those are kept for use again, and
	// maxFree how many octets of the others.
	smallBuffer = 4 << 10
	smallFree   = 256
	maxFree     = 8 << 20
)

// Batch is what a Proposer has of a batch. A room embeds it in what else its batches hold.
type Batch struct {
	Buf    []byte // room for the header, then commands
	number uint64 // in the origin's sequence, when it was proposed
	done   bool   // everyone has heard
}

func (b *Batch) batch() *Batch { return b }

// Octets is how many were added, as they are accounted for.
func (b *Batch) Octets() int { return len(b.Buf) - HeaderLen }

// Seal is called once, when nothing more will be added.
func (b *Batch) Seal() {}

// Batched is of a pointer to a struct that embeds a Batch, B. What is added to a lane at a time is a batch, and so is what is proposed.
// The methods are called with the proposer's lock.
type Batched[B any] interface {
	comparable
	batch() *Batch
	Octets() int
	Seal()
	// Merge appends what another one has, to one that is sealed as is the other.
	Merge(other B)
	// Reset empties what the room has of a batch. It returns false if that is too large to be kept.
	Reset() bool
}

// Proposal is a batch that was handed to the Raft engine, which has an outcome of type R of it when it is known, or never will be.
type Proposal[R any] interface {
	ResultC() chan R
	Release() // of one whose outcome was read
}

// Options are what a Proposer is made with.
type Options[B Batched[B], R any] struct {
	Node, Boot uint64
	Pool       *queue.Pool // is charged with what waits
	MaxBatch   int         // octets that are proposed at once, unless one command has more
	Now        func() int64
	New        func() B
	// Propose hands a batch over. b may be used again when it returns. An error says that it was not taken.
	Propose func(b []byte, timeout time.Duration) (Proposal[R], error)
	// Applied is up to which number the batches of this start are applied, as an outcome says; ok: it says so.
	Applied func(R) (number uint64, ok bool)
	Block   func(on bool) // publishers shall rest, or go on; called without locks
}

// Proposer gathers commands of this node into batches and sees them through the log, each exactly once and those of a lane in order:
// what it does not know the outcome of it proposes again, with everything behind it, and the machine passes over what it has
// applied.
type Proposer[B Batched[B], R any] struct {
	Options[B, R]
	kick    chan struct{} // there may be something to propose; one slot
	elected chan struct{} // there is a new leader; one slot
	timeout atomic.Int64  // of a proposal, ns

	mu      sync.Mutex // guards what follows
	urgent  Lane[B]    // of what is of no queue
	sparse  line[B]    // lanes that were empty until just now, and
	steady  line[B]    // those that have had a turn: see turn
	waiting int        // octets in all lanes
	parcels int        // batches in them
	rested  []func()   // to be called: there is room in their lanes again
	latest  *Lane[B]   // that had a turn, but for urgent, and
	alone   int        // octets that it has brought since another had
	flight  []B        // proposed or about to be, ascending numbers
	sent    int        // how many of flight are with the Raft engine
	octets  int        // of flight and all lanes
	flying  int        // octets of flight
	last    uint64     // number given out last
	small   []B        // to be used again
	free    []B        // the same, with more room
	kept    int        // octets of room of free
	blocked bool
	closed  bool // takes no more
	idle    sync.Cond
}

// New makes a Proposer that gathers commands until it runs.
func New[B Batched[B], R any](o Options[B, R]) *Proposer[B, R] {
	p := &Proposer[B, R]{Options: o, kick: make(chan struct{}, 1), elected: make(chan struct{}, 1)}
	p.Clustered(false)
	p.idle.L = &p.mu
	return p
}

// Clustered says whether proposals go, or may go, to other members.
func (p *Proposer[B, R]) Clustered(on bool) {
	timeout := patience
	if on {
		timeout = patienceClustered
	}
	p.timeout.Store(int64(timeout))
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Add has encode append to the batch it is given, with the proposer's lock, behind what was added to the lane before. nil is the lane of
// what is of no queue: it goes before all others. It returns false, and calls nothing, when the proposer is closed.
func (p *Proposer[B, R]) Add(l *Lane[B], encode func(b B)) bool {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return false
	}
	if l == nil {
		l = &p.urgent
	}
	p.added(p.put(l, encode))
	return true
}

// AddBehind is Add for what is to be applied behind all that was added before to any lane.
func (p *Proposer[B, R]) AddBehind(encode func(b B)) bool {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return false
	}
	p.bringForward()
	p.added(p.put(&p.urgent, encode))
	return true
}

// added accounts for so many octets, unlocks p.mu and has them be proposed.
func (p *Proposer[B, R]) added(octets int) {
	p.octets += octets
	block := !p.blocked && p.octets > maxInbox
	p.blocked = p.blocked || block
	p.mu.Unlock()
	p.Pool.Charge(octets)
	if block {
		p.Block(true)
	}
	wake(p.kick)
}

// fresh is an empty batch, with much room or little. Called with p.mu held.
func (p *Proposer[B, R]) fresh(much bool) (b B) {
	from, room := &p.small, smallBuffer/4
	if much {
		from, room = &p.free, 64<<10
	}
	if n := len(*from); n > 0 {
		b, *from = (*from)[n-1], (*from)[:n-1]
		if much {
			p.kept -= cap(b.batch().Buf)
		}
		return b
	}
	b = p.New()
	b.batch().Buf = make([]byte, HeaderLen, room)
	return b
}

// recycle takes back a batch. Called with p.mu held.
func (p *Proposer[B, R]) recycle(b B) {
	small := b.Reset()
	x := b.batch()
	*x = Batch{Buf: x.Buf[:HeaderLen]}
	switch room := cap(x.Buf); {
	case !small:
	case room <= smallBuffer && len(p.small) < smallFree:
		p.small = append(p.small, b)
	case room > smallBuffer && room <= 3*p.MaxBatch && p.kept+room <= maxFree:
		p.free = append(p.free, b)
		p.kept += room
	}
}

// Claim is the batch of a number if nobody has heard yet what became of it, or nil. It is used until Finish.
func (p *Proposer[B, R]) Claim(number uint64) (b B) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.flight) == 0 {
		return b
	}
	first := p.flight[0].batch().number
	if number < first || number-first >= uint64(len(p.flight)) || p.flight[number-first].batch().done {
		return b
	}
	return p.flight[number-first]
}

// Unheard are the numbers up to last of batches of which nobody has heard what became of them.
func (p *Proposer[B, R]) Unheard(last uint64) (numbers []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.flight {
		if x := b.batch(); !x.done && x.number <= last {
			numbers = append(numbers, x.number)
		}
	}
	return numbers
}

// Finish says that everyone has heard what became of a batch.
func (p *Proposer[B, R]) Finish(b B) {
	p.mu.Lock()
	b.batch().done = true
	p.mu.Unlock()
	wake(p.kick)
}

// retire lets go of batches that are done, from the front, and reports whether there were any.
func (p *Proposer[B, R]) retire() bool {
	p.mu.Lock()
	n, freed := 0, 0
	for n < len(p.flight) && p.flight[n].batch().done {
		freed += p.flight[n].Octets()
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
		p.Pool.Charge(-freed)
	}
	if unblock {
		p.Block(false)
	}
	return n > 0
}

// quiet reports whether nothing is left to do. Called with p.mu held.
func (p *Proposer[B, R]) quiet() bool {
	return len(p.flight) == 0 && p.parcels == 0
}

// next is what is to be proposed next, or nil: a batch with its header, as one of those in flight, and its number. The first of a
// start goes alone, so that who has a second one in the log is known to have applied the log up to its first.
func (p *Proposer[B, R]) next() ([]byte, uint64) {
	p.mu.Lock()
	x := p.choose()
	rested := p.rested
	p.rested = nil
	p.mu.Unlock()
	for _, wake := range rested {
		wake()
	}
	if x == nil {
		return nil, 0
	}
	return x.Buf, x.number
}

// mostFlying is how many octets may be proposed and not applied. Called with p.mu held.
func (p *Proposer[B, R]) mostFlying() int {
	if p.alone >= aloneOctets {
		return maxFlightAlone
	}
	return maxFlightOctets
}

// choose is next with p.mu held.
func (p *Proposer[B, R]) choose() *Batch {
	if p.sent == len(p.flight) {
		if n := len(p.flight); n >= MaxFlight || n > 0 && (p.flying >= p.mostFlying() || p.flight[0].batch().number == 1) {
			return nil
		}
		var none B
		b := p.gather()
		if b == none {
			return nil
		}
		p.last++
		b.batch().number = p.last
		p.flight = append(p.flight, b)
		p.flying += b.Octets()
	}
	b := p.flight[p.sent].batch()
	h := Header{At: p.Now(), Node: p.Node, Boot: p.Boot, Number: b.number, Done: p.flight[0].batch().number - 1}
	h.Put(b.Buf)
	p.sent++
	return b
}

// rewind has everything proposed again that is not known to be applied.
func (p *Proposer[B, R]) rewind() {
	p.mu.Lock()
	p.sent = 0
	p.mu.Unlock()
}

// NewLeader says that what was proposed to the leader before may be lost. It does not wait.
func (p *Proposer[B, R]) NewLeader() { wake(p.elected) }

// pending is what is with the Raft engine.
type pending[R any] struct {
	proposal Proposal[R]
	number   uint64
}

// Run proposes until quit is closed.
func (p *Proposer[B, R]) Run(quit <-chan struct{}) {
	var sent []pending[R]
	var rest time.Duration // the next one
	var rested <-chan time.Time
	forget := func() { // without Release: the engine may still write to them
		clear(sent)
		sent = sent[:0]
	}
	giveUp := func() { // whatever becomes of it: all of it will be proposed again after a rest
		forget()
		rest = max(rest, Pause)
		rested = time.After(rest)
		rest = min(2*rest, longPause)
	}
	for {
		if p.retire() {
			rest = 0
		}
		for rested == nil {
			b, number := p.next()
			if b == nil {
				break
			}
			if proposal, err := p.Propose(b, time.Duration(p.timeout.Load())); err == nil {
				sent = append(sent, pending[R]{proposal, number})
			} else {
				giveUp()
			}
		}
		var outcome <-chan R
		if len(sent) > 0 {
			outcome = sent[0].proposal.ResultC()
		}
		select {
		case r := <-outcome:
			applied, ok := p.Applied(r)
			known := ok && applied >= sent[0].number
			sent[0].proposal.Release()
			if sent = append(sent[:0], sent[1:]...); !known { // it, or one before it, may not have been applied
				giveUp()
			}
		case <-rested:
			rested = nil
			p.rewind()
		case <-p.elected:
			forget()
			rest, rested = 0, nil
			p.rewind()
		case <-p.kick:
		case <-quit:
			return
		}
	}
}

// Close has nothing more be taken.
func (p *Proposer[B, R]) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
}

// Closed reports whether nothing more is taken.
func (p *Proposer[B, R]) Closed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// Drain closes the proposer when all has been applied, or after the time given, and says which.
func (p *Proposer[B, R]) Drain(most time.Duration) (all bool) {
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
	for !p.quiet() && !expired {
		p.idle.Wait()
	}
	p.closed = true
	return p.quiet()
}

// String is how much there is to do.
func (p *Proposer[B, R]) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("last %d, flight %d, sent %d, octets %d", p.last, len(p.flight), p.sent, p.octets)
}

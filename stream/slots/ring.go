package slots

import (
	"sync"

	"github.com/warrenmq/warren/quorum/propose"
)

// round is what one batch asks to be done outside the machine, and what became of the batch.
type round struct {
	mine    bool   // the batch is one of this node, of this start
	number  uint64 // which
	results []result
	fenced  []fence
	grown   []*Queue // something was appended to them, more than once each, perhaps
	ended   []*Queue // they were deleted
	// replaced are those whose files are others now, the state of which has come from another member.
	replaced []*Queue
}

// fence ends the consumers of a name of earlier generations; generation 0 ends all.
type fence struct {
	queue      *Queue
	name       string
	generation uint64
}

// fence notes one. r may be nil.
func (r *round) fence(q *Queue, name string, generation uint64) {
	if r != nil && q != nil {
		r.fenced = append(r.fenced, fence{q, name, generation})
	}
}

// ring takes rounds from the machine to the dispatcher, in order. What is in it is bounded by the batches in flight.
type ring struct {
	mu      sync.Mutex // guards what follows; a leaf
	waiting []*round
	free    []*round
	kick    chan struct{} // one slot
}

func newRing() *ring { return &ring{kick: make(chan struct{}, 1)} }

// get is an empty round.
func (r *ring) get() *round {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.free); n > 0 {
		x := r.free[n-1]
		r.free = r.free[:n-1]
		return x
	}
	return new(round)
}

// put appends a round. Who puts calls wake later.
func (r *ring) put(x *round) {
	r.mu.Lock()
	r.waiting = append(r.waiting, x)
	r.mu.Unlock()
}

// wake has the dispatcher look.
func (r *ring) wake() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// take moves everything to the end of rounds.
func (r *ring) take(rounds []*round) []*round {
	r.mu.Lock()
	defer r.mu.Unlock()
	rounds = append(rounds, r.waiting...)
	clear(r.waiting)
	r.waiting = r.waiting[:0]
	return rounds
}

// recycle takes back a round that was carried out.
func (r *ring) recycle(x *round) {
	clear(x.fenced)
	clear(x.grown)
	clear(x.ended)
	clear(x.replaced)
	*x = round{results: x.results[:0], fenced: x.fenced[:0], grown: x.grown[:0], ended: x.ended[:0], replaced: x.replaced[:0]}
	r.mu.Lock()
	if len(r.free) < 2*propose.MaxFlight {
		r.free = append(r.free, x)
	}
	r.mu.Unlock()
}

package quorum

import (
	"sync"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/quorum/propose"
	"github.com/warrenmq/warren/storage"
)

// round is what one batch asks to be done outside the machine, in the order of its commands, and what became of the batch.
type round struct {
	mine       bool   // the batch is one of this node, of this start
	number     uint64 // which
	ops        []op
	deliveries []delivery
	letters    []letter
	answer     answer
	reload     *reload
}

// reload is what a snapshot from another member says of this node's clients.
type reload struct {
	last    uint64                     // number of the last batch of this start that it includes
	answers []propose.Answered[answer] // of those that this node may not have heard of
	queues  []holdings
}

// holdings are what the consumers and getters of this node hold of one queue.
type holdings struct {
	queue  *Queue
	held   map[queue.ConsumerID]holding
	before map[queue.ConsumerID]bool // those that held something before what was skipped; nil: the queue is gone
	single bool                      // only one consumer is active:
	active queue.ConsumerID
}

type holding struct {
	deliveries []pending
	late       []queue.Range // that have timed out
	overdue    bool          // some have, ever
}

// op is one thing to do. Which of its fields mean something depends on what it is.
type op struct {
	kind     opKind
	from, to int // in deliveries, letters or answer.results
	queue    *Queue
	consumer queue.ConsumerID
	ids      queue.Range
	active   bool
}

type opKind uint8

const (
	opResult   opKind = iota // answer.results[from]
	opDeliver                // deliveries[from:to], all of one queue and consumer
	opLetters                // letters[from:to]
	opTimedOut               // consumer took too long for ids, which have returned
	opCancel                 // the machine ended consumer
	opLeft                   // consumer was ended, and holds nothing
	opActivity               // consumer is active or no longer
	opContinue               // the machine wants to go on
	opDeleted                // the queue is gone
	opEnded                  // the node was taken for dead: the queue's consumers of this node are gone
	opLeads                  // this node leads now
	opReload                 // reload
)

// delivery is a message on its way to a consumer. Message comes with a reference if it is in memory; if not, its Ref is
// zero.
type delivery struct {
	seq         queue.Seq
	id          queue.DeliveryID
	message     queue.Message
	acquired    uint32
	failed      uint32
	redelivered bool
	held        bool // message is there
}

// letter is a message that leaves a queue unacknowledged, or, if cold, a stretch of messages that are to be read from disk.
type letter struct {
	queue.DeadLetter
	log      storage.LogID  // of the queue
	seqs     queue.SeqRange // where they lie; of those that are kept or cold
	cold     bool
	failures uint32
	kept     bool // they stay in the queue until they have arrived
}

// ring takes rounds from the machine to the dispatcher, in order. What is in it is bounded by what the machine hands out
// and by the batches in flight.
type ring struct {
	mu      sync.Mutex // guards what follows; a leaf
	waiting []*round
	ready   []*consumer // whose outlets have room again
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

// put appends a round.
func (r *ring) put(x *round) {
	r.mu.Lock()
	r.waiting = append(r.waiting, x)
	r.mu.Unlock()
	r.wake()
}

// wake has the dispatcher look.
func (r *ring) wake() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// post says that a consumer has room for what waits for it.
func (r *ring) post(c *consumer) {
	r.mu.Lock()
	r.ready = append(r.ready, c)
	r.mu.Unlock()
	r.wake()
}

// take moves everything to the ends of the two lists.
func (r *ring) take(rounds []*round, ready []*consumer) ([]*round, []*consumer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rounds, ready = append(rounds, r.waiting...), append(ready, r.ready...)
	clear(r.waiting)
	clear(r.ready)
	r.waiting, r.ready = r.waiting[:0], r.ready[:0]
	return rounds, ready
}

// recycle takes back a round that was carried out.
func (r *ring) recycle(x *round) {
	const keep = 8 << 10
	clear(x.ops)
	x.ops, x.deliveries, x.letters = x.ops[:0], x.deliveries[:0], x.letters[:0]
	x.answer = answer{results: x.answer.results[:0], refused: x.answer.refused[:0]}
	x.mine, x.number, x.reload = false, 0, nil
	if cap(x.deliveries) > keep || cap(x.ops) > keep || cap(x.letters) > keep || cap(x.answer.results) > keep {
		return
	}
	r.mu.Lock()
	if len(r.free) < 32 {
		r.free = append(r.free, x)
	}
	r.mu.Unlock()
}

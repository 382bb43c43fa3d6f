package quorum

import (
	"time"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/quorum/propose"
)

// maxBatch is how many octets are proposed at once, unless one command has more.
const maxBatch = 256 << 10

// batch is commands of this node on their way through the log, and who waits for what becomes of them, in the order of the commands.
type batch struct {
	propose.Batch
	publishes []published
	numbers   []queue.Range // publish numbers of publishes
	waiters   []func(*dispatcher, *result)
}

// nothing appends a command that does nothing but to be answered.
func (b *batch) nothing(answer func()) {
	b.Buf = appendCommand(b.Buf, cmdPurge, 0)
	b.waiters = append(b.waiters, func(*dispatcher, *result) { answer() })
}

// published is a publish of a batch: whose, and which of the batch's numbers.
type published struct {
	confirms queue.Confirms // nil: nobody wants to know
	from, to int            // in numbers
}

// Merge implements propose.Batched.
func (b *batch) Merge(o *batch) {
	b.Buf = append(b.Buf, o.Buf[propose.HeaderLen:]...)
	at := len(b.numbers)
	b.numbers = append(b.numbers, o.numbers...)
	for _, p := range o.publishes {
		p.from, p.to = p.from+at, p.to+at
		b.publishes = append(b.publishes, p)
	}
	b.waiters = append(b.waiters, o.waiters...)
}

// Reset implements propose.Batched.
func (b *batch) Reset() (small bool) {
	clear(b.publishes)
	clear(b.waiters)
	b.publishes, b.numbers, b.waiters = b.publishes[:0], b.numbers[:0], b.waiters[:0]
	return cap(b.publishes) <= 8<<10 && cap(b.waiters) <= 8<<10
}

// engine is what a proposer asks of the Raft engine: see propose.Options.
type engine interface {
	propose(b []byte, timeout time.Duration) (Proposal, error)
}

// lane is the way of a queue's commands to the proposer.
type lane = propose.Lane[*batch]

// proposer is this node's way into the log of a slot.
type proposer = propose.Proposer[*batch, Outcome]

func newProposer(node, boot uint64, pool *queue.Pool, now func() queue.Time, e engine, block func(bool)) *proposer {
	return propose.New(propose.Options[*batch, Outcome]{
		Node: node, Boot: boot, Pool: pool, MaxBatch: maxBatch, Now: func() int64 { return int64(now()) },
		New: func() *batch { return new(batch) }, Propose: e.propose, Applied: Applied, Block: block,
	})
}

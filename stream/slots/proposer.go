package slots

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/quorum"
	"github.com/warrenmq/warren/quorum/propose"
	"github.com/warrenmq/warren/stream"
)

const (
	// maxBatch is how many octets are proposed at once, unless one message has more.
	maxBatch = 512 << 10
	// maxChunk is how many octets a chunk has, unless one message has more.
	maxChunk = 1 << 20
	// commitPause is how long commits of offsets wait for something else to ride with.
	commitPause = 50 * time.Millisecond
)

// batch is commands of this node on their way through the log, and who waits for what becomes of them.
type batch struct {
	propose.Batch
	p         *proposer
	building  *building // the chunk that is being built, of the stream whose lane it is; nil: none
	size      int       // octets of all of it but the header
	publishes []published
	numbers   []queue.Range // publish numbers of publishes
	waiters   []func(*result, *queue.Wake)
}

// Octets implements propose.Batched.
func (b *batch) Octets() int { return b.size }

// Merge implements propose.Batched.
func (b *batch) Merge(o *batch) {
	b.Buf = append(b.Buf, o.Buf[propose.HeaderLen:]...)
	b.size += o.size
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
	b.size, b.publishes, b.numbers, b.waiters = 0, b.publishes[:0], b.numbers[:0], b.waiters[:0]
	return cap(b.publishes) <= 8<<10 && cap(b.waiters) <= 8<<10
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

// lane is the way of a stream's messages and commands to the proposer.
type lane = propose.Lane[*batch]

// proposer is this node's way into the log of a slot. It gathers messages into a chunk for each stream, and offsets that are to be
// committed into the next batch.
type proposer struct {
	*propose.Proposer[*batch, quorum.Outcome]
	spare []*building // guarded as batches are

	mu     sync.Mutex  // guards what follows; a leaf, taken after the Proposer's lock
	dirty  []*consumer // with offsets to be committed
	lone   *time.Timer // ends commitPause
	closed bool        // takes no more offsets
}

func newProposer(node, boot uint64, pool *queue.Pool, now func() int64, block func(bool)) *proposer {
	p := &proposer{}
	p.Proposer = propose.New(propose.Options[*batch, quorum.Outcome]{
		Node: node, Boot: boot, Pool: pool, MaxBatch: maxBatch, Now: now,
		New: func() *batch { return &batch{p: p} }, Applied: quorum.Applied, Block: block,
	})
	p.lone = time.AfterFunc(commitPause, p.ride)
	p.lone.Stop()
	return p
}

// command adds a command of a stream, behind what was published to it, and what was committed of it.
func (p *proposer) command(k kind, q *Queue, rest func(dst []byte) []byte, answer func(*result, *queue.Wake)) bool {
	return p.Add(&q.lane, func(b *batch) {
		b.close()
		b.commits(q)
		b.command(k, q.id, rest, answer)
	})
}

// urgent adds a command that does not depend on what is published: of the slot, or of a stream that this node does not know.
func (p *proposer) urgent(k kind, id uint64, rest func(dst []byte) []byte) {
	p.Add(nil, func(b *batch) { b.command(k, id, rest, nil) })
}

// command appends a command. Called with the Proposer's lock.
func (b *batch) command(k kind, id uint64, rest func(dst []byte) []byte, answer func(*result, *queue.Wake)) {
	before := len(b.Buf)
	b.Buf = appendCommand(b.Buf, k, id)
	if rest != nil {
		b.Buf = rest(b.Buf)
	}
	b.size += len(b.Buf) - before
	if answer != nil {
		b.waiters = append(b.waiters, answer)
	}
}

// publish adds an entry for each message of m.
func (p *proposer) publish(q *Queue, m *converted, confirms queue.Confirms) bool {
	return p.Add(&q.lane, func(b *batch) {
		x := published{confirms: confirms, from: len(b.numbers)}
		from := 0
		for i := range m.entries {
			e := &m.entries[i]
			c := b.chunk(q)
			if c.Entries() > 0 && c.Len()+e.end-from > maxChunk || c.Entries() == stream.MaxEntries {
				b.close()
				c = b.chunk(q)
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

// chunk is the chunk that is being built for the stream. Called with the Proposer's lock.
func (b *batch) chunk(q *Queue) *building {
	if b.building != nil {
		return b.building
	}
	p := b.p
	var c *building
	if n := len(p.spare); n > 0 {
		c, p.spare = p.spare[n-1], p.spare[:n-1]
	} else {
		c = new(building)
	}
	c.id = q.id
	c.Reset(q.filter)
	b.size += stream.HeaderLen
	b.building = c
	return c
}

// close ends the chunk that is being built, if there is one, and appends it. Called with the Proposer's lock.
func (b *batch) close() {
	c, p := b.building, b.p
	if c == nil {
		return
	}
	b.building = nil
	chunk := c.Finish(p.Now(), epoch)
	b.Buf = appendCommand(b.Buf, cmdChunk, c.id)
	b.Buf = binary.AppendUvarint(b.Buf, uint64(len(chunk)))
	b.Buf = append(b.Buf, chunk...)
	if n := len(p.spare); n < 4 || n < 64 && cap(chunk) <= 64<<10 { // a busy stream's are as long as a batch
		p.spare = append(p.spare, c)
	}
}

// epoch is what stands in chunks as the stream's epoch: offsets never turn back, so that there is one only.
const epoch = 1

// Seal implements propose.Batched: it ends the chunk.
func (b *batch) Seal() {
	b.close()
	b.commits(nil)
}

// commits appends what consumers of a stream, or of all (nil), have acknowledged, which is not worth being accounted for.
func (b *batch) commits(of *Queue) {
	p := b.p
	p.mu.Lock()
	defer p.mu.Unlock()
	rest := p.dirty[:0]
	for _, c := range p.dirty {
		if of != nil && c.queue != of {
			rest = append(rest, c)
			continue
		}
		b.Buf = appendCommand(b.Buf, cmdCommit, c.queue.id)
		b.Buf = appendName(b.Buf, c.spec.Name)
		b.Buf = binary.AppendUvarint(b.Buf, c.generation)
		b.Buf = binary.AppendUvarint(b.Buf, c.committing.Swap(0)-1)
	}
	clear(p.dirty[len(rest):])
	p.dirty = rest
}

// commit has an offset be committed with the next batch, or, if none comes soon, by itself. Only the newest of a consumer's is.
func (p *proposer) commit(c *consumer, next uint64) {
	if c.committing.Swap(next+1) != 0 {
		return // it waits already, with less
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	if len(p.dirty) == 0 {
		p.lone.Reset(commitPause)
	}
	p.dirty = append(p.dirty, c)
}

// ride makes a batch for commits that wait, if there are any.
func (p *proposer) ride() {
	p.mu.Lock()
	waiting := len(p.dirty) > 0
	p.mu.Unlock()
	if waiting {
		p.Add(nil, func(*batch) {})
	}
}

// drain refuses what comes from now on and returns when all has been applied, or after the time given.
func (p *proposer) drain(most time.Duration) (all bool) {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.ride()
	p.Close()
	return p.Drain(most)
}

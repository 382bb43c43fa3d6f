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
	chunks    []*building
	building  map[uint64]*building // chunks, by stream
	size      int                  // octets of all of it but the header
	publishes []published
	numbers   []queue.Range // publish numbers of publishes
	waiters   []func(*result, *queue.Wake)
}

// Octets implements propose.Batched.
func (b *batch) Octets() int { return b.size }

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

// command adds a command of a stream, behind what was published to it.
func (p *proposer) command(k kind, id uint64, rest func(dst []byte) []byte, answer func(*result, *queue.Wake)) bool {
	return p.Add(func(b *batch) {
		b.close(id)
		b.commits()
		before := len(b.Buf)
		b.Buf = appendCommand(b.Buf, k, id)
		if rest != nil {
			b.Buf = rest(b.Buf)
		}
		b.size += len(b.Buf) - before
		if answer != nil {
			b.waiters = append(b.waiters, answer)
		}
	})
}

// publish adds an entry for each message of m.
func (p *proposer) publish(q *Queue, m *converted, confirms queue.Confirms) bool {
	return p.Add(func(b *batch) {
		x := published{confirms: confirms, from: len(b.numbers)}
		from := 0
		for i := range m.entries {
			e := &m.entries[i]
			c := b.chunk(q)
			if c.Entries() > 0 && c.Len()+e.end-from > maxChunk || c.Entries() == stream.MaxEntries {
				b.close(q.id)
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

// chunk is the chunk that is being built for a stream. Called with the Proposer's lock.
func (b *batch) chunk(q *Queue) *building {
	if c := b.building[q.id]; c != nil {
		return c
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
	if b.building == nil {
		b.building = map[uint64]*building{}
	}
	b.building[q.id] = c
	b.chunks = append(b.chunks, c)
	return c
}

// close ends the chunk of a stream, if there is one. Called with the Proposer's lock.
func (b *batch) close(id uint64) {
	if c := b.building[id]; c != nil {
		b.finish(c)
		for i := range b.chunks {
			if b.chunks[i] == c {
				b.chunks = append(b.chunks[:i], b.chunks[i+1:]...)
				break
			}
		}
	}
}

// finish appends a chunk to the batch. Called with the Proposer's lock.
func (b *batch) finish(c *building) {
	p := b.p
	chunk := c.Finish(p.Now(), epoch)
	b.Buf = appendCommand(b.Buf, cmdChunk, c.id)
	b.Buf = binary.AppendUvarint(b.Buf, uint64(len(chunk)))
	b.Buf = append(b.Buf, chunk...)
	delete(b.building, c.id)
	if n := len(p.spare); n < 4 || n < 64 && cap(chunk) <= 64<<10 { // a busy stream's are as long as a batch
		p.spare = append(p.spare, c)
	}
}

// epoch is what stands in chunks as the stream's epoch: offsets never turn back, so that there is one only.
const epoch = 1

// Seal implements propose.Batched: it ends all chunks.
func (b *batch) Seal() {
	for i, c := range b.chunks {
		b.finish(c)
		b.chunks[i] = nil
	}
	b.chunks = b.chunks[:0]
	b.commits()
}

// commits appends what consumers have acknowledged, which is not worth being accounted for.
func (b *batch) commits() {
	p := b.p
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, c := range p.dirty {
		p.dirty[i] = nil
		b.Buf = appendCommand(b.Buf, cmdCommit, c.queue.id)
		b.Buf = appendName(b.Buf, c.spec.Name)
		b.Buf = binary.AppendUvarint(b.Buf, c.generation)
		b.Buf = binary.AppendUvarint(b.Buf, c.committing.Swap(0)-1)
	}
	p.dirty = p.dirty[:0]
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
		p.Add(func(*batch) {})
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

package remote

import (
	"encoding/binary"
	"sync"

	"github.com/warrenmq/warren/cluster"
	"github.com/warrenmq/warren/queue"
)

const (
	// batchOctets is how much is sent at once, unless one message has more.
	batchOctets = 256 << 10
	// itemOctets is what anything that waits counts for, besides the octets of messages.
	itemOctets = 64
)

// pipe gathers what goes to a peer on one stream, in order. Those who add put it into their Wake; when that is flushed, all that
// has gathered is sent, as far as the stream has credit, and the rest when it has. Messages are not copied before they are sent.
type pipe struct {
	pool  *queue.Pool
	kind  uint8            // of the batches
	load  func(octets int) // is told, under mu, by how much what waits has changed; may be nil
	after func()           // is called without locks when something was sent; may be nil
	room  func()           // what to do when the stream has room again
	mu    sync.Mutex       // guards what follows, and what the pipe's owner says. Above the link's locks, below those of queues

	stream   *cluster.Stream // nil: none yet
	number   uint32          // of the lane
	epoch    uint64
	say      []uint8 // empty batches of these kinds that go first
	items    fifo[item]
	text     fifo[byte]
	messages fifo[queue.Message]
	bodies   int      // octets of messages
	weight   int      // what load was told
	gone     []uint32 // slabs of messages that were sent, to be released
	waked    bool     // in somebody's Wake, or about to be flushed
	stalled  bool     // the stream has no room, and will say so

	plan plan // of the batch being made
}

type itemKind uint8

const (
	itemText    itemKind = iota // n octets of text
	itemBody                    // the octets of a message
	itemPublish                 // n messages
	itemDeliver                 // what served has waiting
)

type item struct {
	kind   itemKind
	n      int
	id     ID      // of the queue published to
	first  uint64  // number of the first message; 0: no confirms are wanted
	served *served // the consumer to deliver to
}

// plan is a batch on its way to the stream: where its octets are, and what it takes out of the pipe.
type plan struct {
	head                  []byte
	cuts                  []cut
	parts                 [][]byte
	octets                int
	items, text, messages int
	published             int // of the publish that stays first
	deliver               []portion
}

// cut says that the octets of a message come behind head[:at].
type cut struct {
	at  int
	ref queue.Ref
}

// portion is n deliveries of a consumer.
type portion struct {
	served *served
	n      int
	stays  bool // it has more that may go
}

// fifo is a queue in a slice.
type fifo[T any] struct {
	list []T
	from int
}

func (f *fifo[T]) len() int     { return len(f.list) - f.from }
func (f *fifo[T]) waiting() []T { return f.list[f.from:] }
func (f *fifo[T]) at(i int) *T  { return &f.list[f.from+i] }
func (f *fifo[T]) add(v ...T)   { f.list = append(f.list, v...) }

// drop takes out the first n.
func (f *fifo[T]) drop(n int) {
	clear(f.list[f.from : f.from+n])
	f.from += n
	switch rest := f.len(); {
	case rest == 0 && cap(f.list) > keepItems:
		*f = fifo[T]{}
	case rest == 0 || f.from > 1024 && f.from > rest:
		copy(f.list, f.list[f.from:])
		clear(f.list[rest:])
		f.list, f.from = f.list[:rest], 0
	}
}

// keepItems is what an empty fifo keeps room for.
const keepItems = 64 << 10

// write appends what encode appends to its argument. Called with mu.
func (p *pipe) write(encode func(dst []byte) []byte) {
	before := len(p.text.list)
	p.text.list = encode(p.text.list)
	p.wrote(before)
}

// wrote makes an item of the text from a place on. Called with mu.
func (p *pipe) wrote(from int) {
	n := len(p.text.list) - from
	if k := p.items.len(); k > 0 && p.items.at(k-1).kind == itemText && p.items.at(k-1).n < batchOctets {
		p.items.at(k - 1).n += n
	} else {
		p.items.add(item{kind: itemText, n: n})
	}
	p.weigh()
}

// body appends the octets of a message, whose reference passes to the pipe. Called with mu.
func (p *pipe) body(m queue.Message) {
	p.items.add(item{kind: itemBody})
	p.messages.add(m)
	p.bodies += int(m.Ref.Len)
	p.weigh()
}

// weigh tells the owner what waits. Called with mu.
func (p *pipe) weigh() {
	if w := p.bodies + p.text.len() + itemOctets*(p.items.len()+p.messages.len()); w != p.weight {
		if p.load != nil {
			p.load(w - p.weight)
		}
		p.weight = w
	}
}

// wake puts the pipe into w, where it is not in one. Called with mu.
func (p *pipe) wake(w *queue.Wake) {
	if !p.waked {
		p.waked = true
		w.Add(p)
	}
}

// later has the pipe be flushed although the caller has no Wake. Called with mu.
func (p *pipe) later() {
	if !p.waked {
		p.waked = true
		go p.flush()
	}
}

// Wake implements queue.Waker.
func (p *pipe) Wake(*queue.Wake) { p.flush() }

// flush sends what there is.
func (p *pipe) flush() {
	release := queue.Releaser{Pool: p.pool}
	p.mu.Lock()
	p.waked = false
	for !p.stalled && p.stream != nil && p.send() {
	}
	gone := p.gone
	p.gone = nil
	p.mu.Unlock()
	for _, slab := range gone {
		release.Add(slab)
	}
	release.Flush()
	if p.after != nil {
		p.after()
	}
	if cap(gone) <= keepItems {
		p.mu.Lock()
		if p.gone == nil {
			p.gone = gone[:0]
		}
		p.mu.Unlock()
	}
}

// roomy is told that the stream has room.
func (p *pipe) roomy() {
	p.mu.Lock()
	p.stalled = false
	p.mu.Unlock()
	p.flush()
}

// bind gives the pipe its stream, and says whether it is another one than before. Called with mu.
func (p *pipe) bind(s *cluster.Stream) (other bool) {
	if p.stream == s {
		return false
	}
	p.stream, p.stalled = s, false
	if s != nil {
		s.Room(p.room)
	}
	return true
}

// send sends one batch. It returns false if there is none, or no room. Called with mu.
func (p *pipe) send() bool {
	for len(p.say) > 0 {
		var b [binary.MaxVarintLen64]byte
		if !p.stream.Send(p.say[0], binary.AppendUvarint(b[:0], p.epoch)) {
			p.stalled = true
			return false
		}
		p.say = p.say[:copy(p.say, p.say[1:])]
	}
	if !p.make() {
		return false
	}
	if !p.stream.Send(p.kind, p.plan.parts...) {
		p.stalled = true
		return false
	}
	p.sent()
	return true
}

// make plans the next batch. It returns false if there is nothing to be sent. Called with mu.
func (p *pipe) make() bool {
	b := &p.plan
	clear(b.parts)
	*b = plan{head: b.head[:0], cuts: b.cuts[:0], parts: b.parts[:0], deliver: b.deliver[:0]}
	b.head = binary.AppendUvarint(b.head, p.epoch)
	for b.items < p.items.len() && b.octets+len(b.head) < batchOctets {
		it := p.items.at(b.items)
		switch it.kind {
		case itemText:
			b.head = append(b.head, p.text.waiting()[b.text:b.text+it.n]...)
			b.text += it.n
		case itemBody:
			b.cut(p.messages.at(b.messages).Ref)
			b.messages++
		case itemPublish:
			if n := p.publish(it); n < it.n {
				b.published = n
				return p.finish()
			}
		case itemDeliver:
			n, stays := it.served.take(b, batchOctets-b.octets-len(b.head))
			b.deliver = append(b.deliver, portion{it.served, n, stays})
			if stays {
				return p.finish()
			}
		}
		b.items++
	}
	return b.items > 0 && p.finish()
}

// cut has the octets of a message come next.
func (b *plan) cut(r queue.Ref) {
	b.cuts = append(b.cuts, cut{len(b.head), r})
	b.octets += int(r.Len)
}

// publish plans as many messages of a publish as there is room for, at least one, and returns how many.
func (p *pipe) publish(it *item) int {
	b := &p.plan
	ms := p.messages.waiting()[b.messages : b.messages+it.n]
	n, octets := 1, int(ms[0].Ref.Len)
	for n < len(ms) && b.octets+len(b.head)+octets+int(ms[n].Ref.Len) <= batchOctets {
		octets += int(ms[n].Ref.Len)
		n++
	}
	b.head = appendCommand(b.head, cmdPublish, it.id)
	b.head = binary.AppendUvarint(b.head, it.first)
	b.head = binary.AppendUvarint(b.head, uint64(n))
	for i := range ms[:n] {
		b.head = appendMeta(b.head, &ms[i])
	}
	for i := range ms[:n] {
		b.cut(ms[i].Ref)
	}
	b.messages += n
	return n
}

// finish puts the parts together.
func (p *pipe) finish() bool {
	b := &p.plan
	from := 0
	for _, c := range b.cuts {
		if c.at > from {
			b.parts = append(b.parts, b.head[from:c.at])
			from = c.at
		}
		b.parts = append(b.parts, p.pool.Bytes(c.ref))
	}
	if from < len(b.head) {
		b.parts = append(b.parts, b.head[from:])
	}
	return true
}

// sent takes what was sent out of the pipe. Called with mu.
func (p *pipe) sent() {
	b := &p.plan
	for _, m := range p.messages.waiting()[:b.messages] {
		p.gone = append(p.gone, m.Ref.Slab)
		p.bodies -= int(m.Ref.Len)
	}
	p.messages.drop(b.messages)
	p.text.drop(b.text)
	p.items.drop(b.items)
	if b.published > 0 {
		it := p.items.at(0)
		it.n -= b.published
		if it.first > 0 {
			it.first += uint64(b.published)
		}
	}
	for _, d := range b.deliver {
		p.gone = d.served.delivered(d.n, d.stays, p.gone)
	}
	p.weigh()
}

// empty throws away what waits, and returns the messages, whose references are the caller's. Called with mu.
func (p *pipe) empty() []queue.Message {
	ms := p.messages.waiting()
	p.items, p.text, p.messages = fifo[item]{}, fifo[byte]{}, fifo[queue.Message]{}
	p.say, p.stalled, p.bodies = p.say[:0], false, 0
	p.weigh()
	return ms
}

func releaseAll(pool *queue.Pool, ms []queue.Message) {
	release := queue.Releaser{Pool: pool}
	for i := range ms {
		release.Add(ms[i].Ref.Slab)
	}
	release.Flush()
}

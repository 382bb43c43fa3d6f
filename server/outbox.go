package server

import (
	"sync"

	"github.com/warrenmq/warren/queue"
)

// outbox holds what a connection has to write, in wire order: encoded methods, deliveries, confirms. Everyone who has
// something for the peer puts it here; one goroutine at a time, the writer, takes it out. Who that is passes around:
//
//	parked              nobody writes; there is nothing to write
//	running             somebody writes
//	running with more   the same, and things have been added since it last looked
//
// Whoever wakes a parked outbox with little in it becomes the writer on its own goroutine and leaves when the socket
// takes no more; a goroutine is started only for the rest, or for much. So a connection at rest has none, and a low rate
// costs no switch.
type outbox struct {
	mu      sync.Mutex // guards what follows. Locked under a queue's lock; channel and confirm locks are never held with it
	items   []item
	text    []byte      // encoded frames of itemText items, one after the other
	needy   []*consumer // whose queue waits to hear that what it offered was taken
	bytes   int         // about what items will take on the wire
	asked   int         // those of them that the peer asks for one by one: everything but what queues offer
	running bool        // somebody writes
	idle    sync.Cond   // nobody writes any more
	waked   bool        // in somebody's Wake list
	hungry  bool        // the reader waits until there is less to write
	sealed  bool        // nothing is accepted any more; what is there is still written
	closed  bool        // nothing is written any more
}

type itemKind uint8

const (
	itemText    itemKind = iota // size octets of text
	itemDeliver                 // to consumer
	itemFrames                  // the same, size deliveries whose frames are made: offered has their bytes, and the id of the first
	itemGetOk                   // to channel, by consumer; size is the number of messages left
	itemConfirm                 // ask channel for what is confirmed
	itemRetire                  // nothing more comes for consumer: its handle is free when all is acknowledged
)

// holds reports whether items of a kind hold a reference to a message, or frames.
func (k itemKind) holds() bool { return k == itemDeliver || k == itemFrames || k == itemGetOk }

// item is one thing to write. Deliveries hold a reference to their message.
type item struct {
	offered  queue.Offered
	consumer *consumer
	channel  *channel
	size     uint32
	kind     itemKind
	noAck    bool // of itemGetOk
}

const (
	// inlineBytes is how much the goroutine that woke the outbox writes itself.
	inlineBytes = 16 << 10
	// writeBytes is how much one write gathers.
	writeBytes = 320 << 10
	// outletBytes is how much waits for one consumer before its queue pauses.
	outletBytes = 256 << 10
	// maxBacklog is how many octets may wait for a peer that asks and does not read, before nothing more is read from it.
	maxBacklog = 4 << 20
	// maxReplies is how many may wait before direct replies to such a peer are dropped, as others ask for those.
	maxReplies = 64 << 20
	// maxUnheard is how many publishes may be confirmed to a peer that does not read, before nothing more is read from it.
	maxUnheard = 256 << 10
	// keepItems and keepText are what a connection keeps for what it has to write next.
	keepItems = 4 << 10
	keepText  = 64 << 10
)

// add notes that the outbox has something and returns whether its owner must put it into a Wake list. Called with o.mu.
func (o *outbox) add(bytes int) (wake bool) {
	o.bytes += bytes
	if o.waked {
		return false
	}
	o.waked = true
	return true
}

// putText appends what encode appends to its argument, as one unit. It returns false when the outbox is closed, or the
// consumer that it is about, which may be nil, is gone or its channel muted.
func (c *conn) putText(w *queue.Wake, about *consumer, encode func(dst []byte) []byte) bool {
	o := &c.out
	o.mu.Lock()
	if o.sealed || about != nil && (about.gone || about.channel.muted) {
		o.mu.Unlock()
		return false
	}
	before := len(o.text)
	o.text = encode(o.text)
	n := len(o.text) - before
	if k := len(o.items); k > 0 && o.items[k-1].kind == itemText {
		o.items[k-1].size += uint32(n)
	} else {
		o.items = append(o.items, item{kind: itemText, size: uint32(n)})
	}
	o.asked += n
	wake := o.add(n)
	o.mu.Unlock()
	if wake {
		w.Add(c)
	}
	return true
}

// put appends one item, unless its channel is muted. The reference of its message passes to the outbox, which releases what it does
// not take.
func (c *conn) put(w *queue.Wake, it item) {
	o := &c.out
	o.mu.Lock()
	reply := it.kind == itemDeliver
	if o.sealed || it.channel.muted || reply && (it.consumer.gone || o.asked > maxReplies) {
		o.mu.Unlock()
		if reply || it.kind == itemGetOk {
			c.server.pool.Release(it.offered.Message.Ref.Slab, 1)
		}
		return
	}
	n := int(it.offered.Message.Ref.Len) + 64
	o.items = append(o.items, it)
	o.asked += n
	wake := o.add(n)
	o.mu.Unlock()
	if wake {
		w.Add(c)
	}
}

// Offer implements queue.Outlet.
func (k *consumer) Offer(ds []queue.Offered, w *queue.Wake) bool {
	o := &k.channel.conn.out
	o.mu.Lock()
	if o.sealed || k.gone || k.channel.muted {
		o.mu.Unlock()
		release := queue.Releaser{Pool: k.channel.conn.server.pool}
		for i := range ds {
			release.Add(ds[i].Message.Ref.Slab)
		}
		release.Flush()
		return true
	}
	bytes := 0
	for i := range ds {
		bytes += int(ds[i].Message.Ref.Len) + 64
		o.items = append(o.items, item{kind: itemDeliver, consumer: k, channel: k.channel, offered: ds[i]})
	}
	return k.tookIn(len(ds), bytes, outletBytes, w)
}

// Form implements queue.FrameOutlet.
func (k *consumer) Form() (head []byte, frameMax int) { return k.head, int(k.channel.conn.frameMax) }

// OfferFrames implements queue.FrameOutlet.
func (k *consumer) OfferFrames(fs []queue.Frames, room int, w *queue.Wake) bool {
	o := &k.channel.conn.out
	o.mu.Lock()
	if o.sealed || k.gone || k.channel.muted {
		o.mu.Unlock()
		for i := range fs {
			k.channel.conn.server.pool.Release(fs[i].Ref.Slab, 1)
		}
		return true
	}
	n, bytes := 0, 0
	for i := range fs {
		f := &fs[i]
		n += f.N
		bytes += int(f.Ref.Len) + 64
		o.items = append(o.items, item{kind: itemFrames, consumer: k, channel: k.channel, size: uint32(f.N),
			offered: queue.Offered{Message: queue.Message{Ref: f.Ref}, ID: f.First}})
	}
	return k.tookIn(n, bytes, min(room, outletBytes), w)
}

// tookIn notes that n deliveries were put into the outbox, and reports whether there is room for more: less than room octets wait.
// Called with o.mu held, which it releases.
func (k *consumer) tookIn(n, bytes, room int, w *queue.Wake) bool {
	c := k.channel.conn
	o := &c.out
	k.offered += n
	k.pending += bytes
	full := k.pending >= room
	if !k.needy && (full || k.offered >= queue.DefaultWindow/2) {
		k.needy = true
		o.needy = append(o.needy, k)
	}
	wake := o.add(bytes)
	o.mu.Unlock()
	if wake {
		w.Add(c)
	}
	return !full
}

// taken is what a writer took out of an outbox. What it has not encoded yet begins at items[next] and text[at:].
type taken struct {
	items    []item
	text     []byte
	needy    []*consumer
	next, at int
	hungry   bool // the reader waits for all of it to be encoded
}

func (t *taken) more() bool { return t.next < len(t.items) }

// take moves everything into t, all of which was encoded and is used again. When there is nothing, it returns false, and
// with park set the caller is no longer the writer.
func (c *conn) take(t *taken, park bool) bool {
	o := &c.out
	clear(t.items) // they hold pointers
	t.next, t.at = 0, 0
	if cap(t.items) > keepItems {
		t.items = nil
	}
	if cap(t.text) > keepText {
		t.text = nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waked = false
	if len(o.items) == 0 || o.closed {
		t.items = t.items[:0]
		if park {
			c.parkWriter()
		}
		return false
	}
	t.items, o.items = o.items, t.items[:0]
	t.text, o.text = o.text, t.text[:0]
	t.needy, o.needy = o.needy, t.needy[:0]
	t.hungry, o.hungry = o.hungry, false
	o.bytes, o.asked = 0, 0
	for _, k := range t.needy {
		k.needy, k.offered, k.pending = false, 0, 0
	}
	return true
}

// parkWriter says that nobody writes any more. Called with o.mu held.
func (c *conn) parkWriter() {
	o := &c.out
	o.running = false
	o.idle.Broadcast()
	if o.hungry {
		o.hungry = false
		c.post(func() {})
	}
}

// wait returns when nobody writes.
func (o *outbox) wait() {
	o.mu.Lock()
	for o.running {
		o.idle.Wait()
	}
	o.mu.Unlock()
}

// congested reports whether the peer has more coming than it may let wait. The reader gets mail when that may have
// changed.
func (c *conn) congested() bool {
	o := &c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hungry = !o.closed && (o.asked > maxBacklog || c.unheard.Load() > maxUnheard)
	return o.hungry
}

// drop takes out the deliveries of a channel that ends; what is already with the writer goes its way.
func (c *conn) drop(ch *channel, consumers []*consumer) {
	o := &c.out
	release := queue.Releaser{Pool: c.server.pool}
	o.mu.Lock()
	keep := o.items[:0]
	for _, it := range o.items {
		switch {
		case it.channel == ch && it.kind.holds():
			release.Add(it.offered.Message.Ref.Slab)
			n := int(it.offered.Message.Ref.Len) + 64
			o.bytes -= n
			if it.kind == itemGetOk || it.consumer.queue == nil {
				o.asked -= n
			}
		case it.kind != itemText && it.channel == ch:
		default:
			keep = append(keep, it)
		}
	}
	clear(o.items[len(keep):])
	o.items = keep
	for _, k := range consumers {
		k.gone = true
	}
	o.mu.Unlock()
	release.Flush()
}

// shut refuses everything from now on and releases what waits. What the writer holds is its own to release.
func (c *conn) shut() {
	o := &c.out
	release := queue.Releaser{Pool: c.server.pool}
	o.mu.Lock()
	o.sealed, o.closed = true, true
	for i := range o.items {
		if it := &o.items[i]; it.kind.holds() {
			release.Add(it.offered.Message.Ref.Slab)
		}
	}
	o.items, o.text, o.needy = nil, nil, nil
	o.mu.Unlock()
	release.Flush()
}

// seal refuses everything from now on; what waits is still written.
func (o *outbox) seal() {
	o.mu.Lock()
	o.sealed = true
	o.mu.Unlock()
}

package server

import (
	"bytes"
	"encoding/binary"
	"sync"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/queue"
)

// publisher gathers what one read publishes: a group for each channel and set of queues. The sets of one channel do not
// overlap, so that a queue gets the messages of a channel in their order whatever the order of the groups.
type publisher struct {
	groups   []*group
	channels []*channel // that have groups
	bytes    int        // of messages that lie in the read buffer
	unheld   int        // references to them that the queues will hold
}

// group is messages of one channel for the same queues.
type group struct {
	channel *channel
	queues  []*broker.Queue
	batch   queue.Batch
}

// spareGroups are shared: a connection at rest has none.
var spareGroups = sync.Pool{New: func() any { return new(group) }}

const (
	// inPlaceBody is the largest body that is left where it was read.
	inPlaceBody = 64 << 10
	// inPlaceHeader is the largest content header looked at in place.
	inPlaceHeader = 16 << 10
)

// fastPublish handles a basic.publish whose content follows it in the buffer, all of it and in one body frame, without
// moving anything but exchange and key by one octet: what remains is the message as it is stored. b starts with the method
// frame f of n octets. It returns how much it took; 0 and more when the content is not complete yet, and 0 and false when
// the frames must be looked at one by one.
func (c *conn) fastPublish(b []byte, f *amqp.Frame, n int) (taken int, more bool) {
	ch := c.channelOf(f.Channel)
	if ch == nil || !ch.plain() || c.in.slab == nil || c.server.full(c) || ch.queueFull() != nil {
		return 0, false
	}
	p := f.Payload
	const fixed = 4 + 2 // class, method, ticket
	if len(p) < fixed+1 {
		return 0, false
	}
	key := fixed + 1 + int(p[fixed])
	if key >= len(p) {
		return 0, false
	}
	end := key + 1 + int(p[key])
	if end+1 != len(p) {
		return 0, false
	}
	names, bits := p[fixed:end:end], p[end]

	h := b[n:]
	if len(h) < amqp.FrameHeadSize {
		return 0, true
	}
	size := int(binary.BigEndian.Uint32(h[3:]))
	if h[0] != amqp.FrameHeader || binary.BigEndian.Uint16(h[1:]) != f.Channel || size < 14 || size > inPlaceHeader || c.oversize(size) {
		return 0, false
	}
	if len(h) < size+amqp.FrameOverhead {
		return 0, true
	}
	header := h[amqp.FrameHeadSize : amqp.FrameHeadSize+size]
	body := binary.BigEndian.Uint64(header[4:])
	if h[amqp.FrameHeadSize+size] != amqp.FrameEnd || binary.BigEndian.Uint32(header) != amqp.ClassBasic<<16 ||
		body > inPlaceBody || c.oversize(int(body)) || body > uint64(c.server.options.MaxMessageSize) {
		return 0, false
	}
	whole := n + size + amqp.FrameOverhead
	if body > 0 {
		d := b[whole:]
		if len(d) < amqp.FrameHeadSize {
			return 0, true
		}
		if d[0] != amqp.FrameBody || binary.BigEndian.Uint16(d[1:]) != f.Channel || uint64(binary.BigEndian.Uint32(d[3:])) != body {
			return 0, false
		}
		if uint64(len(d)) < body+amqp.FrameOverhead {
			return 0, true
		}
		if d[amqp.FrameHeadSize+body] != amqp.FrameEnd {
			return 0, false
		}
		whole += int(body) + amqp.FrameOverhead
	}

	m := queue.Message{Size: uint32(body), TTL: -1}
	start := c.in.r + amqp.FrameHeadSize + fixed + 1
	m.Ref = queue.Ref{Slab: c.in.slab.ID, Off: uint32(start), Len: uint32(c.in.r + whole - start)}
	if bits&^1 == 0 && simple(header, &m) && ch.sameRoute(names) && len(ch.route.queues) > 0 {
		moveNames(b, names)
		c.enqueue(ch, m, true)
		return whole, false
	}
	in := incoming{names: names, mandatory: bits&1 != 0, immediate: bits&2 != 0, header: header}
	if err := c.accept(ch, &in, m, true, func() { moveNames(b, names) }); err != nil {
		c.raise(ch, err.In(amqp.BasicPublishID))
	}
	return whole, false
}

// oversize reports whether a payload is larger than the peer may send in one frame.
func (c *conn) oversize(payload int) bool { return c.frameMax != 0 && payload > int(c.frameMax) }

// moveNames moves exchange and key over the octet with the publish flags, against the end of their frame.
func moveNames(b, names []byte) {
	const at = amqp.FrameHeadSize + 6
	copy(b[at+1:at+1+len(names)], names)
}

// simple reports whether the properties are at most a delivery mode, and sets what follows from it.
func simple(header []byte, m *queue.Message) bool {
	switch {
	case len(header) < 14:
	case header[12] == 0x10 && header[13] == 0 && len(header) == 15:
		if header[14] == amqp.Persistent {
			m.Flags |= queue.Persistent
		}
		return true
	case header[12] == 0 && header[13] == 0 && len(header) == 14:
		return true
	}
	return false
}

// route is where the previous message of a channel went, remembered for the next one.
type route struct {
	names     []byte // exchange and key as on the wire
	version   uint64 // of the topology it was found in; 0: not to be used again
	queues    []*broker.Queue
	bounded   []queue.Bounded // those of them that say when publishers should wait
	group     *group          // that it is gathered in; nil after each read
	reply     requester       // direct reply-to: who waits for it
	swallowed bool            // direct reply-to: not unroutable, even if nobody waits
}

// sameRoute reports whether a message with these names goes where the previous one went.
func (ch *channel) sameRoute(names []byte) bool {
	return bytes.Equal(ch.route.names, names) && ch.route.version == ch.conn.vhost.Version() && ch.route.version != 0
}

// enqueue adds a message for ch.route.queues, of which there is at least one. inBuffer: it lies in the read buffer;
// otherwise it comes with one reference.
func (c *conn) enqueue(ch *channel, m queue.Message, inBuffer bool) {
	r := &ch.route
	g := r.group
	if g == nil {
		g = c.groupOf(ch)
		r.group = g
	}
	n := len(g.queues)
	if inBuffer {
		c.pub.bytes += int(m.Ref.Len)
		c.pub.unheld += n
	} else if n > 1 {
		c.server.pool.Hold(m.Ref.Slab, n-1)
	}
	g.batch.Messages = append(g.batch.Messages, m)
	if ch.confirms != nil {
		g.batch.Numbers = append(g.batch.Numbers, ch.confirms.published(n))
	}
}

// groupOf finds or makes the group for the queues of ch.route. When another group of the channel shares some of them,
// everything gathered so far is published first.
func (c *conn) groupOf(ch *channel) *group {
	p, queues := &c.pub, ch.route.queues
	if g := ch.groups[queues[0]]; g != nil && sameQueues(g.queues, queues) {
		return g
	}
	for _, q := range queues {
		if ch.groups[q] != nil {
			c.publish()
			break
		}
	}
	g := spareGroups.Get().(*group)
	g.channel = ch
	g.queues = append(g.queues[:0], queues...)
	if ch.confirms != nil {
		g.batch.Confirms = ch.confirms
	}
	p.groups = append(p.groups, g)
	if ch.groups == nil {
		ch.groups = make(map[*broker.Queue]*group)
	}
	for _, q := range queues {
		ch.groups[q] = g
	}
	if len(ch.groups) == len(queues) {
		p.channels = append(p.channels, ch)
	}
	return g
}

func sameQueues(a, b []*broker.Queue) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// publish hands what was gathered to the queues.
func (c *conn) publish() {
	c.endScope()
	p := &c.pub
	if len(p.groups) == 0 {
		return
	}
	c.settleBuffer()
	for i, ch := range p.channels {
		clear(ch.groups)
		ch.route.group = nil
		p.channels[i] = nil
	}
	p.channels = p.channels[:0]
	groups := p.groups
	for i, g := range groups {
		for _, q := range g.queues {
			q.Publish(&g.batch, &c.wake)
			c.published.refused += uint64(g.batch.Refused)
			c.pressed = c.pressed || g.batch.Pressed
		}
		c.countPublished(g.channel, len(g.batch.Messages))
		clear(g.queues)
		g.channel = nil
		g.batch.Messages, g.batch.Numbers, g.batch.Confirms = g.batch.Messages[:0], g.batch.Numbers[:0], nil
		spareGroups.Put(g)
		groups[i] = nil
	}
	p.groups = groups[:0]
}

// settleBuffer decides about messages that lie in the read buffer: when they are most of it the buffer is theirs,
// otherwise they are copied together, so that sixteen octets do not hold on to a slab.
func (c *conn) settleBuffer() {
	p, in := &c.pub, &c.in
	if p.unheld == 0 {
		return
	}
	if in.given || p.bytes > queue.SlabSize/2 {
		in.given = true
		c.server.pool.Hold(in.slab.ID, p.unheld)
	} else {
		ref, dst := c.server.pool.Reserve(p.bytes, p.unheld)
		for _, g := range p.groups {
			for i := range g.batch.Messages {
				r := &g.batch.Messages[i].Ref
				if r.Slab != in.slab.ID {
					continue
				}
				n := copy(dst, in.slab.Buf[r.Off:r.Off+r.Len])
				dst = dst[n:]
				r.Slab, r.Off = ref.Slab, ref.Off
				ref.Off += uint32(n)
			}
		}
	}
	p.bytes, p.unheld = 0, 0
}

// incoming is a message on its way in.
type incoming struct {
	names                []byte // exchange and key as on the wire
	mandatory, immediate bool
	header               []byte   // payload of the content header
	rewritten            []byte   // the header to store instead; nil: as it came
	blind                [][]byte // keys of BCC, which the header to store is without
}

func (in *incoming) split() (exchange, key []byte) { return splitNames(in.names) }

func splitNames(names []byte) (exchange, key []byte) {
	n := 1 + int(names[0])
	return names[1:n], names[n+1:]
}

// accept checks and routes a complete message and gathers it for its queues, or keeps it for the transaction. m lies in
// the read buffer (inBuffer), as the frames came until settle is called, or comes with a reference that passes to accept.
func (c *conn) accept(ch *channel, in *incoming, m queue.Message, inBuffer bool, settle func()) *amqp.Error {
	err := c.inspect(ch, in, &m)
	if err == nil && in.rewritten != nil {
		// The message is stored with another header than it came with.
		settle()
		old := c.storedBytes(m, inBuffer)
		stored := queue.ParseStored(old)
		blind := in.blind
		if len(ch.route.queues) == 0 {
			blind = nil // nothing will die
		}
		n := c.server.pool.NewBlindMessage(stored.Exchange, stored.Key, in.rewritten, blind, stored.Body, int(m.Size), 1)
		if !inBuffer {
			c.server.pool.Release(m.Ref.Slab, 1)
		}
		m.Ref, inBuffer = n.Ref, false
	} else if err == nil {
		settle()
	}
	queues := ch.route.queues
	switch {
	case err != nil || ch.tx == nil && len(queues) == 0:
		if err == nil {
			returned := in.mandatory && !ch.route.swallowed
			c.countUnrouted(ch, returned, ch.route.swallowed)
			if returned {
				c.giveBack(ch, c.storedBytes(m, inBuffer))
			}
			c.unrouted(ch, &m, inBuffer)
		}
		if !inBuffer && ch.route.reply == nil {
			c.server.pool.Release(m.Ref.Slab, 1)
		}
		return err
	case ch.tx != nil:
		if inBuffer {
			m.Ref = c.copied(m)
		}
		// Nobody can take what is not committed: if that filled the pool, nothing would ever make room again.
		octets := int(m.Ref.Len)
		if c.server.uncommitted.Add(int64(octets)) > c.server.pool.Bound()/2 {
			c.server.uncommitted.Add(int64(-octets))
			c.server.pool.Release(m.Ref.Slab, 1)
			return amqp.Errorf(amqp.PreconditionFailed, "too much is published in transactions that are not committed")
		}
		ch.tx.octets += octets
		ch.mu.Lock()
		ch.uncommitted++
		ch.mu.Unlock()
		if len(queues) > 0 || ch.route.swallowed {
			c.countPublished(ch, 1)
		} else {
			c.countUnrouted(ch, in.mandatory, false)
		}
		ch.tx.publish(m, &ch.route, in.mandatory)
	default:
		c.enqueue(ch, m, inBuffer)
	}
	return nil
}

// storedBytes are the bytes of a message on its way in.
func (c *conn) storedBytes(m queue.Message, inBuffer bool) []byte {
	if inBuffer {
		return c.in.slab.Buf[m.Ref.Off : m.Ref.Off+m.Ref.Len]
	}
	return c.server.pool.Bytes(m.Ref)
}

// copied moves a message out of the read buffer; the copy comes with one reference.
func (c *conn) copied(m queue.Message) queue.Ref {
	ref, dst := c.server.pool.Reserve(int(m.Ref.Len), 1)
	copy(dst, c.storedBytes(m, true))
	return ref
}

// unrouted does what is left to do for a publish that goes to no queue: hand it to the waiting requester of a direct
// reply, and confirm it.
func (c *conn) unrouted(ch *channel, m *queue.Message, inBuffer bool) {
	if to := ch.route.reply; to != nil {
		if inBuffer {
			m.Ref = c.copied(*m)
		}
		to.answer(*m, &c.wake)
	}
	if ch.confirms != nil {
		n := ch.confirms.published(0)
		ch.confirms.Settled([]queue.Range{{First: n, Last: n}}, true, &c.wake)
	}
}

// giveBack sends a mandatory message back that no queue takes. It is written before the message's confirm.
func (c *conn) giveBack(ch *channel, stored []byte) {
	s := queue.ParseStored(stored)
	c.putText(&c.wake, nil, func(dst []byte) []byte {
		start := len(dst)
		dst = amqp.BeginFrame(dst, amqp.FrameMethod, ch.number)
		m := amqp.BasicReturn{ReplyCode: amqp.NoRoute, ReplyText: noRoute, Exchange: s.Exchange, RoutingKey: s.Key}
		dst = amqp.EndFrame(m.Append(dst), start)
		dst = amqp.AppendFrame(dst, amqp.FrameHeader, ch.number, s.Header)
		return amqp.AppendBodyFrames(dst, ch.number, s.AppendBody(nil), c.frameMax)
	})
	ch.postponeConfirms(&c.wake)
}

var noRoute = []byte("NO_ROUTE")

package server

import (
	"encoding/binary"
	"sync"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
)

// writer is the state of whoever writes a connection at the moment; see outbox.
type writer struct {
	taken    taken
	chunk    chunk
	written  written
	err      error
	wake     queue.Wake
	header   []byte                // of a message with counts
	table    amqp.Table            // its headers
	run      func()                // writeAll; made once
	try, all func(fd uintptr) bool // write what the socket takes at once; wait for the socket
}

var writeBuffers = sync.Pool{New: func() any { b := make([]byte, 0, writeBytes+writeBytes/8); return &b }}

// Wake implements queue.Waker: it sees to it that somebody writes what is in the outbox.
func (c *conn) Wake(w *queue.Wake) {
	o := &c.out
	o.mu.Lock()
	if len(o.items) == 0 || o.closed {
		o.waked = false // whoever adds something next has to wake us
		o.mu.Unlock()
		return
	}
	if o.running { // who finds it before he leaves
		o.mu.Unlock()
		return
	}
	o.running = true
	little := o.bytes < inlineBytes
	o.mu.Unlock()
	if little && c.raw != nil {
		c.writeInline(w)
		return
	}
	go c.writer.run()
}

// writeInline writes one chunk without waiting for the socket. What is left, or has come since, gets a goroutine.
func (c *conn) writeInline(w *queue.Wake) {
	wr := &c.writer
	if !c.take(&wr.taken, true) {
		return
	}
	c.feed(w)
	c.encode()
	c.writeChunk(false)
	if wr.chunk.unwritten() || wr.taken.more() {
		go c.writer.run()
		return
	}
	wr.chunk.end(c.server.pool)
	c.tellReader()
	c.out.mu.Lock()
	more := len(c.out.items) > 0 && !c.out.closed
	if !more {
		c.parkWriter()
	}
	c.out.mu.Unlock()
	if more {
		go c.writer.run()
	}
}

// writeAll writes until the outbox is empty, beginning with what writeInline left.
func (c *conn) writeAll() {
	wr := &c.writer
	w := &wr.wake
	if wr.chunk.unwritten() {
		c.writeChunk(true)
		wr.chunk.clear(c.server.pool)
	}
	for {
		if wr.taken.more() {
			c.encode()
		} else if c.take(&wr.taken, false) {
			c.feed(w)
			w.Flush()
			c.encode()
		} else if wr.chunk.octets() == 0 {
			wr.chunk.end(c.server.pool)
			if !c.take(&wr.taken, true) {
				return
			}
			c.feed(w)
			w.Flush()
			c.encode()
		} else {
			c.writeChunk(true)
			wr.chunk.clear(c.server.pool)
			continue
		}
		if !wr.taken.more() {
			c.tellReader()
		}
		if wr.chunk.octets() < writeBytes/2 {
			continue // what was taken made room, and more may have come: one write for all of it
		}
		c.writeChunk(true)
		wr.chunk.clear(c.server.pool)
	}
}

// feed tells queues that paused for this connection that there is room, so that they fill the outbox again while what was
// taken is on its way. Whom that wakes is in w.
func (c *conn) feed(w *queue.Wake) {
	t := &c.writer.taken
	for i, k := range t.needy {
		k.queue.Ready(k.id, w)
		t.needy[i] = nil
	}
}

// tellReader tells a reader that waits for less to write that everything taken was encoded.
func (c *conn) tellReader() {
	if t := &c.writer.taken; t.hungry {
		t.hungry = false
		c.post(func() {})
	}
}

// heard is told how many publishes were announced to the peer as confirmed.
func (c *conn) heard(n int) {
	c.unheard.Add(int64(-n))
	c.writer.written.confirmed += uint64(n)
}

// encode adds to the chunk from what was taken, until it is large enough for a write.
func (c *conn) encode() {
	t, k := &c.writer.taken, &c.writer.chunk
	release := queue.Releaser{Pool: c.server.pool}
	for t.more() && k.octets() < writeBytes {
		it := &t.items[t.next]
		if it.kind != itemFrames {
			k.begin()
		}
		switch it.kind {
		case itemText:
			n := min(int(it.size), writeBytes)
			k.buf = append(k.buf, t.text[t.at:t.at+n]...)
			t.at += n
			if it.size -= uint32(n); it.size > 0 {
				continue
			}
			t.next++
		case itemDeliver:
			end := t.next + 1
			for end < len(t.items) && t.items[end].kind == itemDeliver && t.items[end].channel == it.channel {
				end++
			}
			t.next += c.deliver(it.channel, t.items[t.next:end], &release)
		case itemFrames:
			c.deliverFrames(it, &release)
			t.next++
		case itemGetOk:
			c.getOk(it, &release)
			t.next++
		case itemConfirm:
			k.buf = it.channel.confirms.append(k.buf, it)
			t.next++
		case itemRetire:
			it.channel.mu.Lock()
			it.consumer.retired = true
			it.channel.forget(it.consumer)
			it.channel.mu.Unlock()
			t.next++
		}
	}
	release.Flush()
	c.addWritten()
}

// deliver encodes deliveries of one channel, giving out tags and noting what is to be acknowledged: tag order is wire
// order. It returns how many it encoded before the chunk was large enough.
func (c *conn) deliver(ch *channel, items []item, release *queue.Releaser) (n int) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	chunk := &c.writer.chunk
	var noAck, redelivered int
	for ; n < len(items) && chunk.octets() < writeBytes; n++ {
		o, k := &items[n].offered, items[n].consumer
		if ch.ended {
			release.Add(o.Message.Ref.Slab)
			continue
		}
		ch.tag++
		if k.quorum {
			c.writer.written.ofQuorum.count(k.noAck, o.Redelivered)
		}
		if k.noAck {
			noAck++
		} else {
			ch.note(k, o.ID)
		}
		if o.Redelivered {
			redelivered++
		}
		c.appendContent(k.head, ch.tag, o, nil, release)
	}
	if !ch.ended {
		ch.counts.DeliveredNoAck += uint64(noAck)
		ch.counts.Delivered += uint64(n - noAck)
		ch.counts.Redelivered += uint64(redelivered)
		t := &c.writer.written.handed
		t.noAck += uint64(noAck)
		t.delivered += uint64(n - noAck)
		t.redelivered += uint64(redelivered)
	}
	return n
}

// deliverFrames has deliveries that lack nothing but their tags be written from where they lie, as long as a copy is not as cheap.
func (c *conn) deliverFrames(it *item, release *queue.Releaser) {
	ch, k, n := it.channel, it.consumer, uint64(it.size)
	ref := it.offered.Message.Ref
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.ended {
		release.Add(ref.Slab)
		return
	}
	b := c.server.pool.Bytes(ref)
	queue.PutTags(b, len(k.head), ch.tag+1)
	for id := it.offered.ID; id < it.offered.ID+n; id++ {
		ch.tag++
		ch.note(k, id)
	}
	ch.counts.Delivered += n
	c.writer.written.handed.delivered += n
	c.writer.written.ofStream.delivered += n
	if chunk := &c.writer.chunk; len(b) < byReference || c.raw == nil {
		chunk.begin()
		chunk.buf = append(chunk.buf, b...)
		release.Add(ref.Slab)
	} else {
		chunk.held = append(chunk.held, ref.Slab)
		chunk.buf = chunk.refer(chunk.buf, b)
	}
}

func (c *conn) getOk(it *item, release *queue.Releaser) {
	ch := it.channel
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.ended {
		release.Add(it.offered.Message.Ref.Slab)
		return
	}
	ch.tag++
	noAck := it.noAck
	c.writer.written.handed.countGet(noAck, it.offered.Redelivered)
	if it.consumer.quorum {
		c.writer.written.ofQuorum.countGet(noAck, it.offered.Redelivered)
	}
	if noAck {
		ch.counts.GotNoAck++
	} else {
		ch.note(it.consumer, it.offered.ID)
		ch.counts.Got++
	}
	if it.offered.Redelivered {
		ch.counts.Redelivered++
	}
	head := [11]byte{amqp.FrameMethod, byte(ch.number >> 8), byte(ch.number), 0, 0, 0, 0, 0, 60, 0, 71}
	var tail [4]byte
	binary.BigEndian.PutUint32(tail[:], it.size)
	c.appendContent(head[:], ch.tag, &it.offered, tail[:], release)
}

// appendContent appends a message behind head, the frame of its method up to the delivery tag. tail are the arguments
// behind the routing key. The stored bytes are the rest of the frame, header and body as they are, but for the channel
// numbers. The message's reference is released now, or when it was written.
func (c *conn) appendContent(head []byte, tag uint64, o *queue.Offered, tail []byte, release *queue.Releaser) {
	k := &c.writer.chunk
	dst := k.buf
	b := queue.Shown(c.server.pool.Bytes(o.Message.Ref))
	start := len(dst)
	dst = append(dst, head...)
	dst = binary.BigEndian.AppendUint64(dst, tag)
	redelivered := byte(0)
	if o.Redelivered {
		redelivered = 1
	}
	dst = append(dst, redelivered)
	names := 1 + int(b[0])
	names += 1 + int(b[names])
	if tail != nil {
		dst = append(dst, b[:names]...)
		dst = append(dst, tail...)
		b = b[names:]
		names = 0
	}
	var header []byte
	if o.Acquired != 0 || o.Failed != 0 {
		header = c.writer.counted(o, queue.HeaderOf(b[names:]))
	}
	if len(b) >= byReference && c.raw != nil {
		k.buf = dst
		c.appendReference(start, names, head, b, header, o)
		return
	}
	at := len(dst)
	if header == nil {
		dst = append(dst, b...)
	} else {
		dst = append(dst, b[:names+1]...)
		dst = appendFrameHead(dst, amqp.FrameHeader, head, len(header))
		dst = append(append(dst, header...), amqp.FrameEnd)
		dst = append(dst, b[names+1+amqp.FrameOverhead+len(queue.HeaderOf(b[names:])):]...)
	}
	end := at + names // of the method frame's payload
	binary.BigEndian.PutUint32(dst[start+3:], uint32(end-start-amqp.FrameHeadSize))
	body := end + 1
	for at := body; at < len(dst); {
		dst[at+1], dst[at+2] = head[1], head[2]
		size := int(binary.BigEndian.Uint32(dst[at+3:]))
		if at > body && c.frameMax != 0 && size+amqp.FrameOverhead > int(c.frameMax) {
			dst = c.reframe(dst[:at], b[len(b)-(len(dst)-at):], head)
			break
		}
		at += amqp.FrameOverhead + size
	}
	k.buf = dst
	release.Add(o.Message.Ref.Slab)
}

// appendReference is appendContent for what is worth not to be copied: bodies are written from where they lie. The method
// frame began at start of the chunk's buffer and lacks the first names octets of b. header, if not nil, is sent instead of
// the stored one.
func (c *conn) appendReference(start, names int, head, b, header []byte, o *queue.Offered) {
	k := &c.writer.chunk
	k.held = append(k.held, o.Message.Ref.Slab)
	dst := append(k.buf, b[:names+1]...)
	binary.BigEndian.PutUint32(dst[start+3:], uint32(len(dst)-start-amqp.FrameOverhead))
	b = b[names+1:]
	size := int(binary.BigEndian.Uint32(b[3:])) // of the header
	if header == nil {
		header = b[amqp.FrameHeadSize : amqp.FrameHeadSize+size]
	}
	dst = appendFrameHead(dst, amqp.FrameHeader, head, len(header))
	dst = append(append(dst, header...), amqp.FrameEnd)
	b = b[amqp.FrameOverhead+size:]

	// All frames but the last are of one size. If that is too large they are cut anew.
	piece, left, open := amqp.BodyFrameSize(c.frameMax), int(o.Message.Size), 0
	if len(b) > 0 {
		piece = min(piece, int(binary.BigEndian.Uint32(b[3:])))
	}
	for len(b) > 0 {
		size := int(binary.BigEndian.Uint32(b[3:]))
		payload := b[amqp.FrameHeadSize : amqp.FrameHeadSize+size]
		b = b[amqp.FrameOverhead+size:]
		for len(payload) > 0 {
			if open == 0 {
				open = min(left, piece)
				dst = appendFrameHead(dst, amqp.FrameBody, head, open)
			}
			n := min(open, len(payload))
			if n < byReference/4 {
				dst = append(dst, payload[:n]...)
			} else {
				dst = k.refer(dst, payload[:n])
			}
			payload = payload[n:]
			open -= n
			left -= n
			if open == 0 {
				dst = append(dst, amqp.FrameEnd)
			}
		}
	}
	k.buf = dst
}

func appendFrameHead(dst []byte, kind byte, head []byte, size int) []byte {
	return append(dst, kind, head[1], head[2], byte(size>>24), byte(size>>16), byte(size>>8), byte(size))
}

// reframe appends body frames cut again for a peer with a smaller frame-max than the publisher's.
func (c *conn) reframe(dst, frames, head []byte) []byte {
	channel := binary.BigEndian.Uint16(head[1:])
	body := queue.Stored{Frames: frames}.AppendBody(nil)
	return amqp.AppendBodyFrames(dst, channel, body, c.frameMax)
}

package server

import (
	"encoding/binary"
	"sync"
	"syscall"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
)

// writer is the state of whoever writes a connection at the moment; see outbox.
type writer struct {
	taken taken
	rest  []byte // what try and all still have to write
	err   error
	try   func(fd uintptr) bool // writes what the socket takes at once
	all   func(fd uintptr) bool // waits for the socket
}

var writeBuffers = sync.Pool{New: func() any { b := make([]byte, 0, writeBytes+writeBytes/4); return &b }}

func (c *conn) initWriter() {
	wr := &c.writer
	wr.try = func(fd uintptr) bool {
		wr.step(fd)
		return true
	}
	wr.all = func(fd uintptr) bool { return wr.step(fd) }
}

// step writes to the socket until it takes no more, and returns true when nothing is left to do.
func (wr *writer) step(fd uintptr) bool {
	for len(wr.rest) > 0 {
		n, err := syscall.Write(int(fd), wr.rest)
		switch err {
		case nil:
			wr.rest = wr.rest[n:]
		case syscall.EINTR:
		case syscall.EAGAIN:
			return false
		default:
			wr.err = err
			return true
		}
	}
	return true
}

// Wake implements queue.Waker: it sees to it that somebody writes what is in the outbox.
func (c *conn) Wake(w *queue.Wake) {
	o := &c.out
	o.mu.Lock()
	if o.running || len(o.items) == 0 || o.closed {
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
	go c.writeAll(nil, nil)
}

// writeInline writes one batch without waiting for the socket. What is left, or has come since, gets a goroutine.
func (c *conn) writeInline(w *queue.Wake) {
	buf := writeBuffers.Get().(*[]byte)
	*buf = (*buf)[:0]
	if c.out.take(&c.writer.taken, true) {
		*buf = c.encode(*buf, w)
		c.wrote(len(*buf))
		c.writer.rest = *buf
		if err := c.raw.Write(c.writer.try); err != nil && c.writer.err == nil {
			c.writer.err = err
		}
		rest := c.writer.rest
		if len(rest) > 0 && c.writer.err == nil {
			go c.writeAll(buf, rest)
			return
		}
		if c.writer.err != nil {
			c.broken()
		}
		c.out.mu.Lock()
		more := len(c.out.items) > 0 && !c.out.closed
		c.out.running = more
		c.out.mu.Unlock()
		if more {
			go c.writeAll(nil, nil)
		}
	}
	writeBuffers.Put(buf)
}

// writeAll writes until the outbox is empty, beginning with rest, which lies in buf.
func (c *conn) writeAll(buf *[]byte, rest []byte) {
	var w queue.Wake
	if buf == nil {
		buf = writeBuffers.Get().(*[]byte)
		*buf = (*buf)[:0]
	}
	if len(rest) > 0 {
		c.writeOut(rest)
		*buf = (*buf)[:0]
	}
	for {
		if c.out.take(&c.writer.taken, len(*buf) == 0) {
			*buf = c.encode(*buf, &w)
			w.Flush()
			if len(*buf) < writeBytes/2 {
				continue // what was taken made room, and more may have come: one write for all of it
			}
		} else if len(*buf) == 0 {
			break
		}
		c.wrote(len(*buf))
		c.writeOut(*buf)
		*buf = (*buf)[:0]
		if cap(*buf) > 4*writeBytes {
			*buf = make([]byte, 0, writeBytes+writeBytes/4)
		}
	}
	writeBuffers.Put(buf)
}

// writeOut writes b, waiting for the socket.
func (c *conn) writeOut(b []byte) {
	wr := &c.writer
	if wr.err != nil {
		return
	}
	if c.raw == nil {
		_, wr.err = c.socket.Write(b)
	} else {
		wr.rest = b
		if err := c.raw.Write(wr.all); err != nil && wr.err == nil {
			wr.err = err
		}
		wr.rest = nil
	}
	if wr.err != nil {
		c.broken()
	}
}

// encode appends what was taken to dst. Queues that paused for this connection are told first that there is room, so
// that they fill the outbox again while this batch is on its way; whom that wakes is in w.
func (c *conn) encode(dst []byte, w *queue.Wake) []byte {
	t := &c.writer.taken
	for i, k := range t.needy {
		k.queue.Ready(k.id, w)
		t.needy[i] = nil
	}
	release := queue.Releaser{Pool: c.server.pool}
	text := t.text
	for i := 0; i < len(t.items); {
		switch it := &t.items[i]; it.kind {
		case itemText:
			dst = append(dst, text[:it.size]...)
			text = text[it.size:]
			i++
		case itemDeliver:
			ch, n := it.consumer.channel, 1
			for i+n < len(t.items) && t.items[i+n].kind == itemDeliver && t.items[i+n].consumer.channel == ch {
				n++
			}
			dst = c.deliver(dst, ch, t.items[i:i+n], &release)
			i += n
		case itemGetOk:
			dst = c.getOk(dst, it, &release)
			i++
		case itemConfirm:
			dst = it.channel.confirms.append(dst, it)
			i++
		}
	}
	release.Flush()
	return dst
}

// deliver encodes deliveries of one channel, giving out tags and noting what is to be acknowledged: tag order is wire
// order.
func (c *conn) deliver(dst []byte, ch *channel, items []item, release *queue.Releaser) []byte {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for i := range items {
		o, k := &items[i].offered, items[i].consumer
		release.Add(o.Message.Ref.Slab)
		if ch.ended {
			continue
		}
		ch.tag++
		if !k.noAck {
			ch.note(k, o.ID)
		}
		dst = c.appendContent(dst, k.head, ch.tag, o, nil)
	}
	return dst
}

func (c *conn) getOk(dst []byte, it *item, release *queue.Releaser) []byte {
	ch := it.channel
	ch.mu.Lock()
	defer ch.mu.Unlock()
	release.Add(it.offered.Message.Ref.Slab)
	if ch.ended {
		return dst
	}
	ch.tag++
	if it.consumer != nil {
		ch.note(it.consumer, it.offered.ID)
	}
	head := [11]byte{amqp.FrameMethod, byte(ch.number >> 8), byte(ch.number), 0, 0, 0, 0, 0, 60, 0, 71}
	tail := binary.BigEndian.AppendUint32(nil, it.size)
	return c.appendContent(dst, head[:], ch.tag, &it.offered, tail)
}

// appendContent appends a message behind head, the frame of its method up to the delivery tag. tail are the arguments
// behind the routing key. The stored bytes are the rest of the frame, header and body as they are, but for the channel
// numbers.
func (c *conn) appendContent(dst, head []byte, tag uint64, o *queue.Offered, tail []byte) []byte {
	b := c.server.pool.Bytes(o.Message.Ref)
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
	at := len(dst)
	dst = append(dst, b...)
	end := at + names // of the method frame's payload
	binary.BigEndian.PutUint32(dst[start+3:], uint32(end-start-amqp.FrameHeadSize))
	body := end + 1
	for at := body; at < len(dst); {
		dst[at+1], dst[at+2] = head[1], head[2]
		size := int(binary.BigEndian.Uint32(dst[at+3:]))
		if at > body && c.frameMax != 0 && size+amqp.FrameOverhead > int(c.frameMax) {
			return c.reframe(dst[:at], b[at-body+names+1:], head)
		}
		at += amqp.FrameOverhead + size
	}
	return dst
}

// reframe appends body frames cut again for a peer with a smaller frame-max than the publisher's.
func (c *conn) reframe(dst, frames, head []byte) []byte {
	channel := binary.BigEndian.Uint16(head[1:])
	body := queue.Stored{Frames: frames}.AppendBody(nil)
	return amqp.AppendBodyFrames(dst, channel, body, c.frameMax)
}

package server

import (
	"encoding/binary"
	"sync"

	"github.com/warrenmq/warren/queue"
)

// confirms follows the publishes of a channel in confirm mode until every queue they went to has taken responsibility.
// Publishes are numbered from 1. What is settled is announced by the writer when it comes to the channel's itemConfirm,
// as far as things have got by then, so that acks coalesce by themselves.
type confirms struct {
	channel *channel

	mu      sync.Mutex // guards what follows; a leaf
	base    uint64     // publish number of left[0]; all before are announced
	left    []uint32   // how many queues a publish waits for, and the bits below
	settled []queue.Range
	asked   bool   // an item is on its way to the writer
	item    uint32 // which one; an older one says nothing
	ended   bool   // the channel is; nothing is announced any more
	sent    uint64 // publishes announced
}

const (
	refusedBit   = 1 << 31
	announcedBit = 1 << 30
	leftMask     = announcedBit - 1
)

// published adds the next publish, which waits for queues queues, and returns its number.
func (c *confirms) published(queues int) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = append(c.left, uint32(queues))
	return c.base + uint64(len(c.left)) - 1
}

// Settled implements queue.Confirms.
func (c *confirms) Settled(ranges []queue.Range, ok bool, w *queue.Wake) {
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return
	}
	n := 0
	for _, r := range ranges {
		n += c.settle(r, ok)
	}
	item, ask := c.ask()
	c.mu.Unlock()
	c.channel.conn.unheard.Add(int64(n))
	if ask {
		c.channel.conn.put(w, item)
	}
}

// settle returns how many publishes of the range wait for nothing more. Called with c.mu held.
func (c *confirms) settle(r queue.Range, ok bool) (settled int) {
	for n := r.First; n <= r.Last; n++ {
		left := &c.left[n-c.base]
		if !ok {
			*left |= refusedBit
		}
		if *left&leftMask > 0 {
			*left--
		}
		if *left&leftMask > 0 {
			continue
		}
		settled++
		if k := len(c.settled); k > 0 && c.settled[k-1].Last+1 == n {
			c.settled[k-1].Last = n
		} else {
			c.settled = append(c.settled, queue.Range{First: n, Last: n})
		}
	}
	return settled
}

// ask makes the item that has the writer announce what is settled, if it is not on its way. Called with c.mu held.
func (c *confirms) ask() (item, bool) {
	if c.asked || len(c.settled) == 0 {
		return item{}, false
	}
	c.asked = true
	return item{kind: itemConfirm, channel: c.channel, size: c.item}, true
}

// postpone makes what is settled, but not announced, be announced only after what has been put into the outbox by now:
// a basic.return goes before its confirm. The caller puts the returned item.
func (c *confirms) postpone() (item, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.asked {
		return item{}, false
	}
	c.item++
	c.asked = false
	return c.ask()
}

// append encodes the acks and nacks of all that is settled. Called by the writer.
func (c *confirms) append(dst []byte, it *item) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if it.size != c.item || c.ended {
		return dst
	}
	c.asked = false
	heard := 0
	for _, r := range c.settled {
		heard += int(r.Last - r.First + 1)
	}
	c.sent += uint64(heard)
	c.channel.conn.heard(heard)
	dst, done := c.appendPrefix(dst)
	end := c.base + uint64(done)
	for _, r := range c.settled {
		for n := max(r.First, end); n <= r.Last; n++ {
			left := &c.left[n-c.base]
			dst = appendConfirm(dst, c.channel.number, n, false, *left&refusedBit == 0)
			*left |= announcedBit
		}
	}
	c.settled = c.settled[:0]
	c.base = end
	c.left = c.left[:copy(c.left, c.left[done:])]
	return dst
}

// appendPrefix encodes what is settled up to the first publish that still waits, with multiple set where that says it for
// several, and returns how many publishes that are.
func (c *confirms) appendPrefix(dst []byte) ([]byte, int) {
	n, last, run := 0, 0, 0 // run: how many of one verdict are to be announced, up to last
	flush := func() {
		if run > 0 {
			dst = appendConfirm(dst, c.channel.number, c.base+uint64(last), run > 1, c.left[last]&refusedBit == 0)
			run = 0
		}
	}
	for ; n < len(c.left) && c.left[n]&leftMask == 0; n++ {
		if c.left[n]&announcedBit != 0 {
			continue
		}
		if run > 0 && (c.left[n]^c.left[last])&refusedBit != 0 {
			flush()
		}
		last = n
		run++
	}
	flush()
	return dst, n
}

// appendConfirm appends a basic.ack or basic.nack frame.
func appendConfirm(dst []byte, channel uint16, number uint64, multiple, ok bool) []byte {
	method, flags := byte(80), byte(0)
	if !ok {
		method, flags = 120, 2 // requeue
	}
	if multiple {
		flags |= 1
	}
	dst = append(dst, 1, byte(channel>>8), byte(channel), 0, 0, 0, 13, 0, 60, 0, method)
	dst = binary.BigEndian.AppendUint64(dst, number)
	return append(dst, flags, 0xCE)
}

// end forgets everything: the channel has ended, and its number may soon be another's.
func (c *confirms) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, r := range c.settled {
		n += int(r.Last - r.First + 1)
	}
	c.channel.conn.unheard.Add(int64(-n))
	c.ended, c.left, c.settled = true, nil, nil
}

// totals are how many publishes are not announced, and sent how many are.
func (c *confirms) totals() (waiting, sent uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, left := range c.left {
		if left&announcedBit == 0 {
			waiting++
		}
	}
	return waiting, c.sent
}

package server

import (
	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
)

// maxParked is how many octets of frames a connection keeps for channels that wait. Past it nothing is read.
const maxParked = 1 << 20

// park keeps a frame of a channel that waits for an answer or, with a publish, for room. What needs neither is not kept
// back by it: acknowledgements act at once, and a close takes what was parked along.
func (c *conn) park(ch *channel, f *amqp.Frame) {
	if f.Type == amqp.FrameMethod {
		switch id, _, _ := amqp.SplitMethod(f.Payload); id {
		case amqp.BasicAckID, amqp.BasicNackID, amqp.BasicRejectID:
			if ch.tx == nil && ch.content.stage == noContent {
				c.channelMethod(ch, f)
				return
			}
		case amqp.ChannelCloseID:
			if ch.waiting == 0 && len(ch.answers) == 0 && !c.crowded() && c.admitLate() {
				c.admitting = ch
				c.unpark()
				c.admitting = nil
				if ch.waiting == 0 && ch.parked == 0 {
					c.channelFrame(f)
					return
				}
			}
		default:
			if ch.committing {
				c.fail(amqp.Errorf(amqp.ChannelError, "unexpected command while processing 'tx.commit'").In(id))
				return
			}
		}
	}
	c.parked = amqp.AppendFrame(c.parked, f.Type, f.Channel, f.Payload)
	ch.parked++
}

// mustPark reports whether the frame has to wait its turn: the channel waits for an answer, frames of it are parked
// already, or the frame needs room and there is none: in the node, or in the queue that the channel has published to last.
func (c *conn) mustPark(ch *channel, f *amqp.Frame) bool {
	if ch.waiting > 0 || ch.parked > 0 || len(ch.answers) > 0 && !ch.overtakes(f) {
		return true
	}
	if c.admitting == ch || c.admitAll || ch.content.stage != noContent || f.Type != amqp.FrameMethod || !isPublish(f.Payload) {
		return false
	}
	if !c.server.full(c) {
		return ch.waitsForQueue()
	}
	if !c.wanting {
		c.wanting = true
		c.server.pool.WaitForRoom(0, func() { c.post(c.roomCame) })
	}
	return true
}

// queueFull is a queue that the channel has published to last, and to which nothing more should be published now, or nil.
func (ch *channel) queueFull() queue.Bounded {
	for _, q := range ch.route.bounded {
		if q.Full() {
			return q
		}
	}
	return nil
}

// waitsForQueue is queueFull, and has the channel go on when there is room.
func (ch *channel) waitsForQueue() bool {
	q := ch.queueFull()
	if q != nil && !ch.wanting {
		ch.wanting = true
		q.WaitForRoom(func() {
			ch.conn.post(func() {
				ch.wanting = false
				ch.conn.unpark()
			})
		})
	}
	return q != nil
}

// roomCame is posted when there is room for publishes again.
func (c *conn) roomCame() {
	c.wanting = false
	c.unpark()
}

// resume lets a channel go on whose operation was answered.
func (ch *channel) resume() {
	ch.waiting--
	if ch.waiting == 0 && len(ch.answers) == 0 && ch.parked > 0 {
		ch.conn.unpark()
	}
}

// unpark handles parked frames again, in their order; those of channels that still wait are parked again. It publishes as it goes, so
// that a bound that is reached again is seen.
func (c *conn) unpark() {
	frames := c.parked
	c.parked = nil
	for _, ch := range c.channels {
		ch.parked = 0
	}
	handled := 0
	for len(frames) > 0 && c.state == running {
		f, n, err := amqp.ParseFrame(frames, 0)
		if err != nil || n == 0 {
			panic("server: parked frames do not parse")
		}
		frames = frames[n:]
		c.channelFrame(&f)
		if handled += n; handled >= queue.SlabSize {
			c.publish()
			handled = 0
		}
	}
}

// dropParked forgets the parked frames of a channel that ends: its number may be another's by the time there is room.
func (c *conn) dropParked(ch *channel) {
	if ch.parked == 0 {
		return
	}
	ch.parked = 0
	frames := c.parked
	keep := frames[:0]
	for len(frames) > 0 {
		f, n, _ := amqp.ParseFrame(frames, 0)
		if f.Channel != ch.number {
			keep = append(keep, frames[:n]...)
		}
		frames = frames[n:]
	}
	c.parked = keep
}

// crowded reports whether so much more than the bound is in use that even what a peer published before it closed a channel
// or the connection has to wait. Below that a close is not kept back: at most maxParked octets come in.
func (c *conn) crowded() bool {
	p := c.server.pool
	return p.InUse() >= p.Bound()+p.Bound()/4
}

// held reports whether nothing may be read for now.
func (c *conn) held() bool {
	if c.lost || c.state == closed {
		return false
	}
	return c.state == running && (c.leaving || len(c.parked) > maxParked) || c.congested()
}

// holdReading waits while too much is parked, or waits to be written. The peer's silence is not held against it then.
func (c *conn) holdReading() {
	if !c.held() {
		return
	}
	c.timing.reading(false)
	if c.state == running {
		c.shown.Store(inFlow)
	}
	for c.held() {
		c.in.lend()
		c.mail.wait()
		c.runMail()
		c.leave()
		c.flush()
	}
	c.shown.Store(uint32(c.state))
	c.timing.reading(true)
}

package server

import (
	"cmp"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/queue"
)

// consumer is a subscription of a channel, or its way of getting single messages from a queue; it is the queue's Outlet.
type consumer struct {
	channel *channel
	queue   queue.Queue
	of      *broker.Queue
	id      queue.ConsumerID
	tag     string
	handle  uint32 // index in channel.handles
	timeout int64  // of its own for acknowledgements, milliseconds; 0: the queue's
	noAck   bool
	quorum  bool // the queue is a quorum queue
	stream  bool // the queue is a stream
	getter  bool
	replyTo string // direct reply-to: its name; there is no queue
	gated   bool   // counts for the channel's limit
	head    []byte // a basic.deliver frame up to the delivery tag

	// Guarded by conn.out.mu.
	offered int  // deliveries since the queue last heard Ready
	pending int  // octets of them
	needy   bool // in outbox.needy
	gone    bool // nothing more is accepted

	// Guarded by channel.mu.
	unacked   int
	cancelled bool
	leaving   bool // by the client's basic.cancel, which is not answered
	retired   bool // nothing of it is on its way to the peer any more
}

// deliverHead encodes a basic.deliver frame up to the delivery tag, its size left open.
func deliverHead(channel uint16, tag string) []byte {
	head := []byte{amqp.FrameMethod, byte(channel >> 8), byte(channel), 0, 0, 0, 0, 0, 60, 0, 60, byte(len(tag))}
	return append(head, tag...)
}

// attached takes the queue's answer to Attach: from now on k is its channel's. If the channel has ended meanwhile, k is
// detached again instead. It runs on any goroutine, possibly under the queue's lock.
func (k *consumer) attached(id queue.ConsumerID) bool {
	ch := k.channel
	ch.mu.Lock()
	k.id = id
	ended := ch.ended
	switch {
	case ended:
	case k.getter:
		if ch.getters == nil {
			ch.getters = make(map[*broker.Queue]*consumer)
		}
		ch.getters[k.of] = k
	default:
		ch.consumers[k.tag] = k
	}
	if !ended {
		ch.enroll(k)
	}
	ch.mu.Unlock()
	if ended {
		ch.conn.server.undoing.Go(func() {
			var w queue.Wake
			k.of.Detach(id, queue.Remove, &w, func() {})
			w.Flush()
		})
	}
	return !ended
}

// close has what the queue still offers be given back at once.
func (k *consumer) close() {
	o := &k.channel.conn.out
	o.mu.Lock()
	k.gone = true
	o.mu.Unlock()
}

// tell puts an answer that is about k into the outbox, unless k's channel has ended.
func (k *consumer) tell(w *queue.Wake, m amqp.Method) {
	ch := k.channel
	ch.conn.putText(w, k, func(dst []byte) []byte { return amqp.AppendMethodFrame(dst, ch.number, m) })
}

// Cancelled implements queue.Outlet: the queue is gone, or has ended the consumer.
func (k *consumer) Cancelled(w *queue.Wake) {
	ch := k.channel
	ch.mu.Lock()
	leaving := k.leaving // the client ends it, too, and has no answer yet: what it acknowledged last may have come too late
	if k.cancelled && !leaving || ch.ended {
		ch.mu.Unlock()
		return
	}
	k.cancelled, k.leaving = true, false
	switch {
	case leaving:
	case k.getter:
		delete(ch.getters, k.of)
	default:
		delete(ch.consumers, k.tag)
	}
	tell := !k.getter && ch.conn.capabilities.cancelNotify
	if tell {
		ch.notices = append(ch.notices, k.tag)
	}
	ch.mu.Unlock()
	if !leaving {
		ch.conn.retire(k, w)
		if k.stream { // which may be there still, and has lost this consumer only
			k.of.Detach(k.id, queue.Cancel, w, func() {})
		}
	}
	if tell {
		ch.conn.post(ch.giveNotices)
	}
}

// TimedOut implements queue.Outlet. A client that understands basic.cancel is told so that its consumer gets nothing more
// for now; another loses the channel, as does one that fetched the message (RabbitMQ docs: consumers, "Acknowledgement
// Timeout").
func (k *consumer) TimedOut(*queue.Wake) {
	c, ch := k.channel.conn, k.channel
	c.post(func() {
		ch.mu.Lock()
		known := !k.getter && !k.cancelled && !ch.ended
		ch.mu.Unlock()
		switch {
		case ch.state != channelOpen:
		case known && c.capabilities.cancelNotify:
			ch.mu.Lock()
			ch.notices = append(ch.notices, k.tag)
			ch.mu.Unlock()
			ch.giveNotices()
		default:
			c.raise(ch, amqp.Errorf(amqp.PreconditionFailed, "delivery acknowledgement on channel %d timed out. Timeout value used: %d ms. "+
				"This timeout value can be configured, see consumers doc guide to learn more", ch.number, cmp.Or(k.timeout, k.of.Settings().Config.ConsumerTimeout)))
		}
	})
}

// giveNotices tells the client which consumers were ended, once it has all its answers: whoever deletes a queue hears of
// that first.
func (ch *channel) giveNotices() {
	if ch.waiting > 0 || len(ch.answers) > 0 {
		return
	}
	ch.tellNotices(&ch.conn.wake, nil)
}

// tellNotices tells the client at once which consumers were ended. It comes before the answer to whatever a queue did after it
// ended them: by that answer a client knows what has become of its acknowledgements. Where the channel waits for a getter, that
// is about; then it runs on any goroutine, as the reader tells nothing until it has been resumed.
func (ch *channel) tellNotices(w *queue.Wake, about *consumer) {
	ch.mu.Lock()
	tags := ch.notices
	ch.notices = nil
	if ch.ended {
		tags = nil
	}
	ch.mu.Unlock()
	if len(tags) == 0 {
		return
	}
	ch.conn.putText(w, about, func(dst []byte) []byte {
		for _, tag := range tags {
			dst = amqp.AppendMethodFrame(dst, ch.number, &amqp.BasicCancel{ConsumerTag: tag, NoWait: true})
		}
		return dst
	})
}

// Activity implements queue.Outlet.
func (k *consumer) Activity(bool) {}

// retire has the writer free the consumer's handle when it has written everything that the queue offered to it.
func (c *conn) retire(k *consumer, w *queue.Wake) {
	c.put(w, item{kind: itemRetire, channel: k.channel, consumer: k})
}

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

// Cancelled implements queue.Outlet: the queue is gone, or has ended the consumer. The client is told at once, before whatever the queue
// answers from now on: by an answer it knows what has become of its acknowledgements. Only who deletes a queue hears of that
// first.
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
	if tell && ch.deletes > 0 {
		ch.notices = append(ch.notices, k)
		tell = false
	}
	ch.mu.Unlock()
	if tell {
		k.tellEnded(w)
	}
	if !leaving {
		ch.conn.retire(k, w)
		if k.stream { // which may be there still, and has lost this consumer only
			k.of.Detach(k.id, queue.Cancel, w, func() {})
		}
	}
}

// TimedOut implements queue.Outlet. A client that understands basic.cancel is told so that its consumer gets nothing more
// for now; another loses the channel, as does one that fetched the message or has cancelled the consumer (RabbitMQ docs: consumers,
// "Acknowledgement Timeout"). Either comes before whatever the queue answers from now on.
func (k *consumer) TimedOut(w *queue.Wake) {
	c, ch := k.channel.conn, k.channel
	ch.mu.Lock()
	known := !k.getter && (!k.cancelled || k.leaving)
	ended := ch.ended
	ch.mu.Unlock()
	switch {
	case ended:
	case known && c.capabilities.cancelNotify:
		k.tellEnded(w)
	default:
		ch.mute(w)
		c.post(func() {
			c.raise(ch, amqp.Errorf(amqp.PreconditionFailed, "delivery acknowledgement on channel %d timed out. Timeout value used: %d ms. "+
				"This timeout value can be configured, see consumers doc guide to learn more", ch.number, cmp.Or(k.timeout, k.of.Settings().Config.ConsumerTimeout)))
		})
	}
}

// tellEnded tells the client that the queue has ended k. Confirms that come from now on stand behind it.
func (k *consumer) tellEnded(w *queue.Wake) {
	k.tell(w, &amqp.BasicCancel{ConsumerTag: k.tag, NoWait: true})
	k.channel.postponeConfirms(w)
}

// deleting has the client hear that a queue's consumers were ended after it has heard that the queue is deleted, which it asks for.
func (ch *channel) deleting() {
	ch.mu.Lock()
	ch.deletes++
	ch.mu.Unlock()
}

// deleted is called when the client has the answer.
func (ch *channel) deleted() {
	ch.mu.Lock()
	ch.deletes--
	var ended []*consumer
	if ch.deletes == 0 {
		ended, ch.notices = ch.notices, nil
	}
	ch.mu.Unlock()
	for _, k := range ended {
		k.tellEnded(&ch.conn.wake)
	}
}

// Activity implements queue.Outlet.
func (k *consumer) Activity(bool) {}

// retire has the writer free the consumer's handle when it has written everything that the queue offered to it.
func (c *conn) retire(k *consumer, w *queue.Wake) {
	c.put(w, item{kind: itemRetire, channel: k.channel, consumer: k})
}

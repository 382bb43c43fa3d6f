package server

import (
	"sync"
	"sync/atomic"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/queue"
)

// channel is a channel of a connection. The connection's reader owns it, but for what its mutex guards.
type channel struct {
	conn   *conn
	number uint16
	id     uint64 // one per channel of the node

	// What others look at, too, is changed under mu: confirms, tx, prefetch, replies, limit.

	state      channelState
	waiting    int       // operations that have not answered: later frames are parked
	answers    []*answer // owed for operations on topology that were applied
	parked     int       // frames of this channel in conn.parked
	wanting    bool      // to be told when the queue published to has room
	committing bool      // one of them is tx.commit
	looked     bool      // the method that comes next waited for metadata
	content    content
	route      route
	groups     map[*broker.Queue]*group // of what this read has published
	confirms   *confirms                // nil: not in confirm mode
	tx         *transaction             // nil: not transactional
	lastQueue  string                   // declared last, what an empty queue name stands for
	prefetch   uint32                   // of consumers to come
	replies    *consumer                // direct reply-to

	mu        sync.Mutex  // guards what follows. Locked alone or under no lock but a queue's
	ended     bool        // nothing more goes out
	deletes   int         // queues that the client deletes, and has no answer for
	notices   []*consumer // that were ended meanwhile, of which the client hears behind the answers
	tag       uint64      // last delivery tag given out
	unacked   queue.Window[unacked]
	handles   []*consumer
	free      []uint32                    // of handles
	consumers map[string]*consumer        // by tag
	getters   map[*broker.Queue]*consumer // for basic.get
	limit     *limiter                    // basic.qos with global; nil: none. Changed by the reader, who reads it without the mutex
	counts    ChannelCounts

	uncommitted, unsettled int // publishes and settled deliveries of tx

	muted bool // guarded by conn.out.mu: it is about to be closed with an error, which no answer overtakes
}

type channelState uint8

const (
	channelOpen    channelState = iota
	channelEnding               // being taken apart; no frame counts
	channelClosing              // we sent channel.close and wait for close-ok
)

// plain reports whether a publish on the channel needs nothing out of the ordinary.
func (ch *channel) plain() bool {
	return ch.state == channelOpen && ch.waiting == 0 && ch.parked == 0 && len(ch.answers) == 0 && ch.content.stage == noContent && ch.tx == nil
}

// channelOf is the open channel with that number, or nil.
func (c *conn) channelOf(number uint16) *channel {
	if ch := c.last; ch != nil && ch.number == number {
		return ch
	}
	ch := c.channels[number]
	if ch != nil {
		c.last = ch
	}
	return ch
}

// channelFrame handles a frame on a channel of an open connection.
func (c *conn) channelFrame(f *amqp.Frame) {
	ch := c.channelOf(f.Channel)
	if ch == nil {
		c.firstFrame(f)
		return
	}
	switch ch.state {
	case channelEnding:
		return
	case channelClosing:
		ch.frameWhileClosing(f)
		return
	}
	if f.Type != amqp.FrameMethod {
		c.contentSeen()
	}
	if c.mustPark(ch, f) {
		c.park(ch, f)
		return
	}
	if ch.content.stage != noContent || f.Type != amqp.FrameMethod {
		if err := ch.contentFrame(f); err != nil {
			c.fail(err)
		}
		return
	}
	c.channelMethod(ch, f)
}

// firstFrame handles a frame on a channel number that is not in use.
func (c *conn) firstFrame(f *amqp.Frame) {
	if limit := c.channelMax; limit != 0 && len(c.channels) >= int(limit) {
		c.fail(amqp.Errorf(amqp.NotAllowed, "number of channels opened (%d) has reached the negotiated channel_max (%d)", len(c.channels), limit))
		return
	}
	if f.Type != amqp.FrameMethod {
		c.fail(amqp.Errorf(amqp.UnexpectedFrame, "expected method frame, got non method frame instead"))
		return
	}
	id, args, _ := amqp.SplitMethod(f.Payload)
	m := amqp.NewMethod(id)
	if m == nil {
		c.fail(amqp.DecodeError(id, args, amqp.ErrUnknownMethod))
		return
	}
	if err := m.Decode(args); err != nil {
		c.fail(amqp.DecodeError(id, args, err))
		return
	}
	if id != amqp.ChannelOpenID {
		if !fromClient(id) || id.Class() == amqp.ClassConnection {
			if id != amqp.ChannelCloseOkID {
				c.fail(amqp.Errorf(amqp.CommandInvalid, "unimplemented method").In(id))
				return
			}
		}
		c.fail(amqp.Errorf(amqp.ChannelError, "expected 'channel.open'").In(id))
		return
	}
	if err := c.admission.OpenChannel(); err != nil {
		c.fail(err)
		return
	}
	ch := &channel{
		conn: c, number: f.Channel, id: c.server.nextChannel.Add(1),
		consumers: make(map[string]*consumer),
	}
	c.mu.Lock()
	c.channels[f.Channel] = ch
	c.mu.Unlock()
	c.last = ch
	c.server.Counters.ChannelsOpened.Add(1)
	ch.send(&amqp.ChannelOpenOk{})
}

// frameWhileClosing: we closed the channel and wait for the peer to agree.
func (ch *channel) frameWhileClosing(f *amqp.Frame) {
	if f.Type != amqp.FrameMethod {
		return
	}
	switch id, _, _ := amqp.SplitMethod(f.Payload); id {
	case amqp.ChannelCloseID:
		ch.send(&amqp.ChannelCloseOk{})
	case amqp.ChannelCloseOkID:
		ch.conn.forget(ch)
	case amqp.ChannelOpenID:
		ch.conn.fail(amqp.Errorf(amqp.ChannelError, "second 'channel.open' seen").In(id))
	}
}

// forget frees the channel's number.
func (c *conn) forget(ch *channel) {
	c.mu.Lock()
	delete(c.channels, ch.number)
	c.mu.Unlock()
	c.admission.CloseChannel()
	if c.last == ch {
		c.last = nil
	}
}

// send puts a method of the channel into the outbox.
func (ch *channel) send(m amqp.Method) { ch.reply(&ch.conn.wake, m) }

// reply is send for those who have a Wake of their own.
func (ch *channel) reply(w *queue.Wake, m amqp.Method) {
	ch.conn.putText(w, nil, func(dst []byte) []byte { return amqp.AppendMethodFrame(dst, ch.number, m) })
}

// raise answers a failed method: a soft error closes the channel, a hard one the connection.
func (c *conn) raise(ch *channel, err *amqp.Error) {
	if err.Hard() {
		c.fail(err)
		return
	}
	if ch.state != channelOpen {
		return
	}
	c.server.log.Error("closing channel", "connection", c.name, "channel", ch.number, "error", err.Text)
	c.publish()
	ch.end(func() {
		ch.state = channelClosing
		ch.send(&amqp.ChannelClose{ReplyCode: err.Code, ReplyText: err.Text, ClassID: err.Class, MethodID: err.Method})
	})
	c.runMail()
}

// mute has no answer go out any more on a channel that is about to be closed with an error. It may be called on any goroutine.
func (ch *channel) mute(w *queue.Wake) {
	ch.conn.out.mu.Lock()
	ch.muted = true
	ch.conn.out.mu.Unlock()
	ch.postponeConfirms(w)
}

// postponeConfirms has what is confirmed from now on be announced behind what the outbox has by now.
func (ch *channel) postponeConfirms(w *queue.Wake) {
	ch.mu.Lock()
	confirms := ch.confirms
	ch.mu.Unlock()
	if confirms == nil {
		return
	}
	if it, ok := confirms.postpone(); ok {
		ch.conn.put(w, it)
	}
}

// closedByPeer ends the channel at the peer's wish.
func (ch *channel) closedByPeer() {
	c := ch.conn
	c.publish()
	ch.end(func() {
		c.forget(ch)
		ch.send(&amqp.ChannelCloseOk{})
	})
}

// end stops everything of the channel: its consumers go, what they did not acknowledge returns to the queues, what waits
// in the outbox for it is dropped. When all that is done, then runs on the reader. Only queues of this node are waited for:
// others take their messages back when they get to know, and a channel can end while a majority is away.
func (ch *channel) end(then func()) {
	c := ch.conn
	c.acks.flush(&c.wake)
	ch.mu.Lock()
	if ch.ended {
		ch.mu.Unlock()
		c.post(then)
		return
	}
	ch.ended = true
	attached := make([]*consumer, 0, len(ch.handles))
	for _, k := range ch.handles {
		if k != nil {
			attached = append(attached, k)
		}
	}
	ch.consumers, ch.getters, ch.handles, ch.free = nil, nil, nil, nil
	ch.unacked.Clear()
	ch.mu.Unlock()

	ch.state = channelEnding
	c.drop(ch, attached)
	c.dropParked(ch)
	if ch.tx != nil {
		ch.tx.rollback(c.server)
	}
	if ch.confirms != nil {
		ch.confirms.end()
	}
	ch.endReply()
	c.dropContent(&ch.content)
	c.server.Counters.ChannelsClosed.Add(1)
	done := countdown(len(attached)+1, func() { c.post(then) })
	for _, k := range attached {
		if k.of.Type == broker.Classic {
			k.of.Detach(k.id, queue.Remove, &c.wake, done)
		} else {
			k.of.Detach(k.id, queue.Remove, &c.wake, func() {})
			done()
		}
	}
	done()
}

// countdown returns a function that runs then in its nth call. It may be called concurrently.
func countdown(n int, then func()) func() {
	var left atomic.Int64
	left.Store(int64(n))
	return func() {
		if left.Add(-1) == 0 {
			then()
		}
	}
}

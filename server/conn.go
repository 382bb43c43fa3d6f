package server

import (
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/queue"
)

// conn is a client's connection. One goroutine, the reader, owns the socket's input and everything here that is not
// marked otherwise: protocol state, channels, the batch being gathered. Others reach it through the outbox (what is to be
// written), the mailbox (what the reader shall do) and the counters.
type conn struct {
	server *Server
	socket net.Conn
	raw    syscall.RawConn // nil when the socket is not plain TCP
	id     uint64
	name   string // "client -> server" addresses, as RabbitMQ names connections
	opened time.Time

	// Negotiated; written before the first frame that depends on them.
	frameMax     uint32
	channelMax   uint16
	heartbeat    uint16
	mechanism    string
	user         *broker.User
	vhost        *broker.VHost
	properties   amqp.Table // the client's
	capabilities capabilities

	exchange  sasl
	state     state
	channels  map[uint16]*channel
	last      *channel // of the previous frame
	in        input
	pub       publisher
	acks      settlements
	wake      queue.Wake
	view      *broker.Scope // of the batch; nil: not open
	seed      uint64        // of random routing
	parked    []byte        // frames of channels that wait, in order of arrival
	admitting bool          // they are handled though there is no room
	wanting   bool          // roomCame will be posted

	out    outbox
	writer writer
	mail   mailbox
	timing timing

	received, sent atomic.Uint64 // octets
	mu             sync.Mutex    // guards what management looks at: channels, state, vhost, user
}

// capabilities are what the client says it understands.
type capabilities struct {
	authenticationFailureClose bool
	cancelNotify               bool
	blocked                    bool
}

type state uint8

const (
	wantHeader state = iota
	wantStartOk
	wantSecureOk
	wantTuneOk
	wantOpen
	running
	ending    // channels are being taken apart; no frame counts
	closing   // we sent connection.close and wait for close-ok
	lingering // nothing is read any more; the socket closes soon
	closed    // the socket is closed or about to be
)

// run is the reader.
func (c *conn) run() {
	defer c.end()
	for c.state != closed {
		if !c.fill() {
			return
		}
		c.runMail()
		c.consume()
		c.flush()
		c.out.drain(maxBacklog)
		c.holdReading()
	}
}

// flush does what the frames read so far add up to. Nothing is locked and nothing is left to do afterwards.
func (c *conn) flush() {
	c.publish()
	c.acks.flush(&c.wake)
	c.wake.Flush()
}

// maxBacklog is how many octets may wait for a peer that asks and does not read, before nothing more is read from it.
const maxBacklog = 4 << 20

// consume handles the frames in the buffer.
func (c *conn) consume() {
	for c.state != closed && c.state != lingering {
		if c.state == wantHeader {
			if !c.protocolHeader() {
				return
			}
			continue
		}
		b := c.in.bytes()
		f, n, err := amqp.ParseFrame(b, c.frameLimit())
		if n == 0 && err == nil {
			c.in.need(b)
			return
		}
		if err != nil {
			c.in.skip(n)
			c.brokenFrame(err.(*amqp.Error), n > 0)
			continue
		}
		if f.Type == amqp.FrameMethod && c.state == running && isPublish(f.Payload) {
			if taken, more := c.fastPublish(b, &f, n); taken > 0 {
				c.in.skip(taken)
				continue
			} else if more {
				return
			}
		}
		c.in.skip(n)
		c.frame(&f)
	}
	if c.state == lingering {
		c.in.skip(len(c.in.bytes()))
	}
}

func (c *conn) frameLimit() uint32 {
	if c.state < wantOpen {
		return amqp.FrameInitialSize
	}
	return c.frameMax
}

// brokenFrame answers a frame that makes no sense. whole: its end is known, and what follows can be read.
func (c *conn) brokenFrame(err *amqp.Error, whole bool) {
	switch {
	case c.state < running:
		c.linger()
	case c.state != running:
		if !whole && c.state == closing {
			c.linger()
		}
	default:
		c.fail(err)
		if !whole {
			c.linger()
		}
	}
}

// frame handles a whole frame.
func (c *conn) frame(f *amqp.Frame) {
	switch {
	case f.Type == amqp.FrameHeartbeat, c.state == ending:
	case c.state == closing:
		c.frameWhileClosing(f)
	case c.state != running:
		c.handshake(f)
	case f.Channel == 0:
		c.connectionFrame(f)
	default:
		c.channelFrame(f)
	}
}

// frameWhileClosing: only the end of the handshake counts.
func (c *conn) frameWhileClosing(f *amqp.Frame) {
	if f.Channel != 0 || f.Type != amqp.FrameMethod {
		return
	}
	switch id, _, _ := amqp.SplitMethod(f.Payload); id {
	case amqp.ConnectionCloseID:
		c.send(&amqp.ConnectionCloseOk{})
		c.flush()
	case amqp.ConnectionCloseOkID:
		c.state = closed
	}
}

// connectionFrame handles a frame on channel 0 of an open connection.
func (c *conn) connectionFrame(f *amqp.Frame) {
	id, args, _ := amqp.SplitMethod(f.Payload)
	switch id {
	case amqp.ConnectionCloseID:
		c.closedByPeer()
	case amqp.ConnectionUpdateSecretID:
		var m amqp.ConnectionUpdateSecret
		if err := m.Decode(args); err != nil {
			c.fail(amqp.DecodeError(id, args, err))
			return
		}
		c.send(&amqp.ConnectionUpdateSecretOk{})
	default:
		m := amqp.NewMethod(id)
		if m == nil {
			c.fail(amqp.DecodeError(id, args, amqp.ErrUnknownMethod))
		} else if err := m.Decode(args); err != nil {
			c.fail(amqp.DecodeError(id, args, err))
		} else if id.Class() == amqp.ClassConnection && !id.FromClient() {
			c.fail(amqp.Errorf(amqp.CommandInvalid, "unimplemented method").In(id))
		} else {
			c.fail(amqp.Errorf(amqp.ChannelError, "unexpected method in connection state running").In(id))
		}
	}
}

// closedByPeer ends the connection at the peer's wish: channels end, exclusive queues go, then close-ok.
func (c *conn) closedByPeer() {
	c.admitParked()
	c.publish()
	c.state = ending
	c.endChannels(func() {
		c.send(&amqp.ConnectionCloseOk{})
		c.out.seal()
		c.state = lingering
		c.timing.closeIn(c.closeWait())
	})
	c.runMail()
}

// fail closes the connection with an error of ours and waits for the peer's close-ok.
func (c *conn) fail(err *amqp.Error) {
	if c.state >= ending {
		return
	}
	c.server.log.Error("closing connection", "connection", c.name, "error", err.Text)
	c.publish()
	c.state = ending
	c.endChannels(func() {
		c.send(&amqp.ConnectionClose{ReplyCode: err.Code, ReplyText: err.Text, ClassID: err.Class, MethodID: err.Method})
		c.state = closing
		c.timing.closeIn(c.closeWait())
	})
	c.runMail()
}

// closeWait is how long the peer has to end the closing handshake.
func (c *conn) closeWait() time.Duration {
	if c.heartbeat > 0 && c.heartbeat < 30 {
		return time.Duration(c.heartbeat) * time.Second
	}
	return 30 * time.Second
}

// linger stops listening and closes the socket after the pause that refused clients get.
func (c *conn) linger() {
	c.state = lingering
	c.timing.closeIn(refusalPause)
}

// refusalPause slows down whoever tries passwords.
const refusalPause = 3 * time.Second

// send puts a method on channel 0.
func (c *conn) send(m amqp.Method) {
	c.putText(&c.wake, func(dst []byte) []byte { return amqp.AppendMethodFrame(dst, 0, m) })
}

// endChannels ends all channels and what lives as long as the connection; then runs on the reader when that is done.
func (c *conn) endChannels(then func()) {
	c.mu.Lock()
	channels := slices.Collect(maps.Values(c.channels))
	clear(c.channels)
	c.mu.Unlock()
	c.last, c.parked = nil, nil
	rest := func() { c.post(then) }
	if c.vhost != nil {
		rest = func() {
			c.vhost.ConnectionClosed(c.id, &queue.Wake{}, func() { c.server.broker.Sync(func(*amqp.Error) { c.post(then) }) })
		}
	}
	done := countdown(len(channels)+1, rest)
	for _, ch := range channels {
		ch.end(done)
	}
	c.post(done)
}

// end leaves nothing behind.
func (c *conn) end() {
	c.timing.stop()
	c.socket.Close()
	if c.state < ending {
		c.publish()
		c.state = ending
		c.endChannels(func() { c.state = closed })
		for c.runMail(); c.state != closed; c.runMail() {
			c.mail.wait()
		}
	}
	c.mail.end()
	c.flush()
	c.shut()
	c.in.drop()
	c.server.remove(c)
}

// broken is told by the writer that the socket takes no more.
func (c *conn) broken() { c.socket.Close() }

// wrote counts octets written.
func (c *conn) wrote(n int) { c.sent.Add(uint64(n)) }

// isPublish looks at the payload of a method frame.
func isPublish(p []byte) bool {
	return p[0] == 0 && p[1] == amqp.ClassBasic && p[2] == 0 && p[3] == 40
}

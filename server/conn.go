package server

import (
	"crypto/tls"
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
	socket net.Conn        // what is read and written: wire, or TLS on it
	wire   net.Conn        // closed to end the connection at once
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
	admission    *broker.Admission // nil until open
	properties   amqp.Table        // the client's
	secured      *tls.ConnectionState
	capabilities capabilities

	exchange  sasl
	state     state
	channels  map[uint16]*channel
	last      *channel // of the previous frame
	in        input
	pub       publisher
	acks      settlements
	pressed   bool // consumers of what was just published cannot keep up
	wake      queue.Wake
	view      *broker.Scope // of the batch; nil: not open
	seed      uint64        // of random routing
	parked    []byte        // frames of channels that wait, in order of arrival
	admitting *channel      // whose parked frames are handled though there is no room
	admitAll  bool          // those of all channels are
	wanting   bool          // roomCame will be posted
	leaving   bool          // the peer closes the connection, and what it published before waits for room
	deaf      bool          // what comes makes no sense any more
	lost      bool          // the socket is closed
	counted   bool          // in server.open
	teardown  teardown
	blockade  blockade
	looked    bool   // holds was found out in this batch
	holds     bool   // a channel has unacknowledged deliveries
	gathered  int    // octets of incomplete contents
	spare     []byte // for the next content
	published published
	acked     uint64 // acknowledgements of the batch

	ackedQuorum uint64 // those of them for quorum queues
	ackedStream uint64 // and for streams

	out    outbox
	writer writer
	mail   mailbox
	timing timing

	received, sent atomic.Uint64 // octets
	reads, writes  atomic.Uint64
	unheard        atomic.Int64  // publishes that are confirmed, and not announced to the peer
	mu             sync.Mutex    // guards changes of what others look at: channels, what was negotiated, vhost, user
	shown          atomic.Uint32 // state, for others
}

// teardown is how far the end of the channels, and of what lives as long as the connection, has come.
type teardown uint8

const (
	standing teardown = iota
	tearing
	torn
)

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
		c.shown.Store(uint32(c.state))
		if c.pressed {
			c.pressed = false
			time.Sleep(pressedRest)
		}
		c.holdReading()
	}
}

// pressedRest is how long a publisher rests after a read whose queues' consumers cannot keep up.
const pressedRest = 500 * time.Microsecond

// flush does what the frames read so far add up to. Nothing is locked and nothing is left to do afterwards.
func (c *conn) flush() {
	c.publish()
	c.acks.flush(&c.wake)
	c.looked = false
	c.addPublished()
	if c.acked > 0 {
		c.server.Counters.Acked.Add(c.acked)
		c.server.Counters.OfQuorum.Acked.Add(c.ackedQuorum)
		c.server.Counters.OfStream.Acked.Add(c.ackedStream)
		c.acked, c.ackedQuorum, c.ackedStream = 0, 0, 0
	}
	c.wake.Flush()
}

// consume handles the frames in the buffer.
func (c *conn) consume() {
	for c.state != closed && c.state != lingering && !c.deaf {
		if c.leaving && c.state == running {
			return // first what was published before comes in
		}
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
	if c.state == lingering || c.deaf {
		c.in.skip(len(c.in.bytes()))
	}
}

func (c *conn) frameLimit() uint32 {
	switch {
	case c.state < wantOpen:
		return amqp.FrameInitialSize
	case c.frameMax == 0:
		return maxBody // nothing larger makes sense
	}
	return c.frameMax
}

// brokenFrame answers a frame that makes no sense. whole: its end is known, and what follows can be read.
func (c *conn) brokenFrame(err *amqp.Error, whole bool) {
	switch {
	case c.state < running:
		c.linger()
	case c.state != running:
		if !whole {
			c.deafen()
		}
	default:
		c.fail(err)
		if !whole {
			c.deafen()
		}
	}
}

// deafen stops listening: nobody knows where the next frame begins. The socket is closed after a pause.
func (c *conn) deafen() {
	c.deaf = true
	c.timing.closeIn(refusalPause)
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
		c.leaving = true
		c.leave()
	case amqp.ConnectionUpdateSecretID:
		var m amqp.ConnectionUpdateSecret
		if err := m.Decode(args); err != nil {
			c.fail(amqp.DecodeError(id, args, err))
			return
		}
		c.updateSecret()
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

// leave ends the connection at the peer's wish, when everything that came before has been handled.
func (c *conn) leave() {
	if !c.leaving || c.state != running {
		return
	}
	if !c.crowded() && c.admitLate() {
		c.admitAll = true
		c.unpark()
		c.admitAll = false
	}
	if len(c.parked) == 0 && c.state == running {
		c.closedByPeer()
	}
}

// closedByPeer ends the connection: channels end, exclusive queues go, then close-ok.
func (c *conn) closedByPeer() {
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
		if c.deaf {
			c.timing.closeIn(refusalPause)
		} else {
			c.timing.closeIn(c.closeWait())
		}
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
	c.putText(&c.wake, nil, func(dst []byte) []byte { return amqp.AppendMethodFrame(dst, 0, m) })
}

// endChannels ends all channels and what lives as long as the connection; then runs on the reader when that is done.
func (c *conn) endChannels(then func()) {
	c.mu.Lock()
	channels := slices.Collect(maps.Values(c.channels))
	clear(c.channels)
	c.mu.Unlock()
	c.last, c.parked = nil, nil
	c.teardown = tearing
	over := func() {
		c.post(func() {
			c.teardown = torn
			then()
		})
	}
	rest := over
	if c.vhost != nil {
		rest = func() {
			var w queue.Wake
			c.vhost.ConnectionClosed(c.id, &w, func() { c.server.broker.Sync(func(*amqp.Error) { over() }) })
			w.Flush()
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
	c.wire.Close()
	if c.teardown == standing {
		c.publish()
		c.state = ending
		c.endChannels(func() {})
	}
	for c.runMail(); c.teardown != torn; c.runMail() {
		c.wake.Flush() // what the end waits for is asked of another node
		c.mail.wait()
	}
	c.mail.end()
	c.flush()
	c.shut()
	c.out.wait()
	c.in.drop()
	c.shown.Store(uint32(closed))
	c.server.remove(c)
}

// cut closes the socket; the reader finds out. Anybody may call it.
func (c *conn) cut() {
	c.wire.Close()
	c.post(func() { c.lost = true })
}

// isPublish looks at the payload of a method frame.
func isPublish(p []byte) bool {
	return p[0] == 0 && p[1] == amqp.ClassBasic && p[2] == 0 && p[3] == 40
}

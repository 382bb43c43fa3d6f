package server

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/warrenmq/warren/amqp"
)

// protocolHeader reads the eight octets that a client begins with, and reports whether they were there.
func (c *conn) protocolHeader() bool {
	b := c.in.bytes()
	if len(b) < len(amqp.ProtocolHeader) {
		return false
	}
	ours := amqp.AcceptsProtocol(b[:len(amqp.ProtocolHeader)])
	c.in.skip(len(amqp.ProtocolHeader))
	if !ours {
		// Whoever speaks something else learns what is spoken here.
		c.putText(&c.wake, nil, func(dst []byte) []byte { return append(dst, amqp.ProtocolHeader...) })
		c.out.seal()
		c.socket.SetWriteDeadline(time.Now().Add(time.Second))
		c.wake.Flush()
		c.out.wait()
		c.state = closed
		return true
	}
	c.putText(&c.wake, nil, func(dst []byte) []byte { return append(dst, c.greeting().start...) })
	c.state = wantStartOk
	return true
}

// handshake handles a frame before the connection is open. What is out of order gets no answer but the end.
func (c *conn) handshake(f *amqp.Frame) {
	if f.Channel != 0 || f.Type != amqp.FrameMethod {
		c.linger()
		return
	}
	m, err := amqp.DecodeMethod(f.Payload)
	if err != nil {
		c.linger()
		return
	}
	switch m := m.(type) {
	case *amqp.ConnectionStartOk:
		if c.state == wantStartOk {
			c.startOk(m)
			return
		}
	case *amqp.ConnectionSecureOk:
		if c.state == wantSecureOk {
			c.login(c.exchange.next([]byte(m.Response)))
			return
		}
	case *amqp.ConnectionTuneOk:
		if c.state == wantTuneOk {
			c.tuneOk(m)
			return
		}
	case *amqp.ConnectionOpen:
		if c.state == wantOpen {
			c.open(m)
			return
		}
	case *amqp.ConnectionClose:
		c.send(&amqp.ConnectionCloseOk{})
		c.out.seal()
		c.state = lingering
		c.timing.closeIn(c.closeWait())
		return
	}
	c.linger()
}

func (c *conn) startOk(m *amqp.ConnectionStartOk) {
	c.mu.Lock()
	c.properties = append(amqp.Table(nil), m.ClientProperties...)
	c.mechanism = m.Mechanism
	c.mu.Unlock()
	if v, ok := c.properties.Get("capabilities"); ok {
		list, _ := v.Table()
		has := func(name string) bool {
			v, _ := list.Get(name)
			yes, _ := v.Bool()
			return yes
		}
		c.capabilities = capabilities{
			authenticationFailureClose: has("authentication_failure_close"),
			cancelNotify:               has("consumer_cancel_notify"),
			blocked:                    has("connection.blocked"),
		}
	}
	if slices.Contains(c.greeting().mechanisms, m.Mechanism) {
		c.exchange = c.newSASL(m.Mechanism)
		c.login(c.exchange.next([]byte(m.Response)))
		return
	}
	c.server.log.Warn("login refused", "connection", c.name, "error", "mechanism "+m.Mechanism+" is not offered")
	c.linger()
}

// login goes on with what the SASL exchange came to.
func (c *conn) login(s saslStep) {
	switch {
	case s.challenge != "":
		c.send(&amqp.ConnectionSecure{Challenge: s.challenge})
		c.state = wantSecureOk
	case s.err != nil:
		c.server.log.Warn("login refused", "connection", c.name, "error", s.err.Error())
		if s.malformed || !c.capabilities.authenticationFailureClose {
			c.linger()
			return
		}
		c.send(&amqp.ConnectionClose{
			ReplyCode: amqp.AccessRefused,
			ReplyText: amqp.Errorf(amqp.AccessRefused, "Login was refused using authentication mechanism %s. For details see the broker logfile.", c.mechanism).Text,
		})
		c.state = closing
		c.timing.closeIn(refusalPause)
	default:
		c.mu.Lock()
		c.user = s.user
		c.mu.Unlock()
		o := &c.server.options
		c.send(&amqp.ConnectionTune{ChannelMax: o.ChannelMax, FrameMax: o.FrameMax, Heartbeat: o.Heartbeat})
		c.state = wantTuneOk
	}
}

func (c *conn) tuneOk(m *amqp.ConnectionTuneOk) {
	o := &c.server.options
	switch {
	case m.FrameMax != 0 && m.FrameMax < amqp.FrameMinSize,
		o.FrameMax != 0 && (m.FrameMax == 0 || m.FrameMax > o.FrameMax),
		o.ChannelMax != 0 && (m.ChannelMax == 0 || m.ChannelMax > o.ChannelMax):
		c.server.log.Warn("closing connection", "connection", c.name, "error", "tune-ok asks for more than was offered, or too little",
			"frame_max", m.FrameMax, "channel_max", m.ChannelMax)
		c.linger()
		return
	}
	c.mu.Lock()
	c.frameMax, c.channelMax, c.heartbeat = m.FrameMax, m.ChannelMax, m.Heartbeat
	c.mu.Unlock()
	c.timing.heartbeats(m.Heartbeat)
	c.state = wantOpen
}

func (c *conn) open(m *amqp.ConnectionOpen) {
	var err *amqp.Error
	c.counted = true
	if open, limit := c.server.open.Add(1), c.server.options.ConnectionMax; limit >= 0 && open > int64(limit) {
		err = amqp.Errorf(amqp.NotAllowed, "connection refused: node connection limit (%d) is reached", limit)
	}
	if err == nil {
		c.admission, err = c.server.broker.Open(m.VirtualHost, c.user)
	}
	if err != nil {
		c.fail(err.In(amqp.ConnectionOpenID))
		return
	}
	v := c.admission.VHost
	c.mu.Lock()
	c.vhost = v
	c.mu.Unlock()
	if c.server.broker.VHost(v.Name) != v { // deleted since, by one who may not have found this connection
		c.fail(amqp.Errorf(amqp.ConnectionForced, "vhost '%s' is deleted", v.Name))
		return
	}
	c.timing.keep()
	c.server.log.LogAttrs(context.Background(), slog.LevelInfo, "connection opened",
		slog.String("connection", c.name), slog.String("user", c.user.Name), slog.String("vhost", v.Name))
	c.state = running
	c.send(&amqp.ConnectionOpenOk{})
}

// loopback reports whether the peer is on this machine.
func (c *conn) loopback() bool {
	at, ok := c.wire.RemoteAddr().(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

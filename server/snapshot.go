package server

import (
	"crypto/tls"
	"net"
	"time"

	"github.com/warrenmq/warren/amqp"
)

// Connection is an open connection at one moment, for management.
type Connection struct {
	ID                    uint64 // unique among those of the node
	Name                  string // "client -> server" addresses
	User, VHost           string
	Mechanism             string
	Local, Remote         net.Addr
	TLS                   *tls.ConnectionState // nil: plain
	Heartbeat, ChannelMax uint16
	FrameMax              uint32
	Channels              int
	Opened                time.Time
	Properties            amqp.Table // the client's; not to be changed
	Received, Sent        uint64     // octets
}

// Channel is an open channel at one moment.
type Channel struct {
	Connection             *Connection // shared by those of one connection
	Number                 uint16
	Confirm, Transactional bool
	Consumers              int
	Unacked, Unconfirmed   int
	Prefetch, Limit        uint32 // of consumers to come, and of all together; 0: none
}

// all are the connections that there are.
func (s *Server) all() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*conn, 0, len(s.conns))
	for _, c := range s.conns {
		list = append(list, c)
	}
	return list
}

// Connections calls yield with each open connection until it returns false. The value is used again for the next.
func (s *Server) Connections(yield func(*Connection) bool) {
	var one Connection
	for _, c := range s.all() {
		if c.snapshot(&one) && !yield(&one) {
			return
		}
	}
}

// Connection finds an open connection by name.
func (s *Server) Connection(name string, into *Connection) bool {
	s.mu.Lock()
	c := s.names[name]
	s.mu.Unlock()
	return c != nil && c.snapshot(into)
}

// Name is the name of the connection with that id, "" if there is none.
func (s *Server) Name(id uint64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.conns[id]; c != nil {
		return c.name
	}
	return ""
}

// Channels calls yield with each open channel until it returns false. The value is used again for the next.
func (s *Server) Channels(yield func(*Channel) bool) {
	for _, c := range s.all() {
		of := new(Connection)
		if !c.snapshot(of) {
			continue
		}
		c.mu.Lock()
		channels := make([]*channel, 0, len(c.channels))
		for _, ch := range c.channels {
			channels = append(channels, ch)
		}
		c.mu.Unlock()
		for _, ch := range channels {
			one := Channel{Connection: of, Number: ch.number}
			ch.mu.Lock()
			one.Consumers, one.Unacked, one.Prefetch = len(ch.consumers), ch.unacked.Len(), ch.prefetch
			one.Transactional = ch.tx != nil
			if ch.limit != nil {
				one.Limit = uint32(ch.limit.max.Load())
			}
			confirms := ch.confirms
			ch.mu.Unlock()
			if confirms != nil {
				one.Confirm = true
				confirms.mu.Lock()
				one.Unconfirmed = len(confirms.left)
				confirms.mu.Unlock()
			}
			if !yield(&one) {
				return
			}
		}
	}
}

// Close closes a connection with 320 CONNECTION_FORCED and the reason. It returns at once; false if there is none of that name.
func (s *Server) Close(name, reason string) bool {
	s.mu.Lock()
	c := s.names[name]
	s.mu.Unlock()
	if c == nil {
		return false
	}
	c.post(func() { c.fail(amqp.Errorf(amqp.ConnectionForced, "%s", reason)) })
	return true
}

// Stopping reports whether Shutdown was called.
func (s *Server) Stopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

// Open is the number of open connections.
func (s *Server) Open() int { return int(s.open.Load()) }

// snapshot reports whether c is open. What it reads was written before c.vhost, or is guarded by c.mu.
func (c *conn) snapshot(into *Connection) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.vhost == nil {
		return false
	}
	*into = Connection{
		ID: c.id, Name: c.name, User: c.user.Name, VHost: c.vhost.Name, Mechanism: c.mechanism,
		Local: c.socket.LocalAddr(), Remote: c.socket.RemoteAddr(),
		Heartbeat: c.heartbeat, ChannelMax: c.channelMax, FrameMax: c.frameMax, Channels: len(c.channels),
		Opened: c.opened, Properties: c.properties, Received: c.received.Load(), Sent: c.sent.Load(),
	}
	if t, ok := c.socket.(*tls.Conn); ok {
		state := t.ConnectionState()
		into.TLS = &state
	}
	return true
}

package server

import (
	"cmp"
	"crypto/tls"
	"iter"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

// Connection is a connection at one moment, for those who look on. Tables are shared and not to be changed.
type Connection struct {
	ID          uint64 // of the node, never reused: broker.Consumer.Connection
	Name        string // "peer address:port -> own address:port"
	User, VHost string // "" before they are known
	State       string // starting, securing, tuning, opening, running, flow, blocking, blocked, closing or closed
	Mechanism   string // SASL
	Peer, Own   netip.AddrPort
	TLS         *tls.ConnectionState // nil: not encrypted, or not yet
	Heartbeat   time.Duration        // 0: none
	FrameMax    uint32               // octets; 0: no limit
	ChannelMax  uint16               // 0: no limit
	Channels    int
	Properties  amqp.Table // the client's
	OpenedAt    time.Time

	ReceivedOctets, SentOctets uint64
	Reads, Writes              uint64
	PendingOctets              uint64 // wait to be written
}

// Channel is a channel at one moment.
type Channel struct {
	Connection  string // its name
	User, VHost string
	Peer        netip.AddrPort
	Number      uint16
	State       string // running, flow or closing

	Transactional, Confirm       bool
	Consumers                    int
	Unacked, Unconfirmed         uint64
	Uncommitted, AcksUncommitted uint64
	Prefetch, GlobalPrefetch     uint32 // what the next consumer gets; the channel's own. 0: no limit
	ChannelCounts
}

// Connections yields the connections, by age. It holds no lock while yield runs, and no reader waits for it.
func (s *Server) Connections() iter.Seq[*Connection] {
	return func(yield func(*Connection) bool) {
		var one Connection
		for _, c := range s.list() {
			c.show(&one)
			if !yield(&one) {
				return
			}
		}
	}
}

// Connection fills in the snapshot of the connection of that name, or reports that there is none.
func (s *Server) Connection(name string, into *Connection) bool {
	c := s.named(name)
	if c != nil {
		c.show(into)
	}
	return c != nil
}

// ConnectionName is the name of a connection by its ID, "" when it is gone.
func (s *Server) ConnectionName(id uint64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.conns[id]; c != nil {
		return c.name
	}
	return ""
}

// Channels yields the channels of all connections.
func (s *Server) Channels() iter.Seq[*Channel] {
	return func(yield func(*Channel) bool) {
		var one Channel
		for _, c := range s.list() {
			c.mu.Lock()
			channels := make([]*channel, 0, len(c.channels))
			for _, ch := range c.channels {
				channels = append(channels, ch)
			}
			c.mu.Unlock()
			slices.SortFunc(channels, func(a, b *channel) int { return cmp.Compare(a.number, b.number) })
			for _, ch := range channels {
				ch.show(&one)
				if !yield(&one) {
					return
				}
			}
		}
	}
}

// CloseConnection closes the connection of that name with 320 CONNECTION_FORCED and the reason, or reports that there is
// none. It does not wait.
func (s *Server) CloseConnection(name, reason string) bool {
	c := s.named(name)
	if c != nil {
		c.force(reason)
	}
	return c != nil
}

// CloseVHost closes the connections to a virtual host that was deleted. It does not wait.
func (s *Server) CloseVHost(name string) {
	s.closeIf("vhost '"+name+"' is deleted", func(c *conn) bool { return c.vhost != nil && c.vhost.Name == name })
}

// CloseUser closes the connections of a user with a reason. It does not wait.
func (s *Server) CloseUser(name, reason string) {
	s.closeIf(reason, func(c *conn) bool { return c.user != nil && c.user.Name == name })
}

func (s *Server) closeIf(reason string, which func(*conn) bool) {
	for _, c := range s.list() {
		c.mu.Lock()
		yes := which(c)
		c.mu.Unlock()
		if yes {
			c.force(reason)
		}
	}
}

// force has the reader close the connection: with an error once it is open, without a word before.
func (c *conn) force(reason string) {
	c.post(func() {
		if c.state < running {
			c.state = closed
			return
		}
		c.fail(amqp.Errorf(amqp.ConnectionForced, "%s", reason))
	})
}

// list are the connections by age.
func (s *Server) list() []*conn {
	s.mu.Lock()
	list := make([]*conn, 0, len(s.conns))
	for _, c := range s.conns {
		list = append(list, c)
	}
	s.mu.Unlock()
	slices.SortFunc(list, func(a, b *conn) int { return cmp.Compare(a.id, b.id) })
	return list
}

func (s *Server) named(name string) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if c.name == name {
			return c
		}
	}
	return nil
}

// inFlow stands for a state: running, but kept waiting.
const inFlow = 1 << 8

var stateNames = map[uint32]string{
	uint32(wantHeader): "starting", uint32(wantStartOk): "starting", uint32(wantSecureOk): "securing",
	uint32(wantTuneOk): "tuning", uint32(wantOpen): "opening", uint32(running): "running", inFlow: "flow",
	uint32(ending): "closing", uint32(closing): "closing", uint32(lingering): "closing", uint32(closed): "closed",
}

func (c *conn) show(into *Connection) {
	c.mu.Lock()
	*into = Connection{
		ID: c.id, Name: c.name, User: userName(c.user), VHost: vhostName(c.vhost), State: stateNames[c.shown.Load()],
		Mechanism: c.mechanism, Peer: c.peer(), Own: addrPort(c.wire.LocalAddr()), TLS: c.secured,
		Heartbeat: time.Duration(c.heartbeat) * time.Second, FrameMax: c.frameMax, ChannelMax: c.channelMax,
		Channels: len(c.channels), Properties: c.properties, OpenedAt: c.opened,
	}
	c.mu.Unlock()
	if now := c.blocked(); now != "" && (into.State == "running" || into.State == "flow") {
		into.State = now
	}
	into.ReceivedOctets, into.SentOctets = c.received.Load(), c.sent.Load()
	into.Reads, into.Writes = c.reads.Load(), c.writes.Load()
	c.out.mu.Lock()
	into.PendingOctets = uint64(max(c.out.bytes, 0))
	c.out.mu.Unlock()
}

func (c *conn) peer() netip.AddrPort { return addrPort(c.wire.RemoteAddr()) }

func (ch *channel) show(into *Channel) {
	c := ch.conn
	c.mu.Lock()
	*into = Channel{Connection: c.name, User: userName(c.user), VHost: vhostName(c.vhost), Peer: c.peer(), Number: ch.number, State: "running"}
	c.mu.Unlock()
	ch.mu.Lock()
	switch {
	case ch.ended:
		into.State = "closing"
	case c.shown.Load() == inFlow:
		into.State = "flow"
	}
	into.Transactional, into.Consumers, into.Unacked = ch.tx != nil, len(ch.consumers), uint64(ch.unacked.Len())
	if ch.replies != nil {
		into.Consumers++
	}
	into.Uncommitted, into.AcksUncommitted = uint64(ch.uncommitted), uint64(ch.unsettled)
	into.Prefetch, into.ChannelCounts = ch.prefetch, ch.counts
	confirms, limit := ch.confirms, ch.limit
	ch.mu.Unlock()
	if limit != nil {
		into.GlobalPrefetch = uint32(limit.max.Load())
	}
	if confirms != nil {
		into.Confirm = true
		into.Unconfirmed, into.Confirmed = confirms.totals()
	}
}

func userName(u *broker.User) string {
	if u == nil {
		return ""
	}
	return u.Name
}

func vhostName(v *broker.VHost) string {
	if v == nil {
		return ""
	}
	return v.Name
}

func addrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		p := t.AddrPort()
		return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	return netip.AddrPort{}
}

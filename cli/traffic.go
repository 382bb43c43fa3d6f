package cli

import (
	"crypto/tls"
	"iter"
	"net"
	"time"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/server"
)

// What management sees of the AMQP server: connections, channels, consumers, and the counts of both rooms.

// connectionName is the name of a connection by its number.
func (r *rooms) connectionName(id uint64) string { return r.server.Name(id) }

// Totals implements management.Broker.
func (r *rooms) Totals() (t management.Totals) {
	c := &r.server.Counters
	t.Connections, t.Channels = uint64(r.server.Open()), c.ChannelsOpened.Load()-c.ChannelsClosed.Load()
	for _, v := range r.broker.VHosts() {
		t.Exchanges += uint64(len(v.Exchanges()))
		for _, q := range v.Queues() {
			s := q.Stats()
			t.Queues++
			t.Consumers += s.Consumers
			t.Ready, t.Unacked = t.Ready+s.Ready, t.Unacked+s.Unacked
			t.ReadyBytes, t.UnackedBytes = t.ReadyBytes+s.ReadyBytes, t.UnackedBytes+s.UnackedBytes
		}
	}
	t.MemoryBytes = uint64(max(r.pool.InUse(), 0))
	return t
}

// Counts implements management.Broker.
func (r *rooms) Counts(into *management.Counts) {
	b, s := &r.broker.Counters, &r.server.Counters
	*into = management.Counts{
		Received: b.Received.Load(), ReceivedConfirm: b.ReceivedConfirm.Load(), Routed: b.Routed.Load(), Confirmed: b.Confirmed.Load(),
		Dropped: b.UnroutableDropped.Load(), Returned: b.UnroutableReturned.Load(),
		ConnectionsOpened: s.ConnectionsOpened.Load(), ConnectionsClosed: s.ConnectionsClosed.Load(),
		ChannelsOpened: s.ChannelsOpened.Load(), ChannelsClosed: s.ChannelsClosed.Load(),
		QueuesDeclared: b.QueuesDeclared.Load(), QueuesCreated: b.QueuesCreated.Load(), QueuesDeleted: b.QueuesDeleted.Load(),
		AuthAttempts: b.AuthAttempts.Load(), AuthSucceeded: b.AuthSucceeded.Load(), AuthFailed: b.AuthFailed.Load(),
		Delivery: []management.TypeCounts{{Type: "classic",
			QueueCounts:   r.delivered(),
			DroppedMaxLen: b.DeadDropped(queue.MaxLen), DroppedExpired: b.DeadDropped(queue.Expired), DroppedRejected: b.DeadDropped(queue.Rejected),
			DroppedDeliveryLimit: b.DeadDropped(queue.DeliveryLimited),
			DeadMaxLen:           b.DeadLettered(queue.MaxLen), DeadExpired: b.DeadLettered(queue.Expired), DeadRejected: b.DeadLettered(queue.Rejected),
			DeadDeliveryLimit: b.DeadLettered(queue.DeliveryLimited),
		}, {Type: "quorum"}, {Type: "stream"}},
	}
}

// delivered sums over the queues there are. What a queue that was deleted had delivered is lost to it.
func (r *rooms) delivered() (sum management.QueueCounts) {
	for _, v := range r.broker.VHosts() {
		for _, q := range v.Queues() {
			c := counts(q.Stats())
			sum.Publish += c.Publish
			sum.Deliver += c.Deliver
			sum.DeliverNoAck += c.DeliverNoAck
			sum.Get += c.Get
			sum.GetNoAck += c.GetNoAck
			sum.GetEmpty += c.GetEmpty
			sum.Redeliver += c.Redeliver
			sum.Ack += c.Ack
		}
	}
	return sum
}

// Connections implements management.Broker.
func (r *rooms) Connections() iter.Seq[*management.Connection] {
	return func(yield func(*management.Connection) bool) {
		var one management.Connection
		r.server.Connections(func(c *server.Connection) bool {
			one = connectionShown(c)
			return yield(&one)
		})
	}
}

// Connection implements management.Broker.
func (r *rooms) Connection(name string, into *management.Connection) bool {
	var c server.Connection
	if !r.server.Connection(name, &c) {
		return false
	}
	*into = connectionShown(&c)
	return true
}

// CloseConnection implements management.Broker.
func (r *rooms) CloseConnection(name, reason string) bool { return r.server.Close(name, reason) }

func connectionShown(c *server.Connection) management.Connection {
	v := management.Connection{
		Name: c.Name, User: c.User, VHost: c.VHost, State: "running", AuthMechanism: c.Mechanism,
		Heartbeat: time.Duration(c.Heartbeat) * time.Second, FrameMax: c.FrameMax, ChannelMax: c.ChannelMax, Channels: c.Channels,
		ConnectedAt: c.Opened, ClientProperties: c.Properties.Map(), ReceivedBytes: c.Received, SentBytes: c.Sent,
	}
	v.Host, v.Port = ends(c.Local)
	v.PeerHost, v.PeerPort = ends(c.Remote)
	if c.TLS != nil {
		v.TLS = &management.ConnectionTLS{Protocol: tls.VersionName(c.TLS.Version), Cipher: tls.CipherSuiteName(c.TLS.CipherSuite), KeyExchange: c.TLS.CurveID.String()}
		if len(c.TLS.PeerCertificates) > 0 {
			cert := c.TLS.PeerCertificates[0]
			v.TLS.Subject, v.TLS.Issuer, v.TLS.Serial = cert.Subject.String(), cert.Issuer.String(), cert.SerialNumber.String()
			v.TLS.Validity = cert.NotBefore.UTC().Format(time.RFC3339) + " - " + cert.NotAfter.UTC().Format(time.RFC3339)
		}
	}
	return v
}

// ends are host and port of an address.
func ends(a net.Addr) (string, int) {
	at, ok := a.(*net.TCPAddr)
	if !ok {
		return a.String(), 0
	}
	return at.IP.String(), at.Port
}

// Channels implements management.Broker.
func (r *rooms) Channels() iter.Seq[*management.Channel] {
	return func(yield func(*management.Channel) bool) {
		r.server.Channels(func(c *server.Channel) bool {
			one := management.Channel{
				Connection: c.Connection.Name, User: c.Connection.User, VHost: c.Connection.VHost, Number: int(c.Number), State: "running",
				Transactional: c.Transactional, Confirm: c.Confirm, Consumers: c.Consumers, Unacked: uint64(c.Unacked), Unconfirmed: uint64(c.Unconfirmed),
				Prefetch: int(c.Prefetch), GlobalPrefetch: int(c.Limit),
			}
			one.PeerHost, one.PeerPort = ends(c.Connection.Remote)
			return yield(&one)
		})
	}
}

// Consumers implements management.Broker.
func (r *rooms) Consumers(vhost string) iter.Seq[*management.Consumer] {
	return func(yield func(*management.Consumer) bool) {
		byID := map[uint64]server.Connection{}
		r.server.Connections(func(c *server.Connection) bool { byID[c.ID] = *c; return true })
		for _, v := range r.vhosts(vhost) {
			for _, q := range v.Queues() {
				consumers := q.Consumers()
				if len(consumers) == 0 {
					continue
				}
				active := q.Stats().Active
				for i := range consumers {
					one := r.consumerShown(q, &consumers[i], active, byID[consumers[i].Connection])
					if !yield(&one) {
						return
					}
				}
			}
		}
	}
}

func (r *rooms) consumerShown(q *broker.Queue, c *broker.Consumer, active queue.ConsumerID, of server.Connection) management.Consumer {
	v := management.Consumer{
		VHost: q.VHost.Name, Queue: q.Name, Tag: c.Tag, Connection: of.Name, User: of.User, Channel: int(c.Channel),
		Exclusive: c.Spec.Exclusive, AckRequired: !c.Spec.NoAck, Prefetch: int(c.Spec.Prefetch), Active: true, Status: "up",
		Arguments: c.Arguments.Map(), Timeout: r.cfg.ConsumerTimeout,
	}
	if of.Remote != nil {
		v.PeerHost, v.PeerPort = ends(of.Remote)
	}
	if active != 0 {
		if v.Active = c.ID == active; v.Active {
			v.Status = "single_active"
		} else {
			v.Status = "waiting"
		}
	}
	return v
}

package cli

import (
	"cmp"
	"crypto/tls"
	"iter"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/server"
	"github.com/warrenmq/warren/storage"
)

// What management sees of the AMQP server: connections, channels, consumers, and the counts of both rooms.

// connectionName is the name of a connection by its number.
func (r *rooms) connectionName(id uint64) string { return r.server.ConnectionName(id) }

// Totals implements management.Broker.
func (r *rooms) Totals() (t management.Totals) {
	c := &r.server.Counters
	t.Connections, t.Channels = c.ConnectionsOpened.Load()-c.ConnectionsClosed.Load(), c.ChannelsOpened.Load()-c.ChannelsClosed.Load()
	for _, v := range r.broker.VHosts() {
		t.Exchanges += uint64(len(v.Exchanges()))
		for _, q := range v.AllQueues() {
			t.Queues++
			if r.member != nil {
				t.Consumers += uint64(q.Consuming())
				if !r.answersFor(q) { // another node adds it up
					continue
				}
				t.Led++
			}
			s := q.Stats()
			if r.member == nil {
				t.Consumers += s.Consumers
			}
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
		Dropped: b.UnroutableDropped.Load(), Returned: b.UnroutableReturned.Load(), Refused: b.PublishesRefused.Load(),
		DeadUnrouted: b.DeadLettersUnrouted.Load(), DeadRefused: b.DeadLettersRefused.Load(),
		ConnectionsOpened: s.ConnectionsOpened.Load(), ConnectionsClosed: s.ConnectionsClosed.Load(),
		ChannelsOpened: s.ChannelsOpened.Load(), ChannelsClosed: s.ChannelsClosed.Load(),
		QueuesDeclared: b.QueuesDeclared.Load(), QueuesCreated: b.QueuesCreated.Load(), QueuesDeleted: b.QueuesDeleted.Load(),
		AuthAttempts: b.AuthAttempts.Load(), AuthSucceeded: b.AuthSucceeded.Load(), AuthFailed: b.AuthFailed.Load(),
		Delivery: []management.TypeCounts{r.delivered(broker.Classic), r.delivered(broker.Quorum), r.delivered(broker.Stream)},
	}
}

// delivered are the counts of one type of queues.
func (r *rooms) delivered(typ string) management.TypeCounts {
	b, d, q, s := &r.broker.Counters, &r.server.Counters.Deliveries, &r.server.Counters.OfQuorum, &r.server.Counters.OfStream
	count := func(all, ofQuorum, ofStream *atomic.Uint64) uint64 {
		n, m := ofQuorum.Load(), ofStream.Load() // before the other, which is never less
		switch typ {
		case broker.Quorum:
			return n
		case broker.Stream:
			return m
		}
		return all.Load() - n - m
	}
	routed := uint64(0)
	if typ == broker.Classic { // of all types: they are not told apart when they are routed
		routed = b.Routed.Load()
	}
	return management.TypeCounts{Type: typ,
		QueueCounts: management.QueueCounts{Publish: routed, Deliver: count(&d.Delivered, &q.Delivered, &s.Delivered), DeliverNoAck: count(&d.DeliveredNoAck, &q.DeliveredNoAck, &s.DeliveredNoAck),
			Get: count(&d.Got, &q.Got, &s.Got), GetNoAck: count(&d.GotNoAck, &q.GotNoAck, &s.GotNoAck), GetEmpty: count(&d.GetEmpty, &q.GetEmpty, &s.GetEmpty),
			Redeliver: count(&d.Redelivered, &q.Redelivered, &s.Redelivered), Ack: count(&d.Acked, &q.Acked, &s.Acked)},
		DroppedMaxLen: b.DeadDropped(typ, queue.MaxLen), DroppedExpired: b.DeadDropped(typ, queue.Expired), DroppedRejected: b.DeadDropped(typ, queue.Rejected),
		DroppedDeliveryLimit: b.DeadDropped(typ, queue.DeliveryLimited),
		DeadMaxLen:           b.DeadLettered(typ, queue.MaxLen), DeadExpired: b.DeadLettered(typ, queue.Expired), DeadRejected: b.DeadLettered(typ, queue.Rejected),
		DeadDeliveryLimit: b.DeadLettered(typ, queue.DeliveryLimited),
	}

}

// Connections implements management.Broker.
func (r *rooms) Connections() iter.Seq[*management.Connection] {
	return func(yield func(*management.Connection) bool) {
		var one management.Connection
		for c := range r.server.Connections() {
			if one = connectionShown(c); !yield(&one) {
				return
			}
		}
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
func (r *rooms) CloseConnection(name, reason string) bool {
	return r.server.CloseConnection(name, reason)
}

func connectionShown(c *server.Connection) management.Connection {
	v := management.Connection{
		Name: c.Name, User: c.User, VHost: c.VHost, State: c.State, AuthMechanism: c.Mechanism,
		Heartbeat: c.Heartbeat, FrameMax: c.FrameMax, ChannelMax: c.ChannelMax, Channels: c.Channels,
		Host: c.Own.Addr().String(), Port: int(c.Own.Port()), PeerHost: c.Peer.Addr().String(), PeerPort: int(c.Peer.Port()),
		ConnectedAt: c.OpenedAt, ClientProperties: c.Properties.Map(),
		ReceivedBytes: c.ReceivedOctets, SentBytes: c.SentOctets, Reads: c.Reads, Writes: c.Writes, PendingBytes: c.PendingOctets,
	}
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

// Channels implements management.Broker.
func (r *rooms) Channels() iter.Seq[*management.Channel] {
	return func(yield func(*management.Channel) bool) {
		for c := range r.server.Channels() {
			one := management.Channel{
				Connection: c.Connection, User: c.User, VHost: c.VHost, Number: int(c.Number), State: c.State,
				PeerHost: c.Peer.Addr().String(), PeerPort: int(c.Peer.Port()),
				Transactional: c.Transactional, Confirm: c.Confirm, Consumers: c.Consumers, Unacked: c.Unacked, Unconfirmed: c.Unconfirmed,
				Uncommitted: c.Uncommitted, AckUncommitted: c.AcksUncommitted, Prefetch: int(c.Prefetch), GlobalPrefetch: int(c.GlobalPrefetch),
				Confirmed: c.Confirmed, Returned: c.Returned, Dropped: c.Dropped,
				Counts: management.QueueCounts{Publish: c.Published, Deliver: c.Delivered, DeliverNoAck: c.DeliveredNoAck, Get: c.Got,
					GetNoAck: c.GotNoAck, GetEmpty: c.GetEmpty, Redeliver: c.Redelivered, Ack: c.Acked},
			}
			if !yield(&one) {
				return
			}
		}
	}
}

// Consumers implements management.Broker.
func (r *rooms) Consumers(vhost string) iter.Seq[*management.Consumer] {
	return func(yield func(*management.Consumer) bool) {
		byID := map[uint64]server.Connection{}
		for c := range r.server.Connections() {
			byID[c.ID] = *c
		}
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
		Exclusive: c.Spec.Exclusive && q.Type == broker.Classic, AckRequired: !c.Spec.NoAck, Prefetch: int(c.Spec.Prefetch), Active: true, Status: "up",
		Arguments: c.Arguments.Map(), Timeout: r.cfg.ConsumerTimeout,
	}
	if q.Type == broker.Quorum {
		v.Timeout = time.Duration(cmp.Or(c.Spec.Timeout, q.Settings().Config.ConsumerTimeout)) * time.Millisecond
	}
	if of.Peer.IsValid() {
		v.PeerHost, v.PeerPort = of.Peer.Addr().String(), int(of.Peer.Port())
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

// Storage tells management of the store.
func (r *rooms) Storage() management.StorageFigures {
	s := r.store.Stats()
	f := management.StorageFigures{
		JournalOctets: uint64(max(s.JournalOctets, 0)), JournalUnsynced: uint64(max(s.JournalUnsynced, 0)), JournalFaults: s.JournalFaults,
		Syncs: histogram(s.Syncs), Flushes: histogram(s.Flushes), FlushFailures: s.FlushFailures, ConfirmsWaiting: s.Unconfirmed,
		Runs: uint64(s.Runs.Runs), RunOctets: s.Runs.Octets, RunLive: s.Runs.Live, MessagesInMemory: uint64(max(r.pool.Messages(), 0)),
		PoolInUse: uint64(max(r.pool.InUse(), 0)), PoolFree: uint64(r.pool.Free()), PoolBound: uint64(r.pool.Bound()),
	}
	if r.ballast.Held() {
		f.Ballast = uint64(r.ballast.Size())
	}
	return f
}

func histogram(c storage.DurationCounts) management.Histogram {
	return management.Histogram{Bounds: storage.DurationBuckets[:], Counts: c.Counts[:], Sum: c.Sum}
}

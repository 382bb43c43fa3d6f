package cli

import (
	"errors"
	"iter"
	"net/netip"
	"strconv"
	"time"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/quorum"
	"github.com/warrenmq/warren/stream/slots"
)

// What management sees of the broker: the snapshots of its rooms in management's terms.

// Authenticate implements management.Broker.
func (r *rooms) Authenticate(name, password string, from netip.Addr) (management.User, error) {
	u, err := r.broker.Authenticate(name, password, isLoopback(from))
	switch {
	case errors.Is(err, broker.ErrCredentials):
		return management.User{}, management.ErrLogin
	case err != nil:
		return management.User{}, management.ErrLoopback
	}
	return management.User{Name: u.Name, Tags: u.Tags}, nil
}

// MayEnter implements management.Broker.
func (r *rooms) MayEnter(user, vhost string) bool {
	v, u := r.broker.VHost(vhost), r.broker.User(user)
	return v != nil && u != nil && v.Admits(u)
}

// vhosts are the one of that name, or all.
func (r *rooms) vhosts(name string) []*broker.VHost {
	if name == "" {
		return r.broker.VHosts()
	}
	if v := r.broker.VHost(name); v != nil {
		return []*broker.VHost{v}
	}
	return nil
}

// VHosts implements management.Broker.
func (r *rooms) VHosts() iter.Seq[*management.VHost] {
	return func(yield func(*management.VHost) bool) {
		for _, v := range r.broker.VHosts() {
			d := v.Description()
			out := management.VHost{Name: v.Name, Description: d.Description, Tags: d.Tags, DefaultQueueType: d.DefaultQueueType}
			for _, q := range v.Queues() {
				if !r.answersFor(q) {
					continue
				}
				s := q.Stats()
				out.Ready += s.Ready
				out.Unacked += s.Unacked
			}
			if !yield(&out) {
				return
			}
		}
	}
}

// answersFor reports whether it is this node that tells of a queue in sums over all nodes.
func (r *rooms) answersFor(q *broker.Queue) bool {
	switch {
	case r.member == nil:
		return true
	case q.Type == broker.Quorum:
		return r.quorum.Leads(uint64(q.ID))
	case q.Type == broker.Stream:
		at, ok := q.Queue.(*slots.Queue)
		return ok && at.Leader() == r.member.identity.Number
	}
	return r.member.homeOf(q) == r.member.identity.Number
}

// Queues implements management.Broker.
func (r *rooms) Queues(vhost string) iter.Seq[*management.Queue] {
	return func(yield func(*management.Queue) bool) {
		var out management.Queue
		for _, v := range r.vhosts(vhost) {
			for _, q := range v.Queues() {
				r.fillQueue(q, &out)
				if !yield(&out) {
					return
				}
			}
		}
	}
}

// Queue implements management.Broker.
func (r *rooms) Queue(vhost, name string, into *management.Queue) bool {
	v := r.broker.VHost(vhost)
	if v == nil {
		return false
	}
	q := v.Queue(name)
	if q == nil {
		return false
	}
	r.fillQueue(q, into)
	return true
}

func (r *rooms) fillQueue(q *broker.Queue, into *management.Queue) {
	s := q.Stats()
	settings := q.Settings()
	*into = management.Queue{
		Policy: settings.Policy, OperatorPolicy: settings.OperatorPolicy, Definition: q.EffectivePolicy(),
		ID: uint64(q.ID), VHost: q.VHost.Name, Name: q.Name, Type: q.Type, State: "running",
		Durable: q.Durable, AutoDelete: q.AutoDelete, Exclusive: q.Exclusive(), Arguments: q.Arguments.Map(),
		Ready: s.Ready, Unacked: s.Unacked, ReadyBytes: s.ReadyBytes, UnackedBytes: s.UnackedBytes,
		Consumers: int(s.Consumers), Capacity: -1, Counts: counts(s),
	}
	if q.Type == broker.Quorum {
		into.Quorum = &management.QuorumQueue{DeliveryLimit: settings.Config.DeliveryLimit,
			DelayedRetry: settings.DelayedRetry(), Delayed: s.Delayed, Kept: s.Kept, KeptBytes: s.KeptBytes}
		into.ReadyBytes += s.DelayedBytes
		r.fillReplicas(q, into.Quorum)
	} else if r.member != nil && q.Type != broker.Stream {
		into.Home = r.member.nodeName(r.member.homeOf(q))
	}
	if at, ok := q.Queue.(*slots.Queue); ok {
		st := at.Status()
		into.Stream = &management.StreamQueue{Segments: st.Segments, Readers: st.Readers, First: st.First, Next: st.Next, Slot: streamSlot(at.Slot())}
		into.Stream.Leader, into.Stream.Members, into.Stream.Online = r.replicas(at)
		if st.Broken != "" {
			into.State = "stopped"
		}
	}
	if q.Exclusive() {
		into.Owner = r.connectionName(q.Owner)
	}
	if at := q.LastUsed(); at > 0 && s.Consumers == 0 {
		into.IdleSince = time.UnixMilli(int64(at))
	}
	for _, c := range q.Consumers() {
		if c.Spec.Exclusive && q.Type == broker.Classic {
			into.ExclusiveConsumer = c.Tag
		}
		if s.Active != 0 && c.ID == s.Active {
			into.SingleActiveConsumer = c.Tag
		}
	}
}

// fillReplicas tells where a quorum queue is.
func (r *rooms) fillReplicas(q *broker.Queue, into *management.QuorumQueue) {
	if r.member == nil {
		into.Leader = r.cfg.NodeName
		into.Members = []string{r.cfg.NodeName}
		into.Online = into.Members
		return
	}
	at, ok := q.Queue.(*quorum.Queue)
	if !ok {
		return
	}
	into.Slot = strconv.Itoa(r.quorum.SlotOf(uint64(q.ID)))
	into.Leader, into.Members, into.Online = r.replicas(at)
}

// replicas are the names of the members that have a queue or stream: who leads, all of them, and those that are there.
func (r *rooms) replicas(of interface {
	Leader() uint64
	Members() []uint64
}) (leader string, members, online []string) {
	if r.member == nil {
		one := []string{r.cfg.NodeName}
		return r.cfg.NodeName, one, one
	}
	if n := of.Leader(); n != 0 {
		leader = r.member.nodeName(n)
	}
	for _, n := range of.Members() {
		name := r.member.nodeName(n)
		members = append(members, name)
		if r.member.isUp(n) {
			online = append(online, name)
		}
	}
	return leader, members, online
}

func counts(s queue.Stats) management.QueueCounts {
	return management.QueueCounts{
		Publish: s.Published, Deliver: s.Delivered, DeliverNoAck: s.DeliveredNoAck, Get: s.Got, GetNoAck: s.GotNoAck,
		GetEmpty: s.GetEmpty, Redeliver: s.Redelivered, Ack: s.Acked,
	}
}

// QueueSamples implements management.Broker.
func (r *rooms) QueueSamples() iter.Seq[management.QueueSample] {
	return func(yield func(management.QueueSample) bool) {
		for _, v := range r.broker.VHosts() {
			for _, q := range v.AllQueues() {
				if q.Type == broker.Classic && !r.answersFor(q) {
					continue
				}
				s := q.Stats()
				if !yield(management.QueueSample{ID: uint64(q.ID), Ready: s.Ready, Unacked: s.Unacked, Counts: counts(s)}) {
					return
				}
			}
		}
	}
}

// Exchanges implements management.Broker.
func (r *rooms) Exchanges(vhost string) iter.Seq[*management.Exchange] {
	return func(yield func(*management.Exchange) bool) {
		for _, v := range r.vhosts(vhost) {
			for _, x := range v.Exchanges() {
				if !yield(exchangeShown(v, x)) {
					return
				}
			}
		}
	}
}

// Exchange implements management.Broker.
func (r *rooms) Exchange(vhost, name string, into *management.Exchange) bool {
	v := r.broker.VHost(vhost)
	if v == nil {
		return false
	}
	x, ok := v.Exchange(name)
	if ok {
		*into = *exchangeShown(v, x)
	}
	return ok
}

func exchangeShown(v *broker.VHost, x exchange.Declaration) *management.Exchange {
	policy, _ := v.ExchangePolicy(x.Name)
	return &management.Exchange{VHost: v.Name, Name: x.Name, Type: x.Type, Durable: x.Durable, AutoDelete: x.AutoDelete,
		Internal: x.Internal, Arguments: x.Arguments.Map(), Policy: policy}
}

// Bindings implements management.Broker.
func (r *rooms) Bindings(vhost string) iter.Seq[*management.Binding] {
	return func(yield func(*management.Binding) bool) {
		for _, v := range r.vhosts(vhost) {
			for _, b := range v.Bindings() {
				if b.Source == "" {
					continue
				}
				if !yield(&management.Binding{VHost: v.Name, Source: b.Source, Destination: b.Destination, ToExchange: b.ToExchange,
					RoutingKey: b.Key, Arguments: b.Arguments.Map()}) {
					return
				}
			}
		}
	}
}

// Alarms implements management.Broker.
func (r *rooms) Alarms() []management.Alarm {
	var list []management.Alarm
	for _, name := range r.alarms.Own().Names() {
		list = append(list, management.Alarm{Resource: name})
	}
	return list
}

// Serving implements management.Broker.
func (r *rooms) Serving() bool { return r.serving.Load() }

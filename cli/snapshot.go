package cli

import (
	"errors"
	"iter"
	"net/netip"
	"strings"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/queue"
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
	*into = management.Queue{
		ID: uint64(q.ID), VHost: q.VHost.Name, Name: q.Name, Type: q.Type, State: "running",
		Durable: q.Durable, AutoDelete: q.AutoDelete, Exclusive: q.Exclusive(), Arguments: q.Arguments.Map(),
		Ready: s.Ready, Unacked: s.Unacked, ReadyBytes: s.ReadyBytes, UnackedBytes: s.UnackedBytes,
		Consumers: int(s.Consumers), Capacity: -1, Counts: counts(s),
	}
	if q.Exclusive() {
		into.Owner = r.connectionName(q.Owner)
	}
	if at := q.LastUsed(); at > 0 && s.Consumers == 0 {
		into.IdleSince = time.UnixMilli(int64(at))
	}
	for _, c := range q.Consumers() {
		if c.Spec.Exclusive {
			into.ExclusiveConsumer = c.Tag
		}
		if s.Active != 0 && c.ID == s.Active {
			into.SingleActiveConsumer = c.Tag
		}
	}
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
			for _, q := range v.Queues() {
				s := q.Stats()
				if !yield(management.QueueSample{ID: uint64(q.ID), Ready: s.Ready, Unacked: s.Unacked, Counts: counts(s)}) {
					return
				}
			}
		}
	}
}

// refusal is an error in management's terms.
func refusal(err *amqp.Error) error {
	if err == nil {
		return nil
	}
	_, text, found := strings.Cut(err.Text, " - ") // management's clients do not read the code's name
	if !found {
		text = err.Text
	}
	return &management.Refusal{Code: err.Code, Text: text}
}

// actor is the user for whom something is changed. A user that was deleted since he logged in may change nothing; without a user the broker
// would take the node itself for the actor, which may do anything.
func (r *rooms) actor(as management.User) (broker.Actor, error) {
	u := r.broker.User(as.Name)
	if u == nil {
		return broker.Actor{}, &management.Refusal{Code: amqp.AccessRefused, Text: "user '" + as.Name + "' does not exist"}
	}
	return broker.Actor{User: u}, nil
}

// DeclareQueue implements management.Broker.
func (r *rooms) DeclareQueue(as management.User, d management.QueueDeclaration) (created bool, err error) {
	v := r.broker.VHost(d.VHost)
	if v == nil {
		return false, &management.Refusal{Code: amqp.NotFound, Text: "no vhost '" + d.VHost + "'"}
	}
	a, err := r.actor(as)
	if err != nil {
		return false, err
	}
	args, bad := amqp.TableOf(d.Arguments)
	if bad != nil {
		return false, &management.Refusal{Code: amqp.PreconditionFailed, Text: bad.Error()}
	}
	existed := v.Queue(d.Name) != nil
	done := make(chan error, 1)
	v.DeclareQueue(a, broker.QueueDeclaration{
		Name: d.Name, Durable: d.Durable, AutoDelete: d.AutoDelete, Arguments: args,
	}, func(_ *broker.Queue, err *amqp.Error) { done <- refusal(err) })
	err = <-done
	return err == nil && !existed, err
}

// DeleteQueue implements management.Broker.
func (r *rooms) DeleteQueue(as management.User, vhost, name string, ifUnused, ifEmpty bool) error {
	v := r.broker.VHost(vhost)
	if v == nil || v.Queue(name) == nil {
		return &management.Refusal{Code: amqp.NotFound, Text: "no queue '" + name + "' in vhost '" + vhost + "'"}
	}
	a, err := r.actor(as)
	if err != nil {
		return err
	}
	var w queue.Wake
	done := make(chan error, 1)
	v.DeleteQueue(a, name, ifUnused, ifEmpty, &w, func(_ uint64, err *amqp.Error) { done <- refusal(err) })
	w.Flush()
	return <-done
}

// PurgeQueue implements management.Broker.
func (r *rooms) PurgeQueue(as management.User, vhost, name string) error {
	v := r.broker.VHost(vhost)
	if v == nil {
		return &management.Refusal{Code: amqp.NotFound, Text: "no vhost '" + vhost + "'"}
	}
	a, err := r.actor(as)
	if err != nil {
		return err
	}
	q, refused := v.QueueFor(a, name)
	if refused != nil {
		return refusal(refused)
	}
	var w queue.Wake
	done := make(chan struct{})
	q.Purge(&w, func(uint64) { close(done) })
	w.Flush()
	<-done
	return nil
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

func exchangeShown(v *broker.VHost, x exchange.Declaration) *management.Exchange {
	return &management.Exchange{VHost: v.Name, Name: x.Name, Type: x.Type, Durable: x.Durable, AutoDelete: x.AutoDelete,
		Internal: x.Internal, Arguments: x.Arguments.Map()}
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
	for _, name := range r.alarms.On().Names() {
		list = append(list, management.Alarm{Resource: name})
	}
	return list
}

// Serving implements management.Broker.
func (r *rooms) Serving() bool { return r.serving.Load() }

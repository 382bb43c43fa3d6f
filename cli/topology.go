package cli

import (
	"cmp"
	"strings"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/management"
	"github.com/warrenmq/warren/queue"
)

// What management changes of queues, exchanges and bindings, with the permissions of the user who asks.

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
	refused, err := await(done, queueWait)
	return cmp.Or(err, refused)
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
	if q.Type == broker.Stream {
		return &management.Refusal{Code: amqp.PreconditionFailed, Text: "queue.purge not supported by stream queues queue '" + q.Name + "' in vhost '" + vhost + "'"}
	}
	var w queue.Wake
	done := make(chan struct{})
	q.Purge(&w, func(uint64) { close(done) })
	w.Flush()
	_, err = await(done, queueWait)
	return err
}

// DeclareExchange implements management.Broker.
func (r *rooms) DeclareExchange(as management.User, x *management.Exchange) (created bool, err error) {
	v := r.broker.VHost(x.VHost)
	if v == nil {
		return false, noVHost(x.VHost)
	}
	a, err := r.actor(as)
	if err != nil {
		return false, err
	}
	args, err := tableOf(x.Arguments)
	if err != nil {
		return false, err
	}
	_, existed := v.Exchange(x.Name)
	err = r.refused(func(done func(*amqp.Error)) {
		v.DeclareExchange(a, exchange.Declaration{Name: x.Name, Type: x.Type, Durable: x.Durable, AutoDelete: x.AutoDelete, Internal: x.Internal, Arguments: args}, done)
	})
	return err == nil && !existed, err
}

// DeleteExchange implements management.Broker.
func (r *rooms) DeleteExchange(as management.User, vhost, name string, ifUnused bool) error {
	v := r.broker.VHost(vhost)
	if v == nil {
		return noVHost(vhost)
	}
	a, err := r.actor(as)
	if err != nil {
		return err
	}
	return r.refused(func(done func(*amqp.Error)) { v.DeleteExchange(a, name, ifUnused, done) })
}

// Bind implements management.Broker.
func (r *rooms) Bind(as management.User, b *management.Binding) error {
	return r.changeBinding(as, b, (*broker.VHost).Bind)
}

// Unbind implements management.Broker.
func (r *rooms) Unbind(as management.User, b *management.Binding) error {
	return r.changeBinding(as, b, (*broker.VHost).Unbind)
}

func (r *rooms) changeBinding(as management.User, b *management.Binding, change func(*broker.VHost, broker.Actor, broker.Binding, func(*amqp.Error))) error {
	v := r.broker.VHost(b.VHost)
	if v == nil {
		return noVHost(b.VHost)
	}
	a, err := r.actor(as)
	if err != nil {
		return err
	}
	to := broker.Binding{Source: b.Source, Destination: b.Destination, ToExchange: b.ToExchange, Key: b.RoutingKey}
	if to.Arguments, err = tableOf(b.Arguments); err != nil {
		return err
	}
	return r.refused(func(done func(*amqp.Error)) { change(v, a, to, done) })
}

// refused waits for a change and returns why it was refused.
func (r *rooms) refused(change func(done func(*amqp.Error))) error {
	failed := make(chan error, 1)
	change(func(err *amqp.Error) { failed <- refusal(err) })
	return <-failed
}

// tableOf is a table of arguments as a client would have sent it.
func tableOf(arguments map[string]any) (amqp.Table, error) {
	table, err := amqp.TableOf(arguments)
	if err != nil {
		return nil, &management.Refusal{Code: amqp.PreconditionFailed, Text: err.Error()}
	}
	return table, nil
}

package broker

import (
	"strings"

	"github.com/warrenmq/warren/amqp"
)

// ReplyTo is the prefix of the names of direct reply-to queues, which are none of the broker's.
const ReplyTo = "amq.rabbitmq.reply-to"

// Bind makes a binding; one that exists is no error. Arguments are copied.
func (v *VHost) Bind(a Actor, b Binding, done func(*amqp.Error)) {
	b.strip()
	v.broker.twice(func(done func(*amqp.Error)) { v.tryBind(a, b, done) }, v.answer(a, done))
}

func (v *VHost) tryBind(a Actor, b Binding, done func(*amqp.Error)) {
	v.mu.RLock()
	err := v.checkBind(a, &b)
	soft := err == nil && v.soft(&b)
	v.mu.RUnlock()
	if err != nil {
		done(err)
		return
	}
	v.broker.commit(Bind{v.Name, b, soft}, func(r result) { done(r.refused) })
}

// Unbind removes a binding. Nothing that is missing is an error.
func (v *VHost) Unbind(a Actor, b Binding, done func(*amqp.Error)) {
	b.strip()
	done = v.answer(a, done)
	v.tryUnbind(a, b, true, done)
}

// tryUnbind is Unbind; with again, what is missing is looked for once more when metadata has caught up.
func (v *VHost) tryUnbind(a Actor, b Binding, again bool, done func(*amqp.Error)) {
	v.mu.RLock()
	bound, err := v.checkUnbind(a, &b)
	soft := bound && v.soft(&b)
	v.mu.RUnlock()
	if err == nil && !bound && again && v.broker.LookAgain(func(current bool) {
		if !current {
			done(unheard("such a binding"))
			return
		}
		v.tryUnbind(a, b, false, done)
	}) {
		return
	}
	if err != nil || !bound {
		done(err)
		return
	}
	v.broker.commit(Unbind{v.Name, b, soft}, func(r result) { done(r.refused) })
}

func (b *Binding) strip() {
	b.Source, b.Destination = newlines.Replace(b.Source), newlines.Replace(b.Destination)
}

// soft reports whether a binding lives and dies with a connection, as its queue does. v.mu is held.
func (v *VHost) soft(b *Binding) bool {
	if b.ToExchange {
		return false
	}
	q := v.queue(b.Destination)
	return q != nil && q.Owner != 0
}

// checkEnds makes the checks that binding and unbinding have in common. v.mu is held.
func (v *VHost) checkEnds(a Actor, b *Binding) *amqp.Error {
	var err *amqp.Error
	switch {
	case !b.ToExchange && strings.HasPrefix(b.Destination, ReplyTo+"."):
		return amqp.Errorf(amqp.AccessRefused, "cannot bind or unbind to a volatile (direct reply-to) queue")
	case b.ToExchange:
		err = v.checkExchange(a.User, Write, b.Destination)
	default:
		err = v.checkQueue(a.User, Write, b.Destination)
	}
	switch {
	case err != nil:
		return err
	case b.Source == "" || b.ToExchange && b.Destination == "":
		return noDefault()
	}
	if err := v.checkExchange(a.User, Read, b.Source); err != nil {
		return err
	}
	if source := v.topology.Exchange(b.Source); source != nil {
		return v.checkTopic(a.User, Read, source, []byte(b.Key))
	}
	return nil
}

func (v *VHost) checkBind(a Actor, b *Binding) *amqp.Error {
	if err := v.checkEnds(a, b); err != nil {
		return err
	}
	source, _, err := v.ends(*b)
	if err != nil {
		return err
	}
	var q *Queue
	var queueType string
	if !b.ToExchange {
		q = v.queue(b.Destination)
		queueType = module(q.Type)
	}
	if err := source.CheckBinding(b.Key, b.Arguments, queueType); err != nil {
		return err
	}
	if q != nil && !q.accessible(a.Connection) {
		return v.locked(q.Name)
	}
	return nil
}

func (v *VHost) checkUnbind(a Actor, b *Binding) (bound bool, err *amqp.Error) {
	if err := v.checkEnds(a, b); err != nil {
		return false, err
	}
	source, d, missing := v.ends(*b)
	if missing != nil || !v.topology.Bound(source, d, b.Key, b.Arguments) {
		return false, nil
	}
	if d.Exchange == nil && !v.queues[d.Queue].accessible(a.Connection) {
		return true, v.locked(b.Destination)
	}
	return true, nil
}

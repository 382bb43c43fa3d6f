package broker

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/queue"
)

// DeclareQueue makes a queue, or finds one like it; its Name may be another than d's. d.Arguments are copied. Names of
// direct reply-to queues are the caller's business.
func (v *VHost) DeclareQueue(a Actor, d QueueDeclaration, done func(*Queue, *amqp.Error)) {
	var q *Queue
	answer := v.answerQueue(a, done)
	v.broker.twice(func(done func(*amqp.Error)) {
		v.declareQueue(a, d, func(found *Queue, err *amqp.Error) {
			q = found
			done(err)
		})
	}, func(err *amqp.Error) { answer(q, err) })
}

// answerQueue is answer for those who get a queue.
func (v *VHost) answerQueue(a Actor, done func(*Queue, *amqp.Error)) func(*Queue, *amqp.Error) {
	return func(q *Queue, err *amqp.Error) {
		v.answer(a, func(err *amqp.Error) {
			if err != nil {
				q = nil
			}
			done(q, err)
		})(err)
	}
}

func (v *VHost) declareQueue(a Actor, d QueueDeclaration, done func(*Queue, *amqp.Error)) {
	asked := d
	d.Name = newlines.Replace(d.Name)
	if d.Exclusive {
		d.Durable = false
	}
	v.mu.RLock()
	q, err := v.checkDeclareQueue(a, &d)
	v.mu.RUnlock()
	switch {
	case err != nil:
		done(nil, err)
	case q != nil:
		if !q.await(false, func() { v.declareQueue(a, asked, done) }) {
			q.declaredAgain()
			v.broker.Counters.QueuesDeclared.Add(1)
			done(q, nil)
		}
	default:
		c := PutQueue{VHost: v.Name, Queue: d, Soft: d.Exclusive}
		if d.Exclusive {
			c.Owner = a.Connection
		} else if v.broker.replicated.Load() {
			if c.Home, err = v.broker.home(&d); err != nil {
				done(nil, err)
				return
			}
		}
		v.broker.commit(c, func(r result) {
			switch {
			case r.refused != nil:
				done(nil, r.refused)
			case r.existed: // another was first
				v.declareQueue(a, asked, done)
			default:
				v.broker.Counters.QueuesDeclared.Add(1)
				v.broker.Counters.QueuesCreated.Add(1)
				done(r.queue, nil)
			}
		})
	}
}

// checkDeclareQueue returns the queue if it exists and is like d, and nil if it may be made. It completes d. v.mu is held.
func (v *VHost) checkDeclareQueue(a Actor, d *QueueDeclaration) (*Queue, *amqp.Error) {
	var typ string
	d.Arguments, typ = v.withType(d)
	switch {
	case d.Name == "" && typ == "":
		v, _ := d.Arguments.Get("x-queue-type")
		return nil, amqp.Errorf(amqp.PreconditionFailed, "unknown queue type '%s'", exchange.Text(v))
	case d.Name == "" && (typ == Quorum || typ == Stream):
		return nil, amqp.Errorf(amqp.PreconditionFailed, "Cannot declare a server-named queue for type %s", module(typ))
	case d.Name == "":
		d.Name = Generate("amq.gen-")
	case strings.HasPrefix(d.Name, reserved):
		return nil, amqp.Errorf(amqp.AccessRefused, "queue name '%s' contains reserved prefix 'amq.*'", d.Name)
	}
	if err := v.checkQueue(a.User, Configure, d.Name); err != nil {
		return nil, err
	}
	if q := v.queue(d.Name); q != nil {
		if q.Type == Quorum && typ == Classic && v.broker.RelaxedRedeclaration {
			return q, q.checkAlike(a, d)
		}
		if err := q.checkEquivalent(a, d); err != nil {
			return q, err
		}
		return q, q.unreachable()
	}
	if err := v.checkDeadLetterExchange(a, d); err != nil {
		return nil, err
	}
	if err := v.checkQueueArguments(d.Name, typ, d.Arguments); err != nil {
		return nil, err
	}
	if !d.Durable && !d.Exclusive && v.broker.RefuseTransient {
		return nil, amqp.Errorf(amqp.InternalError, "Feature `transient_nonexcl_queues` is deprecated.\nIts use is not permitted per the configuration (overriding the default, which is permitted):\n    \"deprecated_features.permit.transient_nonexcl_queues = false\"\nIts use will not be permitted by default in a future release.")
	}
	if err := v.queueLimit(d.Name, v.count); err != nil {
		return nil, err
	}
	if typ != Classic {
		for _, p := range [...]struct {
			name string
			bad  bool
		}{{"auto-delete", d.AutoDelete}, {"exclusive-owner", d.Exclusive}, {"non-durable", !d.Durable}} {
			if p.bad {
				return nil, amqp.Errorf(amqp.PreconditionFailed, "invalid property '%s' for %s", p.name, v.queueResource(d.Name))
			}
		}
	}
	return nil, nil
}

func (v *VHost) checkDeadLetterExchange(a Actor, d *QueueDeclaration) *amqp.Error {
	const name = "x-dead-letter-exchange"
	value, ok := d.Arguments.Get(name)
	if !ok {
		return nil
	}
	dlx, ok := value.Str()
	if !ok {
		return amqp.Errorf(amqp.PreconditionFailed, "invalid type '%s' for arg '%s' in %s", value.TypeName(), name, v.queueResource(d.Name))
	}
	if err := v.checkQueue(a.User, Read, d.Name); err != nil {
		return err
	}
	return v.checkExchange(a.User, Write, string(dlx))
}

func notBuilt(typ string) *amqp.Error {
	return amqp.Errorf(amqp.NotImplemented, "queue type '%s' is not supported by this node", typ)
}

// Generate returns the prefix and 22 characters that nobody can guess: the names of server-named queues (amq.gen-) and
// consumer tags (amq.ctag-).
func Generate(prefix string) string {
	var b [16]byte
	rand.Read(b[:])
	return prefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// FindQueue is a passive declaration: done gets the queue if it exists and the actor may know of it and use it.
func (v *VHost) FindQueue(a Actor, name string, done func(*Queue, *amqp.Error)) {
	var q *Queue
	answer := v.answerQueue(a, done)
	v.broker.twice(func(done func(*amqp.Error)) {
		v.findQueue(a, name, func(found *Queue, err *amqp.Error) {
			q = found
			done(err)
		})
	}, func(err *amqp.Error) { answer(q, err) })
}

func (v *VHost) findQueue(a Actor, name string, done func(*Queue, *amqp.Error)) {
	name = newlines.Replace(name)
	v.mu.RLock()
	q, err := v.checkFindQueue(a, name)
	v.mu.RUnlock()
	if err != nil {
		done(nil, err)
		return
	}
	if !q.await(false, func() { v.findQueue(a, name, done) }) {
		q.declaredAgain()
		done(q, nil)
	}
}

func (v *VHost) checkFindQueue(a Actor, name string) (*Queue, *amqp.Error) {
	if !v.allowsAny(a.User, name) {
		return nil, refused(a.User, Configure, v.queueResource(name))
	}
	q := v.queue(name)
	if q == nil {
		return nil, v.noQueue(name)
	}
	if !q.accessible(a.Connection) {
		return nil, v.locked(name)
	}
	return q, q.unreachable()
}

// DeleteQueue ends a queue: its bindings are gone and its consumers cancelled when done runs, which gets the number of
// messages that were ready. A queue that does not exist is no error.
func (v *VHost) DeleteQueue(a Actor, name string, ifUnused, ifEmpty bool, w *queue.Wake, done func(n uint64, err *amqp.Error)) {
	name = newlines.Replace(name)
	v.deleteQueue(a, name, ifUnused, ifEmpty, true, w, done)
}

// deleteQueue is DeleteQueue; with again, a queue that is missing is looked for once more when metadata has caught up.
func (v *VHost) deleteQueue(a Actor, name string, ifUnused, ifEmpty, again bool, w *queue.Wake, done func(n uint64, err *amqp.Error)) {
	count := uint64(0)
	answer := v.answer(a, func(err *amqp.Error) { done(count, err) })
	v.mu.RLock()
	err := v.checkQueue(a.User, Configure, name)
	q := v.queue(name)
	if err == nil && q != nil && !q.accessible(a.Connection) {
		err = v.locked(name)
	} else if err == nil && q != nil {
		err = q.unreachable()
	}
	v.mu.RUnlock()
	if err == nil && q != nil && q.Type == Quorum {
		err = v.unconditional(name, ifUnused, ifEmpty)
	}
	if err == nil && q == nil && again && v.broker.LookAgain(func(current bool) {
		if !current {
			answer(unheard(v.queueResource(name)))
			return
		}
		var w queue.Wake
		v.deleteQueue(a, name, ifUnused, ifEmpty, false, &w, done)
		w.Flush()
	}) {
		return
	}
	if err != nil || q == nil {
		answer(err)
		return
	}
	q.delete(ifUnused, ifEmpty, w, func(n uint64, err error) {
		var refused *amqp.Error
		switch {
		case errors.Is(err, queue.ErrNotEmpty):
			answer(amqp.Errorf(amqp.PreconditionFailed, "%s not empty", v.queueResource(name)))
		case errors.Is(err, queue.ErrInUse):
			answer(v.inUse(v.queueResource(name)))
		case errors.As(err, &refused):
			answer(refused)
		default:
			count = n
			answer(nil)
		}
	})
}

// unconditional returns the error for deleting a queue of a type that cannot look and delete in one.
func (v *VHost) unconditional(name string, ifUnused, ifEmpty bool) *amqp.Error {
	flag := "if-unused"
	switch {
	case ifUnused:
	case ifEmpty:
		flag = "if-empty"
	default:
		return nil
	}
	return amqp.Errorf(amqp.NotImplemented, "cannot delete %s. queue.delete operations with %s flag set are not supported by quorum queues", v.queueResource(name), flag)
}

// ConnectionClosed deletes the exclusive queues of a connection, once all it asked for has been answered and its channels
// have given everything back. done runs when they are gone. w is used before the method returns only.
func (v *VHost) ConnectionClosed(connection uint64, w *queue.Wake, done func()) {
	v.mu.RLock()
	owned := append([]*Queue(nil), v.owned[connection]...)
	v.mu.RUnlock()
	left := new(atomic.Int64)
	left.Store(int64(len(owned)) + 1)
	one := func(uint64, error) {
		if left.Add(-1) == 0 {
			done()
		}
	}
	for _, q := range owned {
		q.delete(false, false, w, one)
	}
	one(0, nil)
}

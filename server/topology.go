package server

import (
	"strings"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/exchange"
)

// finish ends the wait for an operation, on the reader.
func (ch *channel) finish(id amqp.MethodID, err *amqp.Error, then func()) {
	switch {
	case ch.state != channelOpen:
	case err != nil:
		ch.conn.raise(ch, err.In(id))
	default:
		then()
	}
	ch.resume()
}

// replyUnless sends m unless the client did not want an answer.
func (ch *channel) replyUnless(noWait bool, m amqp.Method) func() {
	return func() {
		if !noWait {
			ch.send(m)
		}
	}
}

func (ch *channel) declareExchange(m *amqp.ExchangeDeclare) *amqp.Error {
	c := ch.conn
	done := ch.answered(amqp.ExchangeDeclareID, ch.replyUnless(m.NoWait, &amqp.ExchangeDeclareOk{}))
	if m.Passive {
		c.vhost.FindExchange(c.actor(), m.Exchange, done)
		return nil
	}
	c.vhost.DeclareExchange(c.actor(), exchange.Declaration{
		Name: m.Exchange, Type: m.Type, Durable: m.Durable, AutoDelete: m.AutoDelete, Internal: m.Internal, Arguments: m.Arguments,
	}, done)
	return nil
}

func (ch *channel) deleteExchange(m *amqp.ExchangeDelete) *amqp.Error {
	c := ch.conn
	c.vhost.DeleteExchange(c.actor(), m.Exchange, m.IfUnused,
		ch.answered(amqp.ExchangeDeleteID, ch.replyUnless(m.NoWait, &amqp.ExchangeDeleteOk{})))
	return nil
}

func (ch *channel) bind(b broker.Binding, noWait bool, ok amqp.Method, id amqp.MethodID) *amqp.Error {
	if err := checkVolatile(&b); err != nil {
		return err
	}
	ch.conn.vhost.Bind(ch.conn.actor(), b, ch.answered(id, ch.replyUnless(noWait, ok)))
	return nil
}

func (ch *channel) unbind(b broker.Binding, noWait bool, ok amqp.Method, id amqp.MethodID) *amqp.Error {
	if err := checkVolatile(&b); err != nil {
		return err
	}
	ch.conn.vhost.Unbind(ch.conn.actor(), b, ch.answered(id, ch.replyUnless(noWait, ok)))
	return nil
}

func checkVolatile(b *broker.Binding) *amqp.Error {
	if !b.ToExchange && strings.HasPrefix(b.Destination, replyQueue+".") {
		return amqp.Errorf(amqp.AccessRefused, "cannot bind or unbind to a volatile (direct reply-to) queue")
	}
	return nil
}

func (ch *channel) bindQueue(m *amqp.QueueBind) *amqp.Error {
	name, err := ch.queueName(m.Queue)
	if err != nil {
		return err
	}
	key := m.RoutingKey
	if m.Queue == "" && key == "" {
		key = name
	}
	return ch.bind(broker.Binding{Source: m.Exchange, Destination: name, Key: key, Arguments: m.Arguments}, m.NoWait, &amqp.QueueBindOk{}, amqp.QueueBindID)
}

func (ch *channel) unbindQueue(m *amqp.QueueUnbind) *amqp.Error {
	name, err := ch.queueName(m.Queue)
	if err != nil {
		return err
	}
	key := m.RoutingKey
	if m.Queue == "" && key == "" {
		key = name
	}
	return ch.unbind(broker.Binding{Source: m.Exchange, Destination: name, Key: key, Arguments: m.Arguments}, false, &amqp.QueueUnbindOk{}, amqp.QueueUnbindID)
}

func (ch *channel) declareQueue(m *amqp.QueueDeclare) *amqp.Error {
	c := ch.conn
	if strings.HasPrefix(m.Queue, replyQueue) {
		return ch.declareReplies(m)
	}
	var declared *broker.Queue
	answer := ch.answeredAfter(amqp.QueueDeclareID, func() { ch.lastQueue = declared.Name }, func() {
		if m.NoWait {
			return
		}
		messages, consumers := declared.Counts()
		ch.send(&amqp.QueueDeclareOk{Queue: declared.Name, MessageCount: uint32(messages), ConsumerCount: uint32(consumers)})
	})
	done := func(q *broker.Queue, err *amqp.Error) {
		declared = q
		answer(err)
	}
	if m.Passive {
		c.vhost.FindQueue(c.actor(), m.Queue, done)
		return nil
	}
	c.vhost.DeclareQueue(c.actor(), broker.QueueDeclaration{
		Name: m.Queue, Durable: m.Durable, Exclusive: m.Exclusive, AutoDelete: m.AutoDelete, Arguments: m.Arguments,
	}, done)
	return nil
}

// declareReplies answers a declaration of the direct reply-to pseudo-queue, by which responders see whether a requester
// still waits.
func (ch *channel) declareReplies(m *amqp.QueueDeclare) *amqp.Error {
	if m.Queue != replyQueue && !ch.conn.server.replies.live(m.Queue) {
		return amqp.Errorf(amqp.NotFound, "no queue '%s' in vhost '%s'", m.Queue, ch.conn.vhost.Name)
	}
	ch.lastQueue = m.Queue
	if !m.NoWait {
		ch.send(&amqp.QueueDeclareOk{Queue: m.Queue, ConsumerCount: 1})
	}
	return nil
}

func (ch *channel) deleteQueue(m *amqp.QueueDelete) *amqp.Error {
	c := ch.conn
	name, err := ch.queueName(m.Queue)
	if err != nil {
		return err
	}
	if strings.HasPrefix(name, replyQueue) {
		ch.replyUnless(m.NoWait, &amqp.QueueDeleteOk{})()
		return nil
	}
	var deleted uint64
	answer := ch.answered(amqp.QueueDeleteID, func() {
		ch.replyUnless(m.NoWait, &amqp.QueueDeleteOk{MessageCount: uint32(deleted)})()
		ch.deleted()
	})
	ch.deleting()
	c.vhost.DeleteQueue(c.actor(), name, m.IfUnused, m.IfEmpty, &c.wake, func(n uint64, err *amqp.Error) {
		deleted = n
		answer(err)
	})
	return nil
}

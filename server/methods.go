package server

import (
	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
)

// fromClient reports whether a client may send the method.
func fromClient(id amqp.MethodID) bool { return id.FromClient() }

// channelMethod decodes and carries out a method on an open channel. What was published before it goes first.
func (c *conn) channelMethod(ch *channel, f *amqp.Frame) {
	id, args, _ := amqp.SplitMethod(f.Payload)
	switch id {
	case amqp.BasicAckID:
		ch.ack(args)
		return
	case amqp.BasicPublishID:
		var m amqp.BasicPublish
		if err := m.Decode(args); err != nil {
			c.fail(amqp.DecodeError(id, args, err))
			return
		}
		ch.beginContent(&m)
		return
	}
	m := amqp.NewMethod(id)
	if m == nil {
		c.fail(amqp.DecodeError(id, args, amqp.ErrUnknownMethod))
		return
	}
	if err := m.Decode(args); err != nil {
		if err == amqp.ErrTable {
			err = amqp.ErrArguments // RabbitMQ drops the connection without a word
		}
		c.fail(amqp.DecodeError(id, args, err))
		return
	}
	c.publish()
	if id != amqp.BasicNackID && id != amqp.BasicRejectID { // those gather; all else finds them done
		c.acks.flush(&c.wake)
	}
	looked := ch.looked
	ch.looked = false
	if err := ch.do(m); err != nil && (looked || err.Code != amqp.NotFound || !ch.lookAgain(id, f)) {
		c.raise(ch, err.In(id))
	}
	c.runMail()
}

// lookAgain parks the frame of a method that has not found its queue, which may have been declared on another node just now, until
// this node knows as much as that one did. It returns false if there is nothing to wait for. What is not here waits in the
// broker.
func (ch *channel) lookAgain(id amqp.MethodID, f *amqp.Frame) bool {
	c := ch.conn
	switch id {
	case amqp.BasicConsumeID, amqp.BasicGetID, amqp.QueuePurgeID:
	default:
		return false
	}
	waits := c.server.broker.LookAgain(func(bool) {
		c.post(func() {
			ch.looked = true
			ch.resume()
		})
	})
	if waits {
		ch.waiting++
		c.park(ch, f)
	}
	return waits
}

// do carries out a decoded method.
func (ch *channel) do(m amqp.Method) *amqp.Error {
	switch m := m.(type) {
	case *amqp.ChannelOpen:
		return amqp.Errorf(amqp.ChannelError, "second 'channel.open' seen")
	case *amqp.ChannelClose:
		ch.closedByPeer()
	case *amqp.ChannelCloseOk:
	case *amqp.ChannelFlow:
		if !m.Active {
			return amqp.Errorf(amqp.NotImplemented, "active=false")
		}
		ch.send(&amqp.ChannelFlowOk{Active: true})
	case *amqp.AccessRequest:
		ch.send(&amqp.AccessRequestOk{Ticket: 1})

	case *amqp.ExchangeDeclare:
		return ch.declareExchange(m)
	case *amqp.ExchangeDelete:
		return ch.deleteExchange(m)
	case *amqp.ExchangeBind:
		b := broker.Binding{Source: m.Source, Destination: m.Destination, ToExchange: true, Key: m.RoutingKey, Arguments: m.Arguments}
		return ch.bind(b, m.NoWait, &amqp.ExchangeBindOk{}, amqp.ExchangeBindID)
	case *amqp.ExchangeUnbind:
		b := broker.Binding{Source: m.Source, Destination: m.Destination, ToExchange: true, Key: m.RoutingKey, Arguments: m.Arguments}
		return ch.unbind(b, m.NoWait, &amqp.ExchangeUnbindOk{}, amqp.ExchangeUnbindID)

	case *amqp.QueueDeclare:
		return ch.declareQueue(m)
	case *amqp.QueueDelete:
		return ch.deleteQueue(m)
	case *amqp.QueuePurge:
		return ch.purge(m)
	case *amqp.QueueBind:
		return ch.bindQueue(m)
	case *amqp.QueueUnbind:
		return ch.unbindQueue(m)

	case *amqp.BasicQos:
		return ch.qos(m)
	case *amqp.BasicConsume:
		return ch.consume(m)
	case *amqp.BasicCancel:
		ch.cancel(m)
	case *amqp.BasicCancelOk: // some clients answer, or end, a consumer so
		ch.cancel(&amqp.BasicCancel{ConsumerTag: m.ConsumerTag, NoWait: true})
	case *amqp.BasicGet:
		return ch.get(m)
	case *amqp.BasicNack:
		return ch.nack(m)
	case *amqp.BasicReject:
		return ch.reject(m)
	case *amqp.BasicRecover:
		if err := ch.recover(m.Requeue); err != nil {
			return err
		}
		ch.send(&amqp.BasicRecoverOk{})
	case *amqp.BasicRecoverAsync:
		return ch.recover(m.Requeue)

	case *amqp.ConfirmSelect:
		return ch.selectConfirms(m)
	case *amqp.TxSelect:
		return ch.selectTx()
	case *amqp.TxCommit:
		if ch.tx == nil {
			return amqp.Errorf(amqp.PreconditionFailed, "channel is not transactional")
		}
		ch.commit()
	case *amqp.TxRollback:
		if ch.tx == nil {
			return amqp.Errorf(amqp.PreconditionFailed, "channel is not transactional")
		}
		ch.undo()
		ch.send(&amqp.TxRollbackOk{})
	default:
		return amqp.Errorf(amqp.CommandInvalid, "unimplemented method")
	}
	return nil
}

func (ch *channel) selectConfirms(m *amqp.ConfirmSelect) *amqp.Error {
	if ch.tx != nil {
		return amqp.Errorf(amqp.PreconditionFailed, "cannot switch from tx to confirm mode")
	}
	if ch.confirms == nil {
		ch.mu.Lock()
		ch.confirms = &confirms{channel: ch, base: 1}
		ch.mu.Unlock()
	}
	if !m.NoWait {
		ch.send(&amqp.ConfirmSelectOk{})
	}
	return nil
}

func (ch *channel) selectTx() *amqp.Error {
	if ch.confirms != nil {
		return amqp.Errorf(amqp.PreconditionFailed, "cannot switch from confirm to tx mode")
	}
	if ch.tx == nil {
		ch.mu.Lock()
		ch.tx = &transaction{}
		ch.mu.Unlock()
	}
	ch.send(&amqp.TxSelectOk{})
	return nil
}

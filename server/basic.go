package server

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/stream"
)

// actor is who asks the broker for something.
func (c *conn) actor() broker.Actor {
	return broker.Actor{User: c.user, Connection: c.id, Pipelined: true}
}

// queueName is the queue a method names; the empty name stands for the one declared last on the channel.
func (ch *channel) queueName(name string) (string, *amqp.Error) {
	if name != "" {
		return name, nil
	}
	if ch.lastQueue == "" {
		return "", amqp.Errorf(amqp.NotFound, "no previously declared queue")
	}
	return ch.lastQueue, nil
}

func (ch *channel) qos(m *amqp.BasicQos) *amqp.Error {
	if m.PrefetchSize != 0 {
		return amqp.Errorf(amqp.NotImplemented, "prefetch_size!=0 (%d)", m.PrefetchSize)
	}
	if m.Global && !ch.conn.server.options.RefuseGlobalQoS {
		ch.setLimit(uint32(m.PrefetchCount))
	} else {
		ch.mu.Lock()
		ch.prefetch = uint32(m.PrefetchCount)
		ch.mu.Unlock()
		ch.setLimit(0)
	}
	ch.send(&amqp.BasicQosOk{})
	return nil
}

func (ch *channel) consume(m *amqp.BasicConsume) *amqp.Error {
	c := ch.conn
	name, err := ch.queueName(m.Queue)
	if err != nil {
		return err
	}
	tag := m.ConsumerTag
	if tag == "" {
		tag = "amq.ctag-" + randomName()
	}
	if ch.tagInUse(tag) {
		return amqp.Errorf(amqp.NotAllowed, "attempt to reuse consumer tag '%s'", tag)
	}
	if limit := c.server.options.ConsumerMax; limit > 0 && ch.consumerCount() >= limit {
		return amqp.Errorf(amqp.NotAllowed, "reached maximum (%d) of consumers per channel", limit)
	}
	if name == replyQueue {
		return ch.consumeReplies(tag, m)
	}
	if c.server.replies.live(name) {
		return amqp.Errorf(amqp.PreconditionFailed, "only creator channel may consume from queue '%s' in vhost '%s'", name, c.vhost.Name)
	}
	q, err := c.vhost.QueueFor(c.actor(), name)
	if err != nil {
		return err
	}
	args := slices.Clone(m.Arguments)
	spec, err := consumerSpec(q, args)
	if err != nil {
		return err
	}
	k := &consumer{channel: ch, of: q, queue: q.Queue, tag: tag, noAck: m.NoAck, quorum: q.Type == broker.Quorum, stream: q.Type == broker.Stream, timeout: spec.Timeout, head: deliverHead(ch.number, tag)}
	spec.Session, spec.NoAck, spec.Exclusive, spec.Prefetch = ch.id, m.NoAck, m.Exclusive, ch.prefetch
	_, gated := q.Queue.(queue.Gated)
	switch limit := ch.limit; {
	case limit == nil:
	case q.Type != broker.Classic || !gated: // such a queue may live elsewhere, and knows no limits of channels
		if n := uint32(limit.max.Load()); !k.noAck && n > 0 && (spec.Prefetch == 0 || n < spec.Prefetch) {
			spec.Prefetch = n
		}
	default:
		spec.Gate = ch.gate(k)
	}
	if q.Type == broker.Stream {
		if err := streamConsumer(q, &spec); err != nil {
			return err
		}
	}
	as := broker.Consumer{Tag: tag, Connection: c.id, Channel: ch.number, Spec: spec, Arguments: args}
	ch.waiting++
	var w queue.Wake // of the answer, which may come on another goroutine; the reader flushes it
	q.Attach(as, k, &c.wake, func(id queue.ConsumerID, failure *amqp.Error) {
		if failure == nil && k.attached(id) && !m.NoWait {
			k.tell(&w, &amqp.BasicConsumeOk{ConsumerTag: tag})
		}
		c.post(func() {
			c.wake.Join(&w)
			ch.finish(amqp.BasicConsumeID, failure, func() {})
		})
	})
	return nil
}

// consumerArguments are the arguments of basic.consume that only some types of queues know.
var consumerArguments = [...]struct{ name, typ string }{
	{"x-stream-offset", broker.Stream},
	{"x-stream-filter", broker.Stream},
	{"x-stream-match-unfiltered", broker.Stream},
	{"x-consumer-timeout", broker.Quorum},
}

// consumerSpec checks the arguments of a consumer, and is what they say. It keeps args.
func consumerSpec(q *broker.Queue, args amqp.Table) (spec queue.ConsumerSpec, _ *amqp.Error) {
	invalid := func(arg, detail string) *amqp.Error { return invalidArgument(q, arg, detail) }
	if v, ok := args.Get("x-priority"); ok {
		n, ok := v.Int()
		if !ok {
			return spec, invalid("x-priority", `: "expected integer, got `+v.TypeName()+`"`)
		}
		spec.Priority = int32(min(max(n, math.MinInt32), math.MaxInt32))
	}
	if v, ok := args.Get("x-consumer-timeout"); ok {
		n, ok := v.Int()
		switch {
		case !ok:
			return spec, invalid("x-consumer-timeout", `: "expected integer, got `+v.TypeName()+`"`)
		case n < 0:
			return spec, invalid("x-consumer-timeout", ": {value_negative,"+strconv.FormatInt(n, 10)+"}")
		}
		spec.Timeout = max(n, 1)
	}
	if q.Type == broker.Stream {
		if _, err := stream.ParseConsumer(args, time.Now()); err != nil {
			var wrong *stream.ArgumentError
			errors.As(err, &wrong)
			return spec, invalid(wrong.Argument, ": "+wrong.Why)
		}
		spec.Arguments = args
		if _, ok := args.Get("x-priority"); ok {
			return spec, invalid("x-priority", unknownTo(q))
		}
	}
	for _, arg := range consumerArguments {
		if _, ok := args.Get(arg.name); ok && arg.typ != q.Type {
			return spec, invalid(arg.name, unknownTo(q))
		}
	}
	return spec, nil
}

func invalidArgument(q *broker.Queue, arg, detail string) *amqp.Error {
	return amqp.Errorf(amqp.PreconditionFailed, "invalid arg '%s' for queue '%s' in vhost '%s'%s", arg, q.Name, q.VHost.Name, detail)
}

func unknownTo(q *broker.Queue) string { return " of queue type rabbit_" + q.Type + "_queue" }

// streamConsumer is what else a stream asks of its consumers (RabbitMQ docs: streams, "Consuming"): acknowledgements are the
// credit that it delivers for.
func streamConsumer(q *broker.Queue, spec *queue.ConsumerSpec) *amqp.Error {
	switch {
	case spec.Prefetch == 0:
		return amqp.Errorf(amqp.PreconditionFailed, "consumer prefetch count is not set for stream queue '%s' in vhost '%s'", q.Name, q.VHost.Name)
	case spec.NoAck:
		return amqp.Errorf(amqp.NotImplemented, "automatic acknowledgement not supported by stream queue '%s' in vhost '%s'", q.Name, q.VHost.Name)
	}
	return nil
}

// consumeReplies makes the channel wait for direct replies.
func (ch *channel) consumeReplies(tag string, m *amqp.BasicConsume) *amqp.Error {
	switch {
	case ch.replies != nil:
		return amqp.Errorf(amqp.PreconditionFailed, "reply consumer already set")
	case !m.NoAck:
		return amqp.Errorf(amqp.PreconditionFailed, "reply consumer cannot acknowledge")
	}
	k := &consumer{channel: ch, tag: tag, noAck: true, head: deliverHead(ch.number, tag)}
	if !m.NoWait {
		ch.send(&amqp.BasicConsumeOk{ConsumerTag: tag})
	}
	ch.mu.Lock()
	ch.replies = k
	ch.mu.Unlock()
	ch.conn.server.replies.add(k)
	return nil
}

func (ch *channel) tagInUse(tag string) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ch.consumers[tag] != nil || ch.replies != nil && ch.replies.tag == tag
}

func (ch *channel) consumerCount() int {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return len(ch.consumers)
}

func randomName() string {
	var b [16]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// cancel ends a consumer. What it has not acknowledged stays with the channel.
func (ch *channel) cancel(m *amqp.BasicCancel) {
	c, tag := ch.conn, m.ConsumerTag
	answer := func(w *queue.Wake) {
		if !m.NoWait {
			ch.reply(w, &amqp.BasicCancelOk{ConsumerTag: tag})
		}
	}
	if ch.replies != nil && ch.replies.tag == tag {
		ch.endReply()
		answer(&c.wake)
		return
	}
	ch.mu.Lock()
	k := ch.consumers[tag]
	if k != nil {
		delete(ch.consumers, tag)
		k.cancelled, k.leaving = true, true
	}
	ch.mu.Unlock()
	if k == nil {
		answer(&c.wake)
		return
	}
	ch.waiting++
	k.of.Detach(k.id, queue.Cancel, &c.wake, func() {
		c.post(func() {
			if ch.state == channelOpen {
				answer(&c.wake)
				c.retire(k, &c.wake)
			}
			ch.resume()
		})
	})
}

func (ch *channel) get(m *amqp.BasicGet) *amqp.Error {
	c := ch.conn
	name, err := ch.queueName(m.Queue)
	if err != nil {
		return err
	}
	if c.server.replies.live(name) {
		return amqp.Errorf(amqp.NotImplemented, "basic.get not supported by volatile queue '%s' in vhost '%s'", name, c.vhost.Name)
	}
	q, err := c.vhost.QueueFor(c.actor(), name)
	if err != nil {
		return err
	}
	if q.Type == broker.Stream {
		return amqp.Errorf(amqp.NotImplemented, "basic.get not supported by stream queues queue '%s' in vhost '%s'", q.Name, c.vhost.Name)
	}
	ch.mu.Lock()
	k := ch.getters[q]
	ch.mu.Unlock()
	ch.waiting++
	if k != nil {
		ch.getFrom(k, m.NoAck)
		return nil
	}
	k = &consumer{channel: ch, of: q, queue: q.Queue, quorum: q.Type == broker.Quorum, getter: true}
	as := broker.Consumer{Connection: c.id, Channel: ch.number, Spec: queue.ConsumerSpec{Session: ch.id, Getter: true}}
	q.Attach(as, k, &c.wake, func(id queue.ConsumerID, failure *amqp.Error) {
		if failure != nil || !k.attached(id) {
			c.post(func() { ch.finish(amqp.BasicGetID, failure, func() {}) })
			return
		}
		c.post(func() { ch.getFrom(k, m.NoAck) })
	})
	return nil
}

// getFrom takes one message by a getter; the channel waits for it. The answer may come on another goroutine, when the
// message had to be read from disk, or the queue lives elsewhere.
func (ch *channel) getFrom(k *consumer, noAck bool) {
	c := ch.conn
	k.of.Get(k.id, noAck, &c.wake, func(o queue.Offered, ready uint64, ok bool) {
		var w queue.Wake
		if !ok {
			k.tell(&w, &amqp.BasicGetEmpty{})
			c.server.Counters.GetEmpty.Add(1)
			if k.quorum {
				c.server.Counters.OfQuorum.GetEmpty.Add(1)
			}
			ch.mu.Lock()
			ch.counts.GetEmpty++
			ch.mu.Unlock()
		} else {
			c.put(&w, item{kind: itemGetOk, channel: ch, consumer: k, noAck: noAck, offered: o, size: uint32(min(ready, 1<<32-1))})
		}
		w.Flush()
		c.post(ch.resume)
	})
}

func (ch *channel) purge(m *amqp.QueuePurge) *amqp.Error {
	c := ch.conn
	name, err := ch.queueName(m.Queue)
	if err != nil {
		return err
	}
	if c.server.replies.live(name) {
		ch.send(&amqp.QueuePurgeOk{})
		return nil
	}
	q, err := c.vhost.QueueFor(c.actor(), name)
	if err != nil {
		return err
	}
	if q.Type == broker.Stream {
		return amqp.Errorf(amqp.NotImplemented, "queue.purge not supported by stream queues queue '%s' in vhost '%s'", q.Name, c.vhost.Name)
	}
	ch.waiting++
	q.Queue.Purge(&c.wake, func(n uint64) {
		c.post(func() {
			ch.finish(amqp.QueuePurgeID, nil, ch.replyUnless(m.NoWait, &amqp.QueuePurgeOk{MessageCount: uint32(n)}))
		})
	})
	return nil
}

// ack is the hot one: decoded on the spot, gathered for the whole read.
func (ch *channel) ack(args []byte) {
	var m amqp.BasicAck
	if err := m.Decode(args); err != nil {
		ch.conn.fail(amqp.DecodeError(amqp.BasicAckID, args, err))
		return
	}
	if err := ch.settle(m.DeliveryTag, m.Multiple, queue.Ack); err != nil {
		ch.conn.raise(ch, err.In(amqp.BasicAckID))
	}
}

func (ch *channel) nack(m *amqp.BasicNack) *amqp.Error {
	o := queue.Discard
	if m.Requeue {
		o = queue.Return
	}
	return ch.settle(m.DeliveryTag, m.Multiple, o)
}

func (ch *channel) reject(m *amqp.BasicReject) *amqp.Error {
	o := queue.DiscardFailed
	if m.Requeue {
		o = queue.ReturnFailed
	}
	return ch.settle(m.DeliveryTag, false, o)
}

// settle takes an acknowledgement of any kind. Its effect comes at the end of the read, or with the commit.
func (ch *channel) settle(tag uint64, multiple bool, o queue.Outcome) *amqp.Error {
	if !ch.acknowledge(tag, multiple, o, ch.tx) {
		return amqp.Errorf(amqp.PreconditionFailed, "unknown delivery tag %d", tag)
	}
	return nil
}

func (ch *channel) recover(requeue bool) *amqp.Error {
	if !requeue {
		return amqp.Errorf(amqp.NotImplemented, "requeue=false")
	}
	ch.acknowledge(0, true, queue.Return, nil)
	ch.conn.acks.flush(&ch.conn.wake)
	return nil
}

package server

import "github.com/warrenmq/warren/amqp"

// answer is what an operation on topology came to: it has been applied, and may be told when it is durable.
//
// A client that declares its topology in one go would wait for the disk once for each declaration if one had to be
// durable before the next is looked at. So operations on topology go on while earlier ones await their answers, which
// come in order; everything else is parked until all are given.
type answer struct {
	method  amqp.MethodID
	err     *amqp.Error // nil: applied
	then    func()      // answers the client
	holding bool        // later frames are parked: the operation failed
	ready   bool        // what was applied is durable
}

// maxAnswers is how many operations of a channel may await their answers; further ones are parked.
const maxAnswers = 1024

// answered returns the callback of an operation on topology: a failure is raised for the method id, otherwise then runs, on
// the reader, when what was done is durable.
func (ch *channel) answered(id amqp.MethodID, then func()) func(*amqp.Error) {
	return ch.answeredAfter(id, func() {}, then)
}

// answeredAfter is answered with something to do, on the reader, as soon as the operation has been applied.
func (ch *channel) answeredAfter(id amqp.MethodID, applied, then func()) func(*amqp.Error) {
	ch.waiting++
	return func(err *amqp.Error) { ch.conn.post(func() { ch.applied(id, err, applied, then) }) }
}

// applied ends the wait for an operation to be applied, on the reader.
func (ch *channel) applied(id amqp.MethodID, err *amqp.Error, applied, then func()) {
	if ch.state != channelOpen {
		ch.resume()
		return
	}
	c := ch.conn
	a := &answer{method: id, err: err, then: then, holding: err != nil}
	ch.answers = append(ch.answers, a)
	c.server.broker.Sync(func(err *amqp.Error) {
		c.post(func() {
			if a.ready = true; a.err == nil {
				a.err = err
			}
			ch.giveAnswers()
		})
	})
	if err == nil {
		applied()
		ch.resume()
	}
}

// giveAnswers gives those that are ready, in order.
func (ch *channel) giveAnswers() {
	for len(ch.answers) > 0 && ch.answers[0].ready {
		a := ch.answers[0]
		ch.answers[0] = nil
		ch.answers = ch.answers[1:]
		switch {
		case ch.state != channelOpen:
		case a.err != nil:
			ch.conn.raise(ch, a.err.In(a.method))
		default:
			a.then()
		}
		if a.holding {
			ch.resume()
		}
	}
	if len(ch.answers) == 0 {
		ch.answers = nil
		if ch.waiting == 0 && ch.parked > 0 {
			ch.conn.unpark()
		}
	}
}

// overtakes reports whether a frame need not wait for the answers that the channel owes.
func (ch *channel) overtakes(f *amqp.Frame) bool {
	if f.Type != amqp.FrameMethod || len(ch.answers) >= maxAnswers {
		return false
	}
	switch id, _, _ := amqp.SplitMethod(f.Payload); id {
	case amqp.ExchangeDeclareID, amqp.ExchangeDeleteID, amqp.ExchangeBindID, amqp.ExchangeUnbindID,
		amqp.QueueDeclareID, amqp.QueueDeleteID, amqp.QueueBindID, amqp.QueueUnbindID:
		return true
	}
	return false
}

package broker

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/queue"
)

// letterbox takes what a queue discards, and sends it on when the Wake of the batch is flushed. One goroutine at a time
// does so, so that dead letters keep their order; and what the target queues discard in turn goes into their letterboxes
// and the same Wake, so that a chain of queues is no recursion.
type letterbox struct {
	q *Queue

	mu      sync.Mutex // guards what follows; a leaf
	letters []queue.DeadLetter
	arrived []func() // to be called when they have been sent
	kept    []*consignment
	spare   []queue.DeadLetter
	sending bool // somebody has begun, or will when its Wake is flushed

	// Only who sends touches what follows.
	unrouted, refused uint64     // lost since the log was told
	tellAgain         queue.Time // when the log may be told again
}

// Wanted implements queue.DeadLetters.
func (l *letterbox) Wanted() bool { return l.q.Settings().DeadLetter }

// Discard implements queue.DeadLetters.
func (l *letterbox) Discard(ds []queue.DeadLetter, w *queue.Wake, arrived func()) {
	b := l.q.VHost.broker
	if !l.q.Settings().DeadLetter {
		release := queue.Releaser{Pool: b.Pool}
		for i := range ds {
			b.Counters.deadDropped[typeIndex(l.q.Type)][ds[i].Reason].Add(1)
			release.Add(ds[i].Message.Ref.Slab)
		}
		release.Flush()
		if arrived != nil {
			arrived()
		}
		return
	}
	l.mu.Lock()
	if arrived != nil && l.q.Settings().Config.KeepDiscards {
		l.kept = append(l.kept, &consignment{letters: slices.Clone(ds), arrived: arrived})
	} else {
		l.letters = append(l.letters, ds...)
		if arrived != nil {
			l.arrived = append(l.arrived, arrived)
		}
	}
	first := !l.sending
	l.sending = true
	l.mu.Unlock()
	if first {
		w.Add(l)
	}
}

// Wake implements queue.Waker.
func (l *letterbox) Wake(w *queue.Wake) {
	for {
		l.mu.Lock()
		letters, arrived, kept := l.letters, l.arrived, l.kept
		if len(letters) == 0 && len(arrived) == 0 && len(kept) == 0 {
			l.sending = false
			l.mu.Unlock()
			return
		}
		l.letters, l.spare, l.arrived, l.kept = l.spare[:0], nil, nil, nil
		l.mu.Unlock()
		if len(letters) > 0 {
			l.send(letters, nil, w)
		}
		for _, c := range kept {
			l.send(c.letters, c, w)
		}
		for _, f := range arrived {
			f()
		}
		l.mu.Lock()
		if cap(letters) <= 4*queue.MaxEffects {
			l.spare = letters[:0]
		}
		l.mu.Unlock()
	}
}

// outgoing gathers dead letters by the queue they go to.
type outgoing struct {
	targets []*Queue
	batches []queue.Batch // by index in targets; there may be more, left from earlier
	death   death
	keys    [][]byte
	header  []byte
	key     []byte // the dead-letter routing key

	exchange []byte // the dead-letter exchange
}

var outgoings = sync.Pool{New: func() any { return new(outgoing) }}

func (o *outgoing) add(q *Queue, m queue.Message) {
	i := slices.Index(o.targets, q)
	if i < 0 {
		i = len(o.targets)
		o.targets = append(o.targets, q)
		if i == len(o.batches) {
			o.batches = append(o.batches, queue.Batch{})
		}
	}
	o.batches[i].Messages = append(o.batches[i].Messages, m)
}

// publish hands over what was gathered, and returns how many messages were refused, as far as that is known at once. c, if
// not nil, gets the confirms.
func (o *outgoing) publish(c *consignment, w *queue.Wake) (refused int) {
	for i, q := range o.targets {
		b := &o.batches[i]
		if c != nil {
			b.Confirms = c
			for n := range b.Messages {
				b.Numbers = append(b.Numbers, uint64(n))
			}
		}
		q.Publish(b, w)
		refused += b.Refused
		b.Messages, b.Numbers, b.Confirms = b.Messages[:0], b.Numbers[:0], nil
		o.targets[i] = nil
	}
	o.targets = o.targets[:0]
	return refused
}

// messages is how many were gathered.
func (o *outgoing) messages() (n int) {
	for i := range o.targets {
		n += len(o.batches[i].Messages)
	}
	return n
}

// consignment is dead letters that stay in their queue until each of them has arrived in all queues that it goes to (at-least-once).
// If one has nowhere to go, or is refused, nothing is said: the queue still has them, and hands them over again.
type consignment struct {
	letters []queue.DeadLetter
	arrived func()

	mu   sync.Mutex // guards what follows; a leaf
	left int        // confirms to come
	lost bool       // something did not arrive
}

// Settled implements queue.Confirms.
func (c *consignment) Settled(ranges []queue.Range, ok bool, _ *queue.Wake) {
	n := 0
	for _, r := range ranges {
		n += int(r.Last - r.First + 1)
	}
	c.settle(n, ok)
}

func (c *consignment) settle(n int, ok bool) {
	c.mu.Lock()
	c.left -= n
	c.lost = c.lost || !ok
	over := c.left == 0 && !c.lost
	c.mu.Unlock()
	if over {
		c.arrived()
	}
}

// send routes dead letters as if they were published to the dead-letter exchange, with confirms if they are those of c, and
// lets go of the originals.
func (l *letterbox) send(letters []queue.DeadLetter, c *consignment, w *queue.Wake) {
	b := l.q.VHost.broker
	settings := l.q.Settings()
	out := outgoings.Get().(*outgoing)
	out.exchange = append(out.exchange[:0], settings.DeadLetterExchange...)
	out.key = append(out.key[:0], settings.DeadLetterKey...)
	out.death.queue = append(out.death.queue[:0], l.q.Name...)
	out.death.seconds = uint64(time.Now().Unix())
	scope := l.q.VHost.Begin()
	x := scope.Exchange(out.exchange)
	unrouted := 0
	for i := range letters {
		b.Counters.deadLettered[typeIndex(l.q.Type)][letters[i].Reason].Add(1)
		if x == nil || !l.route(scope, x, settings, &letters[i], out) {
			unrouted++
		}
	}
	scope.End()
	if c != nil {
		c.left = out.messages() + 1
	}
	refused := out.publish(c, w)
	outgoings.Put(out)
	switch {
	case c != nil: // what has not arrived is not lost
		c.settle(1, unrouted == 0)
	case unrouted+refused > 0:
		l.lost(unrouted, refused, x == nil, settings.DeadLetterExchange)
	}
	release := queue.Releaser{Pool: b.Pool}
	for i := range letters {
		release.Add(letters[i].Message.Ref.Slab)
	}
	release.Flush()
}

// tellEvery is how long the log hears nothing more of the letters that one queue loses, in milliseconds.
const tellEvery = 60_000

// lost counts dead letters that are nowhere now, and tells the log of them.
func (l *letterbox) lost(unrouted, refused int, missing bool, exchange string) {
	b := l.q.VHost.broker
	b.Counters.DeadLettersUnrouted.Add(uint64(unrouted))
	b.Counters.DeadLettersRefused.Add(uint64(refused))
	l.unrouted += uint64(unrouted)
	l.refused += uint64(refused)
	if now := b.Clock.Now(); b.Log != nil && now >= l.tellAgain {
		b.Log.Warn("dead letters were dropped", "queue", l.q.Name, "vhost", l.q.VHost.Name, "exchange", exchange,
			"exchange_missing", missing, "without_queue", l.unrouted, "refused", l.refused)
		l.unrouted, l.refused, l.tellAgain = 0, 0, now+tellEvery
	}
}

// route adds one dead letter, rewritten, to the batches of the queues it goes to, and reports whether there are any.
func (l *letterbox) route(scope *Scope, x *exchange.Exchange, s *Settings, letter *queue.DeadLetter, out *outgoing) bool {
	pool := l.q.VHost.broker.Pool
	old := &letter.Message
	whole := pool.Bytes(old.Ref)
	stored := queue.ParseStored(whole)
	h, err := amqp.ParseHeader(stored.Header)
	if err != nil { // it was parsed when it was published
		return false
	}
	headers, _ := h.Headers()
	keys := append(out.keys[:0], stored.Key)
	if old.Flags&queue.KeyReplaced == 0 {
		keys, _ = exchange.AppendKeys(keys, headers, exchange.CC)
	}
	told := len(keys)
	keys = queue.AppendBlindKeys(keys, whole)
	out.keys = keys
	blind := keys[told:]

	d := &out.death
	d.reason, d.exchange, d.keys = reasons[letter.Reason], stored.Exchange, keys[:told]
	d.history = old.Flags&queue.HasHistory != 0
	d.expiration, d.expires = h.Expiration()
	headers, history := d.record(headers)

	m := exchange.Message{Key: keys[0], More: keys[1:], Headers: headers, Properties: h.Properties, Seed: rand.Uint64()}
	if s.RouteDeadLetters {
		m.Key, m.More, blind = out.key, nil, nil
	}
	if len(m.Key) > amqp.MaxShortstr {
		return false // no delivery could carry it
	}
	targets := scope.Route(x, &m)
	if letter.Reason != queue.Rejected {
		targets = slices.DeleteFunc(targets, func(q *Queue) bool { return cycles(history, q.Name) })
	}
	if len(targets) == 0 {
		return false
	}
	if out.header, err = h.AppendChanged(out.header[:0], &amqp.PropertyList{Headers: headers}, amqp.Expiration); err != nil {
		return false
	}
	dead := pool.NewBlindMessage(out.exchange, m.Key, out.header, blind, stored.Body, int(old.Size), len(targets))
	dead.Priority = old.Priority
	dead.Flags = old.Flags&(queue.Persistent|queue.HasPriority|queue.KeyReplaced) | queue.HasHistory
	if s.RouteDeadLetters {
		dead.Flags |= queue.KeyReplaced
	}
	if letter.Failed {
		dead.Flags = dead.Flags.WithFailures(max(old.Flags.Failures(), 1))
	}
	for _, q := range targets {
		out.add(q, dead)
	}
	return true
}

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/clients"
	"github.com/warrenmq/warren/test/message"
	"github.com/warrenmq/warren/test/streams"
)

// load is clients that publish and consume, connected to all nodes, until its context ends.
type load struct {
	h         *history
	addresses []string // of the nodes
	seed      uint64
	topology  topology
	streams   *streams.History
	classics  *classics
}

// run returns when all clients have ended.
func (l *load) run(ctx context.Context) {
	var running sync.WaitGroup
	n := 0
	spawn := func(f func(context.Context, *client)) {
		c := &client{h: l.h, addresses: l.addresses, home: n % len(l.addresses), rng: rand.New(rand.NewPCG(l.seed, uint64(100+n)))}
		n++
		running.Go(func() {
			for ctx.Err() == nil {
				f(ctx, c)
				c.pause(ctx, 20*time.Millisecond, 200*time.Millisecond)
			}
		})
	}
	for i, own := range [][]uint8{{0}, {0, 1, 2, 3, 4}, {1, 2, 4}, {2}, {4, 1, 0}} {
		p := &publisher{number: i + 1, routes: own}
		spawn(p.run)
	}
	for q := range queues {
		for range queues[q].consumers {
			spawn((&consumer{queue: uint8(q)}).run)
		}
	}
	spawn(l.topology.run)
	for i := range 2 {
		p := &streams.Publisher{Number: 20 + i, Pause: 60 * time.Millisecond}
		spawn(func(ctx context.Context, c *client) { l.streams.Publish(ctx, c.reader(), p) })
	}
	for s := range streams.Plan {
		spawn(func(ctx context.Context, c *client) { l.streams.Consume(ctx, c.reader(), s) })
		for range 2 { // on different nodes
			spawn(func(ctx context.Context, c *client) { l.streams.Read(ctx, c.reader(), s) })
		}
	}
	for i := range l.classics.queues {
		p, k := &classicPublisher{number: 40 + i, queue: i}, &classicConsumer{number: 60 + i, queue: i}
		spawn(func(ctx context.Context, c *client) { p.run(ctx, c, l.classics) })
		spawn(func(ctx context.Context, c *client) { k.run(ctx, c, l.classics) })
	}
	running.Wait()
}

// client is somebody who connects again and again, mostly to the same node.
type client struct {
	h         *history
	addresses []string
	home      int
	rng       *rand.Rand
}

// reader is the client as one of streams.
func (c *client) reader() *streams.Client { return &streams.Client{Rng: c.rng, Connect: c.connect} }

// pause waits a random time.
func (c *client) pause(ctx context.Context, least, most time.Duration) {
	clients.Pause(ctx, c.rng, least, most)
}

// connect opens a connection and a channel, to some node. What is returned last ends the connection, abruptly; so does the
// end of ctx.
func (c *client) connect(ctx context.Context) (conn *amqp.Connection, ch *amqp.Channel, cut func(), err error) {
	at := c.addresses[c.home]
	if c.rng.IntN(4) == 0 {
		at = c.addresses[c.rng.IntN(len(c.addresses))]
	}
	// Three of these without a sign of life, and the client believes the node to be dead.
	patience := []time.Duration{time.Second, 2 * time.Second, 10 * time.Second}[c.rng.IntN(3)]
	conn, ch, cut, err = open(ctx, at, patience)
	if err != nil && len(c.addresses) > 1 {
		c.home = c.rng.IntN(len(c.addresses))
	}
	return conn, ch, cut, err
}

// open is connect, to one node.
func open(ctx context.Context, address string, heartbeat time.Duration) (*amqp.Connection, *amqp.Channel, func(), error) {
	return clients.Open(ctx, address, clients.Options{Heartbeat: heartbeat, Patience: 2 * time.Second})
}

// publisher sends messages to its routes in bursts, with confirms.
type publisher struct {
	number int
	routes []uint8
	n      uint64 // messages so far
}

// run publishes on one connection until it is lost.
func (p *publisher) run(ctx context.Context, c *client) {
	_, ch, cut, err := c.connect(ctx)
	if err != nil {
		return
	}
	defer cut()
	actor := c.h.actor()
	out, err := clients.NewPublisher(ch, 100, func(m message.ID, ok bool) {
		what := confirmed
		if !ok {
			what = refused
		}
		c.h.add(event{kind: what, message: m})
	})
	if err != nil {
		return
	}
	defer func() {
		cut()
		<-out.Lost()
	}()
	life := time.After(time.Duration(2+c.rng.IntN(20)) * time.Second) // then it goes elsewhere, whatever is on its way
	for {
		for range 1 + c.rng.IntN(20) {
			if !out.Room(ctx) {
				return
			}
			r := p.routes[c.rng.IntN(len(p.routes))]
			p.n++
			m := message.Of(p.number, p.n)
			c.h.add(event{kind: published, message: m, queue: r, actor: actor})
			if out.Publish(routes[r].exchange, routes[r].key, m, c.rng.IntN(routes[r].size), amqp.Publishing{DeliveryMode: amqp.Persistent}) != nil {
				return
			}
		}
		c.pause(ctx, time.Millisecond, 80*time.Millisecond)
		select {
		case <-life:
			return
		case <-out.Lost():
			return
		default:
		}
	}
}

// consumer takes from a queue and does what consumers do.
type consumer struct{ queue uint8 }

// run consumes on one connection until it is lost or given up.
func (k *consumer) run(ctx context.Context, c *client) {
	conn, ch, cut, err := c.connect(ctx)
	if err != nil {
		return
	}
	defer cut()
	for ctx.Err() == nil {
		if k.channel(ctx, c, ch) != nil || c.rng.IntN(5) == 0 {
			return
		}
		if ch, err = conn.Channel(); err != nil {
			return
		}
	}
}

// holding is a delivery that is not settled.
type holding struct {
	tag     uint64
	message message.ID
	count   uint32
}

// session is a consumer on a channel.
type session struct {
	*client
	q     uint8
	actor uint32
	ch    *amqp.Channel
	held  []holding
	dirty bool // something was settled of which it is not known whether it was applied
}

// channel consumes on a channel for a while. An error is one of the connection.
func (k *consumer) channel(ctx context.Context, c *client, ch *amqp.Channel) error {
	spec := &queues[k.queue]
	s := &session{client: c, q: k.queue, actor: c.h.actor(), ch: ch}
	defer func() { c.h.add(event{kind: ended, actor: s.actor}) }()
	cancelled := ch.NotifyCancel(make(chan string, 8))
	if err := ch.Qos(1+c.rng.IntN(50), 0, false); err != nil {
		return err
	}
	c.h.add(event{kind: consuming, queue: k.queue, actor: s.actor})
	deliveries, err := ch.Consume(spec.name, "c", false, false, false, false, nil)
	if err != nil {
		return err
	}
	end := time.NewTimer(time.Duration(300+c.rng.IntN(5000)) * time.Millisecond)
	defer end.Stop()
	ask := time.NewTicker(time.Duration(20+c.rng.IntN(150)) * time.Millisecond)
	defer ask.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-cancelled: // what it holds has gone back
			return ch.Close()
		case <-end.C:
			return s.leave(deliveries, cancelled)
		case <-ask.C:
			if err := s.act(); err != nil { // lest all that it may hold stays held
				return err
			}
			if !s.dirty {
				continue
			}
			if err := s.sync(); err != nil {
				return err
			}
			if len(cancelled) == 0 {
				c.h.add(event{kind: synced, actor: s.actor})
			}
		case d, ok := <-deliveries:
			if !ok {
				if len(cancelled) > 0 {
					return ch.Close()
				}
				return amqp.ErrClosed
			}
			if s.take(&d) {
				if err := s.act(); err != nil {
					return err
				}
			}
			if spec.slow {
				c.pause(ctx, time.Millisecond, 9*time.Millisecond)
			}
		}
	}
}

// leave ends a consumer in one of the ways there are.
func (s *session) leave(deliveries <-chan amqp.Delivery, cancelled <-chan string) error {
	switch s.rng.IntN(3) {
	case 0: // without a word
		return amqp.ErrClosed
	case 1:
		return s.ch.Close() // what it holds goes back
	}
	if err := s.ch.Cancel("c", false); err != nil {
		return err
	}
	if len(cancelled) == 0 {
		s.h.add(event{kind: synced, actor: s.actor})
	}
	for d := range deliveries {
		s.take(&d)
	}
	return s.ch.Close()
}

// take notes a delivery. One that is wrong is not held.
func (s *session) take(d *amqp.Delivery) bool {
	x, ok := s.h.received(s.q, s.actor, d)
	if ok {
		s.held = append(s.held, x)
	}
	return ok
}

// received notes a delivery.
func (h *history) received(queue uint8, actor uint32, d *amqp.Delivery) (holding, bool) {
	m, ok := message.Read(d.Body)
	if !ok {
		h.fail("%s delivers a body of %d octets that nobody published: %.40x", queues[queue].name, len(d.Body), d.Body)
		return holding{}, false
	}
	count, _ := d.Headers["x-acquired-count"].(int64)
	h.add(event{kind: delivered, queue: queue, actor: actor, message: m, count: uint32(count), flag: d.Redelivered})
	return holding{d.DeliveryTag, m, uint32(count)}, true
}

// note says what is done with those of held from i on, below j, and takes them out. It returns the tag of the last.
func (s *session) note(what kind, i, j int) uint64 {
	es := make([]event, 0, j-i)
	for _, x := range s.held[i:j] {
		es = append(es, event{kind: what, queue: s.q, actor: s.actor, message: x.message, count: x.count})
	}
	tag := s.held[j-1].tag
	s.h.add(es...)
	s.held = append(s.held[:i], s.held[j:]...)
	s.dirty = true
	return tag
}

// act does something with what is held.
func (s *session) act() error {
	n := len(s.held)
	if n == 0 {
		return nil
	}
	i, what := s.rng.IntN(n), s.rng.IntN(100)
	switch {
	case what < 20 && queues[s.q].wild || what < 1:
		if tag := s.note(requeued, i, i+1); what%2 == 0 {
			return s.ch.Nack(tag, false, true)
		} else {
			return s.ch.Reject(tag, true)
		}
	case what < 25:
		return nil
	case what < 50: // all up to one
		return s.ch.Ack(s.note(acked, 0, i+1), true)
	default:
		return s.ch.Ack(s.note(acked, i, i+1), false)
	}
}

// sync asks for something that is answered when all that was settled before has been applied: a get, which goes the same way.
// What it gets is acknowledged; whether that was applied nobody asks.
func (s *session) sync() error {
	getter := s.h.actor()
	s.h.add(event{kind: consuming, queue: s.q, actor: getter})
	d, ok, err := s.ch.Get(queues[s.q].name, false)
	if err != nil {
		return err
	}
	s.dirty = false
	if !ok {
		return nil
	}
	x, good := s.h.received(s.q, getter, &d)
	if !good {
		return nil
	}
	s.h.add(event{kind: acked, queue: s.q, actor: getter, message: x.message, count: x.count}, event{kind: ended, actor: getter})
	return s.ch.Ack(x.tag, false)
}

// drain empties all queues by one connection.
func drain(ctx context.Context, h *history, address string) error {
	_, ch, cut, err := open(ctx, address, 10*time.Second)
	if err != nil {
		return err
	}
	defer cut()
	if err := ch.Qos(200, 0, false); err != nil {
		return err
	}
	for i := range queues {
		actor, tag := h.actor(), fmt.Sprint("drain", i)
		h.add(event{kind: consuming, queue: uint8(i), actor: actor})
		deliveries, err := ch.Consume(queues[i].name, tag, false, false, false, false, nil)
		if err != nil {
			return fmt.Errorf("draining %s: %w", queues[i].name, err)
		}
		take := func(d *amqp.Delivery) error {
			x, ok := h.received(uint8(i), actor, d)
			if !ok {
				return nil
			}
			h.add(event{kind: acked, queue: uint8(i), actor: actor, message: x.message, count: x.count})
			return ch.Ack(d.DeliveryTag, false)
		}
		for quiet := 300 * time.Millisecond; ; {
			select {
			case d, ok := <-deliveries:
				if !ok {
					return fmt.Errorf("draining %s: the consumer was ended", queues[i].name)
				}
				if err := take(&d); err != nil {
					return err
				}
				continue
			case <-time.After(quiet):
			case <-ctx.Done():
				return fmt.Errorf("draining %s: %w", queues[i].name, ctx.Err())
			}
			break
		}
		if err := ch.Cancel(tag, false); err != nil {
			return fmt.Errorf("draining %s: %w", queues[i].name, err)
		}
		for d := range deliveries {
			if err := take(&d); err != nil {
				return err
			}
		}
		_, more, err := ch.Get(queues[i].name, false) // behind the acknowledgements
		if err != nil {
			return fmt.Errorf("draining %s: %w", queues[i].name, err)
		}
		if more {
			return fmt.Errorf("draining %s: it is not empty yet", queues[i].name)
		}
		h.add(event{kind: synced, actor: actor}, event{kind: ended, actor: actor}) // all nodes are well
	}
	return nil
}

package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/clients"
	"github.com/warrenmq/warren/test/message"
)

// load is what clients do. It lasts over the lives of a node.
type load struct {
	h          *history
	rng        *rand.Rand // for seeds
	publishers []*publisher
	topology   topology
	nextReborn uint64
}

func newLoad(h *history, seed uint64) *load {
	l := &load{h: h, rng: rand.New(rand.NewPCG(seed, 1))}
	for i, own := range [][]uint8{{0, 1}, {2}, {3}, {4, 5, 6, 7}, {0, 1, 2, 3, 4}} {
		l.publishers = append(l.publishers, &publisher{number: i + 1, routes: own})
	}
	return l
}

// life runs clients until ctx ends, and returns when all have.
func (l *load) life(ctx context.Context, address string) {
	var running sync.WaitGroup
	run := func(f func(context.Context, *client)) {
		c := newClient(ctx, l.h, address, rand.New(rand.NewPCG(l.rng.Uint64(), 2)))
		running.Go(func() {
			defer c.cut()
			f(ctx, c)
		})
	}
	for _, p := range l.publishers {
		run(p.run)
	}
	for actor, q := range []uint8{qPlain, qShared, qShared, qFanFast, qFanSlow, qSlow, qLetters, qDead, qNoAck} {
		run((&consumer{actor: uint16(100 + actor), queue: q, calm: l.rng.IntN(3) > 0}).run)
	}
	run(l.purge)
	run(l.reborn)
	run(l.topology.run)
	running.Wait()
}

// client is somebody who connects, and can be cut off.
type client struct {
	h       *history
	address string
	rng     *rand.Rand
	cut     context.CancelFunc // ends its connections, without a word
	ctx     context.Context
}

// newClient is one whose connections end with ctx.
func newClient(ctx context.Context, h *history, address string, rng *rand.Rand) *client {
	c := &client{h: h, address: address, rng: rng}
	c.ctx, c.cut = context.WithCancel(ctx)
	return c
}

// dial connects and opens a channel.
func (c *client) dial() (*amqp.Connection, *amqp.Channel, error) {
	conn, ch, _, err := clients.Open(c.ctx, c.address, clients.Options{Patience: 5 * time.Second})
	return conn, ch, err
}

// pause waits a random time below d.
func (c *client) pause(ctx context.Context, d time.Duration) { clients.Pause(ctx, c.rng, 0, d) }

// read returns the id of the message that a body is of.
func (h *history) read(queue uint8, b []byte) (message.ID, bool) {
	m, ok := message.Read(b)
	if !ok {
		h.fail("%s delivers a body of %d octets that nobody published: %.40x", queues[queue].name, len(b), b)
	}
	return m, ok
}

// publisher sends messages to its routes in bursts, waiting for confirms now and then.
type publisher struct {
	number int
	routes []uint8
	n      uint64 // messages so far
}

func (p *publisher) run(ctx context.Context, c *client) {
	_, ch, err := c.dial()
	if err != nil {
		return
	}
	out, err := clients.NewPublisher(ch, 200, func(m message.ID, ok bool) {
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
		c.cut()
		<-out.Lost()
	}()
	for {
		for range 1 + c.rng.IntN(30) {
			if !out.Room(ctx) {
				return
			}
			r := p.routes[c.rng.IntN(len(p.routes))]
			m, mode := p.next(c, r)
			if out.Publish(routes[r].exchange, routes[r].key, m, c.rng.IntN(routes[r].size), amqp.Publishing{DeliveryMode: mode}) != nil {
				return
			}
		}
		c.pause(ctx, 12*time.Millisecond)
	}
}

func (p *publisher) next(c *client, r uint8) (message.ID, uint8) {
	p.n++
	m := message.Of(p.number, p.n)
	mode := mode(c.rng)
	c.h.add(event{kind: published, message: m, queue: r, flag: mode == amqp.Persistent})
	return m, mode
}

// mode is of a message: one in six is transient.
func mode(rng *rand.Rand) uint8 {
	if rng.IntN(6) > 0 {
		return amqp.Persistent
	}
	return amqp.Transient
}

// consumer takes from a queue and does everything a consumer can do.
type consumer struct {
	actor uint16
	queue uint8
	calm  bool // gives little back
}

func (k *consumer) run(ctx context.Context, c *client) {
	conn, ch, err := c.dial()
	for err == nil && ctx.Err() == nil {
		if err = k.channel(ctx, c, ch); err == nil && ctx.Err() == nil {
			ch, err = conn.Channel()
		}
	}
}

// channel consumes on a channel for a while and closes it.
func (k *consumer) channel(ctx context.Context, c *client, ch *amqp.Channel) error {
	q := &queues[k.queue]
	slow := k.queue == qFanSlow || k.queue == qSlow
	if err := ch.Qos(1+c.rng.IntN(60), 0, false); err != nil {
		return err
	}
	deliveries, err := ch.Consume(q.name, "", q.noAck, false, false, false, nil)
	if err != nil {
		return err
	}
	lost := ch.NotifyClose(make(chan *amqp.Error, 1))
	var held []uint64 // tags
	var ids []message.ID
	end := time.NewTimer(time.Duration(100+c.rng.IntN(1500)) * time.Millisecond)
	defer end.Stop()
	sync := time.NewTicker(8 * time.Millisecond)
	defer sync.Stop()
	unsynced := false
	settle := func(what kind, from, to int) {
		es := make([]event, 0, to-from)
		for _, m := range ids[from:to] {
			es = append(es, event{kind: what, queue: k.queue, actor: k.actor, message: m})
		}
		c.h.addAll(es)
		unsynced = true
	}
	act := func() error {
		n := len(held)
		what := c.rng.IntN(100)
		switch {
		case n == 0:
		case what < 12 && !k.calm || what < 2: // back with one of them
			i := c.rng.IntN(n)
			settle(requeued, i, i+1)
			tag := held[i]
			held, ids = append(held[:i], held[i+1:]...), append(ids[:i], ids[i+1:]...)
			if c.rng.IntN(2) == 0 {
				return ch.Nack(tag, false, true)
			}
			return ch.Reject(tag, true)
		case q.source && what < 60:
			i := c.rng.IntN(n)
			settle(rejected, i, i+1)
			tag := held[i]
			held, ids = append(held[:i], held[i+1:]...), append(ids[:i], ids[i+1:]...)
			return ch.Reject(tag, false)
		case what < 75: // all of them up to one
			i := c.rng.IntN(n)
			settle(acked, 0, i+1)
			tag := held[i]
			held, ids = append(held[:0], held[i+1:]...), append(ids[:0], ids[i+1:]...)
			return ch.Ack(tag, true)
		default:
			i := c.rng.IntN(n)
			settle(acked, i, i+1)
			tag := held[i]
			held, ids = append(held[:i], held[i+1:]...), append(ids[:i], ids[i+1:]...)
			return ch.Ack(tag, false)
		}
		return nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-lost:
			return fmt.Errorf("channel: %w", err)
		case <-end.C:
			c.h.add(event{kind: closing, actor: k.actor})
			return ch.Close()
		case <-sync.C:
			if unsynced {
				if _, err := ch.QueueDeclarePassive(q.name, true, false, false, false, q.arguments); err != nil {
					return err
				}
				c.h.add(event{kind: synced, actor: k.actor})
				unsynced = false
			}
			if err := act(); err != nil { // lest all that it may hold stays held
				return err
			}
		case d, ok := <-deliveries:
			if !ok {
				return context.Canceled
			}
			m, good := c.h.read(k.queue, d.Body)
			if !good {
				return context.Canceled
			}
			c.h.add(event{kind: delivered, queue: k.queue, actor: k.actor, message: m, flag: d.Redelivered})
			if q.noAck {
				unsynced = true
				continue
			}
			held, ids = append(held, d.DeliveryTag), append(ids, m)
			for range 1 + c.rng.IntN(2) {
				if err := act(); err != nil {
					return err
				}
			}
			if slow {
				c.pause(ctx, 6*time.Millisecond)
			}
		}
	}
}

// purge empties a queue now and then.
func (l *load) purge(ctx context.Context, c *client) {
	const actor = 200
	_, ch, err := c.dial()
	for err == nil && ctx.Err() == nil {
		c.pause(ctx, 200*time.Millisecond)
		c.h.add(event{kind: purging, queue: qPurged, actor: actor})
		if _, err = ch.QueuePurge(queues[qPurged].name, false); err == nil {
			c.h.add(event{kind: purged, queue: qPurged, actor: actor})
		}
	}
}

// reborn makes a queue, fills it, takes a few from it, deletes it, and makes it again. First it takes all that is there: its
// deletion may have been under way when the node ended.
func (l *load) reborn(ctx context.Context, c *client) {
	const actor, number = 201, 50
	_, ch, err := c.dial()
	if err != nil || ch.Confirm(false) != nil {
		return
	}
	name := queues[qReborn].name
	for few := math.MaxInt; ctx.Err() == nil; few = c.rng.IntN(5) {
		if _, err := ch.QueueDeclare(name, true, false, false, false, nil); err != nil {
			return
		}
		var tag uint64
		for range few {
			d, ok, err := ch.Get(name, false)
			if err != nil {
				return
			}
			if !ok {
				c.h.add(event{kind: emptied, queue: qReborn, actor: actor})
				break
			}
			m, ok := c.h.read(qReborn, d.Body)
			if !ok {
				return
			}
			c.h.add(event{kind: delivered, queue: qReborn, actor: actor, message: m, flag: d.Redelivered})
			c.h.add(event{kind: acked, queue: qReborn, actor: actor, message: m})
			tag = d.DeliveryTag
			if ch.Ack(tag, false) != nil {
				return
			}
		}
		if c.rng.IntN(3) > 0 {
			if _, err := ch.QueueDeclarePassive(name, true, false, false, false, nil); err != nil {
				return
			}
			c.h.add(event{kind: synced, actor: actor})
		}
		for range c.rng.IntN(20) {
			l.nextReborn++
			m := message.Of(number, l.nextReborn)
			mode := mode(c.rng)
			c.h.add(event{kind: published, message: m, queue: routeReborn, flag: mode == amqp.Persistent})
			k, err := ch.PublishWithDeferredConfirm("", name, false, false, amqp.Publishing{DeliveryMode: mode, Body: message.Body(m, c.rng.IntN(300))})
			if err != nil {
				return
			}
			if ok, err := k.WaitContext(ctx); err != nil || !ok {
				return
			}
			c.h.add(event{kind: confirmed, message: m})
		}
		if c.rng.IntN(3) == 0 {
			continue
		}
		c.h.add(event{kind: deleting, queue: qReborn, actor: actor})
		if _, err := ch.QueueDelete(name, false, false, false); err != nil {
			return
		}
		c.h.add(event{kind: deleted, queue: qReborn, actor: actor})
	}
}

// drain takes all that the queues of the plan still have.
func (l *load) drain(address string) error {
	c := newClient(context.Background(), l.h, address, nil)
	defer c.cut()
	conn, ch, err := c.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	hung := time.AfterFunc(time.Minute, c.cut) // nothing comes for so long
	defer hung.Stop()
	for i := range queues {
		q := uint8(i)
		c.h.add(event{kind: draining, queue: q})
		if q == qDead {
			time.Sleep(200 * time.Millisecond) // for those on their way
		}
		if q == qReborn {
			if _, err := ch.QueueDeclare(queues[q].name, true, false, false, false, nil); err != nil {
				return err
			}
		}
		take := func(d amqp.Delivery) {
			hung.Reset(time.Minute)
			if m, ok := c.h.read(q, d.Body); ok {
				c.h.add(event{kind: delivered, queue: q, actor: 300 + uint16(q), message: m, flag: d.Redelivered})
			}
		}
		found, err := ch.QueueDeclarePassive(queues[q].name, true, false, false, false, queues[q].arguments)
		if err != nil {
			return fmt.Errorf("draining %s: %w", queues[q].name, err)
		}
		if q != qShort && found.Messages > 0 { // there they go by themselves
			deliveries, err := ch.Consume(queues[q].name, "drain", true, false, false, false, nil)
			if err != nil {
				return err
			}
			for range found.Messages {
				d, ok := <-deliveries
				if !ok {
					return fmt.Errorf("draining %s: not all of %d messages came", queues[q].name, found.Messages)
				}
				take(d)
			}
			if err := ch.Cancel("drain", false); err != nil {
				return err
			}
			for d := range deliveries {
				take(d)
			}
		}
		for {
			d, ok, err := ch.Get(queues[q].name, true)
			if err != nil {
				return fmt.Errorf("draining %s: %w", queues[q].name, err)
			}
			if !ok {
				break
			}
			take(d)
		}
		c.h.add(event{kind: drained, queue: q})
	}
	return nil
}

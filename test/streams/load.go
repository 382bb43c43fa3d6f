package streams

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/clients"
	"github.com/warrenmq/warren/test/message"
)

// Client is somebody who connects to nodes; what Connect returns last ends the connection, abruptly.
type Client struct {
	Rng     *rand.Rand
	Connect func(context.Context) (*amqp.Connection, *amqp.Channel, func(), error)
}

// Publisher publishes to random streams.
type Publisher struct {
	Number int           // of its messages; no other publisher has it
	Pause  time.Duration // between bursts, at most
	n      uint64        // messages so far
}

// Publish sends messages, with confirms, on one connection until that is lost or ctx ends.
func (h *History) Publish(ctx context.Context, c *Client, p *Publisher) {
	_, ch, cut, err := c.Connect(ctx)
	if err != nil {
		return
	}
	defer cut()
	channel := h.channel()
	to := map[message.ID]int{} // streams; guarded by h.mu
	out, err := clients.NewPublisher(ch, 100, func(m message.ID, ok bool) {
		if !ok {
			return
		}
		h.mu.Lock()
		s := to[m]
		h.mu.Unlock()
		h.confirm(s, m)
	})
	if err != nil {
		return
	}
	defer func() {
		cut()
		<-out.Lost()
	}()
	life := time.After(time.Duration(2+c.Rng.IntN(20)) * time.Second) // then it goes elsewhere, whatever is on its way
	for {
		for range 1 + c.Rng.IntN(40) {
			if !out.Room(ctx) {
				return
			}
			s := c.Rng.IntN(len(Plan))
			p.n++
			m := message.Of(p.Number, p.n)
			h.publish(m, channel)
			h.mu.Lock()
			to[m] = s
			h.mu.Unlock()
			if out.Publish("", Plan[s].Name, m, c.Rng.IntN(1500), amqp.Publishing{}) != nil {
				return
			}
		}
		clients.Pause(ctx, c.Rng, 0, p.Pause)
		select {
		case <-life:
			return
		case <-out.Lost():
			return
		default:
		}
	}
}

// consume begins to read a stream.
func (c *Client) consume(ctx context.Context, stream, prefetch int, arguments amqp.Table) (*amqp.Channel, <-chan amqp.Delivery, func(), error) {
	_, ch, cut, err := c.Connect(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	var deliveries <-chan amqp.Delivery
	if err = ch.Qos(prefetch, 0, false); err == nil {
		deliveries, err = ch.Consume(Plan[stream].Name, "", false, false, false, false, arguments)
	}
	if err != nil {
		cut()
		return nil, nil, nil, err
	}
	return ch, deliveries, cut, nil
}

// next notes a delivery, which must be behind the one before, and if nothing is cut right behind it.
func (h *History) next(stream int, d *amqp.Delivery, expected *uint64) (offset uint64, m message.ID, ok bool) {
	at, is := d.Headers["x-stream-offset"].(int64)
	m, good := message.Read(d.Body)
	if !is || !good {
		h.fail("a delivery of %s without an offset, or of nothing that was published", Plan[stream].Name)
		return 0, 0, false
	}
	offset = uint64(at)
	if e := *expected; e != 0 && (offset < e || offset > e && !Plan[stream].Cut) {
		h.fail("%s delivers offset %d, where %d comes next", Plan[stream].Name, offset, e)
	}
	*expected = offset + 1
	h.saw(stream, offset, m)
	return offset, m, true
}

func consumerName(stream string) string { return "reader-of-" + stream }

// Consume is a consumer with a name, which acknowledges in any order, on one connection. A stream has one at a time.
func (h *History) Consume(ctx context.Context, c *Client, stream int) {
	name := consumerName(Plan[stream].Name)
	floor := h.floor(name)
	ch, deliveries, cut, err := c.consume(ctx, stream, 1+c.Rng.IntN(200), amqp.Table{"x-stream-consumer-name": name, "x-stream-offset-reset": "first"})
	if err != nil {
		return
	}
	defer cut()
	life := time.After(time.Duration(1+c.Rng.IntN(10)) * time.Second)
	var expected uint64
	var held []uint64 // offsets, and
	var tags []uint64
	first := true
	for {
		select {
		case <-ctx.Done():
			return
		case <-life:
			return
		case d, ok := <-deliveries:
			if !ok {
				return
			}
			offset, _, ok := h.next(stream, &d, &expected)
			if !ok {
				return
			}
			if first {
				h.began(name, floor, offset)
				first = false
			}
			held, tags = append(held, offset), append(tags, d.DeliveryTag)
		case <-time.After(2 * time.Millisecond):
			if len(held) == 0 {
				continue
			}
		}
		for c.Rng.IntN(2) == 0 && len(held) > 0 {
			i := 0
			if c.Rng.IntN(2) == 0 {
				i = c.Rng.IntN(len(held))
			}
			tag := tags[i]
			held, tags = slices.Delete(held, i, i+1), slices.Delete(tags, i, i+1)
			if len(held) > 0 {
				h.acks(name, held[0])
			} else {
				h.acks(name, expected)
			}
			if ch.Ack(tag, false) != nil {
				return
			}
		}
	}
}

// Read reads from somewhere, on one connection.
func (h *History) Read(ctx context.Context, c *Client, stream int) {
	from := []any{"first", "first", "next", "last", int64(c.Rng.IntN(5000)), int64(-50), "1h"}[c.Rng.IntN(7)]
	ch, deliveries, cut, err := c.consume(ctx, stream, 100, amqp.Table{"x-stream-offset": from})
	if err != nil {
		return
	}
	defer cut()
	life := time.AfterFunc(time.Duration(1+c.Rng.IntN(10))*time.Second, cut)
	defer life.Stop()
	var expected uint64
	for d := range deliveries {
		if _, _, ok := h.next(stream, &d, &expected); !ok || ch.Ack(d.DeliveryTag, false) != nil {
			return
		}
	}
}

// Drain reads every stream to its end, and looks for what is missing. Nobody publishes any more.
func (h *History) Drain(ctx context.Context, c *Client) error {
	for s := range Plan {
		if err := h.drain(ctx, c, s); err != nil {
			return fmt.Errorf("draining %s: %w", Plan[s].Name, err)
		}
	}
	return nil
}

func (h *History) drain(ctx context.Context, c *Client, s int) error {
	conn, ch, cut, err := c.Connect(ctx)
	if err != nil {
		return err
	}
	defer cut()
	found, err := ch.QueueDeclarePassive(Plan[s].Name, true, false, false, false, Plan[s].Arguments)
	if err != nil {
		return err
	}
	if ch, err = conn.Channel(); err != nil {
		return err
	}
	if err := ch.Qos(1000, 0, false); err != nil {
		return err
	}
	deliveries, err := ch.Consume(Plan[s].Name, "", false, false, false, false, amqp.Table{"x-stream-offset": "first"})
	if err != nil {
		return err
	}
	hung := time.AfterFunc(time.Minute, cut)
	defer hung.Stop()
	var expected uint64
	read := make([]message.ID, 0, found.Messages)
	for range found.Messages {
		d, ok := <-deliveries
		if !ok {
			return fmt.Errorf("not all of %d messages came", found.Messages)
		}
		hung.Reset(time.Minute)
		_, m, ok := h.next(s, &d, &expected)
		if !ok {
			return nil
		}
		read = append(read, m)
		if err := ch.Ack(d.DeliveryTag, false); err != nil {
			return err
		}
	}
	h.whole(s, read)
	return nil
}

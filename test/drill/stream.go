package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/message"
	warren "github.com/warrenmq/warren/test/node"
)

// The streams under load. One is cut by retention.
var streams = []struct {
	name      string
	arguments amqp.Table
	cut       bool
}{
	{name: "small", arguments: amqp.Table{"x-stream-max-segment-size-bytes": int32(20_000)}},
	{name: "large", arguments: amqp.Table{"x-stream-max-segment-size-bytes": int32(2_000_000)}},
	{name: "cut", cut: true, arguments: amqp.Table{"x-stream-max-segment-size-bytes": int32(20_000), "x-max-length-bytes": int32(200_000)}},
}

// streamHistory is what clients saw of the streams, over the lives of a node. What breaks a promise is found as it is told.
type streamHistory struct {
	history // for bodies, and what is wrong

	mu        sync.Mutex              // guards what follows
	at        []map[uint64]message.ID // by stream: what was seen under an offset
	offsets   []map[message.ID]uint64 // by stream: and where
	confirmed []map[message.ID]bool
	names     map[string]*position
	counts    struct{ published, confirmed, deliveries, attached, lives int }
}

// position is what is known of a named consumer.
type position struct {
	start uint64 // where it began last: nothing below was to come again
	acked uint64 // all below was acknowledged
}

func newStreamHistory() *streamHistory {
	h := &streamHistory{names: map[string]*position{}}
	for range streams {
		h.at, h.offsets, h.confirmed = append(h.at, map[uint64]message.ID{}), append(h.offsets, map[message.ID]uint64{}), append(h.confirmed, map[message.ID]bool{})
	}
	return h
}

// saw notes that a message came from an offset.
func (h *streamHistory) saw(stream int, offset uint64, m message.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts.deliveries++
	name := streams[stream].name
	if was, ok := h.at[stream][offset]; ok && was != m {
		h.fail("offset %d of %s was message %v, and is %v", offset, name, was, m)
	}
	if was, ok := h.offsets[stream][m]; ok && was != offset {
		h.fail("message %v is in %s at offset %d, and at %d", m, name, was, offset)
	}
	h.at[stream][offset], h.offsets[stream][m] = m, offset
}

// began notes where a named consumer began.
func (h *streamHistory) began(name string, offset uint64, cut bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts.attached++
	p := h.names[name]
	if p == nil {
		p = &position{}
		h.names[name] = p
	}
	if offset < p.start {
		h.fail("%s begins at %d: the committed offset went back, it was %d", name, offset, p.start)
	}
	if offset > p.acked && !cut {
		h.fail("%s begins at %d, and has acknowledged what is below %d only", name, offset, p.acked)
	}
	p.start, p.acked = offset, max(p.acked, offset)
}

// acks notes up to where a named consumer acknowledges. It is called before the acknowledgement is sent.
func (h *streamHistory) acks(name string, next uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.names[name].acked = max(h.names[name].acked, next)
}

// streamLoad is what clients do.
type streamLoad struct {
	h   *streamHistory
	rng *rand.Rand
	n   [4]uint64 // messages of each publisher
}

// life runs clients until ctx ends.
func (l *streamLoad) life(ctx context.Context, address string) {
	var running sync.WaitGroup
	run := func(f func(context.Context, *client)) {
		c := &client{h: &l.h.history, address: address, rng: rand.New(rand.NewPCG(l.rng.Uint64(), 2))}
		running.Go(func() {
			ended := context.AfterFunc(ctx, c.cut)
			defer ended()
			f(ctx, c)
			c.cut()
		})
	}
	for i := range l.n {
		run(func(ctx context.Context, c *client) { l.publish(ctx, c, i) })
	}
	for s := range streams {
		run(func(ctx context.Context, c *client) { l.named(ctx, c, s) })
		run(func(ctx context.Context, c *client) { l.read(ctx, c, s) })
	}
	running.Wait()
}

// publish sends messages to random streams, with confirms.
func (l *streamLoad) publish(ctx context.Context, c *client, number int) {
	_, ch, err := c.dial()
	if err != nil || ch.Confirm(false) != nil {
		return
	}
	type sent struct {
		stream int
		m      message.ID
		k      *amqp.DeferredConfirmation
	}
	var flight []sent
	settle := func(most int) {
		for len(flight) > most {
			x := flight[0]
			flight = flight[1:]
			if ok, err := x.k.WaitContext(ctx); err == nil && ok {
				l.h.mu.Lock()
				l.h.confirmed[x.stream][x.m] = true
				l.h.counts.confirmed++
				l.h.mu.Unlock()
			}
		}
	}
	for ctx.Err() == nil {
		for range 1 + c.rng.IntN(40) {
			s := c.rng.IntN(len(streams))
			l.n[number]++
			m := message.Of(number+1, l.n[number])
			l.h.mu.Lock()
			l.h.counts.published++
			l.h.mu.Unlock()
			k, err := ch.PublishWithDeferredConfirm("", streams[s].name, false, false, amqp.Publishing{Body: message.Body(m, c.rng.IntN(1500))})
			if err != nil {
				return
			}
			flight = append(flight, sent{s, m, k})
		}
		settle(c.rng.IntN(100))
		c.pause(ctx, 5*time.Millisecond)
	}
}

// consume begins to read a stream.
func (c *client) consume(stream int, prefetch int, arguments amqp.Table) (*amqp.Channel, <-chan amqp.Delivery, error) {
	_, ch, err := c.dial()
	if err != nil {
		return nil, nil, err
	}
	if err := ch.Qos(prefetch, 0, false); err != nil {
		return nil, nil, err
	}
	deliveries, err := ch.Consume(streams[stream].name, "", false, false, false, false, arguments)
	return ch, deliveries, err
}

// next notes a delivery, which must be behind the one before, and if nothing is cut right behind it.
func (l *streamLoad) next(stream int, d *amqp.Delivery, expected *uint64) (offset uint64, ok bool) {
	at, is := d.Headers["x-stream-offset"].(int64)
	m, good := l.h.read(0, d.Body)
	if !is || !good {
		l.h.fail("a delivery of %s without an offset, or of nothing that was published", streams[stream].name)
		return 0, false
	}
	offset = uint64(at)
	if e := *expected; e != 0 && (offset < e || offset > e && !streams[stream].cut) {
		l.h.fail("%s delivers offset %d, where %d comes next", streams[stream].name, offset, e)
	}
	*expected = offset + 1
	l.h.saw(stream, offset, m)
	return offset, true
}

// named is a consumer with a name, which acknowledges in any order.
func (l *streamLoad) named(ctx context.Context, c *client, stream int) {
	name := "reader-of-" + streams[stream].name
	ch, deliveries, err := c.consume(stream, 1+c.rng.IntN(200), amqp.Table{"x-stream-consumer-name": name, "x-stream-offset-reset": "first"})
	if err != nil {
		return
	}
	var expected uint64
	var held []uint64 // offsets, and
	var tags []uint64
	first := true
	for {
		select {
		case <-ctx.Done():
			return
		case d, ok := <-deliveries:
			if !ok {
				return
			}
			offset, ok := l.next(stream, &d, &expected)
			if !ok {
				return
			}
			if first {
				l.h.began(name, offset, streams[stream].cut)
				first = false
			}
			held, tags = append(held, offset), append(tags, d.DeliveryTag)
		case <-time.After(2 * time.Millisecond):
			if len(held) == 0 {
				continue
			}
		}
		for c.rng.IntN(2) == 0 && len(held) > 0 {
			i := 0
			if c.rng.IntN(2) == 0 {
				i = c.rng.IntN(len(held))
			}
			tag := tags[i]
			held, tags = slices.Delete(held, i, i+1), slices.Delete(tags, i, i+1)
			if len(held) > 0 {
				l.h.acks(name, held[0])
			} else {
				l.h.acks(name, expected)
			}
			if ch.Ack(tag, false) != nil {
				return
			}
		}
	}
}

// read reads from somewhere.
func (l *streamLoad) read(ctx context.Context, c *client, stream int) {
	from := []any{"first", "next", "last", int64(c.rng.IntN(5000)), int64(-50), "1h"}[c.rng.IntN(6)]
	ch, deliveries, err := c.consume(stream, 100, amqp.Table{"x-stream-offset": from})
	if err != nil {
		return
	}
	var expected uint64
	for d := range deliveries {
		if _, ok := l.next(stream, &d, &expected); !ok || ch.Ack(d.DeliveryTag, false) != nil {
			return
		}
	}
}

// drain reads every stream to its end, and looks for what is missing.
func (l *streamLoad) drain(address string) error {
	for s := range streams {
		c := &client{h: &l.h.history, address: address}
		hung := time.AfterFunc(time.Minute, c.cut)
		conn, ch, err := c.dial()
		if err != nil {
			return err
		}
		found, err := ch.QueueDeclarePassive(streams[s].name, true, false, false, false, streams[s].arguments)
		if err != nil {
			return err
		}
		ch, deliveries, err := c.consume(s, 1000, amqp.Table{"x-stream-offset": "first"})
		if err != nil {
			return err
		}
		present := map[message.ID]bool{}
		last := map[int]message.ID{}
		oldest := map[int]message.ID{}
		var expected uint64
		for range found.Messages {
			d, ok := <-deliveries
			if !ok {
				return fmt.Errorf("draining %s: not all of %d messages came", streams[s].name, found.Messages)
			}
			hung.Reset(time.Minute)
			offset, ok := l.next(s, &d, &expected)
			if !ok {
				break
			}
			m := l.h.at[s][offset]
			if p := m.Publisher(); m < last[p] {
				l.h.fail("%s has message %v behind %v", streams[s].name, m, last[p])
			} else {
				last[p] = m
			}
			if p := m.Publisher(); oldest[p] == 0 {
				oldest[p] = m
			}
			present[m] = true
			if err := ch.Ack(d.DeliveryTag, false); err != nil {
				return err
			}
		}
		hung.Stop()
		conn.Close()
		c.cut()
		for m := range l.h.confirmed[s] {
			if !present[m] && (!streams[s].cut || oldest[m.Publisher()] != 0 && m > oldest[m.Publisher()]) {
				l.h.fail("%s has lost message %v, which was confirmed", streams[s].name, m)
			}
		}
	}
	return nil
}

// declareStreams makes the streams.
func declareStreams(address string) error {
	conn, err := amqp.Dial("amqp://guest:guest@" + address + "/")
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	for _, s := range streams {
		arguments := amqp.Table{"x-queue-type": "stream"}
		for k, v := range s.arguments {
			arguments[k] = v
		}
		if _, err := ch.QueueDeclare(s.name, true, false, false, false, arguments); err != nil {
			return err
		}
	}
	return nil
}

// drillStreams is drill for streams.
func drillStreams(n node, h *streamHistory, o options) (r result, err error) {
	h.start = time.Now()
	rng := rand.New(rand.NewPCG(o.seed, 3))
	l := &streamLoad{h: h, rng: rand.New(rand.NewPCG(o.seed, 1))}
	defer func() { r.took = time.Since(h.start); r.wrong = h.wrong }()
	begin := func() (string, error) {
		t := time.Now()
		address, err := n.start()
		if err == nil {
			r.starts = max(r.starts, time.Since(t))
			h.counts.lives++
			err = declareStreams(address)
		}
		if err != nil {
			return "", fmt.Errorf("start after %d kills: %w\n%s", r.kills, err, n.complaints())
		}
		return address, nil
	}
	for r.kills < o.kills && len(h.wrong) == 0 {
		address, err := begin()
		if err != nil {
			return r, err
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			l.life(ctx, address)
			close(done)
		}()
		time.Sleep(o.least + time.Duration(rng.Int64N(int64(o.most-o.least))))
		if rng.IntN(8) == 0 { // in order, for once
			r.clean++
			cancel()
			<-done
			err = n.stop()
		} else {
			r.kills++
			err = n.kill()
			cancel()
			<-done
		}
		cancel()
		if err != nil {
			return r, fmt.Errorf("after %d kills: %w\n%s", r.kills, err, n.complaints())
		}
		if rng.IntN(10) == 0 { // once more while it starts
			r.kills++
			if err := n.interrupt(time.Duration(rng.Int64N(int64(400 * time.Millisecond)))); err != nil {
				return r, err
			}
		}
		if r.kills%50 == 0 {
			o.say("%d kills, %d messages, %v", r.kills, h.counts.published, time.Since(h.start).Round(time.Second))
		}
	}
	address, err := begin()
	if err != nil {
		return r, err
	}
	if err := l.drain(address); err != nil {
		return r, fmt.Errorf("%w\n%s", err, n.complaints())
	}
	if err := n.stop(); err != nil {
		return r, fmt.Errorf("%w\n%s", err, n.complaints())
	}
	if said := n.complaints(); said != "" {
		h.fail("the node complained:\n%s", said)
	}
	return r, nil
}

// runStreams is run for streams.
func runStreams(dir string, o options, tags []string, sabotage string) (string, error) {
	binary := filepath.Join(dir, "warren")
	if err := warren.Build(binary, tags...); err != nil {
		return "", err
	}
	h := newStreamHistory()
	r, err := drillStreams(newProcess(binary, dir, "", "WARREN_SABOTAGE="+sabotage), h, o)
	if err == nil {
		err = r.err()
	}
	c := &h.counts
	return fmt.Sprintf("%d kills and %d orderly stops in %v: %d messages published, %d confirmed, %d deliveries, %d times a named consumer began; longest start %v; %d promises broken",
		r.kills, r.clean, r.took.Round(time.Second), c.published, c.confirmed, c.deliveries, c.attached, r.starts.Round(time.Millisecond), len(r.wrong)), err
}

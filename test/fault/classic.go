package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/clients"
	"github.com/warrenmq/warren/test/message"
)

// A classic queue lives on one node, and is used through others. It does not count how often it has handed a message out, so its
// checks are its own: each has one consumer at a time, and a history of what was confirmed, delivered and settled.

// classics are the classic queues: one on each node, by its number less one.
type classics struct {
	fail func(format string, args ...any)

	mu      sync.Mutex // guards what follows
	queues  []classic
	last    uint32 // publishers' channel
	refused int    // times that a queue's home was said to be down
	counts  struct{ published, confirmed, delivered, safe, excused int }
}

// classic is what is known of a classic queue.
type classic struct {
	sent      map[message.ID]uint32 // by publishers' channel
	confirmed map[message.ID]bool
	acked     map[message.ID]bool // may be gone
	excused   map[message.ID]bool // gone with its node
	safe      map[message.ID]bool // its acknowledgement was written
	found     map[message.ID]bool // delivered
	fresh     map[uint32]message.ID
	taken     int // how many were confirmed
}

func newClassics(n int, fail func(format string, args ...any)) *classics {
	x := &classics{fail: fail, queues: make([]classic, n)}
	for i := range x.queues {
		x.queues[i] = classic{sent: map[message.ID]uint32{}, confirmed: map[message.ID]bool{}, acked: map[message.ID]bool{}, excused: map[message.ID]bool{}, safe: map[message.ID]bool{},
			found: map[message.ID]bool{}, fresh: map[uint32]message.ID{}}
	}
	return x
}

func classicName(i int) string { return fmt.Sprint("classic-", i+1) }

func (x *classics) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := &x.counts
	return fmt.Sprintf("%d messages published to classic queues, %d confirmed, %d deliveries, %d settled for sure, %d lost with their node, %d times a home was down",
		c.published, c.confirmed, c.delivered, c.safe, c.excused, x.refused)
}

func (x *classics) channel() uint32 {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last++
	return x.last
}

func (x *classics) publish(i int, m message.ID, channel uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.counts.published++
	x.queues[i].sent[m] = channel
}

func (x *classics) confirm(i int, m message.ID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.counts.confirmed++
	x.queues[i].taken++
	x.queues[i].confirmed[m] = true
}

// delivered notes a delivery.
func (x *classics) delivered(i int, m message.ID, redelivered bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.counts.delivered++
	q := &x.queues[i]
	channel, ok := q.sent[m]
	switch last := q.fresh[channel]; {
	case !ok:
		x.fail("%s delivers message %v, which nobody published there, or its node was forgotten with", classicName(i), m)
	case q.safe[m]:
		x.fail("%s delivers message %v again, whose acknowledgement was written", classicName(i), m)
	case !redelivered && q.found[m]:
		x.fail("%s delivers message %v for the first time twice", classicName(i), m)
	case !redelivered && m < last:
		x.fail("%s delivers message %v after %v, both for the first time", classicName(i), m, last)
	case !redelivered:
		q.fresh[channel] = m
	}
	q.found[m] = true
}

// acks notes that messages are about to be acknowledged.
func (x *classics) acks(i int, ms ...message.ID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, m := range ms {
		x.queues[i].acked[m] = true
	}
}

// written notes that acknowledgements are on the disk.
func (x *classics) written(i int, ms []message.ID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, m := range ms {
		x.counts.safe++
		x.queues[i].safe[m] = true
	}
}

// lost notes that a queue is gone with its node, which was forgotten: nothing is expected of what was sent to it so far.
func (x *classics) lost(i int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	q := &x.queues[i]
	for m := range q.sent {
		q.excused[m] = true
	}
	x.counts.excused = len(q.excused)
}

// drained holds a queue that was found empty against what was confirmed.
func (x *classics) drained(i int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	q := &x.queues[i]
	var missing []message.ID
	for m := range q.confirmed {
		if !q.acked[m] && !q.excused[m] {
			missing = append(missing, m)
		}
	}
	slices.Sort(missing)
	for _, m := range missing[:min(len(missing), maxWrong)] {
		x.fail("%s has lost message %v, which was confirmed (%d lost in all)", classicName(i), m, len(missing))
	}
}

// homeDown is what is said of a queue whose node is down.
var homeDown = regexp.MustCompile(`^NOT_FOUND - home node 'warren@n\d' of durable queue 'classic-\d' in vhost '/' is down or inaccessible$`)

// heard judges what a client was told when a queue refused it. nothing is said of connections that are lost.
func (x *classics) heard(i int, err error) {
	var told *amqp.Error
	if !errors.As(err, &told) || !told.Server {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case told.Code == amqp.NotFound && homeDown.MatchString(told.Reason):
		x.refused++
	case told.Code == amqp.NotFound && x.counts.excused > 0: // deleted with a node, or not made again yet
	case told.Code == amqp.ConnectionForced || told.Code == amqp.InternalError:
	case told.Code == amqp.PreconditionFailed: // an acknowledgement took too long
	default:
		x.fail("%s: a client is told %q", classicName(i), told.Error())
	}
}

// classicPublisher sends to one classic queue, with confirms.
type classicPublisher struct {
	number, queue int
	n             uint64
}

func (p *classicPublisher) run(ctx context.Context, c *client, x *classics) {
	_, ch, cut, err := c.connect(ctx)
	if err != nil {
		return
	}
	defer cut()
	out, err := clients.NewPublisher(ch, 50, func(m message.ID, ok bool) {
		if ok {
			x.confirm(p.queue, m)
		}
	})
	if err != nil {
		return
	}
	out.Mandatory = true // where its queue was deleted a message has no route, and would count as confirmed
	defer func() {
		cut()
		<-out.Lost()
	}()
	channel := x.channel()
	life := time.After(time.Duration(2+c.rng.IntN(10)) * time.Second)
	for {
		for range 1 + c.rng.IntN(20) {
			if !out.Room(ctx) {
				return
			}
			p.n++
			m := message.Of(p.number, p.n)
			x.publish(p.queue, m, channel)
			if out.Publish("", classicName(p.queue), m, c.rng.IntN(600), amqp.Publishing{DeliveryMode: amqp.Persistent}) != nil {
				return
			}
		}
		c.pause(ctx, 10*time.Millisecond, 120*time.Millisecond)
		select {
		case <-life:
			return
		case <-out.Lost():
			return
		default:
		}
	}
}

// classicConsumer takes from one classic queue.
type classicConsumer struct {
	number, queue int
	n             uint64 // messages that it has sent itself
}

// run consumes on one connection. Now and then it sends a message to its queue behind what it has acknowledged: when that is
// confirmed, and it was not cancelled, the acknowledgements are written.
func (k *classicConsumer) run(ctx context.Context, c *client, x *classics) {
	_, ch, cut, err := c.connect(ctx)
	if err != nil {
		return
	}
	defer cut()
	cancelled := ch.NotifyCancel(make(chan string, 8))
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	returned := ch.NotifyReturn(make(chan amqp.Return, 8))
	heard := func(err error) { x.heard(k.queue, err) }
	if err := ch.Qos(50, 0, false); err != nil {
		return
	}
	if err := ch.Confirm(false); err != nil {
		return
	}
	deliveries, err := ch.Consume(classicName(k.queue), "c", false, false, false, false, nil)
	if err != nil {
		heard(err)
		return
	}
	channel := x.channel()
	life := time.NewTimer(time.Duration(500+c.rng.IntN(6000)) * time.Millisecond)
	defer life.Stop()
	prove := time.NewTicker(time.Duration(100+c.rng.IntN(200)) * time.Millisecond)
	defer prove.Stop()
	var settled []message.ID
	for {
		select {
		case <-ctx.Done():
			return
		case <-life.C:
			return
		case <-cancelled:
			return
		case e := <-closed:
			if e != nil {
				heard(e)
			}
			return
		case d, ok := <-deliveries:
			if !ok {
				return
			}
			m, is := message.Read(d.Body)
			if !is {
				x.fail("%s delivers a body of %d octets that nobody published", classicName(k.queue), len(d.Body))
				return
			}
			x.delivered(k.queue, m, d.Redelivered)
			if c.rng.IntN(30) == 0 {
				if ch.Reject(d.DeliveryTag, true) != nil {
					return
				}
				continue
			}
			x.acks(k.queue, m)
			settled = append(settled, m)
			if ch.Ack(d.DeliveryTag, false) != nil {
				return
			}
		case <-prove.C:
			if len(settled) == 0 {
				continue
			}
			k.n++
			m := message.Of(k.number, k.n)
			x.publish(k.queue, m, channel)
			sent, err := ch.PublishWithDeferredConfirm("", classicName(k.queue), true, false,
				amqp.Publishing{DeliveryMode: amqp.Persistent, Body: message.Body(m, message.Smallest)})
			if err != nil {
				return
			}
			waiting, stop := context.WithTimeout(ctx, 20*time.Second)
			ok, err := sent.WaitContext(waiting)
			stop()
			if err != nil || !ok || len(cancelled) > 0 || len(returned) > 0 {
				return
			}
			x.confirm(k.queue, m)
			x.written(k.queue, settled)
			settled = settled[:0]
		}
	}
}

// drain empties all classic queues, through one node. All nodes are well.
func (x *classics) drain(ctx context.Context, address string) error {
	_, ch, cut, err := open(ctx, address, 10*time.Second)
	if err != nil {
		return err
	}
	defer cut()
	for i := range x.queues {
		for {
			d, ok, err := ch.Get(classicName(i), false)
			if err != nil {
				return fmt.Errorf("draining %s: %w", classicName(i), err)
			}
			if !ok {
				break
			}
			m, is := message.Read(d.Body)
			if !is {
				return fmt.Errorf("%s delivers a body that nobody published", classicName(i))
			}
			x.delivered(i, m, d.Redelivered)
			x.acks(i, m)
			if err := ch.Ack(d.DeliveryTag, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// declareClassic makes a node's classic queue there.
func declareClassic(ch *amqp.Channel, i int) error {
	_, err := ch.QueueDeclare(classicName(i), true, false, false, false, nil)
	return err
}

// isDown sees to it that a queue whose home is down is refused at another node as docs/cluster.md says, and that a message to it is not
// confirmed. It returns false where that node cannot be asked.
func (x *classics) isDown(ctx context.Context, i int, address string) bool {
	down := false
	_ = eventually(ctx, 10*time.Second, func() error {
		_, ch, cut, err := open(ctx, address, 2*time.Second)
		if err != nil {
			return err
		}
		defer cut()
		_, err = ch.QueueDeclarePassive(classicName(i), true, false, false, false, nil)
		if err == nil {
			return errors.New("it is not known to be down yet")
		}
		x.heard(i, err)
		var told *amqp.Error
		down = errors.As(err, &told) && told.Code == amqp.NotFound && homeDown.MatchString(told.Reason)
		if !down {
			return err
		}
		return nil
	})
	if !down {
		return false
	}
	_, ch, cut, err := open(ctx, address, 2*time.Second)
	if err != nil || ch.Confirm(false) != nil {
		return false
	}
	defer cut()
	m := message.Of(999, uint64(x.channel()))
	x.publish(i, m, 0)
	k, err := ch.PublishWithDeferredConfirm("", classicName(i), false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: message.Body(m, 0)})
	if err != nil {
		return false
	}
	waiting, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	if ok, err := k.WaitContext(waiting); err == nil && ok {
		x.fail("a message to %s was confirmed, though its node is down", classicName(i))
	}
	return true
}

// confirmedSoFar is how many messages were confirmed, by queue.
func (x *classics) confirmedSoFar() (n []int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range x.queues {
		n = append(n, x.queues[i].taken)
	}
	return n
}

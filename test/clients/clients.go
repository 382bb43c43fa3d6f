// Package clients is what the clients of all drills have in common: connections that can be cut, pauses, and publishers who
// know what became of each message.
package clients

import (
	"context"
	"math/rand/v2"
	"net"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/message"
)

// Options of a connection.
type Options struct {
	// Heartbeat: three of these without a sign of life, and the client believes the node to be dead. 0: never.
	Heartbeat time.Duration
	// Patience is how long a node may take to accept, and half of what the rest of the opening may take.
	Patience time.Duration
}

// Open opens a connection to a node, and a channel. cut ends the connection, abruptly; so does the end of ctx.
func Open(ctx context.Context, address string, o Options) (conn *amqp.Connection, ch *amqp.Channel, cut func(), err error) {
	var socket net.Conn
	conn, err = amqp.DialConfig("amqp://guest:guest@"+address+"/", amqp.Config{Heartbeat: o.Heartbeat, Dial: func(network, address string) (net.Conn, error) {
		d := net.Dialer{Timeout: o.Patience}
		s, err := d.DialContext(ctx, network, address)
		if err == nil {
			socket = s
			s.SetDeadline(time.Now().Add(2 * o.Patience)) // of the opening; the library lifts it
		}
		return s, err
	}})
	if err != nil {
		if socket != nil {
			socket.Close()
		}
		return nil, nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { socket.Close() })
	cut = func() {
		stop()
		socket.Close()
	}
	if ch, err = conn.Channel(); err != nil {
		cut()
		return nil, nil, nil, err
	}
	return conn, ch, cut, nil
}

// Pause waits a random time.
func Pause(ctx context.Context, rng *rand.Rand, least, most time.Duration) {
	t := time.NewTimer(least + time.Duration(rng.Int64N(int64(most-least))))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Publisher publishes on a channel with confirms. Its methods are for one goroutine.
type Publisher struct {
	Mandatory bool // what nothing takes is returned

	ch   *amqp.Channel
	ids  chan message.ID
	room chan struct{}
	lost chan struct{}
}

// NewPublisher has outcome called for each message that is published, if its outcome is heard: whether it was confirmed. One that
// was returned, as nothing took it, was not. flight is how many may be on their way.
func NewPublisher(ch *amqp.Channel, flight int, outcome func(m message.ID, confirmed bool)) (*Publisher, error) {
	if err := ch.Confirm(false); err != nil {
		return nil, err
	}
	p := &Publisher{ch: ch, ids: make(chan message.ID, flight+1), room: make(chan struct{}, flight), lost: make(chan struct{})}
	confirms := ch.NotifyPublish(make(chan amqp.Confirmation, flight+1))
	returns := ch.NotifyReturn(make(chan amqp.Return, flight+1))
	go func() {
		defer close(p.lost)
		var sent []message.ID // by tag
		returned := map[message.ID]bool{}
		for k := range confirms {
			for uint64(len(sent)) < k.DeliveryTag {
				sent = append(sent, <-p.ids)
			}
			for more := true; more; { // it comes before its confirm
				select {
				case r, ok := <-returns:
					if m, is := message.Read(r.Body); is {
						returned[m] = true
					}
					more = ok
				default:
					more = false
				}
			}
			m := sent[k.DeliveryTag-1]
			outcome(m, k.Ack && !returned[m])
			<-p.room
		}
	}()
	return p, nil
}

// Room waits until one more message may be on its way. It is false when the channel is lost, or ctx has ended.
func (p *Publisher) Room(ctx context.Context) bool {
	select {
	case p.room <- struct{}{}:
		return true
	case <-ctx.Done():
	case <-p.lost:
	}
	return false
}

// Publish publishes a message of so many octets. Room was true before, once for each.
func (p *Publisher) Publish(exchange, key string, m message.ID, size int, o amqp.Publishing) error {
	p.ids <- m
	o.Body = message.Body(m, size)
	return p.ch.PublishWithContext(context.Background(), exchange, key, p.Mandatory, false, o)
}

// Lost is closed when the channel is lost, and all outcomes were told.
func (p *Publisher) Lost() <-chan struct{} { return p.lost }

package server

import (
	"fmt"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// Management looks while channels open, change their mode, consume and close.
func TestSnapshotsOfBusyConnections(t *testing.T) {
	n := start(t, nil)
	stop := make(chan struct{})
	looked := make(chan int)
	go func() {
		seen := 0
		for {
			select {
			case <-stop:
				looked <- seen
				return
			default:
				n.Channels(func(ch *Channel) bool { seen++; return ch.Connection.User == "guest" })
				n.Connections(func(c *Connection) bool { return n.Connection(c.Name, new(Connection)) || true })
			}
		}
	}()
	c := n.dial(t)
	for i := range 50 {
		ch, err := c.Channel()
		if err != nil {
			t.Fatal(err)
		}
		ch.Qos(5, 0, i%2 == 0)
		if i%3 == 0 {
			ch.Tx()
		} else {
			ch.Confirm(false)
		}
		q, err := ch.QueueDeclare("", false, false, true, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ch.Consume(q.Name, "", false, true, false, false, nil); err != nil {
			t.Fatal(err)
		}
		ch.Publish("", q.Name, false, false, amqp091.Publishing{Body: []byte("x")})
		if i%3 == 0 {
			ch.TxCommit()
		}
		if i%2 == 0 {
			ch.Close()
		}
	}
	close(stop)
	if <-looked == 0 {
		t.Error("nobody was seen")
	}
	var got Channel
	n.Channels(func(ch *Channel) bool { got = *ch; return ch.Number != 3 })
	if text := fmt.Sprint(got.Consumers, got.Prefetch); text != "1 5" {
		t.Error(text)
	}
}

func TestCloseOfAConnectionByName(t *testing.T) {
	n := start(t, nil)
	c := n.dial(t)
	closed := c.NotifyClose(make(chan *amqp091.Error, 1))
	name := c.LocalAddr().String() + " -> " + n.address
	var of Connection
	if !n.Connection(name, &of) || of.User != "guest" || of.VHost != "/" || of.Mechanism != "PLAIN" || n.Name(of.ID) != name {
		t.Fatalf("%+v", of)
	}
	if n.Close("nobody", "x") || !n.Close(name, "maintenance") {
		t.Error("a connection is not found by its name, or another is")
	}
	if err := <-closed; err.Code != 320 || err.Reason != "CONNECTION_FORCED - maintenance" {
		t.Error(err)
	}
}

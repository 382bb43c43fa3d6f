package cli

import (
	"net"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// TestCutConsumer: the connection of a client that consumes from a classic queue of another node is lost. That is told to the other
// node at once: it has the messages back, and who publishes to its queues by way of this one does not wait.
func TestCutConsumer(t *testing.T) {
	c := runCluster(t, 2)
	_, home := c.list[0].dial()
	if _, err := home.QueueDeclare("classic", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	publishConfirmed(t, home, "", "classic", "held", "")
	var socket net.Conn
	lost, err := amqp091.DialConfig("amqp://guest:guest@"+c.list[1].amqp, amqp091.Config{Dial: func(network, address string) (conn net.Conn, err error) {
		socket, err = net.Dial(network, address)
		return socket, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer lost.Close()
	var held <-chan amqp091.Delivery
	var there *amqp091.Channel
	until(t, "the queue is known at the other node", func() error {
		if there, err = lost.Channel(); err == nil {
			held, err = there.Consume("classic", "", false, false, false, false, nil)
		}
		return err
	})
	receive(t, held, "held")
	socket.Close()

	back, err := home.Consume("classic", "", false, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := receive(t, back, "held"); !d.Redelivered {
		t.Error("it comes back as if nobody had had it")
	}
	_, away := c.list[1].dial()
	publishConfirmed(t, away, "", "classic", "more", "")
	receive(t, back, "more")
}

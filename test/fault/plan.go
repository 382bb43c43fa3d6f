package main

import (
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/streams"
)

// queueSpec is a queue of the plan, with its consumers.
type queueSpec struct {
	name      string
	consumers int
	slow      bool // they leave a backlog behind at times
	wild      bool // they give much back
}

var queues = []queueSpec{
	{name: "one", consumers: 1},
	{name: "shared", consumers: 3},
	{name: "fan-a", consumers: 1},
	{name: "fan-b", consumers: 1, wild: true},
	{name: "slow", consumers: 1, slow: true},
	{name: "wild", consumers: 2, wild: true},
}

// route is where a publisher sends something.
type route struct {
	name, exchange, key string
	queues              []uint8
	size                int // octets of a body, at most
}

var routes = []route{
	{"one", "", "one", []uint8{0}, 300},
	{"shared", "", "shared", []uint8{1}, 300},
	{"fan", "fan", "", []uint8{2, 3}, 600}, // a confirm that waits for two queues
	{"slow", "", "slow", []uint8{4}, 8000},
	{"wild", "", "wild", []uint8{5}, 300},
}

// declare makes the topology of the plan. How often a message was given back is no reason to drop it here.
func declare(ch *amqp.Channel) error {
	if err := ch.ExchangeDeclare("fan", "fanout", true, false, false, false, nil); err != nil {
		return err
	}
	for _, q := range queues {
		if _, err := ch.QueueDeclare(q.name, true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int32(-1)}); err != nil {
			return err
		}
	}
	for _, name := range []string{"fan-a", "fan-b"} {
		if err := ch.QueueBind(name, "", "fan", false, nil); err != nil {
			return err
		}
	}
	return streams.Declare(ch)
}

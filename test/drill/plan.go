package main

import amqp "github.com/rabbitmq/amqp091-go"

// The topology under load, all of it durable:
//
//	publishers ─► plain, shared                        one consumer, two consumers
//	           ─► fan ─► fan-fast, fan-slow            each message to both
//	           ─► slow                                 large messages, a backlog of many megabytes
//	           ─► letters, short ─► dead ─► dead       rejected, expired, over the limit
//	           ─► purged, reborn, noack                emptied, deleted and made again, not acknowledged

// queueSpec is a queue of the plan.
type queueSpec struct {
	name      string
	arguments amqp.Table
	// ordered: it has one consumer, and what that sees for the first time keeps each publisher's order.
	ordered bool
	// source: its messages may go on to dead instead of being acknowledged.
	source bool
	// copies: a crash may bring the same message twice, from its source.
	copies bool
	// noAck: what was delivered is settled.
	noAck bool
}

const (
	qPlain uint8 = iota
	qShared
	qFanFast
	qFanSlow
	qSlow
	qLetters
	qShort
	qDead
	qPurged
	qReborn
	qNoAck
)

var queues = []queueSpec{
	{name: "plain", ordered: true},
	{name: "shared"},
	{name: "fan-fast", ordered: true},
	{name: "fan-slow", ordered: true},
	{name: "slow", ordered: true},
	{name: "letters", source: true, arguments: amqp.Table{"x-dead-letter-exchange": "dead"}},
	{name: "short", source: true, arguments: amqp.Table{"x-dead-letter-exchange": "dead", "x-message-ttl": int32(400), "x-max-length": int32(60)}},
	{name: "dead", copies: true},
	{name: "purged"},
	{name: "reborn"},
	{name: "noack", noAck: true, ordered: true},
}

// route is where a publisher sends something.
type route struct {
	name, exchange, key string
	queues              []uint8
	size                int // octets of a body, at most
}

var routes = []route{
	{"plain", "", "plain", []uint8{qPlain}, 600},
	{"shared", "", "shared", []uint8{qShared}, 600},
	{"fan", "fan", "", []uint8{qFanFast, qFanSlow}, 1000},
	{"slow", "", "slow", []uint8{qSlow}, 12000},
	{"letters", "", "letters", []uint8{qLetters}, 300},
	{"short", "", "short", []uint8{qShort}, 300},
	{"purged", "", "purged", []uint8{qPurged}, 2000},
	{"noack", "", "noack", []uint8{qNoAck}, 300},
	{"reborn", "", "reborn", []uint8{qReborn}, 300},
}

const routeReborn = 8

// declare makes the topology of the plan.
func declare(ch *amqp.Channel) error {
	for _, x := range []string{"fan", "dead"} {
		if err := ch.ExchangeDeclare(x, "fanout", true, false, false, false, nil); err != nil {
			return err
		}
	}
	for i, q := range queues {
		if uint8(i) == qReborn {
			continue
		}
		if _, err := ch.QueueDeclare(q.name, true, false, false, false, q.arguments); err != nil {
			return err
		}
	}
	for _, b := range [][2]string{{"fan-fast", "fan"}, {"fan-slow", "fan"}, {"dead", "dead"}} {
		if err := ch.QueueBind(b[0], "", b[1], false, nil); err != nil {
			return err
		}
	}
	return nil
}

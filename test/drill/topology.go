package main

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// topology makes and deletes queues, exchanges and bindings, and looks in each life whether what was answered is so.
type topology struct {
	items map[string]existence // by kind and name, such as "queue/t3"
}

type existence uint8

const (
	unknown existence = iota // asked for, not answered
	absent
	exists
)

const things = 8 // of each kind

// thing is what can be made and deleted.
type thing struct {
	kind string
	n    int
}

func (t thing) String() string { return fmt.Sprintf("%s/t%d", t.kind, t.n) }

func (t *topology) run(ctx context.Context, c *client) {
	if t.items == nil {
		t.items = map[string]existence{}
	}
	conn, ch, err := c.dial()
	if err != nil {
		return
	}
	if ch.ExchangeDeclare("bound", "direct", true, false, false, false, nil) != nil {
		return
	}
	for _, kind := range []string{"queue", "exchange", "binding"} {
		for n := range things {
			if t.verify(conn, c, thing{kind, n}) != nil {
				return
			}
		}
	}
	if ch, err = conn.Channel(); err != nil {
		return
	}
	for ctx.Err() == nil {
		x := thing{[]string{"queue", "exchange", "binding"}[c.rng.IntN(3)], c.rng.IntN(things)}
		make := c.rng.IntN(2) == 0
		if x.kind == "binding" && t.items[thing{"queue", x.n}.String()] != exists {
			continue
		}
		t.items[x.String()] = unknown
		if x.kind == "queue" && !make {
			t.items[thing{"binding", x.n}.String()] = unknown // goes with it
		}
		if change(ch, x, make) != nil {
			return
		}
		t.items[x.String()] = absent
		if make {
			t.items[x.String()] = exists
		}
		if x.kind == "queue" && !make {
			t.items[thing{"binding", x.n}.String()] = absent
		}
		c.pause(ctx, 20e6)
	}
}

func change(ch *amqp.Channel, x thing, make bool) error {
	name := fmt.Sprintf("t%d", x.n)
	var err error
	switch {
	case x.kind == "queue" && make:
		_, err = ch.QueueDeclare(name, true, false, false, false, nil)
	case x.kind == "queue":
		_, err = ch.QueueDelete(name, false, false, false)
	case x.kind == "exchange" && make:
		err = ch.ExchangeDeclare(name, "topic", true, false, false, false, nil)
	case x.kind == "exchange":
		err = ch.ExchangeDelete(name, false, false)
	case make:
		err = ch.QueueBind(name, name, "bound", false, nil)
	default:
		err = ch.QueueUnbind(name, name, "bound", nil)
	}
	return err
}

// verify holds what is there against what was answered. The error is one of the connection.
func (t *topology) verify(conn *amqp.Connection, c *client, x thing) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	name := fmt.Sprintf("t%d", x.n)
	there := true
	switch x.kind {
	case "queue":
		_, err = ch.QueueDeclarePassive(name, true, false, false, false, nil)
	case "exchange":
		err = ch.ExchangeDeclarePassive(name, "topic", true, false, false, false, nil)
	default:
		there, err = routed(ch, name)
	}
	var refused *amqp.Error
	switch {
	case errors.As(err, &refused) && refused.Code == amqp.NotFound:
		there = false
	case err != nil:
		return err
	default:
		if err := ch.Close(); err != nil {
			return err
		}
	}
	switch was := t.items[x.String()]; {
	case was == exists && !there:
		c.h.fail("%v is gone: its declaration was answered in an earlier life", x)
	case was == absent && there:
		c.h.fail("%v is back: its deletion was answered in an earlier life", x)
	}
	t.items[x.String()] = absent
	if there {
		t.items[x.String()] = exists
	}
	return nil
}

// routed reports whether a message with the key is routed anywhere.
func routed(ch *amqp.Channel, key string) (bool, error) {
	returned := ch.NotifyReturn(make(chan amqp.Return, 1))
	if err := ch.Confirm(false); err != nil {
		return false, err
	}
	k, err := ch.PublishWithDeferredConfirm("bound", key, true, false, amqp.Publishing{})
	if err != nil {
		return false, err
	}
	if ok, err := k.WaitContext(context.Background()); err != nil || !ok {
		return false, errors.Join(err, amqp.ErrClosed)
	}
	select {
	case <-returned:
		return false, nil
	default:
		return true, nil
	}
}

// Publishes, gets, consumes, rejects and calls with github.com/rabbitmq/amqp091-go.
// The broker is the first argument, else AMQP_URL.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const patience = 5 * time.Second

func main() {
	log.SetFlags(0)
	uri := os.Getenv("AMQP_URL")
	if len(os.Args) > 1 {
		uri = os.Args[1]
	}
	conn, err := amqp.Dial(uri)
	check("connect", err)
	defer conn.Close()
	ch, err := conn.Channel()
	check("channel", err)

	q, err := ch.QueueDeclare("", false, false, true, false, nil)
	check("declare", err)
	check("confirm", confirm(ch, q.Name))
	check("get", get(ch, q.Name))
	check("consume", consume(ch, q.Name))
	check("reject", reject(ch, q.Name))
	check("return", mandatoryReturn(ch))
	check("rpc", rpc(conn))
}

func check(name string, err error) {
	if err != nil {
		log.Fatalf("FAILED %s: %v", name, err)
	}
	fmt.Println("ok", name)
}

func confirm(ch *amqp.Channel, queue string) error {
	if err := ch.Confirm(false); err != nil {
		return err
	}
	for _, body := range []string{"one", "two", "three"} {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		confirmation, err := ch.PublishWithDeferredConfirmWithContext(ctx, "", queue, false, false, amqp.Publishing{
			ContentType: "text/plain", MessageId: body, Headers: amqp.Table{"n": int32(len(body))}, Body: []byte(body)})
		if err != nil {
			return err
		}
		if acked, err := confirmation.WaitContext(ctx); err != nil || !acked {
			return fmt.Errorf("publishing %q: acked %v, %v", body, acked, err)
		}
	}
	return nil
}

func get(ch *amqp.Channel, queue string) error {
	d, ok, err := ch.Get(queue, false)
	if err != nil || !ok {
		return fmt.Errorf("got nothing: %v", err)
	}
	if string(d.Body) != "one" || d.MessageId != "one" || d.Headers["n"] != int32(3) || d.MessageCount != 2 {
		return fmt.Errorf("got %q with id %q, headers %v, %d left", d.Body, d.MessageId, d.Headers, d.MessageCount)
	}
	return d.Ack(false)
}

func consume(ch *amqp.Channel, queue string) error {
	deliveries, err := ch.Consume(queue, "reader", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for _, want := range []string{"two", "three"} {
		d, err := next(deliveries)
		if err != nil || string(d.Body) != want || d.Redelivered {
			return fmt.Errorf("want %q: got %q, redelivered %v, %v", want, d.Body, d.Redelivered, err)
		}
		if err := d.Ack(false); err != nil {
			return err
		}
	}
	return ch.Cancel("reader", false)
}

func reject(ch *amqp.Channel, queue string) error {
	if err := ch.Publish("", queue, false, false, amqp.Publishing{Body: []byte("again")}); err != nil {
		return err
	}
	deliveries, err := ch.Consume(queue, "refuser", false, false, false, false, nil)
	if err != nil {
		return err
	}
	for _, redelivered := range []bool{false, true} {
		d, err := next(deliveries)
		if err != nil || d.Redelivered != redelivered {
			return fmt.Errorf("redelivered is %v, want %v: %v", d.Redelivered, redelivered, err)
		}
		if err := d.Reject(!redelivered); err != nil { // requeued the first time, dropped the second
			return err
		}
	}
	if err := ch.Cancel("refuser", false); err != nil {
		return err
	}
	if _, ok, err := ch.Get(queue, true); ok || err != nil {
		return fmt.Errorf("a message is left after its rejection: %v, %v", ok, err)
	}
	return nil
}

func mandatoryReturn(ch *amqp.Channel) error {
	returns := ch.NotifyReturn(make(chan amqp.Return, 1))
	if err := ch.Publish("", "no-such-queue", true, false, amqp.Publishing{Body: []byte("lost")}); err != nil {
		return err
	}
	select {
	case r := <-returns:
		if r.ReplyCode != amqp.NoRoute || r.RoutingKey != "no-such-queue" || string(r.Body) != "lost" {
			return fmt.Errorf("returned %d %s %q", r.ReplyCode, r.ReplyText, r.Body)
		}
		return nil
	case <-time.After(patience):
		return errors.New("nothing came back")
	}
}

// rpc calls a server on another channel through RabbitMQ's direct reply-to.
func rpc(conn *amqp.Connection) error {
	server, err := conn.Channel()
	if err != nil {
		return err
	}
	client, err := conn.Channel()
	if err != nil {
		return err
	}
	q, err := server.QueueDeclare("", false, false, true, false, nil)
	if err != nil {
		return err
	}
	requests, err := server.Consume(q.Name, "", true, false, false, false, nil)
	if err != nil {
		return err
	}
	replies, err := client.Consume("amq.rabbitmq.reply-to", "", true, false, false, false, nil)
	if err != nil {
		return err
	}
	if err := client.Publish("", q.Name, false, false, amqp.Publishing{
		ReplyTo: "amq.rabbitmq.reply-to", CorrelationId: "42", Body: []byte("ping")}); err != nil {
		return err
	}
	request, err := next(requests)
	if err != nil {
		return err
	}
	if err := server.Publish("", request.ReplyTo, false, false, amqp.Publishing{
		CorrelationId: request.CorrelationId, Body: append(request.Body, " pong"...)}); err != nil {
		return err
	}
	reply, err := next(replies)
	if err != nil || reply.CorrelationId != "42" || string(reply.Body) != "ping pong" {
		return fmt.Errorf("reply %q with correlation %q: %v", reply.Body, reply.CorrelationId, err)
	}
	return nil
}

func next(deliveries <-chan amqp.Delivery) (amqp.Delivery, error) {
	select {
	case d, ok := <-deliveries:
		if !ok {
			return d, errors.New("the channel was closed")
		}
		return d, nil
	case <-time.After(patience):
		return amqp.Delivery{}, errors.New("no delivery")
	}
}

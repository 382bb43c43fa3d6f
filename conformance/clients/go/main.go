// Publishes, gets, consumes, rejects and calls with github.com/rabbitmq/amqp091-go.
// The broker is the first argument, else AMQP_URL.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"reflect"
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
	failOn(err, "connect")
	defer conn.Close()
	ch, err := conn.Channel()
	failOn(err, "open a channel")
	queue, err := ch.QueueDeclare("", false, false, true, false, nil)
	failOn(err, "declare")

	failOn(ch.Confirm(false), "confirm.select")
	for _, body := range []string{"one", "two", "three"} {
		confirmation, err := ch.PublishWithDeferredConfirm("", queue.Name, false, false, amqp.Publishing{
			MessageId: body, Headers: amqp.Table{"n": int32(len(body))}, Body: []byte(body)})
		failOn(err, "publish")
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		acked, err := confirmation.WaitContext(ctx)
		cancel()
		failOn(err, "wait for a confirm")
		check("confirm "+body, acked, true)
	}

	message, _, err := ch.Get(queue.Name, false)
	failOn(err, "get")
	check("get", []any{string(message.Body), message.MessageId, message.Headers["n"], message.MessageCount},
		[]any{"one", "one", int32(3), uint32(2)})
	failOn(message.Ack(false), "ack")

	deliveries, err := ch.Consume(queue.Name, "reader", false, false, false, false, nil)
	failOn(err, "consume")
	for _, body := range []string{"two", "three"} {
		d := next(deliveries)
		check("consume "+body, string(d.Body), body)
		failOn(d.Ack(false), "ack")
	}
	failOn(ch.Cancel("reader", false), "cancel")

	failOn(ch.Publish("", queue.Name, false, false, amqp.Publishing{Body: []byte("again")}), "publish")
	deliveries, err = ch.Consume(queue.Name, "refuser", false, false, false, false, nil)
	failOn(err, "consume")
	for _, redelivered := range []bool{false, true} {
		d := next(deliveries)
		check("requeue", d.Redelivered, redelivered)
		failOn(d.Reject(!redelivered), "reject") // requeued the first time, dropped the second
	}
	failOn(ch.Cancel("refuser", false), "cancel")
	_, left, err := ch.Get(queue.Name, true)
	failOn(err, "get")
	check("reject", left, false)

	returns := ch.NotifyReturn(make(chan amqp.Return, 1))
	failOn(ch.Publish("", "no-such-queue", true, false, amqp.Publishing{Body: []byte("lost")}), "publish")
	returned := next(returns)
	check("return", []any{returned.ReplyCode, string(returned.Body)}, []any{uint16(amqp.NoRoute), "lost"})

	rpc(conn)
}

// rpc makes a call and answers it through direct reply-to; client and server are channels of their own.
func rpc(conn *amqp.Connection) {
	const replyTo = "amq.rabbitmq.reply-to"
	server, err := conn.Channel()
	failOn(err, "open a channel")
	client, err := conn.Channel()
	failOn(err, "open a channel")
	queue, err := server.QueueDeclare("", false, false, true, false, nil)
	failOn(err, "declare")
	requests, err := server.Consume(queue.Name, "", true, false, false, false, nil)
	failOn(err, "consume requests")
	replies, err := client.Consume(replyTo, "", true, false, false, false, nil)
	failOn(err, "consume replies")

	failOn(client.Publish("", queue.Name, false, false, amqp.Publishing{
		ReplyTo: replyTo, CorrelationId: "42", Body: []byte("ping")}), "call")
	request := next(requests)
	failOn(server.Publish("", request.ReplyTo, false, false, amqp.Publishing{
		CorrelationId: request.CorrelationId, Body: append(request.Body, " pong"...)}), "answer")
	reply := next(replies)
	check("rpc", []string{reply.CorrelationId, string(reply.Body)}, []string{"42", "ping pong"})
}

func failOn(err error, doing string) {
	if err != nil {
		log.Fatalf("FAILED %s: %v", doing, err)
	}
}

func check(name string, got, want any) {
	if !reflect.DeepEqual(got, want) {
		log.Fatalf("FAILED %s: got %v, want %v", name, got, want)
	}
	fmt.Println("ok", name)
}

// next is the next value from a channel of the library, which closes it when the AMQP channel ends.
func next[T any](from <-chan T) (value T) {
	select {
	case v, ok := <-from:
		if !ok {
			log.Fatal("FAILED: the channel was closed")
		}
		return v
	case <-time.After(patience):
		log.Fatal("FAILED: nothing came")
		return value
	}
}

"""Publishes, gets, consumes, rejects and calls with pika.

The broker is the first argument, else AMQP_URL.
"""
import os
import sys
import time

import pika
from pika.exceptions import UnroutableError

PATIENCE = 5  # seconds


def check(name, condition, seen=""):
    if not condition:
        sys.exit(f"FAILED {name}: {seen!r}")
    print("ok", name, flush=True)


def deliveries(channel, queue, count):
    """The next messages of a queue; the consumer is cancelled at the end."""
    got = []
    for method, properties, body in channel.consume(queue, inactivity_timeout=PATIENCE):
        if method is None:
            break
        got.append((method, properties, body))
        yield method, properties, body
        if len(got) == count:
            break
    channel.cancel()


def main():
    uri = sys.argv[1] if len(sys.argv) > 1 else os.environ["AMQP_URL"]
    connection = pika.BlockingConnection(pika.URLParameters(uri))
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    check("declare", queue.startswith("amq.gen-"), queue)

    # In confirm mode, basic_publish returns when the broker has confirmed and raises if it refuses.
    channel.confirm_delivery()
    for body in ("one", "two", "three"):
        properties = pika.BasicProperties(message_id=body, headers={"n": len(body)}, delivery_mode=1)
        channel.basic_publish("", queue, body.encode(), properties, mandatory=True)
    check("confirm", True)

    method, properties, body = channel.basic_get(queue)
    check("get", body == b"one" and properties.message_id == "one" and properties.headers == {"n": 3}
          and method.message_count == 2, (method, properties, body))
    channel.basic_ack(method.delivery_tag)

    got = []
    for method, _, body in deliveries(channel, queue, 2):
        got.append((body, method.redelivered))
        channel.basic_ack(method.delivery_tag)
    check("consume", got == [(b"two", False), (b"three", False)], got)

    channel.basic_publish("", queue, b"again")
    redelivered = []
    for method, _, _ in deliveries(channel, queue, 2):
        redelivered.append(method.redelivered)
        channel.basic_reject(method.delivery_tag, requeue=not method.redelivered)
    check("requeue", redelivered == [False, True], redelivered)
    check("reject", channel.basic_get(queue) == (None, None, None))

    try:
        channel.basic_publish("", "no-such-queue", b"lost", mandatory=True)
        returned = None
    except UnroutableError as error:
        returned = error.messages[0]
    check("return", returned and returned.method.reply_code == 312 and returned.body == b"lost", returned)

    # A call and its answer through direct reply-to.
    replies = []
    channel.basic_consume("amq.rabbitmq.reply-to", lambda *reply: replies.append(reply), auto_ack=True)
    channel.basic_publish("", queue, b"ping", pika.BasicProperties(
        reply_to="amq.rabbitmq.reply-to", correlation_id="42"))
    server = connection.channel()
    _, request, body = server.basic_get(queue, auto_ack=True)
    server.basic_publish("", request.reply_to, body + b" pong", pika.BasicProperties(
        correlation_id=request.correlation_id))
    deadline = time.monotonic() + PATIENCE
    while not replies and time.monotonic() < deadline:
        connection.process_data_events(time_limit=1)
    check("rpc", [(r[2].correlation_id, r[3]) for r in replies] == [("42", b"ping pong")], replies)
    connection.close()


if __name__ == "__main__":
    main()

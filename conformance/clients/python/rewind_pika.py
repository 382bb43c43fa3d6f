"""Deploys a bug, rewinds the consumer to an hour ago, and replays, with pika.

The broker is the first argument, else AMQP_URL. docs/streams.md tells the story.
"""
import datetime
import os
import sys

import pika
from pika.exceptions import ChannelClosedByBroker

PATIENCE = 10  # seconds
STREAM = "rewind-pika"


def check(name, condition, seen=""):
    if not condition:
        sys.exit(f"FAILED {name}: {seen!r}")
    print("ok", name, flush=True)


def work(connection, bill, count, **arguments):
    """Lets the consumer named billing work on the next messages: each is billed, then acknowledged."""
    channel = connection.channel()
    channel.basic_qos(prefetch_count=3)
    bills = []
    arguments = {"x-stream-consumer-name": "billing"} | {f"x-stream-{k}": v for k, v in arguments.items()}
    for method, properties, body in channel.consume(STREAM, inactivity_timeout=PATIENCE, arguments=arguments):
        if method is None:
            break
        bills.append((properties.headers["x-stream-offset"], bill(int(body))))
        channel.basic_ack(method.delivery_tag)
        if len(bills) == count:
            break
    channel.cancel()
    channel.close()
    return bills


def main():
    uri = sys.argv[1] if len(sys.argv) > 1 else os.environ["AMQP_URL"]
    connection = pika.BlockingConnection(pika.URLParameters(uri))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_delete(STREAM)
    channel.queue_declare(STREAM, durable=True, arguments={"x-queue-type": "stream", "x-max-age": "7D"})
    for amount in range(1, 11):
        channel.basic_publish("", STREAM, str(amount))

    def buggy(amount):
        return amount * 100 if amount < 5 else 0

    def fixed(amount):
        return amount * 100

    bills = work(connection, buggy, 10, offset="first")
    check("the bug is deployed", [b for _, b in bills] == [100, 200, 300, 400] + [0] * 6, bills)

    hour_ago = datetime.datetime.now() - datetime.timedelta(hours=1)
    bills = work(connection, fixed, 4, offset=hour_ago)
    check("rewound by a time", bills == [(i, (i + 1) * 100) for i in range(4)], bills)
    bills = work(connection, fixed, 6)
    check("goes on after a break", bills == [(i, (i + 1) * 100) for i in range(4, 10)], bills)
    bills = work(connection, fixed, 10, offset="1h")
    check("rewound by an interval", bills == [(i, (i + 1) * 100) for i in range(10)], bills)

    channel.basic_publish("", STREAM, "11")
    bills = work(connection, fixed, 1, offset="stored")
    check("only what is new", bills == [(10, 1100)], bills)

    # Somebody else reads everything without disturbing anyone.
    reader = connection.channel()
    reader.basic_qos(prefetch_count=100)
    seen = []
    for method, properties, body in reader.consume(STREAM, inactivity_timeout=PATIENCE, arguments={"x-stream-offset": "first"}):
        seen.append(int(body))
        reader.basic_ack(method.delivery_tag)
        if len(seen) == 11:
            break
    check("a reader of its own", seen == list(range(1, 12)), seen)
    reader.cancel()

    try:
        connection.channel().basic_consume(STREAM, lambda *_: None)
        refused = None
    except ChannelClosedByBroker as error:
        refused = error
    check("a prefetch is needed", refused is not None and refused.reply_code == 406, refused)
    channel.queue_delete(STREAM)
    connection.close()


if __name__ == "__main__":
    main()

"""Publishes, gets, consumes, rejects and calls with aio-pika.

The broker is the first argument, else AMQP_URL.
"""
import asyncio
import os
import sys

import aio_pika
from aio_pika.exceptions import DeliveryError, QueueEmpty

PATIENCE = 5  # seconds


def check(name, condition, seen=""):
    if not condition:
        sys.exit(f"FAILED {name}: {seen!r}")
    print("ok", name, flush=True)


async def main():
    uri = sys.argv[1] if len(sys.argv) > 1 else os.environ["AMQP_URL"]
    connection = await aio_pika.connect(uri, timeout=PATIENCE)
    async with connection:
        channel = await connection.channel(publisher_confirms=True)
        await channel.set_qos(prefetch_count=10)
        queue = await channel.declare_queue(exclusive=True)
        check("declare", queue.name.startswith("amq.gen-"), queue.name)
        exchange = channel.default_exchange

        # With publisher confirms, publish() returns the broker's confirmation.
        for body in ("one", "two", "three"):
            message = aio_pika.Message(body.encode(), message_id=body, headers={"n": len(body)})
            confirmation = await exchange.publish(message, queue.name, timeout=PATIENCE)
            check(f"confirm {body}", type(confirmation).__name__ == "Ack", confirmation)

        message = await queue.get(timeout=PATIENCE)
        check("get", message.body == b"one" and message.message_id == "one" and message.headers["n"] == 3
              and message.message_count == 2, message)
        await message.ack()

        got = []
        async with queue.iterator(timeout=PATIENCE) as messages:
            async for message in messages:
                got.append((message.body, message.redelivered))
                await message.ack()
                if len(got) == 2:
                    break
        check("consume", got == [(b"two", False), (b"three", False)], got)

        await exchange.publish(aio_pika.Message(b"again"), queue.name)
        redelivered = []
        async with queue.iterator(timeout=PATIENCE) as messages:
            async for message in messages:
                redelivered.append(message.redelivered)
                await message.reject(requeue=not message.redelivered)
                if len(redelivered) == 2:
                    break
        check("requeue", redelivered == [False, True], redelivered)
        try:
            left = await queue.get(timeout=PATIENCE)
        except QueueEmpty:
            left = None
        check("reject", left is None, left)

        try:
            returned = await exchange.publish(
                aio_pika.Message(b"lost"), "no-such-queue", mandatory=True, timeout=PATIENCE)
        except DeliveryError as error:
            returned = error.message
        check("return", returned.delivery.reply_code == 312 and returned.body == b"lost", returned)

        await rpc(connection)


async def rpc(connection):
    """A call and its answer through direct reply-to; client and server are channels of their own."""
    client, server = await connection.channel(), await connection.channel()
    requests = await server.declare_queue(exclusive=True)

    async def answer(request):
        await server.default_exchange.publish(
            aio_pika.Message(request.body + b" pong", correlation_id=request.correlation_id), request.reply_to)

    await requests.consume(answer, no_ack=True)
    reply = asyncio.get_running_loop().create_future()
    replies = await client.get_queue("amq.rabbitmq.reply-to")
    await replies.consume(reply.set_result, no_ack=True)
    await client.default_exchange.publish(
        aio_pika.Message(b"ping", reply_to="amq.rabbitmq.reply-to", correlation_id="42"), requests.name)
    message = await asyncio.wait_for(reply, PATIENCE)
    check("rpc", message.body == b"ping pong" and message.correlation_id == "42", message)


if __name__ == "__main__":
    asyncio.run(main())

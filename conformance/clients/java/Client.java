// Publishes, gets, consumes, rejects and calls with RabbitMQ's Java client.
// The broker is the first argument, else AMQP_URL.

import com.rabbitmq.client.AMQP.BasicProperties;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.DefaultConsumer;
import com.rabbitmq.client.Delivery;
import com.rabbitmq.client.Envelope;
import com.rabbitmq.client.GetResponse;
import com.rabbitmq.client.Return;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

class Client {
    static final int PATIENCE = 5; // seconds

    static void check(String name, boolean condition, Object seen) {
        if (!condition) {
            System.err.println("FAILED " + name + ": " + seen);
            System.exit(1);
        }
        System.out.println("ok " + name);
    }

    static <T> T next(BlockingQueue<T> from) throws Exception {
        T value = from.poll(PATIENCE, TimeUnit.SECONDS);
        if (value == null) throw new TimeoutException("nothing came");
        return value;
    }

    /** Starts a consumer that puts what it gets into a queue; the library calls it from a thread of its own. */
    static BlockingQueue<Delivery> consume(Channel channel, String queue, String tag, boolean autoAck) throws Exception {
        BlockingQueue<Delivery> inbox = new LinkedBlockingQueue<>();
        channel.basicConsume(queue, autoAck, tag, new DefaultConsumer(channel) {
            @Override
            public void handleDelivery(String tag, Envelope envelope, BasicProperties properties, byte[] body) {
                inbox.add(new Delivery(envelope, properties, body));
            }
        });
        return inbox;
    }

    public static void main(String[] args) throws Exception {
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(args.length > 0 ? args[0] : System.getenv("AMQP_URL"));
        try (Connection connection = factory.newConnection()) {
            Channel channel = connection.createChannel();
            String queue = declare(channel);
            check("declare", queue.startsWith("amq.gen-"), queue);

            channel.confirmSelect();
            for (String body : List.of("one", "two", "three")) {
                BasicProperties properties = new BasicProperties.Builder()
                    .messageId(body).headers(Map.of("n", body.length())).build();
                channel.basicPublish("", queue, properties, body.getBytes());
            }
            check("confirm", channel.waitForConfirms(PATIENCE * 1000), "refused");

            GetResponse got = channel.basicGet(queue, false);
            check("get", new String(got.getBody()).equals("one") && got.getProps().getMessageId().equals("one")
                && got.getProps().getHeaders().get("n").equals(3) && got.getMessageCount() == 2, got);
            channel.basicAck(got.getEnvelope().getDeliveryTag(), false);

            BlockingQueue<Delivery> inbox = consume(channel, queue, "reader", false);
            List<String> bodies = new ArrayList<>();
            while (bodies.size() < 2) {
                Delivery delivery = next(inbox);
                bodies.add(new String(delivery.getBody()));
                channel.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
            }
            channel.basicCancel("reader");
            check("consume", bodies.equals(List.of("two", "three")), bodies);

            channel.basicPublish("", queue, null, "again".getBytes());
            inbox = consume(channel, queue, "refuser", false);
            List<Boolean> redelivered = new ArrayList<>();
            while (redelivered.size() < 2) {
                Envelope envelope = next(inbox).getEnvelope();
                redelivered.add(envelope.isRedeliver());
                channel.basicReject(envelope.getDeliveryTag(), !envelope.isRedeliver());
            }
            channel.basicCancel("refuser");
            check("requeue", redelivered.equals(List.of(false, true)), redelivered);
            check("reject", channel.basicGet(queue, true) == null, "a message is left");

            BlockingQueue<List<Object>> returns = new LinkedBlockingQueue<>();
            channel.addReturnListener((code, text, exchange, key, properties, body) ->
                returns.add(List.of(code, key, new String(body))));
            channel.basicPublish("", "no-such-queue", true, null, "lost".getBytes());
            List<Object> returned = next(returns);
            check("return", returned.equals(List.of(312, "no-such-queue", "lost")), returned);

            rpc(connection);
        }
    }

    static String declare(Channel channel) throws Exception {
        return channel.queueDeclare("", false, true, false, null).getQueue(); // exclusive
    }

    /** A call and its answer through direct reply-to; client and server are channels of their own. */
    static void rpc(Connection connection) throws Exception {
        Channel server = connection.createChannel(), client = connection.createChannel();
        String requests = declare(server);
        BlockingQueue<Delivery> calls = consume(server, requests, "", true);
        BlockingQueue<Delivery> replies = consume(client, "amq.rabbitmq.reply-to", "", true);
        client.basicPublish("", requests, new BasicProperties.Builder()
            .replyTo("amq.rabbitmq.reply-to").correlationId("42").build(), "ping".getBytes());
        Delivery call = next(calls);
        server.basicPublish("", call.getProperties().getReplyTo(), new BasicProperties.Builder()
            .correlationId(call.getProperties().getCorrelationId()).build(), (new String(call.getBody()) + " pong").getBytes());
        Delivery reply = next(replies);
        check("rpc", new String(reply.getBody()).equals("ping pong")
            && reply.getProperties().getCorrelationId().equals("42"), reply);
    }
}

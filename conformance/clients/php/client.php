<?php
// Publishes, gets, consumes, rejects and calls with php-amqplib.
// The broker is the first argument, else AMQP_URL.
require 'PhpAmqpLib/autoload.php';

use PhpAmqpLib\Connection\AMQPStreamConnection;
use PhpAmqpLib\Message\AMQPMessage;
use PhpAmqpLib\Wire\AMQPTable;

const PATIENCE = 5; // seconds

function check(string $name, bool $condition, $seen = null): void
{
    if (!$condition) {
        fwrite(STDERR, "FAILED $name: " . var_export($seen, true) . "\n");
        exit(1);
    }
    echo "ok $name\n";
}

function connect(string $uri): AMQPStreamConnection
{
    $part = parse_url($uri);
    $vhost = urldecode(substr($part['path'] ?? '', 1)) ?: '/';
    return new AMQPStreamConnection($part['host'], $part['port'] ?? 5672, $part['user'] ?? 'guest', $part['pass'] ?? 'guest', $vhost);
}

// The next $count messages of a queue, each settled by $settle.
function deliveries($channel, string $queue, int $count, callable $settle): array
{
    $got = [];
    $tag = $channel->basic_consume($queue, callback: function ($message) use (&$got, $settle) {
        $got[] = [$message->body, $message->isRedelivered()];
        $settle($message);
    });
    while (count($got) < $count) {
        $channel->wait(null, false, PATIENCE);
    }
    $channel->basic_cancel($tag);
    return $got;
}

$connection = connect($argv[1] ?? getenv('AMQP_URL'));
$channel = $connection->channel();
[$queue] = $channel->queue_declare('', exclusive: true, auto_delete: false);
check('declare', str_starts_with($queue, 'amq.gen-'), $queue);

$acked = 0;
$channel->set_ack_handler(function () use (&$acked) { $acked++; });
$channel->confirm_select();
foreach (['one', 'two', 'three'] as $body) {
    $headers = new AMQPTable(['n' => strlen($body)]);
    $channel->basic_publish(new AMQPMessage($body, ['message_id' => $body, 'application_headers' => $headers]), '', $queue);
}
$channel->wait_for_pending_acks(PATIENCE);
check('confirm', $acked == 3, $acked);

$message = $channel->basic_get($queue);
check('get', $message->body == 'one' && $message->get('message_id') == 'one' && $message->getMessageCount() == 2
    && $message->get('application_headers')->getNativeData() == ['n' => 3], $message);
$message->ack();

$got = deliveries($channel, $queue, 2, fn ($message) => $message->ack());
check('consume', $got === [['two', false], ['three', false]], $got);

$channel->basic_publish(new AMQPMessage('again'), '', $queue);
$got = deliveries($channel, $queue, 2, fn ($message) => $message->reject(!$message->isRedelivered()));
check('requeue', $got === [['again', false], ['again', true]], $got);
check('reject', $channel->basic_get($queue) === null);

$returned = null;
$channel->set_return_listener(function ($code, $text, $exchange, $key, $message) use (&$returned) {
    $returned = [$code, $key, $message->body];
});
$channel->basic_publish(new AMQPMessage('lost'), '', 'no-such-queue', mandatory: true);
$channel->wait_for_pending_acks_returns(PATIENCE);
check('return', $returned === [312, 'no-such-queue', 'lost'], $returned);

// A call and its answer through direct reply-to; the server works on a channel of its own.
$server = $connection->channel();
[$requests] = $server->queue_declare('', exclusive: true, auto_delete: false);
$server->basic_consume($requests, '', no_ack: true, callback: function ($request) use ($server) {
    $reply = new AMQPMessage($request->body . ' pong', ['correlation_id' => $request->get('correlation_id')]);
    $server->basic_publish($reply, '', $request->get('reply_to'));
});
$reply = null;
$channel->basic_consume('amq.rabbitmq.reply-to', '', no_ack: true, callback: function ($message) use (&$reply) {
    $reply = [$message->get('correlation_id'), $message->body];
});
$call = new AMQPMessage('ping', ['reply_to' => 'amq.rabbitmq.reply-to', 'correlation_id' => '42']);
$channel->basic_publish($call, '', $requests);
$server->wait(null, false, PATIENCE);
while ($reply === null) { // first comes the confirm of the call
    $channel->wait(null, false, PATIENCE);
}
check('rpc', $reply === ['42', 'ping pong'], $reply);
$connection->close();

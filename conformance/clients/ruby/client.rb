# Publishes, gets, consumes, rejects and calls with Bunny.
# The broker is the first argument, else AMQP_URL.
require 'bunny'
require 'timeout'

PATIENCE = 5 # seconds

def check(name, condition, seen = nil)
  abort "FAILED #{name}: #{seen.inspect}" unless condition
  puts "ok #{name}"
end

# The next delivery of a consumer, which runs in a thread of its own and puts what it gets into a Queue.
def take(inbox)
  Timeout.timeout(PATIENCE) { inbox.pop }
end

$stdout.sync = true
connection = Bunny.new(ARGV[0] || ENV.fetch('AMQP_URL'), recover_from_connection_close: false)
connection.start
channel = connection.create_channel
queue = channel.queue('', exclusive: true)
check 'declare', queue.name.start_with?('amq.gen-'), queue.name

channel.confirm_select
%w[one two three].each do |body|
  queue.publish(body, message_id: body, headers: { 'n' => body.size })
end
check 'confirm', channel.wait_for_confirms, channel.nacked_set

delivery, properties, body = queue.pop(manual_ack: true)
check 'get', body == 'one' && properties[:message_id] == 'one' && properties[:headers] == { 'n' => 3 } &&
             queue.message_count == 2, [properties, body]
channel.ack(delivery.delivery_tag)

inbox = Queue.new
consumer = queue.subscribe(manual_ack: true) { |*message| inbox << message }
got = Array.new(2) do
  delivery, _, body = take(inbox)
  channel.ack(delivery.delivery_tag)
  [body, delivery.redelivered?]
end
consumer.cancel
check 'consume', got == [['two', false], ['three', false]], got

queue.publish('again')
consumer = queue.subscribe(manual_ack: true) { |*message| inbox << message }
redelivered = Array.new(2) do
  delivery, = take(inbox)
  channel.reject(delivery.delivery_tag, !delivery.redelivered?)
  delivery.redelivered?
end
consumer.cancel
check 'requeue', redelivered == [false, true], redelivered
check 'reject', queue.pop == [nil, nil, nil]

returned = Queue.new
exchange = channel.default_exchange
exchange.on_return { |*message| returned << message }
exchange.publish('lost', routing_key: 'no-such-queue', mandatory: true)
info, _, body = take(returned)
check 'return', info.reply_code == 312 && body == 'lost', [info, body]

# A call and its answer through direct reply-to; the server works on a channel of its own.
server = connection.create_channel
requests = server.queue('', exclusive: true)
requests.subscribe do |_, request, body|
  server.default_exchange.publish("#{body} pong", routing_key: request.reply_to, correlation_id: request.correlation_id)
end
replies = Queue.new
channel.queue('amq.rabbitmq.reply-to', no_declare: true).subscribe { |*message| replies << message }
exchange.publish('ping', routing_key: requests.name, reply_to: 'amq.rabbitmq.reply-to', correlation_id: '42')
_, properties, body = take(replies)
check 'rpc', body == 'ping pong' && properties.correlation_id == '42', [properties, body]
connection.close

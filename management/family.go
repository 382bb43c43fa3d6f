package management

const (
	counter = "counter"
	gauge   = "gauge"
	untyped = "untyped"
)

// The families that /metrics/detailed can be asked for, under RabbitMQ's names. Source: RabbitMQ docs, prometheus, and
// prometheus_rabbitmq_core_metrics_collector.

var queueFamilies = map[string][]metric[Queue]{
	"queue_coarse_metrics": {
		{"queue_messages_ready", gauge, "Messages ready to be delivered to consumers", func(q *Queue) float64 { return float64(q.Ready) }},
		{"queue_messages_unacked", gauge, "Messages delivered to consumers but not yet acknowledged", func(q *Queue) float64 { return float64(q.Unacked) }},
		{"queue_messages", gauge, "Sum of ready and unacknowledged messages: the depth of the queue", func(q *Queue) float64 { return float64(q.Ready + q.Unacked) }},
	},
	"queue_consumer_count": queueConsumers,
	"queue_metrics": append([]metric[Queue]{
		{"queue_process_memory_bytes", gauge, "Memory used by the queue and its messages", func(q *Queue) float64 { return float64(q.Memory) }},
		{"queue_messages_bytes", gauge, "Size of ready and unacknowledged messages", func(q *Queue) float64 { return float64(q.ReadyBytes + q.UnackedBytes) }},
		{"queue_messages_ready_bytes", gauge, "Size of ready messages", func(q *Queue) float64 { return float64(q.ReadyBytes) }},
		{"queue_messages_unacked_bytes", gauge, "Size of unacknowledged messages", func(q *Queue) float64 { return float64(q.UnackedBytes) }},
	}, queueConsumers...),
	"queue_delivery_metrics": {
		{"queue_get_ack_total", counter, "Messages fetched with basic.get in manual acknowledgement mode", func(q *Queue) float64 { return float64(q.Counts.Get) }},
		{"queue_get_total", counter, "Messages fetched with basic.get in automatic acknowledgement mode", func(q *Queue) float64 { return float64(q.Counts.GetNoAck) }},
		{"queue_messages_delivered_ack_total", counter, "Messages delivered to consumers in manual acknowledgement mode", func(q *Queue) float64 { return float64(q.Counts.Deliver) }},
		{"queue_messages_delivered_total", counter, "Messages delivered to consumers in automatic acknowledgement mode", func(q *Queue) float64 { return float64(q.Counts.DeliverNoAck) }},
		{"queue_messages_redelivered_total", counter, "Messages delivered again", func(q *Queue) float64 { return float64(q.Counts.Redeliver) }},
		{"queue_messages_acked_total", counter, "Messages acknowledged by consumers", func(q *Queue) float64 { return float64(q.Counts.Ack) }},
		{"queue_get_empty_total", counter, "Times basic.get found no message", func(q *Queue) float64 { return float64(q.Counts.GetEmpty) }},
	},
}

var queueConsumers = []metric[Queue]{
	{"queue_consumers", gauge, "Consumers of the queue", func(q *Queue) float64 { return float64(q.Consumers) }},
}

// queueHead is shown of single queues only: its sum means nothing.
var queueHead = metric[Queue]{"queue_head_message_timestamp", gauge, "Timestamp property of the first message, in seconds", func(q *Queue) float64 {
	if q.HeadTimestamp.IsZero() {
		return 0
	}
	return float64(q.HeadTimestamp.Unix())
}}

var channelFamilies = map[string][]metric[Channel]{
	"channel_metrics": {
		{"channel_consumers", gauge, "Consumers of the channel", func(c *Channel) float64 { return float64(c.Consumers) }},
		{"channel_messages_unacked", gauge, "Messages delivered but not yet acknowledged", func(c *Channel) float64 { return float64(c.Unacked) }},
		{"channel_messages_unconfirmed", gauge, "Messages published but not yet confirmed", func(c *Channel) float64 { return float64(c.Unconfirmed) }},
		{"channel_messages_uncommitted", gauge, "Messages received in a transaction that is not yet committed", func(c *Channel) float64 { return float64(c.Uncommitted) }},
		{"channel_acks_uncommitted", gauge, "Acknowledgements in a transaction that is not yet committed", func(c *Channel) float64 { return float64(c.AckUncommitted) }},
		{"consumer_prefetch", gauge, "Limit of unacknowledged messages of each consumer", func(c *Channel) float64 { return float64(c.Prefetch) }},
		{"channel_prefetch", gauge, "Limit of unacknowledged messages of all consumers of the channel", func(c *Channel) float64 { return float64(c.GlobalPrefetch) }},
	},
}

var connectionFamilies = map[string][]metric[Connection]{
	"connection_coarse_metrics": {
		{"connection_incoming_bytes_total", counter, "Bytes received on the connection", func(c *Connection) float64 { return float64(c.ReceivedBytes) }},
		{"connection_outgoing_bytes_total", counter, "Bytes sent on the connection", func(c *Connection) float64 { return float64(c.SentBytes) }},
	},
	"connection_metrics": {
		{"connection_incoming_packets_total", counter, "Reads from the connection's socket", func(c *Connection) float64 { return float64(c.Reads) }},
		{"connection_outgoing_packets_total", counter, "Writes to the connection's socket", func(c *Connection) float64 { return float64(c.Writes) }},
		{"connection_pending_packets", gauge, "Bytes waiting to be sent on the connection", func(c *Connection) float64 { return float64(c.PendingBytes) }},
		{"connection_channels", gauge, "Channels of the connection", func(c *Connection) float64 { return float64(c.Channels) }},
	},
}

var exchangeFamilies = map[string][]metric[Exchange]{
	"exchange_metrics": {
		{"exchange_messages_published_total", counter, "Messages published to the exchange", func(x *Exchange) float64 { return float64(x.In) }},
	},
}

func nameQueue(dst []byte, q *Queue) []byte {
	return join(dst, "vhost", q.VHost, "queue", q.Name)
}

func (a *API) nameQueueFully(dst []byte, q *Queue) []byte {
	membership := "leader"
	if !a.leads(q) {
		membership = "follower"
	}
	return join(dst, "vhost", q.VHost, "queue", q.Name, "queue_type", "rabbit_"+q.Type+"_queue", "membership", membership)
}

func nameChannel(dst []byte, c *Channel) []byte {
	return join(dst, "channel", channelName(c.Connection, c.Number))
}

// nameConnection uses the label channel, as RabbitMQ does.
func nameConnection(dst []byte, c *Connection) []byte { return join(dst, "channel", c.Name) }

func nameExchange(dst []byte, x *Exchange) []byte {
	return join(dst, "vhost", x.VHost, "exchange", x.Name)
}

// join appends the labels of one thing to those of the things before it.
func join(dst []byte, pairs ...string) []byte { return append(dst, labels(pairs...)...) }

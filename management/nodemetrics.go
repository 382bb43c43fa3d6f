package management

import (
	"slices"
	"strconv"
)

// identity says who speaks: dashboards join everything with these two. endpoint tells the endpoints of one node apart.
func (a *API) identity(e *exposition, endpoint string) {
	e.one("rabbitmq_build_info", untyped, "Versions of the node", 1,
		"rabbitmq_version", a.RabbitMQVersion, "prometheus_plugin_version", a.RabbitMQVersion, "prometheus_client_version", "none",
		"erlang_version", goNumber(), "product_version", a.ProductVersion, "product_name", a.Product)
	e.one("rabbitmq_identity_info", untyped, "Names of the node and of its cluster", 1,
		"rabbitmq_node", a.Node, "rabbitmq_cluster", a.Cluster, "rabbitmq_cluster_permanent_id", a.ClusterID, "rabbitmq_endpoint", endpoint)
}

// numbers asks the broker once for what a scrape needs of the whole node: it may have to add up over all queues.
func (a *API) numbers() (c *Counts, t Totals) {
	c = new(Counts)
	a.Broker.Counts(c)
	return c, a.Broker.Totals()
}

// nodeMetrics are the numbers of the node itself, which all endpoints but the detailed one show.
func (a *API) nodeMetrics(e *exposition, counts *Counts, totals *Totals) {
	e.one("rabbitmq_connections", gauge, "Connections that are open", float64(totals.Connections))
	e.one("rabbitmq_channels", gauge, "Channels that are open", float64(totals.Channels))
	e.one("rabbitmq_consumers", gauge, "Consumers that are attached", float64(totals.Consumers))
	queues := totals.Queues
	if a.Peers != nil { // dashboards add up the nodes
		queues = totals.Led
	}
	e.one("rabbitmq_queues", gauge, "Queues that exist; of a cluster, those that the node leads", float64(queues))
	a.churnMetrics(e, "rabbitmq_", counts)
	a.globalMetrics(e, counts, totals)

	alarms := a.alarmNames()
	e.one("rabbitmq_alarms_memory_used_watermark", untyped, "1 while the node uses more memory than it may", truth(slices.Contains(alarms, "memory")))
	e.one("rabbitmq_alarms_free_disk_space_watermark", untyped, "1 while less of the disk is free than must be, or it takes no writes", truth(lowDisk(alarms)))
	e.one("rabbitmq_alarms_file_descriptor_limit", untyped, "1 while the node has run out of file descriptors", 0)
	e.family("warren_alarm", gauge, "1 while publishers are blocked because the resource has run low")
	for _, resource := range []string{"memory", "disk", "storage"} {
		e.sample("", labels("resource", resource), truth(slices.Contains(alarms, resource)))
	}
	e.one("warren_publishes_refused_total", counter, "Messages that queues refused because they were full", float64(counts.Refused))
	e.one("warren_dead_letters_unroutable_total", counter, "Dead letters dropped because there was no exchange or no queue for them", float64(counts.DeadUnrouted))
	e.one("warren_dead_letters_refused_total", counter, "Dead letters dropped because the queue was full", float64(counts.DeadRefused))
	a.clusterMetrics(e)

	u := usageOf(a.DataDir)
	e.one("rabbitmq_process_open_fds", gauge, "File descriptors that are open", float64(u.files))
	e.one("rabbitmq_process_max_fds", gauge, "File descriptors that may be open", float64(u.maxFiles))
	e.one("rabbitmq_process_resident_memory_bytes", gauge, "Memory of the process", float64(u.resident))
	e.one("rabbitmq_resident_memory_limit_bytes", gauge, "Memory above which publishers are blocked", float64(a.MemoryLimit))
	e.one("rabbitmq_disk_space_available_bytes", gauge, "Disk space that is free", float64(u.diskFree))
	e.one("rabbitmq_disk_space_available_limit_bytes", gauge, "Disk space below which publishers are blocked", float64(a.DiskLimit))
	e.one("rabbitmq_erlang_uptime_seconds", gauge, "Time since the node started", a.uptime().Seconds())
	e.one("warren_message_memory_bytes", gauge, "Memory that messages occupy", float64(totals.MemoryBytes))

	a.storageMetrics(e, totals)

	e.family("rabbitmq_auth_attempts_total", counter, "Logins that were tried")
	e.sample("", labels("protocol", "amqp091"), float64(counts.AuthAttempts))
	e.family("rabbitmq_auth_attempts_succeeded_total", counter, "Logins that succeeded")
	e.sample("", labels("protocol", "amqp091"), float64(counts.AuthSucceeded))
	e.family("rabbitmq_auth_attempts_failed_total", counter, "Logins that failed")
	e.sample("", labels("protocol", "amqp091"), float64(counts.AuthFailed))
}

// truth is a truth value as Prometheus has it.
func truth(v bool) float64 {
	if v {
		return 1
	}
	return 0
}

func (a *API) churnMetrics(e *exposition, prefix string, c *Counts) {
	e.one(prefix+"connections_opened_total", counter, "Connections opened", float64(c.ConnectionsOpened))
	e.one(prefix+"connections_closed_total", counter, "Connections closed or lost", float64(c.ConnectionsClosed))
	e.one(prefix+"channels_opened_total", counter, "Channels opened", float64(c.ChannelsOpened))
	e.one(prefix+"channels_closed_total", counter, "Channels closed", float64(c.ChannelsClosed))
	e.one(prefix+"queues_declared_total", counter, "Queues declared, whether they existed or not", float64(c.QueuesDeclared))
	e.one(prefix+"queues_created_total", counter, "Queues created", float64(c.QueuesCreated))
	e.one(prefix+"queues_deleted_total", counter, "Queues deleted", float64(c.QueuesDeleted))
}

// globalMetrics are counters that never go down, as those of channels and connections do. They are there from the start, at 0, because the
// first increments of a series that appears late are lost to rate().
func (a *API) globalMetrics(e *exposition, c *Counts, t *Totals) {
	protocol := labels("protocol", "amqp091")
	global := func(name, kind, help string, value uint64) {
		e.family("rabbitmq_global_"+name, kind, help)
		e.sample("", protocol, float64(value))
	}
	global("messages_received_total", counter, "Messages received from publishers", c.Received)
	global("messages_received_confirm_total", counter, "Messages received from publishers that use confirms", c.ReceivedConfirm)
	global("messages_routed_total", counter, "Messages routed to at least one queue", c.Routed)
	global("messages_unroutable_dropped_total", counter, "Messages that no queue wanted, dropped", c.Dropped)
	global("messages_unroutable_returned_total", counter, "Messages that no queue wanted, returned", c.Returned)
	global("messages_confirmed_total", counter, "Messages confirmed to publishers", c.Confirmed)
	global("publishers", gauge, "Channels that have published", t.Publishers)
	global("consumers", gauge, "Consumers that are attached", t.Consumers)

	perType := func(name, help string, value func(*TypeCounts) uint64) {
		e.family("rabbitmq_global_"+name, counter, help)
		for i := range c.Delivery {
			d := &c.Delivery[i]
			e.sample("", labels("protocol", "amqp091", "queue_type", "rabbit_"+d.Type+"_queue"), float64(value(d)))
		}
	}
	perType("messages_delivered_total", "Messages handed to consumers and to basic.get", func(d *TypeCounts) uint64 { return d.deliverGet() })
	perType("messages_delivered_consume_manual_ack_total", "Messages delivered to consumers that acknowledge", func(d *TypeCounts) uint64 { return d.Deliver })
	perType("messages_delivered_consume_auto_ack_total", "Messages delivered to consumers that do not acknowledge", func(d *TypeCounts) uint64 { return d.DeliverNoAck })
	perType("messages_delivered_get_manual_ack_total", "Messages fetched by basic.get to be acknowledged", func(d *TypeCounts) uint64 { return d.Get })
	perType("messages_delivered_get_auto_ack_total", "Messages fetched by basic.get without acknowledgement", func(d *TypeCounts) uint64 { return d.GetNoAck })
	perType("messages_get_empty_total", "Times basic.get found no message", func(d *TypeCounts) uint64 { return d.GetEmpty })
	perType("messages_redelivered_total", "Messages delivered again", func(d *TypeCounts) uint64 { return d.Redeliver })
	perType("messages_acknowledged_total", "Messages acknowledged", func(d *TypeCounts) uint64 { return d.Ack })

	dead := func(name, help string, dropped, moved func(*TypeCounts) uint64) {
		e.family("rabbitmq_global_messages_dead_lettered_"+name+"_total", counter, help)
		for i := range c.Delivery {
			d := &c.Delivery[i]
			if d.Type == "stream" || d.Type == "classic" && name == "delivery_limit" {
				continue
			}
			e.sample("", labels("queue_type", "rabbit_"+d.Type+"_queue", "dead_letter_strategy", "disabled"), float64(dropped(d)))
			e.sample("", labels("queue_type", "rabbit_"+d.Type+"_queue", "dead_letter_strategy", "at_most_once"), float64(moved(d)))
		}
	}
	dead("maxlen", "Messages that a length limit pushed out", func(d *TypeCounts) uint64 { return d.DroppedMaxLen }, func(d *TypeCounts) uint64 { return d.DeadMaxLen })
	dead("expired", "Messages that expired", func(d *TypeCounts) uint64 { return d.DroppedExpired }, func(d *TypeCounts) uint64 { return d.DeadExpired })
	dead("rejected", "Messages that consumers rejected", func(d *TypeCounts) uint64 { return d.DroppedRejected }, func(d *TypeCounts) uint64 { return d.DeadRejected })
	dead("delivery_limit", "Messages that were delivered too often", func(d *TypeCounts) uint64 { return d.DroppedDeliveryLimit }, func(d *TypeCounts) uint64 { return d.DeadDeliveryLimit })

	if len(c.Sizes) == len(SizeBuckets)+1 {
		a.sizeMetrics(e, c)
	}
}

// sizeMetrics writes the bounds as the dashboard selects them, which is not how Go would write these numbers.
func (a *API) sizeMetrics(e *exposition, c *Counts) {
	e.family("rabbitmq_message_size_bytes", "histogram", "Size of the bodies of messages received from publishers")
	var upTo uint64
	for i, bound := range SizeBuckets {
		upTo += c.Sizes[i]
		le := strconv.FormatUint(bound, 10) + ".0"
		if bound >= 1_000_000 {
			le = strconv.FormatFloat(float64(bound), 'e', -1, 64)
		}
		e.sample("_bucket", labels("protocol", "amqp091", "le", le), float64(upTo))
	}
	upTo += c.Sizes[len(SizeBuckets)]
	e.sample("_bucket", labels("protocol", "amqp091", "le", "+Inf"), float64(upTo))
	e.sample("_count", labels("protocol", "amqp091"), float64(upTo))
	e.sample("_sum", labels("protocol", "amqp091"), float64(c.SizeSum))
}

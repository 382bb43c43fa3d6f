package broker

import (
	"sync/atomic"

	"github.com/warrenmq/warren/queue"
)

// Counters are totals since the node started. Whoever counts adds once per batch.
type Counters struct {
	Received, ReceivedConfirm, Confirmed          atomic.Uint64
	Routed, UnroutableDropped, UnroutableReturned atomic.Uint64
	Delivered, DeliveredManualAck, DeliveredNoAck atomic.Uint64
	Got, GotNoAck, GetEmpty, Redelivered, Acked   atomic.Uint64
	AuthAttempts, AuthSucceeded, AuthFailed       atomic.Uint64
	ConnectionsOpened, ConnectionsClosed          atomic.Uint64
	ChannelsOpened, ChannelsClosed                atomic.Uint64
	QueuesDeclared, QueuesCreated, QueuesDeleted  atomic.Uint64
	DeadLettersUnrouted                           atomic.Uint64 // dead letters that no queue took
	deadLettered, deadDropped                     [queue.DeliveryLimited + 1]atomic.Uint64
}

// DeadLettered is how many messages left queues that have a dead-letter exchange, for that reason.
func (c *Counters) DeadLettered(r queue.Reason) uint64 { return c.deadLettered[r].Load() }

// DeadDropped is how many messages left queues without a dead-letter exchange, for that reason.
func (c *Counters) DeadDropped(r queue.Reason) uint64 { return c.deadDropped[r].Load() }

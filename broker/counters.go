package broker

import (
	"sync/atomic"

	"github.com/warrenmq/warren/queue"
)

// Counters are totals since the node started. What the broker does it counts itself; connections add what they have
// done to the first group, once per batch.
type Counters struct {
	Received, ReceivedConfirm, Confirmed          atomic.Uint64 // publishes, those on channels with confirms, confirms sent
	Routed, UnroutableDropped, UnroutableReturned atomic.Uint64

	AuthAttempts, AuthSucceeded, AuthFailed      atomic.Uint64
	QueuesDeclared, QueuesCreated, QueuesDeleted atomic.Uint64

	// What is gone without having been consumed, purged or expired. PublishesRefused counts publishes by the queues
	// that refused them for want of room; DeadLettersUnrouted dead letters for which there was no queue or exchange;
	// DeadLettersRefused those that a queue refused.
	PublishesRefused, DeadLettersUnrouted, DeadLettersRefused atomic.Uint64

	deadLettered, deadDropped [3][queue.DeliveryLimited + 1]atomic.Uint64 // by queue type
}

// DeadLettered is how many messages left queues of a type that have a dead-letter exchange, for that reason.
func (c *Counters) DeadLettered(typ string, r queue.Reason) uint64 {
	return c.deadLettered[typeIndex(typ)][r].Load()
}

// DeadDropped is how many messages left queues of a type without a dead-letter exchange, for that reason.
func (c *Counters) DeadDropped(typ string, r queue.Reason) uint64 {
	return c.deadDropped[typeIndex(typ)][r].Load()
}

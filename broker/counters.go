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

	deadLettered, deadDropped [queue.DeliveryLimited + 1]atomic.Uint64
}

// DeadLettered is how many messages left queues that have a dead-letter exchange, for that reason.
func (c *Counters) DeadLettered(r queue.Reason) uint64 { return c.deadLettered[r].Load() }

// DeadDropped is how many messages left queues without a dead-letter exchange, for that reason.
func (c *Counters) DeadDropped(r queue.Reason) uint64 { return c.deadDropped[r].Load() }

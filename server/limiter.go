package server

import (
	"sync/atomic"

	"github.com/warrenmq/warren/queue"
)

// limiter is a channel's limit on unacknowledged deliveries across its consumers (basic.qos with global set). Consumers
// that it refuses are told when there is room again.
type limiter struct {
	max     atomic.Int64 // 0: no limit
	out     atomic.Int64 // permits given out and not given back
	refused atomic.Bool  // somebody asked in vain
}

// Acquire implements queue.Gate.
func (l *limiter) Acquire() bool {
	for {
		out, limit := l.out.Load(), l.max.Load()
		if limit > 0 && out >= limit {
			l.refused.Store(true)
			if l.out.Load() >= l.max.Load() { // nobody gave one back meanwhile
				return false
			}
			continue
		}
		if l.out.CompareAndSwap(out, out+1) {
			return true
		}
	}
}

// passage is the gate of a consumer that does not acknowledge: it waits while the limit is reached, and takes nothing off it
// (RabbitMQ 4.3 with deprecated_features.permit.global_qos).
type passage struct{ *limiter }

// Acquire implements queue.Gate.
func (p passage) Acquire() bool {
	for p.out.Load() >= p.max.Load() && p.max.Load() > 0 {
		p.refused.Store(true)
		if p.out.Load() >= p.max.Load() { // nobody gave one back meanwhile
			return false
		}
	}
	return true
}

// setLimit sets the limit of the channel; 0 removes it. It holds for all consumers of the channel but those of quorum
// queues, and counts what they have not acknowledged yet.
func (ch *channel) setLimit(n uint32) {
	if ch.limit == nil {
		if n == 0 {
			return
		}
		ch.limitAll()
	}
	ch.limit.max.Store(int64(n))
	ch.wakeRefused()
}

// limitAll gives the channel a limiter, and the consumers that it has their gates.
func (ch *channel) limitAll() {
	const many = 1 << 40 // more than is ever out: nobody gets a permit before all that is out has been counted
	limit := new(limiter)
	limit.max.Store(1)
	limit.out.Store(many)
	ch.mu.Lock()
	ch.limit = limit
	consumers := make([]*consumer, 0, len(ch.consumers))
	for _, k := range ch.consumers {
		consumers = append(consumers, k)
	}
	ch.mu.Unlock()
	var held int64
	for _, k := range consumers {
		if q, ok := k.queue.(queue.Gated); ok && !k.quorum {
			held += int64(q.Gate(k.id, ch.gate(k)))
		}
	}
	limit.out.Add(held - many)
}

// gate makes the channel's limit that of a consumer.
func (ch *channel) gate(k *consumer) queue.Gate {
	if k.noAck {
		return passage{ch.limit}
	}
	ch.mu.Lock()
	k.gated = true
	ch.mu.Unlock()
	return ch.limit
}

// release gives permits back. Called without locks.
func (ch *channel) release(permits int) {
	if ch.limit == nil || permits == 0 {
		return
	}
	ch.limit.out.Add(int64(-permits))
	ch.wakeRefused()
}

// wakeRefused tells the consumers that the limiter may have refused.
func (ch *channel) wakeRefused() {
	if !ch.limit.refused.Swap(false) {
		return
	}
	ch.mu.Lock()
	consumers := make([]*consumer, 0, len(ch.consumers))
	for _, k := range ch.consumers {
		consumers = append(consumers, k)
	}
	ch.mu.Unlock()
	for _, k := range consumers {
		k.queue.Ready(k.id, &ch.conn.wake)
	}
}

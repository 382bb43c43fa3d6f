package server

import "sync/atomic"

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

// setLimit sets the limit of the channel; 0 removes it. It holds for the consumers that came when there was one, or that
// come later.
func (ch *channel) setLimit(n uint32) {
	if ch.limit == nil {
		if n == 0 {
			return
		}
		ch.mu.Lock()
		ch.limit = new(limiter)
		ch.mu.Unlock()
	}
	ch.limit.max.Store(int64(n))
	ch.wakeRefused()
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

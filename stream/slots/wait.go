package slots

import (
	"slices"
	"time"

	"github.com/warrenmq/warren/queue"
)

// parked is a consumer that waits for a replica to be whole.
type parked struct {
	c     *consumer
	done  func(queue.ConsumerID, error)
	since time.Time
}

// park has a consumer wait until the replica is whole, or nobody has what it lacks.
func (q *Queue) park(c *consumer, done func(queue.ConsumerID, error)) {
	q.mu.Lock()
	q.parked = append(q.parked, parked{c, done, time.Now()})
	q.mu.Unlock()
	q.host.mender.wake()
}

// isAwaited reports whether there are consumers that wait until the replica is whole, or, otherwise, until damage is made good.
func (q *Queue) isAwaited(whole bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if whole {
		return len(q.parked) > 0
	}
	for _, c := range q.consumers {
		c.mu.Lock()
		stuck := c.stuck
		c.mu.Unlock()
		if stuck {
			return true
		}
	}
	return false
}

// copied tells consumers that wait for the replica to be whole what came of it.
func (q *Queue) copied(v verdict) {
	var out []parked
	q.mu.Lock()
	q.parked = slices.DeleteFunc(q.parked, func(p parked) bool {
		over := v == mended || v == nowhere || time.Since(p.since) > mendPatience
		if over {
			out = append(out, p)
		}
		return over
	})
	q.mu.Unlock()
	for _, p := range out {
		if v == mended {
			q.host.workers.push(taskFunc(func(*worker) { p.c.find(p.done) }), false)
		} else {
			p.done(0, queue.ErrNoReplica)
		}
	}
}

// repaired has consumers that wait at damage go on where it is good again, and cancels them where nobody has what is damaged.
func (q *Queue) repaired(v verdict) {
	if v == waiting || v == behind {
		return
	}
	var lost []*consumer
	q.mu.Lock()
	for _, c := range q.consumers {
		c.mu.Lock()
		switch {
		case !c.stuck:
		case v == mended:
			c.stuck, c.retry = false, true
			c.schedule(false)
		default:
			lost = append(lost, c)
		}
		c.mu.Unlock()
	}
	q.mu.Unlock()
	var wake queue.Wake
	for _, c := range lost {
		q.cancel(c, &wake)
	}
	wake.Flush()
}

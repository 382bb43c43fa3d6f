package server

import (
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
)

// TestHeartbeatGaps: whatever a connection sends and when, its peer never waits longer than three quarters of the interval
// for the next octet.
func TestHeartbeatGaps(t *testing.T) {
	const interval = 3600 // seconds: the clock itself is never due
	n := start(t, nil)
	n.open(t, func(k *amqp.ConnectionTuneOk) { k.Heartbeat = interval })
	var c *conn
	n.mu.Lock()
	for _, c = range n.conns {
	}
	n.mu.Unlock()

	k := &c.timing
	look := func() (check queue.Time, sent uint64) {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.sendCheck, k.sent
	}
	const whole = queue.Time(interval * 1000)
	beats := func(at queue.Time) bool {
		before := c.sent.Load()
		k.Tick(at)
		_, sent := look()
		until(t, "what the check queued is written", func() bool { return c.sent.Load() == sent })
		return sent > before
	}
	if first, _ := look(); !beats(first) {
		t.Error("no heartbeat at the first check")
	}
	// Something is sent right after each check, at the worst moment: the check does not beat, the next one does.
	for range 3 {
		check, _ := look()
		last := check - whole/2
		c.sent.Add(1)
		if beats(check) {
			t.Error("a heartbeat beside other frames")
		}
		next, _ := look()
		if !beats(next) || next-last > 3*whole/4 {
			t.Errorf("%d ms of silence with an interval of %d", next-last, whole)
		}
	}
}

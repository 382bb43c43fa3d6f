package server

import (
	"sync"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
)

// timing is what a connection does by the clock: heartbeats both ways, and ends that do not wait for the peer. It has one
// appointment with the node's clock.
//
// With an interval of T the first heartbeat is sent after T/2, whatever the handshake said meanwhile, and then whenever
// nothing was sent for T/2, at most 3T/4: the Java client's Netty transport gives a connection up after a silence of T.
// The peer is given up when nothing came from it in two checks, T apart (RabbitMQ docs: heartbeats). While we do not read,
// its silence is ours.
type timing struct {
	conn *conn

	mu          sync.Mutex // guards what follows; a leaf but for the clock's
	appointment queue.Appointment
	end         queue.Time // close the socket then; 0: no
	interval    queue.Time // T; 0: no heartbeats
	sendCheck   queue.Time
	recvCheck   queue.Time
	sent, recv  uint64 // counters at the last checks
	silent      bool   // nothing came between the last two checks
	paused      bool   // we do not read
	stopped     bool
}

func (t *timing) closeIn(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = t.conn.server.clock.Now() + queue.Time(d.Milliseconds())
	t.schedule()
}

// keep takes back closeIn.
func (t *timing) keep() {
	t.mu.Lock()
	t.end = 0
	t.mu.Unlock()
}

func (t *timing) heartbeats(seconds uint16) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.conn.server.clock.Now()
	t.interval = queue.Time(seconds) * 1000
	if t.interval > 0 {
		t.sendCheck, t.recvCheck = now+t.interval/2, now+t.interval
	}
	t.schedule()
}

func (t *timing) reading(yes bool) {
	t.mu.Lock()
	t.paused = !yes
	t.mu.Unlock()
}

// schedule makes the appointment. Called with t.mu held.
func (t *timing) schedule() {
	if t.stopped {
		return
	}
	next := t.end
	if t.interval > 0 {
		for _, at := range []queue.Time{t.sendCheck, t.recvCheck} {
			if next == 0 || at < next {
				next = at
			}
		}
	}
	t.conn.server.clock.Set(&t.appointment, t, next)
}

func (t *timing) stop() {
	t.mu.Lock()
	t.stopped = true
	t.mu.Unlock()
	t.conn.server.clock.Drop(&t.appointment)
}

// Tick implements queue.Ticker.
func (t *timing) Tick(now queue.Time) {
	c := t.conn
	t.mu.Lock()
	beat, dead := false, t.end != 0 && now >= t.end
	if t.interval > 0 && now >= t.sendCheck {
		sent := c.sent.Load()
		beat = sent == t.sent || t.sent == 0 // 0: the first check
		t.sent, t.sendCheck = sent, now+t.interval/4
		if beat {
			t.sent, t.sendCheck = sent+amqp.FrameOverhead, now+t.interval/2
		}
	}
	if t.interval > 0 && now >= t.recvCheck {
		recv := c.received.Load()
		silent := recv == t.recv && !t.paused
		dead = dead || silent && t.silent
		t.recv, t.silent, t.recvCheck = recv, silent, now+t.interval
	}
	if !dead {
		t.schedule()
	}
	t.mu.Unlock()
	if dead {
		c.cut()
		return
	}
	if beat {
		var w queue.Wake
		c.putText(&w, nil, amqp.AppendHeartbeat)
		w.Flush()
	}
}

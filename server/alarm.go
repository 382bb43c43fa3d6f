package server

import (
	"sync/atomic"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/queue"
)

// While an alarm is on, a connection is blocking, which nobody notices, until it sends a content header or body; then it
// is blocked and, if it understands that, told so once (RabbitMQ docs: alarms, connection-blocked). What publishes is
// parked, within the bounds that hold for all parked frames; everything else goes on.

// blockade is what alarms have made of a connection.
type blockade struct {
	on   atomic.Bool // it is blocked; changed by its reader
	told bool        // connection.blocked was sent; the reader's
}

// maxLate is how many octets of publishes the node takes during an alarm because their channel or connection was closed
// behind them. Past that closes wait, too.
const maxLate = 16 << 20

// alarmed reports whether publishers are blocked.
func (s *Server) alarmed() bool { return s.broker.Alarms.On() != 0 }

// alarmsChanged is told of the alarms in effect, on whichever node.
func (s *Server) alarmsChanged(_, on broker.Alarm) {
	s.pool.Block(queue.BlockedByAlarm, on != 0)
	if on != 0 {
		return
	}
	s.late.Store(0)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		if c.blockade.on.Load() {
			c.post(c.unblock)
		}
	}
}

// contentSeen is called for each frame that is part of a content and was not handled with its publish.
func (c *conn) contentSeen() {
	if !c.server.alarmed() || c.blockade.on.Load() {
		return
	}
	c.blockade.on.Store(true)
	why := c.server.broker.Alarms.On() // after that, so that whoever clears the last alarm sees us, or we see that
	if why == 0 {
		c.blockade.on.Store(false)
		return
	}
	if c.capabilities.blocked {
		c.blockade.told = true
		c.send(&amqp.ConnectionBlocked{Reason: why.String()})
	}
}

// unblock is posted when no alarm is left. When there is one again meanwhile, it is not the last time.
func (c *conn) unblock() {
	if !c.blockade.on.Load() || c.server.alarmed() {
		return
	}
	c.blockade.on.Store(false)
	if c.blockade.told {
		c.blockade.told = false
		c.send(&amqp.ConnectionUnblocked{})
	}
}

// admitLate reports whether what is parked may come in during an alarm, because of a close behind it.
func (c *conn) admitLate() bool {
	n := int64(len(c.parked))
	if n == 0 || !c.server.alarmed() {
		return true
	}
	if c.server.late.Add(n) > maxLate {
		c.server.late.Add(-n)
		return false
	}
	return true
}

// blocked is the state shown of a connection that is open: "" if no alarm concerns it.
func (c *conn) blocked() string {
	switch {
	case !c.server.alarmed():
		return ""
	case c.blockade.on.Load():
		return "blocked"
	}
	return "blocking"
}

package cluster

import (
	"math/rand/v2"
	"time"
)

const firstPause = 20 * time.Millisecond

// keep sees to it that the link has a connection, and says when the peer is down, until the link is closed.
//
// The node of the lower id tries at once when a connection is lost, the other one a moment later, so that they seldom do it
// at the same time. Afterwards both wait longer and longer, up to Patience, each time between half and all of it.
func (l *link) keep() {
	defer close(l.done)
	dialed := make(chan error, 1)
	var dialing bool
	var since time.Time // when the connection was seen first; zero if there is none
	pause := firstPause
	next := l.first()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		l.mu.Lock()
		closed, left, connected, addr := l.closed, l.left, l.conn != nil, l.addr
		l.mu.Unlock()
		if closed {
			if dialing {
				<-dialed
			}
			l.finish()
			return
		}
		now := time.Now()
		if connected {
			if since.IsZero() {
				since = now
			}
			timer.Stop()
		} else {
			if lived := now.Sub(since); !since.IsZero() {
				since = time.Time{}
				if lived > 5*firstPause {
					pause, next = firstPause, l.first()
				} else {
					next, pause = l.later(pause)
				}
			}
			if !dialing && !now.Before(next) && addr != "" {
				dialing = true
				go func() { dialed <- l.node.dial(l.quit, l, addr) }()
			}
			wait := l.watch(left)
			if !dialing && addr != "" {
				wait = min(wait, max(next.Sub(now), 0))
			}
			timer.Reset(wait)
		}
		select {
		case <-l.wake:
		case <-timer.C:
		case err := <-dialed:
			dialing = false
			if err != nil {
				next, pause = l.later(pause)
			}
		}
	}
}

// first is when to try for the first time.
func (l *link) first() time.Time {
	if l.lower {
		return time.Now()
	}
	return time.Now().Add(firstPause + rand.N(2*firstPause))
}

// later is when to try again after a pause, and what the next pause is.
func (l *link) later(pause time.Duration) (time.Time, time.Duration) {
	return time.Now().Add(pause/2 + rand.N(pause/2+1)), min(2*pause, max(l.node.o.Patience, firstPause))
}

// watch says that the peer is down when it has left or was not heard for long enough. It returns when to look again.
func (l *link) watch(left bool) time.Duration {
	l.telling.Lock()
	defer l.telling.Unlock()
	if l.told == 0 {
		return time.Hour
	}
	rest := time.Duration(l.heard.Load()) + l.node.o.Silence - l.node.now()
	if rest > 0 && !left {
		return rest
	}
	l.mu.Lock()
	connected := l.conn != nil
	l.mu.Unlock()
	if !connected { // else it came back just now
		l.tellDown()
	}
	return time.Hour
}

// finish is the end of a closed link.
func (l *link) finish() {
	l.adopting.Lock()
	defer l.adopting.Unlock()
	l.mu.Lock()
	c := l.conn
	l.mu.Unlock()
	if c != nil {
		late := time.AfterFunc(l.node.farewell, func() { c.fail(ErrClosed) })
		<-c.done
		late.Stop()
	}
	l.mu.Lock()
	l.out.reset()
	l.life++
	lost := l.calls.restart()
	l.waiting = nil
	l.mu.Unlock()
	for _, f := range lost {
		f(nil, ErrClosed)
	}
	l.telling.Lock()
	defer l.telling.Unlock()
	l.tellDown()
}

package quorum

import (
	"context"
	"time"

	"github.com/lni/dragonboat/v4/raftpb"
)

const (
	// A line dials for dialPatience at first, and twice as long each time that it fails, up to longDial. In between it rests for
	// linePause, and twice as long each time, up to longLinePause.
	dialPatience  = 500 * time.Millisecond
	longDial      = 2 * time.Second
	linePause     = 20 * time.Millisecond
	longLinePause = 250 * time.Millisecond
)

// line is the way of messages to a member. It connects when there is something to send, and anew when a connection has ended, and
// drops what it cannot send: Raft sends it again if it matters. The engine hears of no error. Told of one, it would send that member
// nothing for up to 1.5 s, and longer if one old connection after the other is found broken: a node that has come back then takes
// its leaders for dead, and is missing when another one dies.
//
// It is used by one goroutine.
type line struct {
	k      *carrier
	ctx    context.Context // of the engine
	target string
	s      *sender // nil: there is no connection
	tries  int     // that have failed, one after the other
	again  time.Time
}

// SendMessageBatch sends messages, or drops them.
func (l *line) SendMessageBatch(batch raftpb.MessageBatch) error {
	for range 2 { // what there is may have ended
		if !l.connect() {
			return l.ctx.Err()
		}
		err := l.s.SendMessageBatch(batch)
		if err == nil {
			return nil
		}
		l.k.log.Debug("a Raft connection ended", "to", l.target, "error", err.Error())
		l.Close()
	}
	return nil
}

// connect reports whether there is a connection now.
func (l *line) connect() bool {
	if l.s != nil {
		select {
		case <-l.s.ended:
			l.Close()
		default:
			return true
		}
	}
	if time.Now().Before(l.again) {
		return false
	}
	ctx, cancel := context.WithTimeout(l.ctx, min(longDial, dialPatience<<min(l.tries, 8)))
	defer cancel()
	s, err := l.k.dial(ctx, l.target, PurposeMessages, messagesPatience)
	if err != nil {
		l.again = time.Now().Add(min(longLinePause, linePause<<min(l.tries, 8)))
		l.tries++
		return false
	}
	l.s, l.tries = s, 0
	return true
}

// Close closes the connection.
func (l *line) Close() {
	if l.s != nil {
		l.s.Close()
		l.s = nil
	}
}

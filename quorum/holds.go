package quorum

import (
	"slices"
	"time"
)

// A member that gets the slot as a snapshot goes on with the log from there. That takes as long as the slot is large, and if the log
// were cut meanwhile as always, all that it could do then is to ask for another one, for ever, while others publish. So the
// log stays from where a snapshot was made until some time after it was sent, unless another snapshot would be shorter by then.

const (
	// holdTime is for how long the log stays at least when a snapshot was sent: it must be written down at the other end, too.
	holdTime = 30 * time.Second
	// holdOctets is how much longer than the messages of the slot what stays may be.
	holdOctets = 256 << 20
)

// logHold is what of the log stays for a snapshot.
type logHold struct {
	index, octets uint64 // where the snapshot was made
	made          time.Time
	until         time.Time // zero: it is being sent
}

// mayCut is up to where the log may be cut, of what a checkpoint has included. Called with m.mu held.
func (m *machine) mayCut(index uint64, now time.Time) uint64 {
	index = min(index, m.tail.begins())
	most := uint64(max(0, m.onDisk)) + holdOctets
	m.holds = slices.DeleteFunc(m.holds, func(h *logHold) bool {
		return !h.until.IsZero() && now.After(h.until) || m.tail.octets-h.octets > most
	})
	for _, h := range m.holds {
		index = min(index, h.index)
	}
	return index
}

// sent says that a snapshot was, or will not be. Called with m.mu held.
func (h *logHold) sent(now time.Time) {
	h.until = now.Add(max(holdTime, now.Sub(h.made)))
}

package quorum

import (
	"slices"
	"time"

	"github.com/warrenmq/warren/quorum/propose"
)

// A member that is away, or slow, goes on with the log where it was, unless a snapshot would be shorter by then. All members keep
// the log for it, whichever of them will lead. How far one is they see in its batches: it says up to which of its own it is done.

// other is how far another member is, at least.
type other struct {
	boot   uint64
	known  place
	number uint64 // a later batch of its, not known to be applied there; 0: none
	next   place  // of that
}

// place is one in the log.
type place struct{ index, octets uint64 }

// heard is told of each batch that is applied, once: where it comes again says nothing of who sent it. Called with m.mu held.
func (m *machine) heard(h propose.Header) {
	if h.Node == m.node {
		return
	}
	x := m.other(h.Node)
	if x.boot != h.Boot {
		x.boot, x.number = h.Boot, 0
	}
	if x.number == 0 || h.Done >= x.number {
		if x.number != 0 {
			x.known = x.next
		}
		x.number, x.next = h.Number, place{m.applied, m.tail.octets}
	}
}

// other is what is known of a member. Of one that nobody has heard of, it may need all that there is. Called with m.mu held.
func (m *machine) other(node uint64) *other {
	x := m.others[node]
	if x == nil {
		if m.others == nil {
			m.others = map[uint64]*other{}
		}
		x = &other{known: place{m.cut, m.tail.octets}}
		m.others[node] = x
	}
	return x
}

// A member that gets the slot as a snapshot goes on with the log from there. That takes as long as the slot is large, and if the log
// were cut meanwhile as always, all that it could do then is to ask for another one, for ever, while others publish. So the
// log stays from where a snapshot was made until some time after it was sent, unless another snapshot would be shorter by then.

const (
	// holdTime is for how long the log stays at least when a snapshot was sent: it must be written down at the other end, too.
	holdTime = 30 * time.Second
	// showOctets is after how many octets a member that does not publish shows how far it is.
	showOctets = 8 << 20
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
func (m *machine) mayCut(index uint64, members []uint64, now time.Time) uint64 {
	index = min(index, m.tail.begins())
	most := uint64(max(0, m.onDisk)) + holdOctets
	m.holds = slices.DeleteFunc(m.holds, func(h *logHold) bool {
		return !h.until.IsZero() && now.After(h.until) || m.tail.octets-h.octets > most
	})
	for _, h := range m.holds {
		index = min(index, h.index)
	}
	for _, n := range members {
		if x := m.other(n); n != m.node && m.tail.octets-x.known.octets <= most {
			index = min(index, x.known.index)
		}
	}
	m.cut = max(m.cut, index)
	return index
}

// sent says that a snapshot was, or will not be. Called with m.mu held.
func (h *logHold) sent(now time.Time) {
	h.until = now.Add(max(holdTime, now.Sub(h.made)))
}

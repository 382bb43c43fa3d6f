package quorum

// What leaves a queue after it has been moved to disk stays there until a checkpoint has forgotten it: to settle a message takes
// a few octets of the log, so that gigabytes might go before the log alone called for one. So a slot counts what it wastes.

const (
	// mostWaste is how many octets may be on disk that left their queues since the last checkpoint, leastWaste those that are
	// never too many; between them it is as much as is of use.
	mostWaste, leastWaste = 64 << 20, 8 << 20
	// recordOctets is about what a message takes on disk beside its body.
	recordOctets = 64
)

func storedOctets(messages, bodies uint64) int64 { return int64(messages*recordOctets + bodies) }

// octetsOnDisk is about how much of a queue's messages is on disk and not in memory.
func (q *replica) octetsOnDisk() int64 {
	st := q.state.Stats()
	return storedOctets(st.Ready+st.Unacked+st.Delayed+st.Kept, st.ReadyBytes+st.UnackedBytes+st.DelayedBytes+st.KeptBytes) - q.log.stored
}

// wastes reports whether there is too much waste. Called with m.mu held.
func (m *machine) wastes() bool {
	return m.waste >= max(leastWaste, min(m.onDisk, mostWaste))
}

// countWaste is told when a command has been carried out. Called with m.mu held.
func (m *machine) countWaste(q *replica) {
	if q.onDisk != 0 {
		m.waste += max(0, -m.countDisk(q))
	}
}

// countDisk takes down how much of a queue is on disk, and returns by how much that has grown. Called with m.mu held.
func (m *machine) countDisk(q *replica) (more int64) {
	now := q.octetsOnDisk()
	more = now - q.onDisk
	q.onDisk = now
	m.onDisk += more
	return more
}

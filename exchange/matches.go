package exchange

// Queue is the number of a queue in its Topology: small, and given out again after the queue was removed.
type Queue uint32

// Destination is what a binding leads to: an exchange or, when that is nil, a queue.
type Destination struct {
	Exchange *Exchange
	Queue    Queue
}

// Matches is the result of routing one message, and the memory for it, used again for the next. It belongs to one
// goroutine. The zero value is ready.
type Matches struct {
	// Queues are where the message goes, each once, in no particular order. Valid until the next Route.
	Queues    []Queue
	unstable  bool        // something other than routing keys had a say
	exchanges []*Exchange // those reached, in the order in which they are evaluated: work list and visited set in one
	queues    marks
	visited   marks
	hashes    marks  // nodes of a topic tree behind a second #
	words     []word // of the routing key being matched
	turn      uint32 // tells the marks of this message from older ones
	topics    uint32 // the same for hashes, which start anew with every key and exchange
}

// searched is how long a list is searched rather than marked.
const searched = 16

// marks remembers which numbers were met in a turn.
type marks struct {
	seen []uint32 // by number: the last turn in which it was met
	all  bool     // for a list that has outgrown a search: all of it is marked
}

// mark reports whether n is met for the first time in this turn.
func (k *marks) mark(n, turn uint32) bool {
	if int(n) >= len(k.seen) {
		k.seen = append(k.seen, make([]uint32, int(n)+1-len(k.seen))...)
		k.seen = k.seen[:cap(k.seen)]
	}
	if k.seen[n] == turn {
		return false
	}
	k.seen[n] = turn
	return true
}

// Stable reports whether every message with the routing keys of the last Route, published to the same exchange, goes the
// same way until the topology changes: neither headers nor properties nor chance had a say.
func (m *Matches) Stable() bool { return !m.unstable }

func (m *Matches) reset() {
	m.Queues, m.exchanges = m.Queues[:0], m.exchanges[:0]
	m.queues.all, m.visited.all = false, false
	m.unstable = false
	if m.turn++; m.turn == 0 {
		clear(m.queues.seen)
		clear(m.visited.seen)
		m.turn = 1
	}
}

// nextTopic begins a walk through a topic tree.
func (m *Matches) nextTopic() {
	if m.topics++; m.topics == 0 {
		clear(m.hashes.seen)
		m.topics = 1
	}
}

// addAll adds the destinations of s.
func (m *Matches) addAll(s *set) {
	if len(m.Queues) == 0 {
		m.Queues = append(m.Queues, s.queues.list...)
	} else {
		for _, q := range s.queues.list {
			m.addQueue(q)
		}
	}
	if s.exchanges != nil {
		for _, x := range s.exchanges.list {
			m.addExchange(x)
		}
	}
}

func (m *Matches) add(d Destination) {
	if d.Exchange != nil {
		m.addExchange(d.Exchange)
	} else {
		m.addQueue(d.Queue)
	}
}

func (m *Matches) addQueue(q Queue) {
	if len(m.Queues) < searched {
		for _, known := range m.Queues {
			if known == q {
				return
			}
		}
		m.Queues = append(m.Queues, q)
		return
	}
	if !m.queues.all {
		for _, known := range m.Queues {
			m.queues.mark(uint32(known), m.turn)
		}
		m.queues.all = true
	}
	if m.queues.mark(uint32(q), m.turn) {
		m.Queues = append(m.Queues, q)
	}
}

func (m *Matches) addExchange(x *Exchange) {
	if len(m.exchanges) < searched {
		for _, known := range m.exchanges {
			if known == x {
				return
			}
		}
		m.exchanges = append(m.exchanges, x)
		return
	}
	if !m.visited.all {
		for _, known := range m.exchanges {
			m.visited.mark(known.number, m.turn)
		}
		m.visited.all = true
	}
	if m.visited.mark(x.number, m.turn) {
		m.exchanges = append(m.exchanges, x)
	}
}

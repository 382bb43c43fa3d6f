package exchange

// set holds the destinations of several bindings, each once, however many of the bindings lead to it.
type set struct {
	queues    members[Queue]
	exchanges *members[*Exchange] // nil when there are none, which is usual
}

func (s *set) add(d Destination) {
	if d.Exchange == nil {
		s.queues.add(d.Queue)
		return
	}
	if s.exchanges == nil {
		s.exchanges = new(members[*Exchange])
	}
	s.exchanges.add(d.Exchange)
}

func (s *set) remove(d Destination) {
	if d.Exchange == nil {
		s.queues.remove(d.Queue)
		return
	}
	if s.exchanges.remove(d.Exchange); len(s.exchanges.list) == 0 {
		s.exchanges = nil
	}
}

func (s *set) empty() bool { return len(s.queues.list) == 0 && s.exchanges == nil }

// members is a list without duplicates that counts how often each was added.
type members[T comparable] struct {
	list []T
	// more counts additions beyond the first, of those that have any. Never iterated.
	more map[T]int
	// place is the index in list of each, kept once list is too long to be searched. Never iterated.
	place map[T]int
}

func (m *members[T]) find(v T) int {
	if m.place != nil {
		if i, ok := m.place[v]; ok {
			return i
		}
		return -1
	}
	for i, known := range m.list {
		if known == v {
			return i
		}
	}
	return -1
}

func (m *members[T]) add(v T) {
	if m.find(v) >= 0 {
		if m.more == nil {
			m.more = make(map[T]int)
		}
		m.more[v]++
		return
	}
	m.list = append(m.list, v)
	if m.place != nil {
		m.place[v] = len(m.list) - 1
	} else if len(m.list) > 4*searched {
		m.place = make(map[T]int, 2*len(m.list))
		for i, known := range m.list {
			m.place[known] = i
		}
	}
}

func (m *members[T]) remove(v T) {
	if n := m.more[v]; n > 1 {
		m.more[v] = n - 1
		return
	} else if n == 1 {
		delete(m.more, v)
		return
	}
	i := m.find(v)
	if i < 0 {
		return
	}
	last := len(m.list) - 1
	m.list[i] = m.list[last]
	if m.place != nil {
		m.place[m.list[i]] = i
		delete(m.place, v)
	}
	var none T
	m.list[last] = none
	m.list = m.list[:last]
}

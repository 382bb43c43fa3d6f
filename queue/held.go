package queue

import "iter"

// Holder is what a State knows of one of its consumers or getters.
type Holder struct {
	ID      ConsumerID
	Session uint64
	Late    []Range // deliveries that have timed out and were not settled since; the State's, until its next command
	Overdue bool    // some delivery has timed out, ever
}

// Holders are all consumers and getters, those included that were cancelled and still hold something, ids ascending.
func (s *State) Holders() iter.Seq[Holder] {
	return func(yield func(Holder) bool) {
		for _, c := range s.consumers {
			if !yield(Holder{c.id, c.session, c.late, c.overdue}) {
				return
			}
		}
	}
}

// Held are the deliveries of a consumer that are not settled, as they were handed out, ids ascending.
func (s *State) Held(id ConsumerID) iter.Seq[Delivery] {
	return func(yield func(Delivery) bool) {
		c := s.consumer(id)
		if c == nil {
			return
		}
		for d, f := range c.inFlight.Range(0, c.lastID) {
			acquired := f.acquired
			if acquired == 0 {
				acquired = f.failed
			}
			if !yield(Delivery{Seq: f.seq, ID: d, Consumer: id, Direct: -1, Redelivered: f.redelivered, Acquired: acquired, Failed: f.failed, Session: c.session}) {
				return
			}
		}
	}
}

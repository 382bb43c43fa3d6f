package server

import "github.com/warrenmq/warren/queue"

// unacked is a delivery that waits for its acknowledgement, under its tag in channel.unacked.
type unacked struct {
	id     queue.DeliveryID
	handle uint32 // of the consumer
}

// note records a delivery under the current tag. Called by the writer with ch.mu held.
func (ch *channel) note(k *consumer, id queue.DeliveryID) {
	k.unacked++
	ch.unacked.Append(ch.tag, unacked{id, k.handle})
}

// enroll gives a consumer its handle. Called with ch.mu held.
func (ch *channel) enroll(k *consumer) {
	for i, old := range ch.handles {
		if old == nil {
			k.handle = uint32(i)
			ch.handles[i] = k
			return
		}
	}
	k.handle = uint32(len(ch.handles))
	ch.handles = append(ch.handles, k)
}

// settle collects deliveries that were acknowledged. For a consumer and an outcome it holds ranges in ascending order.
type settlement struct {
	consumer *consumer
	outcome  queue.Outcome
	ids      []queue.Range
}

// settlements gathers what one read of a connection acknowledges, for one Settle per consumer and outcome.
type settlements struct{ list []settlement }

func (s *settlements) add(k *consumer, id queue.DeliveryID, o queue.Outcome) {
	for i := len(s.list) - 1; i >= 0; i-- {
		t := &s.list[i]
		if t.consumer != k {
			continue
		}
		if t.outcome != o {
			break // keep the order of different outcomes of one consumer
		}
		last := &t.ids[len(t.ids)-1]
		switch {
		case id == last.Last+1:
			last.Last = id
			return
		case id > last.Last:
			t.ids = append(t.ids, queue.Range{First: id, Last: id})
			return
		}
		break
	}
	if len(s.list) < cap(s.list) {
		s.list = s.list[:len(s.list)+1]
	} else {
		s.list = append(s.list, settlement{})
	}
	t := &s.list[len(s.list)-1]
	t.consumer, t.outcome = k, o
	t.ids = append(t.ids[:0], queue.Range{First: id, Last: id})
}

// flush tells the queues. No lock may be held.
func (s *settlements) flush(w *queue.Wake) {
	for i := range s.list {
		t := &s.list[i]
		t.consumer.queue.Settle(t.consumer.id, t.ids, t.outcome, w)
		t.consumer = nil
	}
	s.list = s.list[:0]
}

// acknowledge moves the deliveries that a tag names from unacked into s. ok is false when the tag names none: it was never
// delivered, or is settled already; then nothing is done. Tag 0 with multiple names all, and never fails.
func (ch *channel) acknowledge(tag uint64, multiple bool, o queue.Outcome, s *settlements) (ok bool) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if !multiple {
		u, ok := ch.unacked.Remove(tag)
		if ok {
			ch.settled(u, o, s)
		}
		return ok
	}
	last := tag
	if tag == 0 {
		last, _ = ch.unacked.Last()
	} else if ch.unacked.Find(tag) == nil {
		return false
	}
	ch.unacked.RemoveRange(0, last, func(_ uint64, u *unacked) { ch.settled(*u, o, s) })
	return true
}

// settled adds one delivery to s. Called with ch.mu held.
func (ch *channel) settled(u unacked, o queue.Outcome, s *settlements) {
	k := ch.handles[u.handle]
	s.add(k, u.id, o)
	k.unacked--
	ch.forget(k)
}

// forget frees the handle of a consumer that is gone and has nothing unacknowledged. Called with ch.mu held.
func (ch *channel) forget(k *consumer) {
	if k.cancelled && k.unacked == 0 && ch.handles[k.handle] == k {
		ch.handles[k.handle] = nil
	}
}

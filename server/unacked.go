package server

import (
	"cmp"
	"math"
	"slices"

	"github.com/warrenmq/warren/queue"
)

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
	if n := len(ch.free); n > 0 {
		k.handle, ch.free = ch.free[n-1], ch.free[:n-1]
		ch.handles[k.handle] = k
		return
	}
	k.handle = uint32(len(ch.handles))
	ch.handles = append(ch.handles, k)
}

// settlement is deliveries that were acknowledged. For a consumer and an outcome it holds ranges in ascending order.
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

// acknowledge takes the deliveries that a tag names out of unacked, for conn.acks or for the transaction. ok is false when
// the tag names none: it was never delivered, or is settled already; then nothing is done. Tag 0 with multiple names all,
// and never fails.
func (ch *channel) acknowledge(tag uint64, multiple bool, o queue.Outcome, tx *transaction) (ok bool) {
	permits := 0
	take := func(tag uint64, u *unacked) {
		if tx != nil {
			tx.settles = append(tx.settles, txSettle{tag, *u, o})
			ch.unsettled++
		} else {
			permits += ch.settled(*u, o)
		}
	}
	ch.mu.Lock()
	switch {
	case !multiple:
		var u unacked
		if u, ok = ch.unacked.Remove(tag); ok {
			take(tag, &u)
		}
	case tag != 0 && ch.unacked.Find(tag) == nil:
	default:
		if ok = true; tag == 0 {
			tag, _ = ch.unacked.Last()
		}
		ch.unacked.RemoveRange(0, tag, take)
	}
	ch.mu.Unlock()
	ch.release(permits)
	return ok
}

// settled gathers one settled delivery, and returns how many permits of the channel's limit it gives back. Called with
// ch.mu held.
func (ch *channel) settled(u unacked, o queue.Outcome) (permits int) {
	k := ch.handles[u.handle]
	ch.conn.acks.add(k, u.id, o)
	if o == queue.Ack {
		ch.counts.Acked++
		ch.conn.acked++
		if k.quorum {
			ch.conn.ackedQuorum++
		}
		if k.stream {
			ch.conn.ackedStream++
		}
	}
	k.unacked--
	ch.forget(k)
	if k.gated {
		return 1
	}
	return 0
}

// restore makes deliveries unacknowledged again that a transaction had settled. Called with ch.mu held.
func (ch *channel) restore(settles []txSettle) {
	old := ch.unacked
	ch.unacked = queue.Window[unacked]{}
	slices.SortFunc(settles, func(a, b txSettle) int { return cmp.Compare(a.tag, b.tag) })
	for tag, u := range old.Range(0, math.MaxInt64) {
		for len(settles) > 0 && settles[0].tag < tag {
			ch.unacked.Append(settles[0].tag, settles[0].u)
			settles = settles[1:]
		}
		ch.unacked.Append(tag, *u)
	}
	for _, s := range settles {
		ch.unacked.Append(s.tag, s.u)
	}
}

// forget frees the handle of a consumer that is gone and has nothing unacknowledged. Called with ch.mu held.
func (ch *channel) forget(k *consumer) {
	if k.retired && k.unacked == 0 && !ch.ended && ch.handles[k.handle] == k {
		ch.handles[k.handle] = nil
		ch.free = append(ch.free, k.handle)
	}
}

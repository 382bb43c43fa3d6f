package server

import "sync/atomic"

// Counters are totals since the start, of what connections do and the broker does not see. What channels publish is in
// broker.Counters. All are added to once per batch.
type Counters struct {
	ConnectionsOpened, ConnectionsClosed, ChannelsOpened, ChannelsClosed atomic.Uint64

	Deliveries            // from all queues
	OfQuorum   Deliveries // those of them from quorum queues
	OfStream   Deliveries // and from streams
}

// Deliveries are to consumers, in answer to basic.get, and those of them that were not the first. Acked counts
// acknowledgements.
type Deliveries struct {
	Delivered, DeliveredNoAck, Got, GotNoAck, GetEmpty, Redelivered, Acked atomic.Uint64
}

// ChannelCounts are totals of one channel.
type ChannelCounts struct {
	Published, Confirmed, Returned, Dropped                                uint64 // Dropped: unroutable without mandatory
	Delivered, DeliveredNoAck, Got, GotNoAck, GetEmpty, Redelivered, Acked uint64
}

// published are what one batch of a connection published. Only its reader touches it.
type published struct{ received, confirming, routed, dropped, returned, refused uint64 }

// addPublished adds what the batch published to the node's totals.
func (c *conn) addPublished() {
	t := &c.published
	if t.received == 0 && t.refused == 0 { // a commit refuses what was received before
		return
	}
	n := &c.server.broker.Counters
	n.Received.Add(t.received)
	for _, one := range []struct {
		total *atomic.Uint64
		n     uint64
	}{{&n.ReceivedConfirm, t.confirming}, {&n.Routed, t.routed}, {&n.UnroutableDropped, t.dropped}, {&n.UnroutableReturned, t.returned}, {&n.PublishesRefused, t.refused}} {
		if one.n > 0 {
			one.total.Add(one.n)
		}
	}
	*t = published{}
}

// countPublished counts n publishes of a channel that went to queues.
func (c *conn) countPublished(ch *channel, n int) {
	t := &c.published
	t.received += uint64(n)
	t.routed += uint64(n)
	if ch.confirms != nil {
		t.confirming += uint64(n)
	}
	ch.mu.Lock()
	ch.counts.Published += uint64(n)
	ch.mu.Unlock()
}

// countUnrouted counts a publish of a channel that went to no queue.
func (c *conn) countUnrouted(ch *channel, returned, replied bool) {
	t := &c.published
	t.received++
	if ch.confirms != nil {
		t.confirming++
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.counts.Published++
	switch {
	case returned:
		t.returned++
		ch.counts.Returned++
	case replied:
		t.routed++
	default:
		t.dropped++
		ch.counts.Dropped++
	}
}

// written is what a writer encoded and has not added to the totals yet.
type written struct {
	handed, ofQuorum, ofStream handed
	confirmed                  uint64
}

type handed struct{ delivered, noAck, got, gotNoAck, redelivered uint64 }

// count counts a delivery to a consumer.
func (h *handed) count(noAck, redelivered bool) {
	if noAck {
		h.noAck++
	} else {
		h.delivered++
	}
	if redelivered {
		h.redelivered++
	}
}

// countGet counts an answer to basic.get.
func (h *handed) countGet(noAck, redelivered bool) {
	if noAck {
		h.gotNoAck++
	} else {
		h.got++
	}
	if redelivered {
		h.redelivered++
	}
}

func (h *handed) addTo(d *Deliveries) {
	for _, one := range []struct {
		total *atomic.Uint64
		n     uint64
	}{{&d.Delivered, h.delivered}, {&d.DeliveredNoAck, h.noAck}, {&d.Got, h.got}, {&d.GotNoAck, h.gotNoAck}, {&d.Redelivered, h.redelivered}} {
		if one.n > 0 {
			one.total.Add(one.n)
		}
	}
}

// addWritten adds what was encoded to the node's totals.
func (c *conn) addWritten() {
	t := &c.writer.written
	if *t == (written{}) {
		return
	}
	n := &c.server.Counters
	t.handed.addTo(&n.Deliveries)
	if t.ofQuorum != (handed{}) {
		t.ofQuorum.addTo(&n.OfQuorum)
	}
	if t.ofStream != (handed{}) {
		t.ofStream.addTo(&n.OfStream)
	}
	if t.confirmed > 0 {
		c.server.broker.Counters.Confirmed.Add(t.confirmed)
	}
	*t = written{}
}

package quorum

import (
	"slices"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/quorum/propose"
)

// reload has this node's clients go on after the slot has skipped a part of the log, and came by a snapshot to what that part
// did: commands are answered, consumers get what they hold and were not given, and hear it if they are gone.
func (d *dispatcher) reload(x *reload) {
	for i := range x.queues { // before the answers to what came behind that
		d.endGone(&x.queues[i])
	}
	for _, number := range d.proposer.Unheard(x.last) {
		b := d.proposer.Claim(number)
		if b == nil {
			continue
		}
		var a answer
		if i := slices.IndexFunc(x.answers, func(a propose.Answered[answer]) bool { return a.Number == number }); i >= 0 {
			a = x.answers[i].Answer
		}
		for i := range a.results {
			if r := &a.results[i]; int(r.ordinal) < len(b.waiters) {
				b.waiters[r.ordinal](d, r)
			}
		}
		d.confirm(b, a.refused)
		d.proposer.Finish(b)
	}
	for i := range x.queues {
		d.resume(&x.queues[i])
	}
}

// endGone tells the consumers of a queue that it has no more.
func (d *dispatcher) endGone(h *holdings) {
	q := h.queue
	var gone []*consumer
	q.mu.Lock()
	for id, c := range q.consumers {
		if _, holds := h.held[id]; !holds {
			c.gone = true
			delete(q.consumers, id)
			gone = append(gone, c)
		}
	}
	q.mu.Unlock()
	for _, c := range gone {
		if c.out != nil {
			c.out.Cancelled(&d.wake)
		}
	}
}

// resume has the consumers of a queue go on with what they hold by now.
func (d *dispatcher) resume(h *holdings) {
	d.endGone(h)
	q := h.queue
	var on, late []*consumer
	type expired struct {
		id  queue.ConsumerID
		ids []queue.Range
	}
	var dropped []expired
	q.mu.Lock()
	for id, c := range q.consumers {
		k, holds := h.held[id]
		if !holds {
			continue
		}
		if active := h.single && h.active == id; c.active != active && c.out != nil {
			c.active = active
			c.out.Activity(active)
		}
		waits := map[queue.DeliveryID]bool{}
		for _, p := range c.pending {
			waits[p.id] = true
		}
		had := c.pending
		c.pending = nil
		for _, p := range k.deliveries {
			if !c.getter && (p.id > c.last || waits[p.id]) {
				c.pending = append(c.pending, p)
			}
		}
		if n := len(k.deliveries); n > 0 {
			c.last = max(c.last, k.deliveries[n-1].id)
		}
		if n := len(k.late); n > 0 && k.late[n-1].Last > c.late { // it will not settle what it has never seen
			c.late = k.late[n-1].Last
			x := expired{id: id}
			for _, p := range had {
				if !slices.ContainsFunc(c.pending, func(y pending) bool { return y.id == p.id }) {
					x.ids = appendRange(x.ids, queue.Range{First: p.id, Last: p.id})
				}
			}
			dropped = append(dropped, x)
			late = append(late, c)
		}
		on = append(on, c)
	}
	q.mu.Unlock()
	for _, x := range dropped {
		q.settle(x.id, x.ids, queue.Ack)
	}
	for _, c := range late {
		c.out.TimedOut(&d.wake)
	}
	for _, c := range on {
		d.goOn(c)
	}
}

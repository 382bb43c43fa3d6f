package quorum

import (
	"slices"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/quorum/propose"
)

// reload has this node's clients go on after the slot has skipped a part of the log, and came by a snapshot to what that part
// did: commands are answered, consumers get what they hold and were not given, and hear it if they are gone, or were late.
func (d *dispatcher) reload(x *reload) {
	told := map[*consumer]bool{}
	for i := range x.queues { // before the answers to what came behind that
		d.tellGone(&x.queues[i])
		d.tellLate(&x.queues[i], told)
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
		d.tellGone(&x.queues[i])
		d.tellLate(&x.queues[i], told)
		d.resume(&x.queues[i])
	}
}

// tellGone tells the consumers of a queue that it has no more. Of a getter, or a consumer that was cancelled, nobody can tell
// whether what it held was settled in the part that was skipped, or came back: it counts as late.
func (d *dispatcher) tellGone(h *holdings) {
	q := h.queue
	var gone, late []*consumer
	q.mu.Lock()
	for id, c := range q.consumers {
		if _, holds := h.held[id]; holds {
			continue
		}
		if (c.getter || c.gone) && h.before[id] {
			late = append(late, c)
		}
		c.gone = true
		q.drop(id)
		gone = append(gone, c)
	}
	q.mu.Unlock()
	for _, c := range late {
		c.out.TimedOut(&d.wake)
	}
	for _, c := range gone {
		if c.out != nil {
			c.out.Cancelled(&d.wake)
		}
	}
}

// tellLate tells the consumers of a queue that some of what they held has timed out. Those in told know it. One that was late before
// may hear it twice: what it has settled all the same has left no trace.
func (d *dispatcher) tellLate(h *holdings, told map[*consumer]bool) {
	q := h.queue
	var late []*consumer
	q.mu.Lock()
	for id, c := range q.consumers {
		if h.held[id].overdue && !told[c] {
			told[c] = true
			late = append(late, c)
		}
	}
	q.mu.Unlock()
	for _, c := range late {
		c.out.TimedOut(&d.wake)
	}
}

// resume has the consumers of a queue go on with what they hold by now.
func (d *dispatcher) resume(h *holdings) {
	q := h.queue
	var on []*consumer
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
		c.pending = nil
		for _, p := range k.deliveries {
			if !c.getter && !c.gone && (p.id > c.last || waits[p.id]) {
				c.pending = append(c.pending, p)
			}
			delete(waits, p.id)
		}
		x := expired{id: id}
		for _, r := range k.late { // it will not settle what it has never seen
			for n := r.First; n <= r.Last; n++ {
				if n > c.last || waits[n] {
					x.ids = appendRange(x.ids, queue.Range{First: n, Last: n})
				}
			}
		}
		if n := len(k.deliveries); n > 0 {
			c.last = max(c.last, k.deliveries[n-1].id)
		}
		dropped = append(dropped, x)
		on = append(on, c)
	}
	q.mu.Unlock()
	for _, x := range dropped {
		q.settle(x.id, x.ids, queue.Ack)
	}
	for _, c := range on {
		d.goOn(c)
	}
}

package slots

import "github.com/warrenmq/warren/queue"

// dispatcher carries out what the machine asks for, on one goroutine: confirms and answers have one order. It reads nothing
// from disk and delivers nothing: that is for workers.
type dispatcher struct {
	ring     *ring
	proposer *proposer
	wake     queue.Wake
	rounds   []*round
	ranges   []queue.Range
	grown    []*Queue
}

// run works until quit is closed and nothing is left.
func (d *dispatcher) run(quit <-chan struct{}) {
	for {
		d.step()
		select {
		case <-d.ring.kick:
		case <-quit:
			d.step()
			return
		}
	}
}

// step carries out what has gathered. Consumers that wait at the end of a stream are woken once for all of it.
func (d *dispatcher) step() {
	d.rounds = d.ring.take(d.rounds[:0])
	for i, r := range d.rounds {
		d.carryOut(r)
		d.ring.recycle(r)
		d.rounds[i] = nil
	}
	for i, q := range d.grown {
		q.grew()
		d.grown[i] = nil
	}
	d.grown = d.grown[:0]
	d.wake.Flush()
}

func (d *dispatcher) carryOut(r *round) {
	var b *batch
	if r.mine {
		b = d.proposer.Claim(r.number)
	}
	for _, q := range r.grown {
		if q.grown.CompareAndSwap(false, true) {
			d.grown = append(d.grown, q)
		}
	}
	if b != nil {
		for i := range r.results {
			if x := &r.results[i]; int(x.ordinal) < len(b.waiters) {
				b.waiters[x.ordinal](x, &d.wake)
			}
		}
	}
	for i := range r.fenced {
		r.fenced[i].queue.fence(r.fenced[i].name, r.fenced[i].generation, &d.wake)
	}
	for _, q := range r.ended {
		q.end(&d.wake)
	}
	for _, q := range r.replaced {
		q.replaced(&d.wake)
	}
	if b != nil {
		d.confirm(b)
		d.proposer.Finish(b)
	}
}

// confirm tells publishers that a batch was applied, those of one channel that follow each other together.
func (d *dispatcher) confirm(b *batch) {
	for i := 0; i < len(b.publishes); {
		to := b.publishes[i].confirms
		ok := d.ranges[:0]
		for ; i < len(b.publishes) && b.publishes[i].confirms == to; i++ {
			for _, r := range b.numbers[b.publishes[i].from:b.publishes[i].to] {
				ok = appendRange(ok, r)
			}
		}
		if to != nil && len(ok) > 0 {
			to.Settled(ok, true, &d.wake)
		}
		d.ranges = ok
	}
}

// appendRange appends r, as part of the last range where it continues that.
func appendRange(rs []queue.Range, r queue.Range) []queue.Range {
	if n := len(rs); n > 0 && rs[n-1].Last+1 == r.First {
		rs[n-1].Last = r.Last
		return rs
	}
	return append(rs, r)
}

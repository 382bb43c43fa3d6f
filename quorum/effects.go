package quorum

import "github.com/warrenmq/warren/queue"

// What the machines of queues ask for in their Effects is done here: in memory at once, on every replica; the rest goes into
// a round for the dispatcher.

// carryOut does what the effects of a command ask for in memory, and puts the rest into the round.
func (m *machine) carryOut(r *round, q *replica) {
	fx := &m.fx
	q.changed = true
	if q.local == nil {
		r = nil
	}
	if r != nil && len(fx.Deliver) > 0 {
		m.deliver(r, q, fx.Deliver)
	}
	leading := r != nil && m.leading()
	for _, x := range fx.Removed {
		q.log.remove(x, func(_ queue.Seq, msg *queue.Message) { m.release.Add(msg.Ref.Slab) })
	}
	if len(fx.Discards) > 0 {
		if leading {
			m.discard(r, q, fx.Discards)
		} else {
			m.discard(nil, q, fx.Discards)
		}
	}
	m.charge += q.log.changed()
	m.countWaste(q)
	q.due, q.more = fx.Due, fx.More
	if r == nil {
		return
	}
	for _, x := range fx.TimedOut {
		r.ops = append(r.ops, op{kind: opTimedOut, queue: q.local, consumer: x.Consumer, ids: x.Range})
	}
	for _, c := range fx.Cancel {
		r.ops = append(r.ops, op{kind: opCancel, queue: q.local, consumer: c})
	}
	for _, c := range fx.Left {
		r.ops = append(r.ops, op{kind: opLeft, queue: q.local, consumer: c})
	}
	for _, x := range fx.Activity {
		r.ops = append(r.ops, op{kind: opActivity, queue: q.local, consumer: x.Consumer, active: x.Active})
	}
	if !leading {
		return
	}
	if len(fx.Kept) > 0 {
		m.letters(r, q, fx.Kept)
	}
	if q.due != 0 {
		m.due(q.due)
	}
	m.goOn(r, q, fx.More)
}

// goOn has a continue proposed if there is more to do and none is on its way.
func (m *machine) goOn(r *round, q *replica, more bool) {
	if more && !q.continuing && q.local != nil {
		q.continuing = true
		r.ops = append(r.ops, op{kind: opContinue, queue: q.local})
	}
}

// deliver puts deliveries to this node's consumers into a round, with references to those messages that are in memory.
func (m *machine) deliver(r *round, q *replica, ds []queue.Delivery) {
	mine := session(m.node, m.boot)
	var slab uint32
	held := 0
	last := -1 // index of the op being extended
	for i := range ds {
		d := &ds[i]
		if d.Session != mine {
			continue
		}
		x := delivery{seq: d.Seq, id: d.ID, acquired: d.Acquired, failed: d.Failed, redelivered: d.Redelivered}
		if x.message, x.held = q.log.find(d.Seq); x.held {
			if at := x.message.Ref.Slab; at != slab && held > 0 {
				m.pool.Hold(slab, held)
				held = 0
			}
			slab = x.message.Ref.Slab
			held++
		}
		if last < 0 || r.ops[last].consumer != d.Consumer {
			last = len(r.ops)
			r.ops = append(r.ops, op{kind: opDeliver, queue: q.local, consumer: d.Consumer, from: len(r.deliveries)})
		}
		r.deliveries = append(r.deliveries, x)
		r.ops[last].to = len(r.deliveries)
	}
	if held > 0 {
		m.pool.Hold(slab, held)
	}
}

// discard takes what is dead-lettered or dropped out of memory, and puts it into the round if somebody wants it.
func (m *machine) discard(r *round, q *replica, ds []queue.Discarded) {
	wanted := r != nil && q.local.dead != nil && q.local.dead.Wanted()
	from := 0
	if wanted {
		from = len(r.letters)
	}
	for _, d := range ds {
		if d.Direct >= 0 {
			msg := m.messages[d.Direct]
			if wanted {
				r.letters = append(r.letters, letter{DeadLetter: queue.DeadLetter{Message: msg, Reason: d.Reason, Failed: d.Failed}, failures: d.Failures})
			} else {
				m.release.Add(msg.Ref.Slab)
			}
			continue
		}
		next := d.First // what is not in memory is on disk
		cold := func(first, last queue.Seq) {
			if wanted && first <= last {
				r.letters = append(r.letters, letter{DeadLetter: queue.DeadLetter{Reason: d.Reason, Failed: d.Failed}, failures: d.Failures, log: q.log.id, seqs: queue.SeqRange{First: first, Last: last}, cold: true})
			}
		}
		q.log.remove(d.SeqRange, func(seq queue.Seq, msg *queue.Message) {
			if !wanted {
				m.release.Add(msg.Ref.Slab)
				return
			}
			cold(next, seq-1)
			next = seq + 1
			r.letters = append(r.letters, letter{DeadLetter: queue.DeadLetter{Message: *msg, Reason: d.Reason, Failed: d.Failed}, failures: d.Failures})
		})
		cold(next, d.Last)
	}
	if wanted && len(r.letters) > from {
		r.ops = append(r.ops, op{kind: opLetters, queue: q.local, from: from, to: len(r.letters)})
	}
}

// letters puts dead letters that stay in the queue until they have arrived into the round.
func (m *machine) letters(r *round, q *replica, ds []queue.Discarded) {
	from := len(r.letters)
	for _, d := range ds {
		for seq := d.First; seq <= d.Last; seq++ {
			x := letter{DeadLetter: queue.DeadLetter{Reason: d.Reason, Failed: d.Failed}, failures: d.Failures, log: q.log.id, seqs: queue.SeqRange{First: seq, Last: seq}, kept: true}
			if msg, ok := q.log.find(seq); ok {
				m.pool.Hold(msg.Ref.Slab, 1)
				x.Message = msg
			} else {
				x.cold = true
			}
			if n := len(r.letters); x.cold && n > from && r.letters[n-1].cold && r.letters[n-1].seqs.Last+1 == seq && r.letters[n-1].DeadLetter == x.DeadLetter && r.letters[n-1].failures == d.Failures {
				r.letters[n-1].seqs.Last = seq
				continue
			}
			r.letters = append(r.letters, x)
		}
	}
	if n := len(r.ops); n > 0 && r.ops[n-1].kind == opLetters && r.ops[n-1].queue == q.local && r.ops[n-1].to == from && r.letters[from-1].kept {
		r.ops[n-1].to = len(r.letters)
		return
	}
	r.ops = append(r.ops, op{kind: opLetters, queue: q.local, from: from, to: len(r.letters)})
}

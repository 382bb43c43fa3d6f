package queue

import (
	"math"
	"slices"
	"time"
)

// leaving are dead letters that have left the machine and have not arrived where they go. For whoever asks the disk they
// are still in the queue: only when their new queues have journaled them may anything forget them here.
type leaving struct {
	ticket uint64
	ranges []SeqRange
}

// leave notes that ranges are on their way, until arrived is told of the ticket. Called with q.mu held.
func (q *Classic) leave(ranges ...SeqRange) uint64 {
	q.lastLeft++
	q.limbo = append(q.limbo, leaving{q.lastLeft, slices.Clone(ranges)})
	return q.lastLeft
}

// arrived notes that dead letters are in their new queues.
func (q *Classic) arrived(ticket uint64) {
	if ticket == 0 {
		return
	}
	q.mu.Lock()
	i := slices.IndexFunc(q.limbo, func(l leaving) bool { return l.ticket == ticket })
	if i < 0 || q.deleted {
		q.mu.Unlock()
		return
	}
	q.journalGone(q.limbo[i].ranges)
	q.limbo = slices.Delete(q.limbo, i, i+1)
	var parting func(*Wake)
	if q.parting != nil && !q.leftBy(q.lastParted) {
		parting, q.parting = q.parting, nil
	}
	q.mu.Unlock()
	if parting != nil {
		var w Wake
		parting(&w)
		w.Flush()
	}
}

// leftBy reports whether letters with tickets up to last have not arrived. Called with q.mu held.
func (q *Classic) leftBy(last uint64) bool {
	return slices.ContainsFunc(q.limbo, func(l leaving) bool { return l.ticket <= last })
}

// whenSettled runs f when everything that has left the queue by now is where it goes; w is not always that of the caller.
// Who deletes the queue asks: what has not arrived would be nowhere. While the disk cannot be read it may take long.
func (q *Classic) whenSettled(w *Wake, f func(*Wake)) {
	q.mu.Lock()
	if wait := !q.deleted && q.leftBy(q.lastLeft); wait {
		q.parting, q.lastParted = f, q.lastLeft
		q.mu.Unlock()
		return
	}
	q.mu.Unlock()
	f(w)
}

// abandon notes that dead letters that lie on disk stay here until the next start. Called when the store closes.
func (q *Classic) abandon(ticket uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.limbo {
		if q.limbo[i].ticket == ticket {
			q.limbo[i].ticket = math.MaxUint64
		}
	}
}

// inLimbo are the places that are on their way, ascending. Called with q.mu held.
func (q *Classic) inLimbo() []SeqRange {
	var all []SeqRange
	for i := range q.limbo {
		all = append(all, q.limbo[i].ranges...)
	}
	slices.SortFunc(all, bySeqFirst)
	return all
}

// awaitLimbo locks q.mu when everything has arrived that left before the running flush began. Such letters are in no run,
// and after the flush not in this queue's part of the journal either: they must be in that of another. What has left since
// was still there to be flushed.
func (q *Classic) awaitLimbo() {
	for {
		q.mu.Lock()
		if q.deleted || !q.leftBy(q.leftBefore) {
			return
		}
		q.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
}

package queue

import (
	"cmp"
	"container/heap"
	"slices"
)

// delayed is a returned message that is not ready before its time has come (RabbitMQ 4.3 docs: delayed retry).
type delayed struct {
	flight
	due Time
}

// byDue is the order in which delayed messages become ready: places in their level among those of one millisecond.
func byDue(a, b delayed) int { return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.seq, b.seq)) }

// delay is how many milliseconds a message waits that has come back, as failed or not, after so many failures.
func (c *Config) delay(failures uint32, failed bool) int64 {
	switch {
	case c.DelayType == DelayNone || c.DelayMin <= 0,
		c.DelayType == DelayFailed && !failed, c.DelayType == DelayReturned && failed:
		return 0
	}
	most := c.DelayMax
	if most <= 0 {
		most = c.DelayMin
	}
	most = min(most, longest)
	if times := int64(max(1, failures)); c.DelayMin <= most/times {
		return c.DelayMin * times
	}
	return most
}

// postpone lets a message wait.
func (s *State) postpone(x delayed) {
	s.stats.Delayed++
	s.stats.DelayedBytes += uint64(x.size)
	heap.Push((*delayedHeap)(&s.delayed), x)
}

// promote makes ready what has waited long enough.
func (s *State) promote(fx *Effects) {
	for len(s.delayed) > 0 && s.delayed[0].due <= s.now {
		if s.budget == 0 {
			fx.More = true
			return
		}
		s.budget--
		x := heap.Pop((*delayedHeap)(&s.delayed)).(delayed)
		s.stats.Delayed--
		s.stats.DelayedBytes -= uint64(x.size)
		s.requeue(&x.flight)
	}
}

// sortedDelayed is what waits, in order; it is a heap, too.
func (s *State) sortedDelayed() []delayed {
	slices.SortFunc(s.delayed, byDue)
	return s.delayed
}

func (s *State) purgeDelayed(fx *Effects) (n uint64) {
	for _, x := range s.sortedDelayed() {
		fx.remove(x.seq)
	}
	n = s.stats.Delayed
	s.delayed, s.stats.Delayed, s.stats.DelayedBytes = nil, 0, 0
	return n
}

// lostElsewhere forgets what is delayed or kept and can no longer be read, and reports how many that were.
func (s *State) lostElsewhere(r SeqRange) (n uint64) {
	within := func(f *flight) bool { return r.First <= f.seq && f.seq <= r.Last }
	left := s.delayed[:0]
	for _, x := range s.sortedDelayed() {
		if !within(&x.flight) {
			left = append(left, x)
			continue
		}
		n++
		s.stats.Delayed--
		s.stats.DelayedBytes -= uint64(x.size)
	}
	s.delayed = left
	for key, x := s.kept.At(0); x != nil; key, x = s.kept.At(key + 1) {
		if within(&x.flight) {
			n++
			s.release(key)
		}
	}
	return n
}

type delayedHeap []delayed

func (h delayedHeap) Len() int           { return len(h) }
func (h delayedHeap) Less(i, j int) bool { return byDue(h[i], h[j]) < 0 }
func (h delayedHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *delayedHeap) Push(x any)        { *h = append(*h, x.(delayed)) }
func (h *delayedHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}

package queue

import "iter"

// Window holds entries under ascending numbers: deliveries in flight by delivery id, messages by place, unacknowledged
// deliveries by tag. Such numbers are handed out in order and leave nearly in order, so a window is a slice with a moving
// start: an entry is appended at the end, found by guessing its place from both ends, and removed by marking it. The rare
// entry that stays for ever costs its own slot and nothing for the millions that pass it, because the slice is compacted
// when less than half of it is alive.
//
// All operations are amortised O(1), but for a binary search when there are holes between the entry and both ends. T
// should hold no pointers: the collector then never walks a window, and removed entries are not cleared. A pointer to an
// entry is good until the next Append or removal. The zero value is an empty window. Not safe for concurrent use.
type Window[T any] struct {
	slots []slot[T] // ascending keys; those before head are gone, the ones at both ends are alive
	head  int
	live  int
	full  uint64 // the last key when much of the slice was last in use
}

// slot keeps in the low bit of mark whether the entry is gone, and the key above it.
type slot[T any] struct {
	mark uint64
	item T
}

const (
	// windowKeep is the capacity, in entries, up to which a window keeps its memory however few entries it has.
	windowKeep = 4096
	// windowLinger is the capacity up to which an empty window keeps its memory until windowPatience times as many
	// entries have passed without using much of it: a window that fills and empties many times a second grows once.
	windowLinger   = 128 << 10
	windowPatience = 16
)

// Len is the number of entries.
func (w *Window[T]) Len() int { return w.live }

// First is the entry with the lowest key, or nil.
func (w *Window[T]) First() (uint64, *T) {
	if w.live == 0 {
		return 0, nil
	}
	s := &w.slots[w.head]
	return s.mark >> 1, &s.item
}

// Last is the entry with the highest key, or nil.
func (w *Window[T]) Last() (uint64, *T) {
	if w.live == 0 {
		return 0, nil
	}
	s := &w.slots[len(w.slots)-1]
	return s.mark >> 1, &s.item
}

// Append adds an entry. The key must be higher than those of all entries, and below 1<<63; anything else is a mistake of
// the caller and panics.
func (w *Window[T]) Append(key uint64, item T) {
	if len(w.slots) == cap(w.slots) {
		w.grow()
	}
	n := len(w.slots)
	if key>>63 != 0 || n > w.head && w.slots[n-1].mark>>1 >= key {
		panic("queue: window keys must ascend")
	}
	w.slots = w.slots[:n+1]
	s := &w.slots[n]
	s.mark, s.item = key<<1, item
	w.live++
}

// grow makes room for one more: by sliding down when half of the slice is free at its start, else by a larger slice.
func (w *Window[T]) grow() {
	if w.head > 0 && w.head >= cap(w.slots)/2 {
		w.slots = w.slots[:copy(w.slots, w.slots[w.head:])]
		w.head = 0
		return
	}
	n := len(w.slots) - w.head
	room := max(8, 2*n)
	if cap(w.slots) == 0 {
		room = 2 // most windows of queues that are little used never have more
	}
	slots := make([]slot[T], n, room)
	copy(slots, w.slots[w.head:])
	w.slots, w.head = slots, 0
}

// Find is the entry under key, or nil.
func (w *Window[T]) Find(key uint64) *T {
	if i := w.seek(key); i < len(w.slots) && w.slots[i].mark == key<<1 {
		return &w.slots[i].item
	}
	return nil
}

// At is the first entry whose key is key or higher, or nil.
func (w *Window[T]) At(key uint64) (uint64, *T) {
	for i := w.seek(key); i < len(w.slots); i++ {
		if s := &w.slots[i]; s.mark&1 == 0 {
			return s.mark >> 1, &s.item
		}
	}
	return 0, nil
}

// Remove takes out the entry under key and returns it; false when there is none.
func (w *Window[T]) Remove(key uint64) (item T, ok bool) {
	i := w.seek(key)
	if i == len(w.slots) || w.slots[i].mark != key<<1 {
		return item, false
	}
	s := &w.slots[i]
	item = s.item
	s.mark |= 1
	w.live--
	w.tidy()
	return item, true
}

// Range are the entries with keys from first to last, both included, in ascending order. Nothing may be added or removed
// while it runs.
func (w *Window[T]) Range(first, last uint64) iter.Seq2[uint64, *T] {
	return func(yield func(uint64, *T) bool) {
		for i := w.seek(first); i < len(w.slots); i++ {
			s := &w.slots[i]
			if s.mark>>1 > last {
				return
			}
			if s.mark&1 == 0 && !yield(s.mark>>1, &s.item) {
				return
			}
		}
	}
}

// RemoveRange takes out the entries with keys from first to last, both included, showing each to f in ascending order
// first, and returns how many there were. f must not touch the window, and may be nil.
func (w *Window[T]) RemoveRange(first, last uint64, f func(key uint64, item *T)) int {
	n := 0
	for i := w.seek(first); i < len(w.slots); i++ {
		s := &w.slots[i]
		if s.mark>>1 > last {
			break
		}
		if s.mark&1 != 0 {
			continue
		}
		if f != nil {
			f(s.mark>>1, &s.item)
		}
		s.mark |= 1
		n++
	}
	if n > 0 {
		w.live -= n
		w.tidy()
	}
	return n
}

// Clear takes out all entries and gives the memory back.
func (w *Window[T]) Clear() { *w = Window[T]{} }

// seek is the index of the first slot, alive or not, whose key is key or higher; len(w.slots) if there is none.
func (w *Window[T]) seek(key uint64) int {
	lo, hi := w.head, len(w.slots)-1
	if lo > hi || key > w.slots[hi].mark>>1 {
		return len(w.slots)
	}
	// Keys differ by at least one from slot to slot, so that the distance in keys from either end bounds the distance in
	// slots. Without holes the two bounds meet at once.
	first, last, span := w.slots[lo].mark>>1, w.slots[hi].mark>>1, uint64(hi-lo)
	if key <= first {
		return lo
	}
	up, down := key-first, last-key
	if down < span {
		lo = hi - int(down)
	}
	if up < span {
		hi = w.head + int(up)
	}
	if w.slots[lo].mark>>1 >= key {
		return lo
	}
	if w.slots[hi].mark>>1 == key {
		return hi
	}
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if w.slots[mid].mark>>1 < key {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// tidy restores what removals disturb: both ends alive, at least half of the slots alive, memory in proportion.
func (w *Window[T]) tidy() {
	if w.live == 0 {
		if c := cap(w.slots); c > windowKeep {
			last := w.slots[len(w.slots)-1].mark >> 1
			switch {
			case len(w.slots) >= c/4:
				w.full = last
			case c > windowLinger || last-w.full > windowPatience*uint64(c):
				w.slots = nil
			}
		}
		w.slots, w.head = w.slots[:0], 0
		return
	}
	for w.slots[w.head].mark&1 != 0 {
		w.head++
	}
	n := len(w.slots)
	for w.slots[n-1].mark&1 != 0 {
		n--
	}
	w.slots = w.slots[:n]
	if span := n - w.head; span >= 32 && w.live < span/2 {
		w.compact()
	}
}

func (w *Window[T]) compact() {
	to := w.slots[:0]
	if c := cap(w.slots); c > windowKeep && w.live < c/8 {
		to = make([]slot[T], 0, max(2*w.live, windowKeep))
	}
	for i := w.head; i < len(w.slots); i++ {
		if w.slots[i].mark&1 == 0 {
			to = append(to, w.slots[i])
		}
	}
	w.slots, w.head = to, 0
}

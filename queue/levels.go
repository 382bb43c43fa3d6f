package queue

import "iter"

// Levels has something for each priority level from the lowest to the highest that was ever used. Most queues use one level,
// and a queue at rest costs little more. The zero value has none. Not safe for concurrent use.
type Levels[T any] struct {
	low  int
	list []T
}

// Has is what there is for a level; nil: nothing.
func (l *Levels[T]) Has(level int) *T {
	if i := level - l.low; 0 <= i && i < len(l.list) {
		return &l.list[i]
	}
	return nil
}

// Make makes something for a level that has nothing: fresh, there and for all levels between it and those that have something.
// Pointers to what there was are not good any more.
func (l *Levels[T]) Make(level int, fresh T) *T {
	n := len(l.list)
	low, end := level, level+1
	if n > 0 {
		low, end = min(low, l.low), max(end, l.low+n)
	}
	list := make([]T, end-low)
	for i := range list {
		list[i] = fresh
	}
	copy(list[max(l.low-low, 0):], l.list)
	l.low, l.list = low, list
	return &l.list[level-low]
}

// All shows what there is, from the lowest level on.
func (l *Levels[T]) All() iter.Seq2[int, *T] {
	return func(yield func(int, *T) bool) {
		for i := range l.list {
			if !yield(l.low+i, &l.list[i]) {
				return
			}
		}
	}
}

// Down shows what there is, from the highest level on.
func (l *Levels[T]) Down() iter.Seq2[int, *T] {
	return func(yield func(int, *T) bool) {
		for i := len(l.list) - 1; i >= 0; i-- {
			if !yield(l.low+i, &l.list[i]) {
				return
			}
		}
	}
}

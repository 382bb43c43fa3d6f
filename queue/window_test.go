package queue

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// windowModel is a window written without thought for speed.
type windowModel struct {
	keys  []uint64
	items []uint32
}

func (m *windowModel) remove(first, last uint64) (n int) {
	for i := 0; i < len(m.keys); {
		if m.keys[i] >= first && m.keys[i] <= last {
			m.keys, m.items = slices.Delete(m.keys, i, i+1), slices.Delete(m.items, i, i+1)
			n++
		} else {
			i++
		}
	}
	return n
}

// driveWindow runs the operations encoded in ops on a window and its model, and compares.
func driveWindow(t *testing.T, ops []byte) {
	var w Window[uint32]
	var m windowModel
	next := uint64(1)
	arg := func() uint64 {
		if len(ops) == 0 {
			return 0
		}
		b := ops[0]
		ops = ops[1:]
		return uint64(b)
	}
	pick := func() uint64 { // a key in or near the window
		if len(m.keys) == 0 {
			return arg()
		}
		return m.keys[int(arg())%len(m.keys)] + arg()%3 - 1
	}
	for len(ops) > 0 {
		switch op := arg(); op % 8 {
		case 0, 1: // append a run
			for range op / 8 {
				w.Append(next, uint32(next*7))
				m.keys, m.items = append(m.keys, next), append(m.items, uint32(next*7))
				next++
			}
		case 2: // skip numbers
			next += arg()
		case 3, 4:
			key := pick()
			_, ok := w.Remove(key)
			if got := m.remove(key, key) == 1; got != ok {
				t.Fatalf("Remove(%d) = %v, want %v", key, ok, got)
			}
		case 5:
			first := pick()
			last := first + op/8
			var seen []uint64
			n := w.RemoveRange(first, last, func(key uint64, item *uint32) {
				if *item != uint32(key*7) {
					t.Fatalf("entry %d holds %d", key, *item)
				}
				seen = append(seen, key)
			})
			for i, key := range m.keys {
				if key >= first && key <= last {
					if len(seen) == 0 || seen[0] != key {
						t.Fatalf("RemoveRange(%d, %d) showed %v, want %d next", first, last, seen, m.keys[i])
					}
					seen = seen[1:]
				}
			}
			if got := m.remove(first, last); got != n || len(seen) != 0 {
				t.Fatalf("RemoveRange(%d, %d) = %d, want %d", first, last, n, got)
			}
		case 6:
			key := pick()
			i := slices.Index(m.keys, key)
			if item := w.Find(key); (item != nil) != (i >= 0) || item != nil && *item != m.items[i] {
				t.Fatalf("Find(%d): %v, index in model %d", key, item, i)
			}
			at, item := w.At(key)
			i, _ = slices.BinarySearch(m.keys, key)
			if (item != nil) != (i < len(m.keys)) || item != nil && (at != m.keys[i] || *item != m.items[i]) {
				t.Fatalf("At(%d): %d %v, index in model %d", key, at, item, i)
			}
		case 7:
			first := pick()
			last := first + op
			var got, want []uint64
			for key, item := range w.Range(first, last) {
				if *item != uint32(key*7) {
					t.Fatalf("entry %d holds %d", key, *item)
				}
				got = append(got, key)
			}
			for _, key := range m.keys {
				if key >= first && key <= last {
					want = append(want, key)
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("Range(%d, %d) = %v, want %v", first, last, got, want)
			}
		}
		if w.Len() != len(m.keys) {
			t.Fatalf("Len %d, want %d", w.Len(), len(m.keys))
		}
		first, f := w.First()
		last, l := w.Last()
		if len(m.keys) == 0 {
			if f != nil || l != nil {
				t.Fatal("ends of an empty window")
			}
		} else if first != m.keys[0] || last != m.keys[len(m.keys)-1] || *f != m.items[0] || *l != m.items[len(m.items)-1] {
			t.Fatalf("ends %d %d, want %d %d", first, last, m.keys[0], m.keys[len(m.keys)-1])
		}
		if span := len(w.slots) - w.head; w.live < (span-32)/2 {
			t.Fatalf("%d alive of %d slots", w.live, span)
		}
	}
}

func TestWindowAgainstModel(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		ops := make([]byte, 600)
		for i := range ops {
			ops[i] = byte(r.Uint32())
		}
		driveWindow(t, ops)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzWindow(f *testing.F) {
	f.Add([]byte{80, 3, 5, 0, 13, 7, 1, 6, 2, 1, 2, 9, 88, 5, 1, 1})
	f.Fuzz(func(t *testing.T, ops []byte) { driveWindow(t, ops) })
}

// One entry that never leaves must not make the window keep those that do.
func TestWindowOldEntryCostsNothing(t *testing.T) {
	var w Window[[3]uint64]
	w.Append(1, [3]uint64{})
	key := uint64(2)
	for range 2_000_000 {
		w.Append(key, [3]uint64{key})
		if key > 101 {
			if item := w.Find(key - 100); item == nil || item[0] != key-100 {
				t.Fatalf("%d is not there", key-100)
			}
			w.Remove(key - 100)
		}
		key++
	}
	if cap(w.slots) > 1024 {
		t.Fatalf("%d slots for %d entries", cap(w.slots), w.Len())
	}
	// A large window gives memory back as it empties.
	for range 100_000 {
		w.Append(key, [3]uint64{})
		key++
	}
	w.RemoveRange(2, key-10, nil)
	if w.Len() != 10 || cap(w.slots) > 2*windowKeep {
		t.Fatalf("%d slots for %d entries", cap(w.slots), w.Len())
	}
}

func TestWindowDoesNotAllocate(t *testing.T) {
	var w Window[[3]uint64]
	key, sum := uint64(1), uint64(0)
	step := func() {
		for range 256 {
			w.Append(key, [3]uint64{key})
			key++
		}
		for k := range w.Range(key-256, key-200) {
			sum += k
		}
		w.RemoveRange(key-500, key-256, func(k uint64, _ *[3]uint64) { sum += k })
	}
	step()
	step()
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// TestWindowLingers: a window that fills from time to time keeps its memory in between, and gives it back when much has
// passed without filling it.
func TestWindowLingers(t *testing.T) {
	var w Window[[3]uint64]
	key := uint64(1)
	pass := func(n int) {
		for range n {
			w.Append(key, [3]uint64{})
			key++
		}
		w.RemoveRange(0, key, nil)
	}
	pass(20_000)
	full := cap(w.slots)
	for range 100 {
		for range 10 {
			pass(1000)
		}
		pass(20_000)
		if cap(w.slots) != full {
			t.Fatalf("room for %d entries, was %d", cap(w.slots), full)
		}
	}
	for range windowPatience {
		pass(full / 5)
	}
	if cap(w.slots) != full {
		t.Fatal("memory given back too soon")
	}
	for range 5 * windowPatience {
		pass(full / 5)
	}
	if cap(w.slots) > windowKeep*2 {
		t.Fatalf("room for %d entries is kept", cap(w.slots))
	}
	pass(2 * windowLinger)
	pass(1)
	if cap(w.slots) > windowKeep {
		t.Fatalf("room for %d entries is kept", cap(w.slots))
	}
}

func BenchmarkWindow(b *testing.B) {
	b.Run("AppendRemove", func(b *testing.B) {
		var w Window[[4]uint64]
		w.Append(1, [4]uint64{})
		for key := uint64(2); b.Loop(); key++ {
			w.Append(key, [4]uint64{})
			if key > 200 {
				w.Remove(key - 150)
			}
		}
	})
	b.Run("RemoveRange256", func(b *testing.B) {
		var w Window[[4]uint64]
		var sum uint64
		key := uint64(1)
		for b.Loop() {
			for range 256 {
				w.Append(key, [4]uint64{})
				key++
			}
			w.RemoveRange(key-256, key-1, func(k uint64, _ *[4]uint64) { sum += k })
		}
	})
}

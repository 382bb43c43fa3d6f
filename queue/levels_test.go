package queue

import (
	"math/rand/v2"
	"testing"
)

// What is made for a level stays there, whichever are made before and after, above and below.
func TestLevels(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var l Levels[int]
		model := map[int]int{}
		for n := 1; n < 12; n++ {
			i := rng.IntN(256)
			if l.Has(i) == nil {
				if got := *l.Make(i, -1); got != -1 {
					t.Fatalf("seed %d: level %d is made as %d", seed, i, got)
				}
			}
			*l.Has(i), model[i] = n, n
			low, high := 256, -1
			for k := range model {
				low, high = min(low, k), max(high, k)
			}
			for k := range 256 {
				x, want := l.Has(k), -1
				if v, ok := model[k]; ok {
					want = v
				}
				if in := low <= k && k <= high; in != (x != nil) || in && *x != want {
					t.Fatalf("seed %d: level %d of %d to %d is %v, not %d", seed, k, low, high, x, want)
				}
			}
			at := low
			for k, x := range l.All() {
				if k != at || x != l.Has(k) {
					t.Fatalf("seed %d: level %d in place of %d", seed, k, at)
				}
				at++
			}
			for k, x := range l.Down() {
				if at--; k != at || x != l.Has(k) {
					t.Fatalf("seed %d: down, level %d in place of %d", seed, k, at)
				}
			}
			if at != low {
				t.Fatalf("seed %d: %d is the last one down, not %d", seed, at, low)
			}
		}
	}
}

package stream

import (
	"math/rand/v2"
	"testing"

	"github.com/warrenmq/warren/test/seeds"
)

// TestRetain compares with the rules, put naively.
func TestRetain(t *testing.T) {
	rng := rand.New(rand.NewPCG(seeds.Of(t), 0))
	if Retain(nil, Limits{Bytes: 1, Age: 1}, 0) != 0 {
		t.Error("an empty log")
	}
	for range 20_000 {
		var segs []SegmentInfo
		next := rng.Uint64N(100)
		for range 1 + rng.IntN(8) {
			n := 1 + rng.Uint64N(5)
			segs = append(segs, SegmentInfo{First: next, Next: next + n, Size: 1 + rng.Int64N(100), LastTime: rng.Int64N(1000)})
			next += n
		}
		l := Limits{Bytes: max(0, rng.Int64N(400)-100), Age: max(0, rng.Int64N(800)-300)}
		now := rng.Int64N(1200)
		left := append([]SegmentInfo(nil), segs...)
		size := func() (n int64) {
			for _, s := range left {
				n += s.Size
			}
			return n
		}
		for l.Bytes > 0 && len(left) > 1 && size() > l.Bytes {
			left = left[1:]
		}
		for l.Age > 0 && len(left) > 1 && now-left[0].LastTime > l.Age {
			left = left[1:]
		}
		if got := Retain(segs, l, now); got != left[0].First {
			t.Fatalf("%+v at %d of %+v: %d, want %d", l, now, segs, got, left[0].First)
		}
	}
}

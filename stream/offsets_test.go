package stream

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/warrenmq/warren/test/seeds"
)

// TestProgress acknowledges at random, and compares with a map.
func TestProgress(t *testing.T) {
	rng := rand.New(rand.NewPCG(seeds.Of(t), 0))
	for range 300 {
		var p Progress
		seen := rng.Uint64N(50)
		p.Begin(seen)
		start := seen
		var flight []uint64
		acked := map[uint64]bool{}
		last := start
		for range 400 {
			switch x := rng.IntN(10); {
			case x < 5:
				seen += rng.Uint64N(3) / 2 * rng.Uint64N(5) // some are passed over
				p.Delivered(seen)
				flight = append(flight, seen)
				seen++
			case x < 9:
				from := start + rng.Uint64N(seen-start+3)
				to := from + rng.Uint64N(4)*rng.Uint64N(4)
				for o := from; o <= to; o++ {
					acked[o] = acked[o] || o < seen // before it was delivered it does not count
				}
				before := p.Next()
				if rose := p.Acked(from, to); rose != (p.Next() > before) {
					t.Fatal("it did not say that it rose")
				}
			default:
				seen += rng.Uint64N(4)
				p.Passed(seen)
			}
			want := seen
			for i := len(flight) - 1; i >= 0; i-- {
				if !acked[flight[i]] {
					want = flight[i]
				}
			}
			got := p.Next()
			if got != want || got < last {
				t.Fatalf("committed %d, was %d, want %d", got, last, want)
			}
			last = got
		}
		p.Acked(0, seen)
		if p.Next() != seen || p.Flight() != 0 {
			t.Fatalf("after all at %d of %d, %d in flight", p.Next(), seen, p.Flight())
		}
	}
}

func TestProgressInOrder(t *testing.T) {
	var p Progress
	p.Begin(10)
	for o := uint64(10); o < 16; o++ {
		p.Delivered(o)
	}
	for _, c := range []struct{ from, to, next uint64 }{{11, 11, 10}, {13, 14, 10}, {10, 10, 12}, {10, 10, 12}, {12, 12, 15}, {99, 99, 15}, {15, 15, 16}} {
		p.Acked(c.from, c.to)
		if p.Next() != c.next {
			t.Errorf("after %d to %d: %d, want %d", c.from, c.to, p.Next(), c.next)
		}
	}
}

func TestProgressIsBounded(t *testing.T) {
	var p Progress
	for o := range uint64(200_000) { // ST-10: one at a time, for long
		p.Delivered(o)
		p.Acked(o, o)
	}
	if p.Next() != 200_000 || cap(p.ring) > 64 {
		t.Error(p.Next(), cap(p.ring))
	}
}

// TestOffsets is the life of a name.
func TestOffsets(t *testing.T) {
	var o Offsets
	first, err := o.Attach("billing")
	if err != nil || first.Known {
		t.Fatal(first, err)
	}
	commit := func(c Commit, next uint64) error { return o.Commit("billing", c.Generation, next, 5) }
	stored := func(want uint64) {
		t.Helper()
		if c, _ := o.Get("billing"); c.Next != want || !c.Known {
			t.Fatalf("stored is %+v, want %d", c, want)
		}
	}
	for _, next := range []uint64{0, 7, 3} {
		if err := commit(first, next); err != nil {
			t.Fatal(err)
		}
	}
	stored(7)
	second, err := o.Attach("billing")
	if err != nil || second.Next != 7 || !second.Known {
		t.Fatal(second, err)
	}
	if err := commit(first, 9); !errors.Is(err, ErrFenced) {
		t.Fatal("the older one committed:", err)
	}
	stored(7)
	rewound, err := o.Set("billing", 2, 6)
	if err != nil {
		t.Fatal(err)
	}
	stored(2)
	if err := commit(second, 100); !errors.Is(err, ErrFenced) {
		t.Fatal("what ran before the rewind committed:", err)
	}
	if err := commit(rewound, 3); err != nil {
		t.Fatal(err)
	}
	o.Delete("billing")
	third, _ := o.Attach("billing")
	if third.Known || third.Generation <= rewound.Generation {
		t.Fatalf("after it was deleted: %+v", third)
	}
	if err := commit(first, 9); !errors.Is(err, ErrFenced) {
		t.Fatal("a generation was given twice")
	}
	for _, name := range []string{"", strings.Repeat("n", 256)} {
		if _, err := o.Attach(name); !errors.Is(err, ErrName) {
			t.Error(err)
		}
	}
	for i := range MaxNames - 1 {
		if _, err := o.Attach(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := o.Attach("one more"); !errors.Is(err, ErrNames) {
		t.Error(err)
	}
	if _, err := o.Attach("billing"); err != nil {
		t.Error(err)
	}
}

func TestStart(t *testing.T) {
	known := func(next uint64) Commit { return Commit{Next: next, Known: true} }
	for _, c := range []struct {
		c            Commit
		reset        Reset
		offset, lost uint64
		removed      bool
	}{
		{Commit{}, ResetError, 200, 0, false},
		{Commit{}, ResetNext, 200, 0, false},
		{Commit{}, ResetFirst, 100, 0, false},
		{known(150), ResetError, 150, 0, false},
		{known(100), ResetError, 100, 0, false},
		{known(200), ResetNext, 200, 0, false},
		{known(99), ResetError, 0, 0, true},
		{known(90), ResetFirst, 100, 10, false},
		{known(90), ResetNext, 200, 110, false},
	} {
		offset, lost, err := c.c.Start(100, 200, c.reset)
		var removed *RemovedError
		if offset != c.offset || lost != c.lost || errors.As(err, &removed) != c.removed {
			t.Errorf("%+v %d: %d, %d, %v", c.c, c.reset, offset, lost, err)
		}
	}
}

func FuzzOffsets(f *testing.F) {
	var o Offsets
	_, _ = o.Set("a", 5, 1)
	_, _ = o.Attach("b")
	f.Add(o.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var o Offsets
		if err := o.Decode(b); err != nil {
			if !errors.Is(err, ErrOffsets) || o.Len() > 0 {
				t.Fatal(err)
			}
			return
		}
		again := o.Append(nil)
		var p Offsets
		if err := p.Decode(again); err != nil || !bytes.Equal(p.Append(nil), again) {
			t.Fatalf("%x became %x, %v", b, again, err)
		}
	})
}

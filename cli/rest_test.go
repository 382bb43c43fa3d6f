package cli

import (
	"runtime/debug"
	"testing"
)

// A node is at rest when it has allocated little for some time, and collects only if that gives something back.
func TestRest(t *testing.T) {
	var r rest
	at := uint64(1 << 30)
	for i, x := range []struct {
		grown, spare uint64
		want         bool
	}{
		{1 << 30, 100 << 20, false}, // busy
		{1 << 20, 100 << 20, false}, // at rest, but perhaps for a moment only
		{1 << 20, 100 << 20, true},
		{1 << 20, 1 << 20, false}, // it was given back
		{1 << 20, 9 << 20, true},  // and something has gathered
		{50 << 20, 50 << 20, false},
		{0, 50 << 20, false},
		{0, 50 << 20, true},
	} {
		at += x.grown
		if got := r.look(heap{at, x.spare}); got != x.want {
			t.Errorf("look %d: %v", i, got)
		}
	}
}

var kept [][]byte

// What a collection would find counts as spare, and afterwards does not.
func TestReadHeap(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	readings := newReadings()
	debug.FreeOSMemory()
	before := readHeap(readings)
	for range 64 {
		kept = append(kept, make([]byte, 1<<20))
	}
	kept = nil
	busy := readHeap(readings)
	debug.FreeOSMemory()
	after := readHeap(readings)
	if busy.allocated-before.allocated < 64<<20 || busy.spare < before.spare+56<<20 || after.spare > busy.spare-48<<20 {
		t.Errorf("%+v, then %+v, then %+v", before, busy, after)
	}
}

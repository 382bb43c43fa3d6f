package cluster

import (
	"runtime"
	"testing"
)

// Batches cost no allocations, on either side.
func TestSteadyAllocations(t *testing.T) {
	if raced {
		t.Skip("the race detector allocates")
	}
	a, b := sit(t, 1, 1, nil), sit(t, 2, 1, nil)
	var got, want int
	done := make(chan struct{}, 1)
	b.receive = func(x Batch) {
		x.Credit.Return()
		if got++; got == want {
			got = 0
			done <- struct{}{}
		}
	}
	meet(a, b)
	a.saw("up 2/1")
	s := a.stream(2, Data, 1)
	room := make(chan struct{}, 1)
	s.Room(func() { room <- struct{}{} })
	body := make([]byte, 64<<10)
	run := func(n int) {
		want = n
		for range n {
			for !s.Send(1, body[:100], body[100:]) {
				<-room
			}
		}
		<-done
	}
	run(500)
	const batches = 4000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run(batches)
	runtime.ReadMemStats(&after)
	if n := after.Mallocs - before.Mallocs; n > batches/20 {
		t.Errorf("%d allocations for %d batches", n, batches)
	}
}

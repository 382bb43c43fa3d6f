package queue

import "testing"

// TestPress: publishers wait as long as anybody has a reason, in whichever order it is said.
func TestPress(t *testing.T) {
	p := NewPool(1 << 20)
	press := Press{Pool: p, Why: BlockedBySlots}
	for _, order := range [][]bool{{true, false}, {false, true}, {true, true, false, false}, {true, false, false, true}} {
		for _, on := range order {
			press.Set(on)
		}
		if p.Full(0) {
			t.Fatalf("%v: publishers wait for ever", order)
		}
	}
	press.Set(true)
	if !p.Full(0) || p.Full(BlockedBySlots) {
		t.Fatal("publishers do not wait, or for something else")
	}
	woken := 0
	p.WaitForRoom(0, func() { woken++ })
	p.WaitForRoom(BlockedBySlots, func() { woken += 10 })
	if woken != 10 {
		t.Fatalf("%d were woken", woken)
	}
	press.Set(false)
	if woken != 11 {
		t.Fatalf("%d were woken", woken)
	}
}

package main

import (
	"testing"
	"time"
)

// Each consumer of a replay must get everything, once and in order.
func TestReplayCountsForEachConsumer(t *testing.T) {
	for name, c := range map[string]struct {
		copies func(tag uint64) int
		want   verdict
	}{
		"faithful":           {func(uint64) int { return 1 }, verdict{Sent: 200, Expected: 800, Received: 800}},
		"loses one, repeats": {func(tag uint64) int { return map[uint64]int{3: 2, 7: 0}[tag] + int(boolOctet(tag != 3 && tag != 7)) }, verdict{Sent: 200, Expected: 800, Received: 800, Lost: 4, Duplicated: 4}},
	} {
		w := presets()["replay"].workload
		w.endpoint, w.Messages, w.Consumers, w.stall = (&fakeBroker{copies: c.copies, keeps: true}).start(t), 200, 3, time.Second
		r, err := runReplay(&w, &meter{})
		if err != nil {
			t.Fatal(name, err)
		}
		if r.Verdict != c.want {
			t.Errorf("%s: %+v, want %+v", name, r.Verdict, c.want)
		}
		if len(r.Phases) != 3 || r.Phases[1].Name != "one" || r.Phases[1].Delivered != 200 || r.Phases[2].Delivered != 600 {
			t.Errorf("%s: %+v", name, r.Phases)
		}
	}
}

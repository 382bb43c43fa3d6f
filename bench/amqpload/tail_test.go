package main

import (
	"errors"
	"testing"
	"time"
)

// The tail is measured alone and beside the others, and not when these have read everything.
func TestTailBesideReplay(t *testing.T) {
	w := presets()["tail"].workload
	w.endpoint, w.Messages, w.Consumers = (&fakeBroker{copies: func(uint64) int { return 1 }, keeps: true}).start(t), 2, 3
	w.Warmup, w.Duration, w.stall = 50*time.Millisecond, 300*time.Millisecond, time.Second
	if _, err := runTail(&w, &meter{}); !errors.Is(err, errReplayed) {
		t.Fatal(err)
	}
}

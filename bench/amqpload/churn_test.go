package main

import (
	"strings"
	"testing"
	"time"
)

func exclusiveWorkload(t *testing.T, b *fakeBroker, workers int) workload {
	b.copies = func(uint64) int { return 1 }
	w := presets()["churn-exclusive"].workload
	w.endpoint, w.Producers, w.Duration = b.start(t), workers, 50*time.Millisecond
	return w
}

func TestExclusiveChurnReceivesItsOwn(t *testing.T) {
	w := exclusiveWorkload(t, &fakeBroker{}, 1)
	r, err := runExclusive(&w, &meter{})
	if err != nil {
		t.Fatal(err)
	}
	if v, p := r.Verdict, r.Phases[0]; v.Sent == 0 || v.Received != v.Sent || p.Published != v.Sent || p.EndToEnd == nil {
		t.Errorf("%+v, %+v", v, p)
	}
}

// A message of somebody else waits for the first consumer.
func TestExclusiveChurnNoticesAnothersMessage(t *testing.T) {
	b := &fakeBroker{}
	w := exclusiveWorkload(t, b, 1)
	body := make([]byte, 128)
	stamp{5, 6, 7}.put(body)
	b.enqueue(body)
	if _, err := runExclusive(&w, &meter{}); err == nil || !strings.Contains(err.Error(), "not its own") {
		t.Errorf("error %v", err)
	}
}

func TestExclusiveQueueThatStays(t *testing.T) {
	w := exclusiveWorkload(t, &fakeBroker{queues: true}, 1)
	if err := awaitNoQueue(w.endpoint, w.exclusiveName(0), 20*time.Millisecond); err == nil || !strings.Contains(err.Error(), "still there") {
		t.Errorf("error %v", err)
	}
	w = exclusiveWorkload(t, &fakeBroker{}, 1)
	if err := awaitNoQueue(w.endpoint, w.exclusiveName(0), time.Second); err != nil {
		t.Error(err)
	}
}

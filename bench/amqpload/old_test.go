package main

import (
	"testing"
	"time"
)

func oldWorkload(t *testing.T, b *fakeBroker) workload {
	w := presets()["old-unacked"].workload
	w.endpoint, w.Messages, w.Confirm = b.start(t), 500, 100
	return w
}

func TestOldMessageIsThereAtTheEnd(t *testing.T) {
	w := oldWorkload(t, &fakeBroker{copies: func(uint64) int { return 1 }})
	r, err := runOld(&w, &meter{})
	if err != nil {
		t.Fatal(err)
	}
	if want := (verdict{Sent: 501, Expected: 501, Received: 501}); r.Verdict != want {
		t.Errorf("%+v, want %+v", r.Verdict, want)
	}
}

// A broker that gives the old message to another consumer shows it as a message of no known producer.
func TestOldMessageGivenAwayIsForeign(t *testing.T) {
	w := oldWorkload(t, &fakeBroker{copies: func(uint64) int { return 1 }, again: 1})
	r, err := runOld(&w, &meter{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Verdict.Foreign != 1 {
		t.Errorf("%+v", r.Verdict)
	}
}

func TestOldMessageThatIsGone(t *testing.T) {
	b := &fakeBroker{copies: func(uint64) int { return 1 }}
	w := oldWorkload(t, b)
	c, err := dial(w.endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	old := stamp{oldProducer, 0, 77}
	if found, rest, err := takeOld(&w, c, old, 20*time.Millisecond); found || rest != 0 || err != nil {
		t.Errorf("in an empty queue: %v %d %v", found, rest, err)
	}
	body := make([]byte, 128)
	stamp{0, 3, 77}.put(body)
	b.enqueue(body)
	if found, rest, err := takeOld(&w, c, old, 20*time.Millisecond); found || rest != 1 || err != nil {
		t.Errorf("another message: %v %d %v", found, rest, err)
	}
	old.put(body)
	b.enqueue(body)
	if found, rest, err := takeOld(&w, c, old, time.Second); !found || rest != 0 || err != nil {
		t.Errorf("the old one: %v %d %v", found, rest, err)
	}
}

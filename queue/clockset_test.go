package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/warrenmq/warren/storage"
)

type ticked chan Time

func (t ticked) Tick(now Time) { t <- now }

const hour = Time(time.Hour / time.Millisecond)

// TestClockIsNotSet: the system's clock is set an hour forwards or backwards after the start. The node's goes on evenly, and
// what is due comes in time.
func TestClockIsNotSet(t *testing.T) {
	for _, set := range []Time{-hour, hour} {
		system := Time(time.Now().UnixMilli())
		c := newClock(system - set) // it began before that
		if got := c.Now(); got < system-set || got > system-set+hour/2 {
			t.Errorf("set by %d ms: the clock is off by %d ms", set, got-(system-set))
		}
		var a Appointment
		k := make(ticked, 1)
		begun := time.Now()
		at := c.Now() + 50
		c.Set(&a, k, at)
		if now := <-k; now < at || time.Since(begun) < 45*time.Millisecond {
			t.Errorf("set by %d ms: ticked at %d, %d ms early", set, now, at-now)
		}
		c.Close()
	}
}

// TestClockSetBeforeRestart: messages that are stored with the time they expire at live as much shorter or longer as the
// clock was set, and no more.
func TestClockSetBeforeRestart(t *testing.T) {
	for _, c := range []struct {
		set  Time
		ttl  []int64 // milliseconds from the start of the test, of messages in this order
		left []int   // which of them are there after the restart
	}{
		{30_000, []int64{20_000, 7_200_000, -1}, []int{1, 2}},
		{hour, []int64{20_000, 3_000_000, 7_200_000, -1}, []int{2, 3}},
		{hour, []int64{-1, 3_000_000, 7_200_000}, []int{0, 2}}, // what has expired waits behind a living head and goes with it
		{-hour, []int64{3_000_000, 7_200_000, -1}, []int{0, 1, 2}},
		{-hour, []int64{20_000}, []int{0}}, // an hour late
		{1000 * 365 * 24 * hour, []int64{20_000, 3_000_000, -1}, []int{2}},
		{-56 * 365 * 24 * hour, []int64{3_000_000, -1}, []int{0, 1}}, // to about 1970
	} {
		t.Run(fmt.Sprint(c.set, c.ttl), func(t *testing.T) {
			d := &disk{t: t, fs: storage.NewFaultFS(1)}
			d.open()
			var w Wake
			done := &confirmed{done: make(chan struct{})}
			done.left.Store(int64(len(c.ttl)))
			b := Batch{Confirms: done}
			for i, ttl := range c.ttl {
				m := d.message(i, 10)
				m.TTL = ttl
				b.Messages, b.Numbers = append(b.Messages, m), append(b.Numbers, uint64(i))
			}
			d.queue.Publish(&b, &w)
			w.Flush()
			<-done.done
			d.close()

			d.set = c.set
			d.open()
			g := d.getter()
			for _, want := range c.left {
				if n, _ := d.get(g, true); n != want {
					t.Fatalf("got %d, want %d of %v", n, want, c.left)
				}
			}
			if n, _ := d.get(g, true); n != -1 {
				t.Errorf("got %d, want none", n)
			}
			// What comes now expires by the clock as it is now.
			m := d.message(99, 10)
			m.TTL = 50
			d.queue.Publish(&Batch{Messages: []Message{m}}, &w)
			w.Flush()
			for deadline := time.Now().Add(5 * time.Second); d.queue.Stats().Ready != 0; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("a message does not expire")
				}
			}
			d.close()
		})
	}
}

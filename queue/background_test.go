package queue

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/storage"
)

// forwarded sends dead letters on to another queue, and keeps how many came at a time.
type forwarded struct {
	to   *Classic
	want int
	all  chan struct{}

	mu    sync.Mutex
	sizes []int
	n     int
}

func (f *forwarded) Wanted() bool { return true }

func (f *forwarded) Discard(ds []DeadLetter, w *Wake, arrived func()) {
	var b Batch
	for _, d := range ds {
		b.Messages = append(b.Messages, d.Message)
	}
	f.to.Publish(&b, w)
	if arrived != nil {
		arrived()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sizes = append(f.sizes, len(ds))
	if f.n += len(ds); f.n == f.want {
		close(f.all)
	}
}

// A policy that cuts a long queue, most of which lies on disk, is carried out to its end, in small steps with rests between,
// though there is room for an eighth of the messages only and the dead letters take it as well.
func TestCutInSmallSteps(t *testing.T) {
	const messages, left = 20_000, 10
	var rests atomic.Int64
	d := &disk{t: t, fs: storage.NewFaultFS(1), bound: 2 << 20}
	d.rest = func(r time.Duration) {
		rests.Add(1)
		if r <= 0 || r > maxRest {
			t.Errorf("a rest of %v", r)
		}
	}
	d.open()
	defer d.close()
	f := &forwarded{to: d.queue, want: messages - left, all: make(chan struct{})}
	d.queue = d.store.NewClassic(8, true, ClassicRules(0), noLimits, f)
	d.publish(0, messages, 600)

	var w Wake
	d.queue.Configure(Config{TTL: -1, MaxLength: left, MaxBytes: -1, DeliveryLimit: -1}, &w)
	w.Flush()
	select {
	case <-f.all:
	case <-time.After(time.Minute):
		t.Fatalf("%d of %d messages were dead-lettered: the queue has %+v", f.n, f.want, d.queue.Stats())
	}
	if from, to := d.queue.Stats().Ready, f.to.Stats().Ready; from != left || to != messages-left {
		t.Errorf("%d messages stayed and %d are where dead letters go", from, to)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, n := range f.sizes {
		if i > 0 && n > stepMessages { // the first are the policy's own command
			t.Fatalf("step %d dead-lettered %d messages", i, n)
		}
	}
	if int(rests.Load()) < len(f.sizes)-3 {
		t.Errorf("%d rests for %d steps", rests.Load(), len(f.sizes))
	}
}

// One step runs at a time, in order, with a rest half as long as it took; what waits when the store closes is done, and what
// comes later is the caller's.
func TestBackground(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	var at atomic.Int64
	var b background
	b.rest = func(r time.Duration) {
		if at.Load() == 1 && r < time.Millisecond/4 {
			t.Errorf("a rest of %v after a step of half a millisecond", r)
		}
	}
	b.start(ctx, &running, nil)
	begun, hold := make(chan struct{}), make(chan struct{})
	b.do(func(*storage.Cursor) { time.Sleep(time.Millisecond / 2); at.Store(1) })
	b.do(func(*storage.Cursor) { close(begun); <-hold; at.Store(2) })
	for i := int64(3); i < 10; i++ {
		b.do(func(*storage.Cursor) {
			if !at.CompareAndSwap(i-1, i) {
				t.Errorf("step %d came after %d", i, at.Load())
			}
		})
	}
	waited := make(chan struct{})
	go func() { b.wait(func() {}); close(waited) }()
	<-begun
	cancel()
	close(hold)
	running.Wait()
	<-waited
	if at.Load() != 9 {
		t.Errorf("it ended after step %d", at.Load())
	}
	b.do(func(*storage.Cursor) { t.Error("a step after the end") })
	b.wait(func() { at.Store(10) })
	if at.Load() != 10 {
		t.Error("nobody ran what came after the end")
	}
}

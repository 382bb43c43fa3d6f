package queue

import (
	"context"
	"sync"
	"time"

	"github.com/warrenmq/warren/storage"
)

// background does what nobody waits for: it expires, drops and dead-letters the many, and moves them to disk. All that the
// node's queues have of it is done by one goroutine in small steps, with a rest half as long after each: that is two thirds of
// a processor at most, and the scheduler, which looks at the network only when it has nothing else to do, does so in time.
//
// A step waits for nothing; what it reads from files is in memory as a rule. Who has more to do adds the next step at its end, behind the others'.
type background struct {
	mu      sync.Mutex // guards what follows; a leaf
	more    sync.Cond
	steps   []func(*storage.Cursor)
	closing bool
	last    time.Time // when a queue added a step of its own

	rest func(time.Duration) // storage.Sleep; tests look
}

const (
	// stepOctets and stepMessages bound a step: some 100 µs.
	stepOctets   = 16 << 10
	stepMessages = 128
	// stepFlush is how many messages are moved to disk in a step.
	stepFlush = 512
	// maxRest bounds a rest. A step is long when it met a slow disk or a busy machine: that is no work.
	maxRest = time.Millisecond
	// busyFor is how long queues count as at work after a step, and the longest rest is among it.
	busyFor = 10 * strainedRest
)

func (b *background) start(ctx context.Context, running *sync.WaitGroup, cursor *storage.Cursor) {
	b.more.L = &b.mu
	if b.rest == nil {
		b.rest = storage.Sleep
	}
	running.Go(func() { b.run(cursor) })
	running.Go(func() {
		<-ctx.Done()
		b.mu.Lock()
		b.closing = true
		b.more.Broadcast()
		b.mu.Unlock()
	})
}

// run takes the steps in their order until the store closes; those there are by then have no rest.
func (b *background) run(cursor *storage.Cursor) {
	for {
		b.mu.Lock()
		for len(b.steps) == 0 && !b.closing {
			b.more.Wait()
		}
		if len(b.steps) == 0 {
			b.mu.Unlock()
			return
		}
		step, closing := b.steps[0], b.closing
		b.steps[0] = nil
		b.steps = b.steps[1:]
		b.mu.Unlock()
		begun := time.Now()
		step(cursor)
		if !closing {
			b.rest(min(time.Since(begun)/2, maxRest))
		}
	}
}

// do adds a step. When the store closes it is left out: what it would do is done after the next start.
func (b *background) do(step func(*storage.Cursor)) {
	b.mu.Lock()
	b.last = time.Now()
	b.mu.Unlock()
	b.add(step)
}

// busy reports whether queues have had steps of their own lately.
func (b *background) busy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Since(b.last) < busyFor
}

func (b *background) add(step func(*storage.Cursor)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closing || b.more.L == nil {
		return false
	}
	b.steps = append(b.steps, step)
	b.more.Signal()
	return true
}

// after adds a step when some time has passed.
func (b *background) after(d time.Duration, step func(*storage.Cursor)) {
	if d == 0 {
		b.do(step)
		return
	}
	time.AfterFunc(d, func() { b.do(step) })
}

// wait returns when f has been run as a step; when the store closes, on the caller's goroutine.
func (b *background) wait(f func()) {
	done := make(chan struct{})
	if !b.add(func(*storage.Cursor) { f(); close(done) }) {
		f()
		return
	}
	<-done
}

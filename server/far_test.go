package server

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/test/seeds"
)

// far stands for queues that live elsewhere: every call comes to the queue later, on a goroutine of the queue's own, and so
// do all answers and deliveries. What comes to one queue keeps its order; different queues go at different speeds.
type far struct {
	seed uint64
	open atomic.Int64 // calls on their way

	mu   sync.Mutex // guards what follows
	more sync.Cond
	held bool
	n    uint64
	out  queue.Outlet        // attached last
	soon func(w *queue.Wake) // done once, just before the next call that has an answer
	all  []*farQueue
}

func newFar(t testing.TB) *far {
	f := &far{seed: seeds.Of(t)}
	f.more.L = &f.mu
	return f
}

// hold keeps all calls from coming to their queues until release.
func (f *far) hold() {
	f.mu.Lock()
	f.held = true
	f.mu.Unlock()
}

func (f *far) release() {
	f.mu.Lock()
	f.held = false
	f.more.Broadcast()
	f.mu.Unlock()
}

// last is the consumer attached last.
func (f *far) last() queue.Outlet {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.out
}

// before has something done by a queue just before it answers the next call that has an answer.
func (f *far) before(soon func(w *queue.Wake)) {
	f.mu.Lock()
	f.soon = soon
	f.mu.Unlock()
}

// rest returns when no call is on its way.
func (f *far) rest(t testing.TB) {
	t.Helper()
	f.release()
	until(t, "far queues are at rest", func() bool { return f.open.Load() == 0 })
}

func (f *far) queue(q *queue.Classic) *farQueue {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	x := &farQueue{Classic: q, far: f, rand: rand.New(rand.NewPCG(f.seed, f.n))}
	f.all = append(f.all, x)
	return x
}

// crowd makes a queue, by the order in which they were made, full or not.
func (f *far) crowd(n int, on bool) {
	f.mu.Lock()
	q := f.all[n]
	f.mu.Unlock()
	q.mu.Lock()
	q.full = on
	waiters := q.waiters
	if q.waiters = nil; on {
		q.waiters, waiters = waiters, nil
	}
	q.mu.Unlock()
	for _, wake := range waiters {
		wake()
	}
}

type farQueue struct {
	*queue.Classic
	far  *far
	rand *rand.Rand // the running goroutine's

	mu      sync.Mutex // guards what follows
	calls   []func(w *queue.Wake)
	running bool
	full    bool
	waiters []func()
}

// Full implements queue.Bounded.
func (q *farQueue) Full() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.full
}

// WaitForRoom implements queue.Bounded.
func (q *farQueue) WaitForRoom(wake func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.full {
		q.waiters = append(q.waiters, wake)
	} else {
		go wake()
	}
}

// later has the queue's goroutine make a call.
func (q *farQueue) later(call func(w *queue.Wake)) {
	q.far.open.Add(1)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.calls = append(q.calls, call)
	if !q.running {
		q.running = true
		go q.run()
	}
}

// answer is later, for a call that has an answer.
func (q *farQueue) answer(call func(w *queue.Wake)) {
	q.later(func(w *queue.Wake) {
		q.far.mu.Lock()
		soon := q.far.soon
		q.far.soon = nil
		q.far.mu.Unlock()
		if soon != nil {
			soon(w)
		}
		call(w)
	})
}

func (q *farQueue) run() {
	for {
		q.mu.Lock()
		calls := q.calls
		q.calls = nil
		q.running = len(calls) > 0
		q.mu.Unlock()
		if len(calls) == 0 {
			return
		}
		var w queue.Wake
		for _, call := range calls {
			q.far.mu.Lock()
			for q.far.held {
				q.far.more.Wait()
			}
			q.far.mu.Unlock()
			if q.rand.IntN(4) == 0 {
				time.Sleep(time.Duration(q.rand.IntN(300)) * time.Microsecond)
			}
			call(&w)
			if q.rand.IntN(2) == 0 {
				w.Flush()
			}
		}
		w.Flush()
		q.far.open.Add(int64(-len(calls)))
	}
}

func (q *farQueue) Publish(b *queue.Batch, _ *queue.Wake) {
	mine := queue.Batch{Messages: slices.Clone(b.Messages), Numbers: slices.Clone(b.Numbers), Confirms: b.Confirms}
	b.Pressed = false
	q.answer(func(w *queue.Wake) { q.Classic.Publish(&mine, w) })
}

func (q *farQueue) Attach(spec queue.ConsumerSpec, out queue.Outlet, _ *queue.Wake, done func(queue.ConsumerID, error)) {
	q.far.mu.Lock()
	q.far.out = out
	q.far.mu.Unlock()
	q.answer(func(w *queue.Wake) { q.Classic.Attach(spec, out, w, done) })
}

func (q *farQueue) Detach(c queue.ConsumerID, how queue.Detachment, _ *queue.Wake, done func()) {
	q.answer(func(w *queue.Wake) { q.Classic.Detach(c, how, w, done) })
}

func (q *farQueue) Ready(c queue.ConsumerID, _ *queue.Wake) {
	q.later(func(w *queue.Wake) { q.Classic.Ready(c, w) })
}

func (q *farQueue) Get(c queue.ConsumerID, noAck bool, _ *queue.Wake, done func(queue.Offered, uint64, bool)) {
	q.answer(func(w *queue.Wake) { q.Classic.Get(c, noAck, w, done) })
}

func (q *farQueue) Settle(c queue.ConsumerID, ids []queue.Range, o queue.Outcome, _ *queue.Wake) {
	ids = slices.Clone(ids)
	q.later(func(w *queue.Wake) { q.Classic.Settle(c, ids, o, w) })
}

func (q *farQueue) Purge(_ *queue.Wake, done func(uint64)) {
	q.answer(func(w *queue.Wake) { q.Classic.Purge(w, done) })
}

func (q *farQueue) Configure(c queue.Config, _ *queue.Wake) {
	q.later(func(w *queue.Wake) { q.Classic.Configure(c, w) })
}

func (q *farQueue) Delete(ifUnused, ifEmpty bool, _ *queue.Wake, done func(uint64, error)) {
	q.later(func(w *queue.Wake) { q.Classic.Delete(ifUnused, ifEmpty, w, done) })
}

func (q *farQueue) Forget(_ *queue.Wake) {
	q.later(func(w *queue.Wake) { q.Classic.Forget(w) })
}

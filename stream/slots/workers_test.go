package slots

import (
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/queue"
)

// TestUrgentFirst has something urgent done while all that may be at other things is, and more waits; and those get on, too, while
// there is always something urgent.
func TestUrgentFirst(t *testing.T) {
	w := newWorkers(queue.NewPool(1 << 20))
	defer w.close()
	wait := func(c chan struct{}, what string) {
		t.Helper()
		select {
		case <-c:
		case <-time.After(patience):
			t.Fatal("nothing became of " + what)
		}
	}
	release, begun := make(chan struct{}), make(chan struct{}, 100)
	let := sync.OnceFunc(func() { close(release) })
	defer let()
	for range 10 {
		w.push(taskFunc(func(*worker) {
			begun <- struct{}{}
			<-release
		}), false)
	}
	for range w.most {
		wait(begun, "what is not urgent")
	}
	done := make(chan struct{})
	w.push(taskFunc(func(*worker) { close(done) }), true)
	wait(done, "what is urgent")
	if len(begun) > 0 {
		t.Error("all workers are at what is not urgent")
	}
	let()
	stop, other := make(chan struct{}), make(chan struct{})
	var again func(*worker)
	again = func(*worker) {
		select {
		case <-stop:
		default:
			w.push(taskFunc(again), true)
		}
	}
	for range 2 * maxWorkers {
		w.push(taskFunc(again), true)
	}
	w.push(taskFunc(func(*worker) { close(other) }), false)
	wait(other, "what is not urgent")
	close(stop)
}

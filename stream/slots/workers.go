package slots

import (
	"sync"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/stream"
	"github.com/warrenmq/warren/stream/message"
)

// maxWorkers is how many goroutines read for all consumers of a node.
const maxWorkers = 4

// workers read streams for consumers: those that have something to do wait in line, and each has a turn of bounded length.
type workers struct {
	pool *queue.Pool

	mu      sync.Mutex // guards what follows; a leaf
	line    []task     // from head on
	head    int
	idle    int
	started int
	closed  bool
	work    sync.Cond
	running sync.WaitGroup
}

// task is something to do on a worker's goroutine, without locks held.
type task interface{ run(w *worker) }

// taskFunc is a function as a task.
type taskFunc func(w *worker)

func (f taskFunc) run(w *worker) { f(w) }

// worker is what one goroutine has for itself.
type worker struct {
	wake     queue.Wake
	record   stream.Record
	delivery message.Delivery
	frames   *queue.FrameWriter
}

func newWorkers(pool *queue.Pool) *workers {
	w := &workers{pool: pool}
	w.work.L = &w.mu
	return w
}

// push puts a task at the end of the line.
func (w *workers) push(t task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	w.line = append(w.line, t)
	switch {
	case w.idle > 0:
		w.work.Signal()
	case w.started < maxWorkers:
		w.started++
		w.running.Go(w.serve)
	}
}

// pop is the next task, nil at the end.
func (w *workers) pop() task {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.head == len(w.line) && !w.closed {
		w.idle++
		w.work.Wait()
		w.idle--
	}
	if w.closed {
		return nil
	}
	t := w.line[w.head]
	w.line[w.head] = nil
	if w.head++; w.head == len(w.line) || w.head >= 1024 {
		n := copy(w.line, w.line[w.head:])
		clear(w.line[n:])
		w.line, w.head = w.line[:n], 0
	}
	return t
}

func (w *workers) serve() {
	k := &worker{frames: queue.NewFrameWriter(w.pool)}
	defer k.frames.Close()
	for t := w.pop(); t != nil; t = w.pop() {
		t.run(k)
		k.wake.Flush()
	}
}

// close ends the workers. Tasks in line are forgotten.
func (w *workers) close() {
	w.mu.Lock()
	w.closed = true
	w.line, w.head = nil, 0
	w.work.Broadcast()
	w.mu.Unlock()
	w.running.Wait()
}

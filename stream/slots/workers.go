package slots

import (
	"runtime"
	"sync"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/stream"
	"github.com/warrenmq/warren/stream/message"
)

const (
	// maxWorkers is how many goroutines read for all consumers of a node, at the most.
	maxWorkers = 4
	// maxAhead is how many urgent tasks go before one that waits longer.
	maxAhead = 16
)

// workers read streams for consumers: those that have something to do wait in line, and each has a turn of bounded length. Those
// that have read all and get what was just appended go before those that read what is old.
type workers struct {
	pool *queue.Pool

	most int // may be at what is not urgent: fewer than there are processors, so that whoever publishes, and the network, have one

	mu      sync.Mutex // guards what follows; a leaf
	urgent  line
	other   line
	ahead   int // urgent tasks since the last other one
	long    int // workers at others
	idle    int
	started int
	closed  bool
	work    sync.Cond
	running sync.WaitGroup
}

// line is tasks that wait, from head on.
type line struct {
	tasks []task
	head  int
}

func (l *line) empty() bool { return l.head == len(l.tasks) }

func (l *line) pop() task {
	t := l.tasks[l.head]
	l.tasks[l.head] = nil
	if l.head++; l.empty() || l.head >= 1024 {
		n := copy(l.tasks, l.tasks[l.head:])
		clear(l.tasks[n:])
		l.tasks, l.head = l.tasks[:n], 0
	}
	return t
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
	turn     int // octets of the turn
}

func newWorkers(pool *queue.Pool) *workers {
	w := &workers{pool: pool, most: max(1, min(maxWorkers, runtime.GOMAXPROCS(0))-1)}
	w.work.L = &w.mu
	return w
}

// push puts a task at the end of its line.
func (w *workers) push(t task, urgent bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	l := &w.other
	if urgent {
		l = &w.urgent
	}
	l.tasks = append(l.tasks, t)
	switch {
	case !urgent && w.long == w.most: // one of those takes it next
	case w.idle > 0:
		w.work.Signal()
	case w.started < maxWorkers:
		w.started++
		w.running.Go(w.serve)
	}
}

// pop is the next task, nil at the end. was and long say whether the worker's last one, and this one, is not urgent.
func (w *workers) pop(was bool) (t task, long bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if was {
		w.long--
	}
	for !w.closed {
		others := !w.other.empty() && w.long < w.most
		switch {
		case !w.urgent.empty() && (!others || w.ahead < maxAhead):
			w.ahead++
			return w.urgent.pop(), false
		case others:
			w.ahead = 0
			w.long++
			return w.other.pop(), true
		}
		w.idle++
		w.work.Wait()
		w.idle--
	}
	return nil, false
}

func (w *workers) serve() {
	k := &worker{frames: queue.NewFrameWriter(w.pool)}
	defer k.frames.Close()
	for t, long := w.pop(false); t != nil; t, long = w.pop(long) {
		t.run(k)
		k.wake.Flush()
	}
}

// close ends the workers. Tasks in line are forgotten.
func (w *workers) close() {
	w.mu.Lock()
	w.closed = true
	w.urgent, w.other = line{}, line{}
	w.work.Broadcast()
	w.mu.Unlock()
	w.running.Wait()
}

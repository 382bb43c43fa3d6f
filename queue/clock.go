package queue

import (
	"container/heap"
	"sync"
	"time"

	"github.com/warrenmq/warren/storage"
)

// Clock tells the time and wakes those who have something due, with one goroutine and one timer for a whole node. Its
// precision is 10 ms; a wake-up is never early.
//
// It begins with the system's time and goes on evenly from there. Whoever sets the system's clock meanwhile moves nothing
// that is due: no heartbeat fails, no message expires early or hangs. Only the next start sees the new time, and what
// is stored with a time then lives as much shorter or longer as the clock was set.
type Clock struct {
	base  Time      // the system's time at the beginning
	began time.Time // the same moment on the monotonic clock

	mu     sync.Mutex // guards what follows; a leaf
	due    dueHeap
	look   Time // what the goroutine waits for; it is kicked for what is due earlier
	kick   chan struct{}
	quit   chan struct{}
	done   chan struct{}
	closed bool
}

// Ticker does what is due. Tick is called on the clock's goroutine without locks held and should be short.
type Ticker interface{ Tick(now Time) }

// Appointment is a Ticker's next wake-up. The zero value has none. It belongs to its Ticker, which calls Set under
// whatever lock guards it.
type Appointment struct {
	at    Time
	index int // in the heap, plus one; 0: not in it. Guarded by Clock.mu
}

type dueEntry struct {
	at Time
	a  *Appointment
	k  Ticker
}

const clockStep = 10 * time.Millisecond

// NewClock starts a clock; Close ends it.
func NewClock() *Clock { return newClock(Time(storage.Wall().UnixMilli())) }

func newClock(now Time) *Clock {
	c := &Clock{base: now, began: time.Now(), kick: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	go c.run()
	return c
}

// Now is the time of now.
func (c *Clock) Now() Time { return c.base + Time(time.Since(c.began).Milliseconds()) }

// Set makes k be woken at the given time unless it will be woken earlier anyway. 0 asks for nothing.
func (c *Clock) Set(a *Appointment, k Ticker, at Time) {
	if at == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed || a.index != 0 && a.at <= at:
		return
	case a.index != 0:
		a.at, c.due[a.index-1].at = at, at
		heap.Fix(&c.due, a.index-1)
	default:
		a.at = at
		heap.Push(&c.due, dueEntry{at, a, k})
	}
	if at < c.look || c.Now() >= c.look { // the latter also after a leap of the time
		c.look = at
		select {
		case c.kick <- struct{}{}:
		default:
		}
	}
}

// Drop forgets an appointment.
func (c *Clock) Drop(a *Appointment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a.index != 0 {
		heap.Remove(&c.due, a.index-1)
	}
}

// Close stops the clock and waits for its goroutine.
func (c *Clock) Close() {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.quit)
	}
	c.mu.Unlock()
	<-c.done
}

func (c *Clock) run() {
	defer close(c.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := c.Now()
		k, wait := c.next(now)
		if k != nil {
			k.Tick(now)
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-c.kick:
		case <-c.quit:
			return
		}
	}
}

// next takes whoever is due, or says how long nobody will be.
func (c *Clock) next(now Time) (Ticker, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look = now + Time(time.Hour.Milliseconds())
	if len(c.due) > 0 && !c.closed {
		at := c.due[0].at
		if at <= now {
			return heap.Pop(&c.due).(dueEntry).k, 0
		}
		c.look = min(c.look, at)
	}
	return nil, max(clockStep, time.Duration(c.look-now)*time.Millisecond)
}

type dueHeap []dueEntry

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].a.index, h[j].a.index = i+1, j+1
}
func (h *dueHeap) Push(x any) {
	e := x.(dueEntry)
	e.a.index = len(*h) + 1
	*h = append(*h, e)
}
func (h *dueHeap) Pop() any {
	e := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = dueEntry{}
	*h = (*h)[:len(*h)-1]
	e.a.index = 0
	return e
}

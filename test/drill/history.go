package main

import (
	"bufio"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/warrenmq/warren/test/message"
)

// kind says what an event tells.
type kind uint8

const (
	published kind = iota // begins: message is on its way to the queues of its route
	confirmed             // message was confirmed
	refused               // message was nacked
	delivered             // actor received message from queue
	acked                 // begins: actor settles message of queue for good
	requeued              // begins: actor gives message back to queue
	rejected              // begins: actor has message dead-lettered
	synced                // the node has handled all that actor settled so far
	closing               // begins: actor closes its channel: what it holds goes back
	purging               // begins: actor empties queue
	purged                // answered
	deleting              // begins: actor deletes queue
	deleted               // answered
	emptied               // actor, the only one to take from queue, has found it empty
	up                    // a node serves; begins a life
	ending                // the node is about to end: connections go one by one, and with them what was on its way
	down                  // the node was killed
	stopped               // the node has stopped in order
	draining              // no load any more: what queue still has is told as delivered
	drained               // that was all of queue
)

var kindNames = [...]string{"publish", "confirmed", "refused", "delivered", "ack", "requeue", "reject", "synced", "close channel",
	"purge", "purged", "delete", "deleted", "emptied", "up", "ending", "down", "stopped", "drain", "drained"}

// event is one line of the history. Its place in the history is its time: what begins is noted before it is sent, what
// ends after it was received.
type event struct {
	at      time.Duration // since the start of the drill
	message message.ID
	actor   uint16
	queue   uint8 // or the route of what is published
	kind    kind
	flag    bool // published: persistent; delivered: redelivered
}

// history is all that happened.
type history struct {
	start  time.Time
	quorum bool // all queues are quorum queues

	mu     sync.Mutex // guards what follows
	events []event
	wrong  []string // what was seen to be wrong at once
}

func (h *history) add(e event) {
	h.mu.Lock()
	e.at = time.Since(h.start)
	h.events = append(h.events, e)
	h.mu.Unlock()
}

// addAll adds events that happened at once.
func (h *history) addAll(es []event) {
	h.mu.Lock()
	at := time.Since(h.start)
	for _, e := range es {
		e.at = at
		h.events = append(h.events, e)
	}
	h.mu.Unlock()
}

// fail notes a broken promise that needs no look at the rest.
func (h *history) fail(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrong = append(h.wrong, fmt.Sprintf("%v: ", time.Since(h.start).Round(time.Microsecond))+fmt.Sprintf(format, args...))
}

func (e *event) String() string {
	s := fmt.Sprintf("%12.6f %-13s", e.at.Seconds(), kindNames[e.kind])
	switch e.kind {
	case up, ending, down, stopped:
		return s
	case published:
		s += fmt.Sprintf(" %v to %s", e.message, routes[e.queue].name)
		if !e.flag {
			s += " transient"
		}
		return s
	case confirmed, refused:
		return s + " " + e.message.String()
	case synced, closing:
		return s + fmt.Sprintf(" actor %d", e.actor)
	}
	s += " " + queues[e.queue].name
	if e.message != 0 {
		s += " " + e.message.String()
	}
	if e.flag {
		s += " redelivered"
	}
	return s + fmt.Sprintf(" actor %d", e.actor)
}

// write writes the history as text.
func (h *history) write(w io.Writer) error {
	b := bufio.NewWriterSize(w, 1<<20)
	for i := range h.events {
		fmt.Fprintln(b, h.events[i].String())
	}
	for _, s := range h.wrong {
		fmt.Fprintln(b, s)
	}
	return b.Flush()
}

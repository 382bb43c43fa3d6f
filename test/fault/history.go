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
	published kind = iota // begins: actor, a publisher's channel, sends message to the queues of its route
	confirmed             // message was confirmed
	refused               // message was nacked
	consuming             // begins: actor, a consumer or one get, asks queue for messages
	delivered             // actor received message from queue
	acked                 // begins: actor settles message of queue
	requeued              // begins: actor gives message back to queue
	synced                // something was answered that actor asked behind all that it settled, and it was not ended before: that is applied for sure
	ended                 // actor was cancelled by the node, or lost its connection: what it settled and has not synced is in doubt
	drained               // queue was found empty at the end
	fault                 // something was done to the nodes
)

var kindNames = [...]string{"publish", "confirmed", "refused", "consume", "delivered", "ack", "requeue", "synced", "ended", "drained", "fault"}

// event is one line of the history. Its place in the history is its time: what begins is noted before it is sent, what ends
// after it was received.
type event struct {
	at      time.Duration // since the start of the drill
	message message.ID    // fault: index of the note
	actor   uint32
	count   uint32 // delivered, acked, requeued: how often the message was handed out before
	queue   uint8  // published: the route
	kind    kind
	flag    bool // delivered: redelivered
}

// history is all that happened.
type history struct {
	start time.Time

	mu     sync.Mutex // guards what follows
	events []event
	notes  []string
	wrong  []string // what was seen to be wrong at once
	actors uint32
	tally  tally
}

// tally counts events for the reader.
type tally struct{ published, confirmed, delivered, acked, faults int }

func newHistory() *history { return &history{start: time.Now()} }

// actor is a new one.
func (h *history) actor() uint32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.actors++
	return h.actors
}

func (h *history) add(es ...event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at := time.Since(h.start)
	for _, e := range es {
		e.at = at
		h.events = append(h.events, e)
		switch e.kind {
		case published:
			h.tally.published++
		case confirmed:
			h.tally.confirmed++
		case delivered:
			h.tally.delivered++
		case acked:
			h.tally.acked++
		case fault:
			h.tally.faults++
		}
	}
}

// note tells of a fault.
func (h *history) note(format string, args ...any) string {
	text := fmt.Sprintf(format, args...)
	h.mu.Lock()
	h.notes = append(h.notes, text)
	n := len(h.notes) - 1
	h.mu.Unlock()
	h.add(event{kind: fault, message: message.ID(n)})
	return text
}

// fail notes a broken promise that needs no look at the rest.
func (h *history) fail(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrong = append(h.wrong, fmt.Sprintf("%.3f s: ", time.Since(h.start).Seconds())+fmt.Sprintf(format, args...))
}

// since returns the events from the n-th on. They do not change any more.
func (h *history) since(n int) []event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.events[n:len(h.events):len(h.events)]
}

func (h *history) failures() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.wrong...)
}

func (h *history) counted() tally {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tally
}

func (h *history) line(i int, e *event) string {
	s := fmt.Sprintf("%8d %11.6f %-9s", i, e.at.Seconds(), kindNames[e.kind])
	switch e.kind {
	case fault:
		return s + " " + h.notes[e.message]
	case published:
		return s + fmt.Sprintf(" %v to %s, channel %d", e.message, routes[e.queue].name, e.actor)
	case confirmed, refused:
		return s + " " + e.message.String()
	case synced, ended:
		return s + fmt.Sprintf(" actor %d", e.actor)
	case consuming, drained:
		return s + fmt.Sprintf(" %s, actor %d", queues[e.queue].name, e.actor)
	}
	s += fmt.Sprintf(" %v of %s, count %d, actor %d", e.message, queues[e.queue].name, e.count, e.actor)
	if e.flag {
		s += ", redelivered"
	}
	return s
}

// write writes the history as text.
func (h *history) write(w io.Writer) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := bufio.NewWriterSize(w, 1<<20)
	for i := range h.events {
		fmt.Fprintln(b, h.line(i, &h.events[i]))
	}
	for _, s := range h.wrong {
		fmt.Fprintln(b, s)
	}
	return b.Flush()
}

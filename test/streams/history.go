// Package streams is what drills do with streams, and the checks of what they saw: nothing that was confirmed is lost, an offset is
// one message's for all readers and for ever, and a committed offset neither goes back nor beyond what was acknowledged.
package streams

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/message"
)

// Spec is a stream of the plan.
type Spec struct {
	Name      string
	Arguments amqp.Table
	Cut       bool // by retention
}

// Plan are the streams under load.
var Plan = []Spec{
	{Name: "small", Arguments: amqp.Table{"x-stream-max-segment-size-bytes": int32(20_000)}},
	{Name: "large", Arguments: amqp.Table{"x-stream-max-segment-size-bytes": int32(2_000_000)}},
	{Name: "cut", Cut: true, Arguments: amqp.Table{"x-stream-max-segment-size-bytes": int32(20_000), "x-max-length-bytes": int32(200_000)}},
}

// Declare makes the streams of the plan.
func Declare(ch *amqp.Channel) error {
	for _, s := range Plan {
		arguments := maps.Clone(s.Arguments)
		arguments["x-queue-type"] = "stream"
		if _, err := ch.QueueDeclare(s.Name, true, false, false, false, arguments); err != nil {
			return err
		}
	}
	return nil
}

// History is what clients saw of the streams. What breaks a promise is told as it is found. It may be used concurrently.
type History struct {
	fail func(format string, args ...any)

	mu      sync.Mutex // guards what follows
	streams []seen     // by the place in the plan
	sent    map[message.ID]uint32
	last    uint32 // publishers' channel
	names   map[string]*position
	counts  Counts
}

// Counts are figures for the reader.
type Counts struct{ Published, Confirmed, Deliveries, Attached int }

// seen is what was seen of a stream.
type seen struct {
	at        map[uint64]message.ID // what came from an offset
	offsets   map[message.ID]uint64 // and where
	confirmed map[message.ID]bool
}

// position is what is known of a named consumer.
type position struct {
	start uint64 // where it began last: nothing below was to come again
	floor uint64 // a node said that it was committed
	acked uint64 // all below was acknowledged
}

// NewHistory has fail called for each broken promise.
func NewHistory(fail func(format string, args ...any)) *History {
	h := &History{fail: fail, sent: map[message.ID]uint32{}, names: map[string]*position{}}
	for range Plan {
		h.streams = append(h.streams, seen{map[uint64]message.ID{}, map[message.ID]uint64{}, map[message.ID]bool{}})
	}
	return h
}

// Counts returns the figures so far.
func (h *History) Counts() Counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts
}

func (h *History) String() string {
	c := h.Counts()
	return fmt.Sprintf("%d messages published to streams, %d confirmed, %d deliveries, %d times a named consumer began", c.Published, c.Confirmed, c.Deliveries, c.Attached)
}

// channel is a new one of a publisher, whose messages have an order.
func (h *History) channel() uint32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	return h.last
}

// publish notes that a message is about to be published on a publisher's channel.
func (h *History) publish(m message.ID, channel uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts.Published++
	h.sent[m] = channel
}

func (h *History) confirm(stream int, m message.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts.Confirmed++
	h.streams[stream].confirmed[m] = true
}

// saw notes that a message came from an offset.
func (h *History) saw(stream int, offset uint64, m message.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts.Deliveries++
	name, s := Plan[stream].Name, &h.streams[stream]
	if h.sent[m] == 0 {
		h.fail("%s delivers message %v, which nobody published", name, m)
	}
	if was, ok := s.at[offset]; ok && was != m {
		h.fail("offset %d of %s was message %v, and is %v", offset, name, was, m)
	}
	if was, ok := s.offsets[m]; ok && was != offset {
		h.fail("message %v is in %s at offset %d, and at %d", m, name, was, offset)
	}
	s.at[offset], s.offsets[m] = m, offset
}

// floor is below what a consumer of a name that comes now must not begin.
func (h *History) floor(name string) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.names[name]; p != nil {
		return max(p.start, p.floor)
	}
	return 0
}

// Committed notes that a node said what offset is committed under a name.
func (h *History) Committed(name string, offset uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.names[name]
	if p == nil || offset > p.acked {
		var acked uint64
		if p != nil {
			acked = p.acked
		}
		if offset > 0 && offset > acked && !h.cut(name) {
			h.fail("%d is committed under %s, which has acknowledged what is below %d only", offset, name, acked)
		}
		return
	}
	p.floor = max(p.floor, offset)
}

// cut reports whether the stream that a consumer reads is cut by retention.
func (h *History) cut(name string) bool {
	return slices.ContainsFunc(Plan, func(s Spec) bool { return consumerName(s.Name) == name && s.Cut })
}

// began notes where a named consumer began; floor was asked for before it came.
func (h *History) began(name string, floor, offset uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts.Attached++
	p := h.names[name]
	if p == nil {
		p = &position{}
		h.names[name] = p
	}
	if offset < floor {
		h.fail("%s begins at %d: the committed offset went back, it was %d", name, offset, floor)
	}
	if offset > p.acked && !h.cut(name) {
		h.fail("%s begins at %d, and has acknowledged what is below %d only", name, offset, p.acked)
	}
	p.start, p.acked = offset, max(p.acked, offset)
}

// acks notes up to where a named consumer acknowledges. It is called before the acknowledgement is sent.
func (h *History) acks(name string, next uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.names[name].acked = max(h.names[name].acked, next)
}

// whole holds a stream, read from its first message to its last, against what was confirmed.
func (h *History) whole(stream int, read []message.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	spec := &Plan[stream]
	present := map[message.ID]bool{}
	oldest, last := map[uint32]message.ID{}, map[uint32]message.ID{}
	for _, m := range read {
		channel := h.sent[m]
		if m < last[channel] {
			h.fail("%s has message %v behind %v", spec.Name, m, last[channel])
		}
		last[channel] = m
		if oldest[channel] == 0 {
			oldest[channel] = m
		}
		present[m] = true
	}
	for m := range h.streams[stream].confirmed {
		if first := oldest[h.sent[m]]; !present[m] && (!spec.Cut || first != 0 && m > first) {
			h.fail("%s has lost message %v, which was confirmed", spec.Name, m)
		}
	}
}

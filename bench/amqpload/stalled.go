package main

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// stalledReport compares the hot queue's rates without and with the stalled one.
type stalledReport struct {
	Backlog uint64  `json:"backlog"` // of the stalled queue, at the end
	Alone   float64 `json:"alone"`   // deliveries per second, over the runs before and after
	Beside  float64 `json:"beside"`
}

// stalledBurst keeps small what the growing costs by itself: a thousand messages a second, each confirmed
// on its own, take a tenth of a core, which the hot queue would lack.
const stalledBurst = 100

// runStalled measures a hot queue alone, beside a queue whose one consumer never acknowledges and whose
// backlog grows, and alone once more: so that what changes steadily on the machine does not count.
func runStalled(w *workload, m *meter) (*report, error) {
	w.Queues, w.Exchange, w.Messages = 1, "default", 0
	admin, err := dial(w.endpoint)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	if err := w.declare(admin); err != nil {
		return nil, fmt.Errorf("declaring: %w", err)
	}
	r := &report{workload: w, Stalled: &stalledReport{}}
	measure := func(name string) error { return r.measure(name, w, m) }
	if err := measure("alone"); err != nil {
		return nil, err
	}
	s, err := stall(w, admin)
	if err != nil {
		return nil, fmt.Errorf("the stalled queue: %w", err)
	}
	defer s.close()
	if err := measure("beside"); err != nil {
		return nil, err
	}
	found, err := s.end(admin)
	if err != nil {
		return nil, fmt.Errorf("the stalled queue: %w", err)
	}
	r.Verdict.add(found)
	r.Stalled.Backlog = found.Received
	if err := measure("alone again"); err != nil {
		return nil, err
	}
	r.Stalled.compare(r.Phases)
	return r, w.remove(admin)
}

// compare takes the rates from the three phases.
func (s *stalledReport) compare(phases []phase) {
	before, beside, after := phases[0], phases[1], phases[2]
	s.Alone = float64(before.Delivered+after.Delivered) / (before.Seconds + after.Seconds)
	s.Beside = beside.DeliveryRate
}

// add counts another part of a run.
func (v *verdict) add(other verdict) {
	v.Sent, v.Expected, v.Received = v.Sent+other.Sent, v.Expected+other.Expected, v.Received+other.Received
	v.Lost, v.Duplicated, v.OutOfOrder = v.Lost+other.Lost, v.Duplicated+other.Duplicated, v.OutOfOrder+other.OutOfOrder
	v.Nacked, v.Foreign = v.Nacked+other.Nacked, v.Foreign+other.Foreign
}

// stalledQueue grows: one publisher has filled it, another goes on at a steady rate.
type stalledQueue struct {
	workload
	consumer   *conn
	publishers []*publisher
	stop       chan struct{}
	failed     chan error // of the steady publisher, one value
}

// stall fills a queue, subscribes to it and returns while its publisher goes on.
func stall(w *workload, admin *conn) (s *stalledQueue, err error) {
	s = &stalledQueue{workload: *w, stop: make(chan struct{}), failed: make(chan error, 1)}
	s.Name, s.Producers, s.Confirm = w.Name+"-queue", 1, 1000
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if err := s.declare(admin); err != nil {
		return nil, err
	}
	fill, err := s.publisher(0, w.StalledBacklog, 0)
	if err != nil {
		return nil, err
	}
	if err := fill.publish(s.stop); err != nil {
		return nil, err
	}
	if err := s.awaitSettled(fill); err != nil {
		return nil, err
	}
	if s.consumer, err = consumeOne(w.endpoint, s.queueName(0)); err != nil {
		return nil, err
	}
	if _, err := s.consumer.nextDelivery(); err != nil {
		return nil, err
	}
	steady, err := s.publisher(w.StalledRate, 0, stalledBurst)
	if err != nil {
		return nil, err
	}
	go func() { s.failed <- steady.publish(s.stop) }()
	return s, nil
}

func (s *stalledQueue) publisher(rate float64, messages int, burst uint64) (*publisher, error) {
	w := s.workload
	w.Rate, w.Messages = rate, messages
	p, err := newPublisher(&w, uint16(len(s.publishers)), new(atomic.Bool))
	if err != nil {
		return nil, err
	}
	p.burst = burst
	s.publishers = append(s.publishers, p)
	go p.readConfirms()
	return p, nil
}

// end stops the publisher, compares the queue with what was confirmed and deletes it.
func (s *stalledQueue) end(admin *conn) (verdict, error) {
	close(s.stop)
	if err := <-s.failed; err != nil {
		return verdict{}, err
	}
	var sent uint64
	for _, p := range s.publishers {
		if err := s.awaitSettled(p); err != nil {
			return verdict{}, err
		}
		sent += p.sent.Load()
	}
	s.consumer.SetReadDeadline(time.Now().Add(surplusTime))
	if _, err := s.consumer.frames.next(); !errors.Is(err, os.ErrDeadlineExceeded) {
		return verdict{}, fmt.Errorf("its consumer got more than its prefetch count allows, or an end: %v", err)
	}
	depth, err := awaitDepth(admin, s.queueName(0), int(sent)-1)
	if err != nil {
		return verdict{}, err
	}
	found := stalledVerdict(sent, uint64(depth))
	for _, p := range s.publishers {
		found.Nacked += p.window.nacked.Load()
	}
	s.close()
	return found, s.remove(admin)
}

// stalledVerdict compares a queue's ready messages, besides the one delivered, with those sent.
func stalledVerdict(sent, ready uint64) verdict {
	v := verdict{Sent: sent, Expected: sent, Received: ready + 1}
	v.Lost = sent - min(sent, v.Received)
	v.Duplicated = v.Received - min(sent, v.Received)
	return v
}

func (s *stalledQueue) awaitSettled(p *publisher) error {
	for end := time.Now().Add(stallLimit); !p.settled(); time.Sleep(pollInterval) {
		if time.Now().After(end) {
			return fmt.Errorf("confirms: %w at %d of %d", errStalled, p.window.settled.Load(), p.sent.Load())
		}
	}
	return nil
}

// close ends the connections; again is no error.
func (s *stalledQueue) close() {
	for _, p := range s.publishers {
		p.conn.Close()
	}
	if s.consumer != nil {
		s.consumer.Close()
	}
}

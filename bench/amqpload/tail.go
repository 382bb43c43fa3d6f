package main

import (
	"errors"
	"fmt"
	"time"
)

// tailRate is how many messages a second come to the stream while its tail is measured.
const tailRate = 200

// errReplayed is that a figure is of less than it says.
var errReplayed = errors.New("the others had read everything before the tail was measured: give -messages more")

// runTail measures how soon a consumer at the end of a stream has what is published, alone and while the others read from the first
// message.
func runTail(w *workload, m *meter) (*report, error) {
	w.Queues, w.Exchange, w.QueueType = 1, "default", "stream"
	admin, err := dial(w.endpoint)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	if err := w.declare(admin); err != nil {
		return nil, fmt.Errorf("declaring: %w", err)
	}
	r := &report{workload: w}
	filling := *w
	filling.Consumers, filling.Warmup, filling.Duration = 0, 0, 15*time.Minute
	if err := newLoad(&filling, m).run(r); err != nil {
		return nil, fmt.Errorf("publishing: %w", err)
	}
	sent := r.Verdict.Sent
	tail := *w
	tail.Consumers, tail.Messages, tail.Rate, tail.AckEvery, tail.Offset = 1, 0, tailRate, 1, "next"
	measure := func(name string) error { return r.measure(name, &tail, m) }
	if err := measure("alone"); err != nil {
		return nil, err
	}
	others := newLoad(w, &meter{})
	defer others.closeAll()
	if err := others.startConsumers(); err != nil {
		return nil, err
	}
	if err := measure("beside"); err != nil {
		return nil, err
	}
	if others.received() >= sent*uint64(w.Consumers) {
		return nil, errReplayed
	}
	for _, k := range others.consumers {
		k.stop()
	}
	others.consuming.Wait()
	r.Verdict.Received += sent // of which nobody had to have anything
	return r, w.remove(admin)
}

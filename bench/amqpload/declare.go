package main

import (
	"fmt"
	"time"
)

// runDeclare declares queues from many connections, each of which awaits the answer before it declares its next, and deletes them
// likewise. Another node than the one that declared a queue must know it before it is deleted, and must not when the run is over.
func runDeclare(w *workload, m *meter) (*report, error) {
	w.Exchange = "default"
	w.Producers = min(w.Producers, w.Queues)
	conns := make([]*conn, w.Producers)
	for k := range conns {
		c, err := dial(w.at(k))
		if err != nil {
			return nil, err
		}
		defer c.Close()
		conns[k] = c
	}
	share := func(k int) int { return (w.Queues - k + w.Producers - 1) / w.Producers }
	name := func(k, i int) string { return w.queueName(k + i*w.Producers) }
	// At the node that declares it next, a queue that an earlier run has left is gone when that is answered.
	err := w.together(func(k int) error {
		return conns[k].pipeline(share(k), queueDeleteOk, func(i int) { conns[k].encodeQueueDelete(name(k, i)) })
	})
	if err != nil {
		return nil, fmt.Errorf("removing what an earlier run has left: %w", err)
	}
	r := &report{workload: w}
	measure := func(what string, reply method, encode func(c *conn, name string)) error {
		took := make([]histogram, len(conns))
		before := m.begin()
		err := w.together(func(k int) error {
			for i := range share(k) {
				started := time.Now()
				encode(conns[k], name(k, i))
				if _, err := conns[k].call(reply); err != nil {
					return err
				}
				took[k].record(time.Since(started))
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		p := m.phase(what, before, m.read(uint64(w.Queues), 0))
		for k := range took[1:] {
			took[0].merge(&took[k+1])
		}
		p.EndToEnd = took[0].summary()
		r.Phases = append(r.Phases, p)
		return nil
	}
	args := w.queueArguments()
	if err := measure("declare", queueDeclareOk, func(c *conn, name string) { c.encodeQueueDeclare(name, w.Durable, args) }); err != nil {
		return nil, err
	}
	err = w.together(func(k int) error {
		return awaitKnown(w.at(k+1), w.spreadLimit(), func(c *conn) error {
			return c.pipeline(share(k), queueDeclareOk, func(i int) { c.encodePassiveDeclare(name(k, i)) })
		})
	})
	if err != nil {
		return nil, fmt.Errorf("a queue that was declared: %w", err)
	}
	if err := measure("delete", queueDeleteOk, (*conn).encodeQueueDelete); err != nil {
		return nil, err
	}
	n := uint64(w.Queues)
	r.Verdict = verdict{Sent: n, Expected: n, Received: n} // all were found
	return r, w.together(func(k int) error { return awaitNoQueue(w.at(k+1), name(k, share(k)-1), w.spreadLimit()) })
}

// together calls do for all producers at once and returns the first error.
func (w *workload) together(do func(k int) error) error {
	failed := make(chan error, w.Producers)
	for k := range w.Producers {
		go func() { failed <- do(k) }()
	}
	var first error
	for range w.Producers {
		if err := <-failed; first == nil {
			first = err
		}
	}
	return first
}

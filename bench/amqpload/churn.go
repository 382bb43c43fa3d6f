package main

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// runChurn opens a connection and a channel, publishes one message and closes, over and over.
func runChurn(w *workload, m *meter) (*report, error) {
	admin, err := dial(w.endpoint)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	w.Queues, w.Exchange = 1, "default"
	if err := w.declare(admin); err != nil {
		return nil, err
	}
	p, cycles, err := churn(w, m, churnOnce)
	if err != nil {
		return nil, err
	}
	r := &report{workload: w, Phases: []phase{p}}
	depth, err := awaitDepth(admin, w.queueName(0), int(cycles))
	if err != nil {
		return nil, err
	}
	r.Verdict = verdict{Sent: cycles, Expected: cycles, Received: uint64(depth)}
	r.Verdict.Lost = r.Verdict.Sent - min(r.Verdict.Sent, r.Verdict.Received)
	r.Verdict.Duplicated = r.Verdict.Received - min(r.Verdict.Sent, r.Verdict.Received)
	return r, w.remove(admin)
}

// churn repeats a cycle, w.Producers at a time, until the duration is over. The phase counts cycles
// as published; its end-to-end latency is that of one.
func churn(w *workload, m *meter, once func(w *workload, id uint16, n uint64) error) (p phase, cycles uint64, err error) {
	var (
		workers    sync.WaitGroup
		next, done atomic.Uint64
		failed     atomic.Pointer[error]
		took       = make([]histogram, w.Producers)
	)
	before := m.begin()
	deadline := before.at.Add(w.Duration)
	for id := range w.Producers {
		workers.Go(func() {
			for time.Now().Before(deadline) && failed.Load() == nil {
				started := time.Now()
				if err := once(w, uint16(id), next.Add(1)-1); err != nil {
					failed.Store(&err)
					return
				}
				took[id].record(time.Since(started))
				done.Add(1)
			}
		})
	}
	workers.Wait()
	if err := failed.Load(); err != nil {
		return phase{}, 0, fmt.Errorf("after %d connections: %w", done.Load(), *err)
	}
	p = m.phase("churn", before, m.read(done.Load(), 0))
	var all histogram
	for i := range took {
		all.merge(&took[i])
	}
	p.EndToEnd = all.summary()
	return p, done.Load(), nil
}

func churnOnce(w *workload, id uint16, n uint64) error {
	c, err := dial(w.at(int(n)))
	if err != nil {
		return err
	}
	message := newPublishBatch(w, c.frameMax, 1, 0).fill(1, stamp{id, n, time.Now().UnixNano()})
	if _, err := c.Write(message); err != nil {
		c.Close()
		return err
	}
	return c.shutdown()
}

// awaitDepth waits, for a moment, until a queue holds the expected number of messages.
func awaitDepth(c *conn, queue string, expected int) (depth int, err error) {
	for range 100 {
		depth, err = c.queueDepth(queue)
		if err != nil || depth >= expected {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return depth, err
}

// exclusiveGone is how long a closed connection's exclusive queue may remain.
const exclusiveGone = 10 * time.Second

// runExclusive is churn as clients of request and reply cause it: each connection declares an exclusive
// queue, binds it, publishes to its binding and receives that message. A cycle in which another message
// arrives, or none, fails the run; so does a queue that outlives its connection.
func runExclusive(w *workload, m *meter) (*report, error) {
	admin, err := dial(w.endpoint)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	w.Queues, w.Bindings, w.Exchange = 1, 1, "direct"
	if err := w.declare(admin); err != nil {
		return nil, err
	}
	p, cycles, err := churn(w, m, exclusiveOnce)
	if err != nil {
		return nil, err
	}
	for n := cycles - min(cycles, uint64(w.Producers)); n < cycles; n++ {
		for node := range w.nodes() {
			if err := awaitNoQueue(w.at(node), w.exclusiveName(n), cmp.Or(w.gone, exclusiveGone)); err != nil {
				return nil, err
			}
		}
	}
	r := &report{workload: w, Phases: []phase{p}}
	r.Verdict = verdict{Sent: cycles, Expected: cycles, Received: cycles} // each cycle has checked its own
	return r, w.remove(admin)
}

func (w *workload) exclusiveName(n uint64) string {
	return fmt.Sprintf("amqpload.%s.exclusive.%d", w.Name, n)
}

func exclusiveOnce(w *workload, id uint16, n uint64) error {
	c, err := dial(w.at(int(n)))
	if err != nil {
		return err
	}
	if err := exclusiveCycle(w, c, id, n); err != nil {
		c.Close()
		return err
	}
	return c.shutdown()
}

func exclusiveCycle(w *workload, c *conn, id uint16, n uint64) error {
	const exclusive = 1 << 2
	queue, key := w.exclusiveName(n), fmt.Sprintf("reply.%06d", n%1_000_000) // as long as the batch's route
	c.enc.method(workChannel, queueDeclare).short(0).shortstr(queue).octet(exclusive).table(nil).end()
	if _, err := c.call(queueDeclareOk); err != nil {
		return err
	}
	c.enc.method(workChannel, queueBind).short(0).shortstr(queue).shortstr(w.exchangeName()).shortstr(key).octet(0).table(nil).end()
	if _, err := c.call(queueBindOk); err != nil {
		return err
	}
	c.encodeConsume(queue, "", true, table{})
	if _, err := c.call(basicConsumeOk); err != nil {
		return err
	}
	sent := stamp{id, n, time.Now().UnixNano()}
	batch := newPublishBatch(w, c.frameMax, 1, 0)
	copy(batch.buf[batch.routeAt:], key)
	if _, err := c.Write(batch.fill(1, sent)); err != nil {
		return err
	}
	d, err := c.nextDelivery()
	if err != nil {
		return err
	}
	if got, ok := readStamp(d.body); !ok || got != sent {
		return fmt.Errorf("connection %d received %+v, not its own %+v", n, got, sent)
	}
	return nil
}

// awaitNoQueue waits, at most for limit, until the broker knows no queue of that name.
func awaitNoQueue(e endpoint, queue string, limit time.Duration) error {
	for end := time.Now().Add(limit); ; time.Sleep(pollInterval) {
		c, err := dial(e)
		if err != nil {
			return err
		}
		_, err = c.queueDepth(queue)
		c.Close()
		if notFound(err) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: queue %s is still there %v after its connection (%v)", e.address, queue, limit, err)
		}
	}
}

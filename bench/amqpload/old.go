package main

import (
	"errors"
	"fmt"
	"time"
)

// oldProducer marks the message that stays unacknowledged.
const oldProducer = 1<<16 - 1

// returnLimit is how long a message may take to be in its queue again.
const returnLimit = 5 * time.Second

// runOld leaves one message unacknowledged while all others pass through its queue. At the end its
// consumer goes; the message must be in the queue again, and it alone.
func runOld(w *workload, m *meter) (*report, error) {
	w.Queues, w.Exchange = 1, "default"
	admin, err := dial(w.endpoint)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	if err := w.declare(admin); err != nil {
		return nil, fmt.Errorf("declaring: %w", err)
	}
	old := stamp{oldProducer, 0, time.Now().UnixNano()}
	holder, err := hold(w, admin, old)
	if err != nil {
		return nil, fmt.Errorf("the old message: %w", err)
	}
	defer holder.Close()

	l := newLoad(w, m)
	l.held = 1
	r := &report{workload: w}
	if err := l.run(r); err != nil {
		return nil, err
	}
	holder.Close()
	found, rest, err := takeOld(w, admin, old, returnLimit)
	if err != nil {
		return nil, err
	}
	r.Verdict.Sent, r.Verdict.Expected = r.Verdict.Sent+1, r.Verdict.Expected+1
	if found {
		r.Verdict.Received++
	} else {
		r.Verdict.Lost++
	}
	r.Verdict.Duplicated += uint64(rest)
	return r, w.remove(admin)
}

// hold publishes the old message and returns the connection that has received it. Its prefetch count
// of 1 keeps it from getting another.
func hold(w *workload, admin *conn, old stamp) (*conn, error) {
	admin.enc.method(workChannel, confirmSelect).octet(0).end()
	if _, err := admin.call(confirmSelectOk); err != nil {
		return nil, err
	}
	if _, err := admin.Write(newPublishBatch(w, admin.frameMax, 1, 0).fill(1, old)); err != nil {
		return nil, err
	}
	if _, err := admin.await(basicAck); err != nil {
		return nil, err
	}
	holder, err := consumeOne(w.endpoint, w.queueName(0))
	if err != nil {
		return nil, err
	}
	d, err := holder.nextDelivery()
	if err == nil {
		if got, ok := readStamp(d.body); !ok || got != old {
			err = errors.New("another was delivered")
		}
	}
	if err != nil {
		holder.Close()
		return nil, err
	}
	return holder, nil
}

// consumeOne subscribes to a queue with a prefetch count of 1.
func consumeOne(e endpoint, queue string) (*conn, error) {
	c, err := dial(e)
	if err != nil {
		return nil, err
	}
	c.enc.method(workChannel, basicQos).long(0).short(1).octet(0).end()
	if _, err = c.call(basicQosOk); err == nil {
		c.encodeConsume(queue, "", false, table{})
		_, err = c.call(basicConsumeOk)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// nextDelivery returns the next message delivered, or an error after rpcTimeout.
func (c *conn) nextDelivery() (delivery, error) {
	c.SetReadDeadline(time.Now().Add(rpcTimeout))
	defer c.SetReadDeadline(time.Time{})
	var assembler deliveryAssembler
	for {
		f, err := c.frames.next()
		if err != nil {
			return delivery{}, err
		}
		if m := f.method(); m == connectionClose || m == channelClose {
			return delivery{}, closeReason(f)
		}
		if d, done := assembler.add(f); done {
			return d, nil
		}
	}
}

// takeOld gets and acknowledges the old message, waiting for it at most for limit, and returns how many
// are left in the queue.
func takeOld(w *workload, c *conn, old stamp, limit time.Duration) (found bool, rest int, err error) {
	for end := time.Now().Add(limit); ; time.Sleep(pollInterval) {
		c.enc.method(workChannel, basicGet).short(0).shortstr(w.queueName(0)).octet(0).end()
		if err := c.flush(); err != nil {
			return false, 0, err
		}
		d, empty, err := c.awaitGet()
		if err != nil {
			return false, 0, err
		}
		if empty {
			if time.Now().After(end) {
				return false, 0, nil
			}
			continue
		}
		got, ok := readStamp(d.body)
		c.encodeAck(d.tag, false)
		rest, err = c.queueDepth(w.queueName(0))
		if ok && got == old {
			return true, rest, err
		}
		return false, rest + 1, err // something else was there
	}
}

// awaitGet returns the answer to basic.get.
func (c *conn) awaitGet() (d delivery, empty bool, err error) {
	c.SetReadDeadline(time.Now().Add(rpcTimeout))
	defer c.SetReadDeadline(time.Time{})
	var assembler deliveryAssembler
	for {
		f, err := c.frames.next()
		if err != nil {
			return delivery{}, false, err
		}
		switch f.method() {
		case basicGetEmpty:
			return delivery{}, true, nil
		case connectionClose, channelClose:
			return delivery{}, false, closeReason(f)
		}
		if d, done := assembler.add(f); done {
			return d, false, nil
		}
	}
}

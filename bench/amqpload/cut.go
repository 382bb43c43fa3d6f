package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"
)

const (
	// cutTo is the max-length of the policy that cuts the long queue.
	cutTo = 10
	// cutLimit is how long the cut may take.
	cutLimit = 2 * time.Minute
	// cutPolicy is the policy's name.
	cutPolicy = "amqpload-cut"
)

// cutReport compares a queue's end-to-end times without and with a neighbour that is being cut.
type cutReport struct {
	Backlog uint64  `json:"backlog"`     // of the neighbour, before
	Seconds float64 `json:"seconds"`     // from the policy to the neighbour's new length, all others dead-lettered
	Alone   float64 `json:"alone_p999"`  // microseconds
	Beside  float64 `json:"beside_p999"` // microseconds
}

// runCut measures the times of a queue while nothing else happens, and again while a policy with a max-length cuts a long
// queue beside it, whose messages are dead-lettered to a third.
func runCut(w *workload, m *meter) (*report, error) {
	w.Queues, w.Exchange = 1, "default"
	admin, err := dial(w.endpoint)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	if err := w.declare(admin); err != nil {
		return nil, fmt.Errorf("declaring: %w", err)
	}
	long, dead := *w, *w
	long.Name, long.Rate, long.Messages, long.Confirm = w.Name+"-long", 0, w.Messages, 5000
	dead.Name = w.Name + "-dead"
	if err := declareCut(admin, &long, &dead); err != nil {
		return nil, fmt.Errorf("declaring: %w", err)
	}
	r := &report{workload: w, Cut: &cutReport{}}
	sent, err := fillUp(&long)
	if err != nil {
		return nil, fmt.Errorf("filling the long queue: %w", err)
	}
	r.Cut.Backlog = sent
	r.Verdict.Sent, r.Verdict.Expected = sent, sent

	measured := *w
	measured.Messages = 0
	measure := func(name string) error { return r.measure(name, &measured, m) }
	if err := measure("alone"); err != nil {
		return nil, err
	}
	cut := make(chan error, 1)
	time.AfterFunc(measured.Warmup, func() { cut <- r.Cut.cut(&long, &dead) })
	if err := measure("beside"); err != nil {
		return nil, err
	}
	if err := <-cut; err != nil {
		return nil, fmt.Errorf("the long queue: %w", err)
	}
	r.Verdict.Received += sent // cut returns when all are in one of the two queues
	r.Cut.Alone, r.Cut.Beside = r.Phases[0].EndToEnd.P999, r.Phases[1].EndToEnd.P999
	for _, gone := range []*workload{w, &long, &dead} {
		if err := gone.remove(admin); err != nil {
			return nil, err
		}
	}
	return r, w.setPolicy(http.MethodDelete, "", nil)
}

// declareCut declares the long queue and the one its dead letters go to.
func declareCut(c *conn, long, dead *workload) error {
	if err := dead.declare(c); err != nil {
		return err
	}
	if err := long.remove(c); err != nil {
		return err
	}
	args := table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead.queueName(0)}
	return c.pipeline(1, queueDeclareOk, func(int) { c.encodeQueueDeclare(long.queueName(0), long.Durable, args) })
}

// fillUp publishes the workload's messages and returns how many there were, all confirmed.
func fillUp(w *workload) (sent uint64, err error) {
	p, err := newPublisher(w, 0, new(atomic.Bool))
	if err != nil {
		return 0, err
	}
	defer p.conn.Close()
	go p.readConfirms()
	if err := p.publish(make(chan struct{})); err != nil {
		return 0, err
	}
	for end := time.Now().Add(stallLimit); !p.settled(); time.Sleep(pollInterval) {
		if time.Now().After(end) {
			return 0, fmt.Errorf("confirms: %w at %d of %d", errStalled, p.window.settled.Load(), p.sent.Load())
		}
	}
	return p.sent.Load(), nil
}

// cut sets the policy and returns when the long queue has its length and all others are where dead letters go.
func (r *cutReport) cut(long, dead *workload) error {
	c, err := dial(long.endpoint)
	if err != nil {
		return err
	}
	defer c.Close()
	begun := time.Now()
	if err := long.setPolicy(http.MethodPut, long.queueName(0), map[string]any{"max-length": cutTo}); err != nil {
		return err
	}
	for ; ; time.Sleep(20 * time.Millisecond) {
		left, err := c.queueDepth(long.queueName(0))
		if err != nil {
			return err
		}
		gone, err := c.queueDepth(dead.queueName(0))
		if err != nil {
			return err
		}
		if left == cutTo && uint64(left+gone) == r.Backlog {
			r.Seconds = time.Since(begun).Seconds()
			return nil
		}
		if time.Since(begun) > cutLimit {
			return fmt.Errorf("after %v it has %d messages, %d of %d were dead-lettered", cutLimit, left, gone, r.Backlog)
		}
	}
}

// setPolicy makes or deletes the policy over HTTP.
func (w *workload) setPolicy(method, queue string, definition map[string]any) error {
	body, err := json.Marshal(map[string]any{"pattern": "^" + queue + "$", "definition": definition, "apply-to": "queues"})
	if err != nil {
		return err
	}
	address := fmt.Sprintf("%s/api/policies/%s/%s", w.HTTP, url.PathEscape(w.endpoint.vhost), cutPolicy)
	request, err := http.NewRequest(method, address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.SetBasicAuth(w.endpoint.user, w.endpoint.password)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		return fmt.Errorf("%s %s: %s: %s", method, address, response.Status, text)
	}
	return nil
}

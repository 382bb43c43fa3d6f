package main

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// perSource is how many idle connections share a source address, well under the system's
	// range of ephemeral ports (28,232 by default).
	perSource = 10_000
	maxIdle   = 200 * perSource
	// Memory is settled when settleReadings readings in a row lie within settleShare of each other.
	settleReadings = 4
	settleShare    = 0.01
)

// idleMemory is the broker's anonymous memory around its idle connections, in octets.
type idleMemory struct {
	Connections int     `json:"connections"`
	Before      uint64  `json:"anonymous_before"`
	Open        uint64  `json:"anonymous_open"`
	Closed      uint64  `json:"anonymous_closed"`
	Each        float64 `json:"growth_per_connection"`
	Settled     bool    `json:"settled"` // false: the memory still moved when -duration was over
}

// runIdle opens connections and leaves them alone until the broker's memory has settled. Then each
// must still answer: one that does not counts as lost.
func runIdle(w *workload, m *meter) (*report, error) {
	if m.broker == nil {
		return nil, errors.New("idle: needs the broker's -pid")
	}
	r := &report{workload: w}
	memory := &idleMemory{Connections: w.Connections}
	memory.Before, _ = m.broker.settledMemory(w.Duration, w.settleInterval)

	before := m.read(0, 0)
	conns, err := openIdle(w)
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	if err != nil {
		return nil, fmt.Errorf("after %d connections: %w", len(conns), err)
	}
	opened := m.phase("open", before, m.read(uint64(len(conns)), 0))
	memory.Open, memory.Settled = m.broker.settledMemory(w.Duration, w.settleInterval)
	memory.Each = (float64(memory.Open) - float64(memory.Before)) / float64(max(1, w.Connections))

	before = m.read(0, 0)
	answered := askIdle(conns, w.Producers)
	asked := m.phase("ask", before, m.read(answered, 0))
	r.Verdict = verdict{Sent: uint64(len(conns)), Expected: uint64(len(conns)), Received: answered}
	r.Verdict.Lost = r.Verdict.Expected - answered

	each(conns, w.Producers, func(c *conn) error { return c.shutdown() })
	memory.Closed, _ = m.broker.settledMemory(w.Duration, w.settleInterval)
	r.Phases, r.Idle = []phase{opened, asked}, memory
	return r, nil
}

// openIdle opens the connections, w.Producers at a time. It returns those opened before a failure.
func openIdle(w *workload) ([]*conn, error) {
	var (
		workers sync.WaitGroup
		next    atomic.Int64
		mu      sync.Mutex // guards the two below
		conns   []*conn
		failed  error
	)
	for range w.Producers {
		workers.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= w.Connections {
					return
				}
				c, err := dialFrom(idleSource(w.at(i), i), w.at(i))
				mu.Lock()
				if err == nil {
					conns = append(conns, c)
				} else if failed == nil {
					failed = err
				}
				stop := failed != nil
				mu.Unlock()
				if stop {
					return
				}
			}
		})
	}
	workers.Wait()
	return conns, failed
}

// idleSource returns the source address of connection i: with a broker on 127.0.0.0/8 another one
// for every perSource connections, else the system's choice.
func idleSource(e endpoint, i int) net.IP {
	host, _, _ := net.SplitHostPort(e.address)
	if ip := net.ParseIP(host).To4(); ip == nil || ip[0] != 127 {
		return nil
	}
	return net.IPv4(127, 0, 1, byte(1+i/perSource))
}

// askIdle has every connection set its prefetch and returns how many were answered.
func askIdle(conns []*conn, workers int) uint64 {
	var answered atomic.Uint64
	each(conns, workers, func(c *conn) error {
		c.enc.method(workChannel, basicQos).long(0).short(0).octet(0).end()
		_, err := c.call(basicQosOk)
		if err == nil {
			answered.Add(1)
		}
		return err
	})
	return answered.Load()
}

// each calls do for every connection, on some at a time.
func each(conns []*conn, workers int, do func(*conn) error) {
	var (
		group sync.WaitGroup
		next  atomic.Int64
	)
	for range workers {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(conns); i = int(next.Add(1)) - 1 {
				do(conns[i])
			}
		})
	}
	group.Wait()
}

// settledMemory reads the tree's anonymous memory every interval until it has settled, at most for limit.
func (t *processTree) settledMemory(limit, interval time.Duration) (anon uint64, ok bool) {
	var readings []uint64
	for end := time.Now().Add(limit); ; time.Sleep(interval) {
		anon = t.anonymous()
		readings = append(readings, anon)
		if settled(readings) {
			return anon, true
		}
		if time.Now().After(end) {
			return anon, false
		}
	}
}

// settled reports whether the last readings hardly differ.
func settled(readings []uint64) bool {
	if len(readings) < settleReadings {
		return false
	}
	last := readings[len(readings)-settleReadings:]
	low, high := last[0], last[0]
	for _, r := range last {
		low, high = min(low, r), max(high, r)
	}
	return float64(high-low) <= settleShare*float64(high)
}

package main

import (
	"fmt"
	"strconv"
)

// workload is one way to load both brokers, and what is read from it.
type workload struct {
	name    string
	about   string
	args    func(o *options) []string // amqpload's flags
	fresh   bool                      // each run on a broker that has just started
	figures []figure
}

// workloads returns all, in the order in which they run and are reported.
//
// The aims: per CPU-second well above LavinMQ 2.9.1, the fastest broker known; rates at twice what it reaches
// relative to RabbitMQ 4.3.6, the factors that "leading" multiplies below; no more CPU per message than it.
func workloads() []workload {
	const leading = 2 // times LavinMQ's factor, for it uses one core and Warren two
	return []workload{
		{name: "transient-16", about: "1 producer, 1 consumer, automatic acks, nothing durable, 16 octets",
			args:    timed("-workload", "transient", "-size", "16"),
			figures: throughput("run", leading*12.6, 50)},
		{name: "transient-1k", about: "1 producer, 1 consumer, automatic acks, nothing durable, 1 KiB",
			args:    timed("-workload", "transient", "-size", "1024"),
			figures: throughput("run", leading*7.4, 22)},
		{name: "transient-ack", about: "1 producer, 1 consumer, nothing durable, 16 octets, prefetch 1000, an ack per 100 deliveries",
			args:    timed("-workload", "transient", "-size", "16", "-autoack=false", "-prefetch", "1000", "-ack-every", "100"),
			figures: throughput("run", 0, 0)},
		{name: "persistent", about: "durable queue, 1 KiB, 1000 unconfirmed publishes, an ack per 100 deliveries",
			args:    timed("-workload", "persistent"),
			figures: append(throughput("run", leading*2.5, 0), confirmTimes("run")...)},
		{name: "fanout", about: "a fanout exchange and 10 queues with a consumer each (deliveries are counted)",
			args:    timed("-workload", "fanout"),
			figures: throughput("run", leading*25, 80)},
		{name: "topic", about: "a topic exchange with 10,000 bindings, 10,000 keys in random order",
			args:    timed("-workload", "topic"),
			figures: throughput("run", leading*0.6, 50)},
		{name: "topic-fresh", about: "a topic exchange with 10,000 bindings, keys that are never repeated",
			args:    timed("-workload", "topic", "-fresh-keys"),
			figures: throughput("run", 0, 20)},
		{name: "churn", about: "2 workers: connect, open a channel, publish 1, close both (connections are counted)",
			args:    func(o *options) []string { return []string{"-workload", "churn", "-duration", o.duration.String()} },
			figures: throughput("churn", leading*9.4, 20)},
		{name: "get", about: "basic.get in a loop on a filled queue",
			args:    func(o *options) []string { return []string{"-workload", "get", "-duration", o.duration.String()} },
			figures: append(throughput("get", leading*1.4, 2), endToEndTimes("get", 0)...)},
		{name: "latency", about: "1,000 persistent, confirmed messages a second",
			args: timed("-workload", "latency"),
			figures: append(append(endToEndTimes("run", 0.15), confirmTimes("run")...),
				cpuPerMessage("run", 250), anonymous("run"))},
		{name: "backlog", about: "persistent messages of 128 octets without a consumer, then drained",
			args: func(o *options) []string {
				return []string{"-workload", "backlog", "-messages", strconv.Itoa(o.backlog)}
			},
			figures: append(throughput("publish", leading*4.3, 0), throughput("drain", leading*14, 0)...)},
		{name: "queues", about: "declares queues, passes one message through each, deletes them",
			args: func(o *options) []string {
				return []string{"-workload", "queues", "-queues", strconv.Itoa(o.queues)}
			},
			figures: append(append(append(throughput("declare", leading*0.26, 0), throughput("publish", leading*0.04, 0)...),
				throughput("consume", leading*0.7, 0)...), throughput("delete", leading*5.3, 0)...)},
		{name: "idle", about: "connections with a channel each that do nothing",
			args: func(o *options) []string {
				return []string{"-workload", "idle", "-connections", strconv.Itoa(o.connections)}
			},
			fresh: true, figures: idleFigures()},
	}
}

// timed returns amqpload's flags for a workload that runs for a time after a warm-up.
func timed(args ...string) func(*options) []string {
	return func(o *options) []string {
		return append(append([]string{}, args...), "-duration", o.duration.String(), "-warmup", o.warmup.String())
	}
}

// throughput returns the figures of a phase that is as fast as the broker; an aim of 0 is none.
func throughput(phase string, rateAim, cpuAim float64) []figure {
	return []figure{
		{name: phase + ": per second", aim: atLeast(rateAim), read: inPhase(phase, (*phaseReport).rate)},
		{name: phase + ": per broker CPU-second", aim: atLeast(cpuAim), read: inPhase(phase, func(p *phaseReport) float64 { return p.PerCPUSecond })},
		anonymous(phase),
	}
}

func anonymous(phase string) figure {
	return figure{name: phase + ": anonymous memory at most, MiB", read: inPhase(phase, func(p *phaseReport) float64 { return p.PeakAnon / (1 << 20) })}
}

func cpuPerMessage(phase string, aim float64) figure {
	return figure{name: phase + ": broker CPU per message, µs", aim: atMost(aim), read: inPhase(phase, func(p *phaseReport) float64 {
		if p.Delivered == 0 {
			return 0
		}
		return 1e6 * p.BrokerCPU / p.Delivered
	})}
}

func endToEndTimes(phase string, p50Aim float64) []figure {
	return times(phase, "end to end", p50Aim, func(p *phaseReport) *latency { return p.EndToEnd })
}

func confirmTimes(phase string) []figure {
	return times(phase, "confirm", 0, func(p *phaseReport) *latency { return p.Confirm })
}

func times(phase, what string, p50Aim float64, of func(*phaseReport) *latency) []figure {
	read := func(quantile func(*latency) float64) func(*loadReport) (float64, bool) {
		return func(r *loadReport) (float64, bool) {
			p := r.phase(phase)
			if p == nil || of(p) == nil {
				return 0, false
			}
			return quantile(of(p)) / 1000, true
		}
	}
	return []figure{
		{name: fmt.Sprintf("%s: %s p50, ms", phase, what), aim: atMost(p50Aim), read: read(func(l *latency) float64 { return l.P50 })},
		{name: fmt.Sprintf("%s: %s p99, ms", phase, what), read: read(func(l *latency) float64 { return l.P99 })},
	}
}

func idleFigures() []figure {
	memory := func(read func(*idleReport) float64) func(*loadReport) (float64, bool) {
		return func(r *loadReport) (float64, bool) {
			if r.Idle == nil {
				return 0, false
			}
			return read(r.Idle), true
		}
	}
	return []figure{
		{name: "growth of anonymous memory per connection, octets", aim: atMost(20_000), read: memory(func(i *idleReport) float64 { return i.Each })},
		{name: "anonymous memory before, MiB", read: memory(func(i *idleReport) float64 { return i.Before / (1 << 20) })},
		{name: "anonymous memory with them, MiB", read: memory(func(i *idleReport) float64 { return i.Open / (1 << 20) })},
		{name: "anonymous memory after closing, MiB", read: memory(func(i *idleReport) float64 { return i.Closed / (1 << 20) })},
		{name: "open: connections per second", read: inPhase("open", (*phaseReport).rate)},
	}
}

// inPhase reads a figure from the phase of that name; 0 is none, such as a rate per CPU-second when the
// CPU time is unknown.
func inPhase(name string, read func(*phaseReport) float64) func(*loadReport) (float64, bool) {
	return func(r *loadReport) (float64, bool) {
		p := r.phase(name)
		if p == nil {
			return 0, false
		}
		v := read(p)
		return v, v > 0
	}
}

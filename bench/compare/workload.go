package main

import (
	"fmt"
	"strconv"
	"time"
)

// workload is one way to load both brokers, and what is read from it.
type workload struct {
	name    string
	about   string
	args    func(o *options) []string // amqpload's flags
	fresh   bool                      // each run on a broker that has just started
	cluster bool                      // on a cluster of clusterNodes instead of a node
	alone   bool                      // of Warren only: its aims are bounds of its own figures
	paired  bool                      // though alone: each run holds the two that are compared, and all rounds are run
	figures []figure
}

// aloneRounds is how often at most a workload is run that has no peer: it takes long, and needs no ratios.
const aloneRounds = 3

func (w *workload) roundsOf(o *options) int {
	if w.alone && !w.paired {
		return min(o.rounds, aloneRounds)
	}
	return o.rounds
}

// workloads returns all, in the order in which they run and are reported.
//
// The aims: per CPU-second well above LavinMQ 2.9.1, the fastest broker known; rates at twice what it reaches
// relative to RabbitMQ 4.3.6, the factors that "leading" multiplies below; no more CPU per message than it. What
// is stored has the aims of storage besides; of two the higher counts. Its bounds are in MB of 1,000,000 octets.
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
			figures: append(throughput("run", max(leading*2.5, 12), 25), confirmTimes("run", aim{}, atMost(6))...)},
		{name: "quorum", about: "as persistent, on a quorum queue of one node",
			args:    timed("-workload", "quorum"),
			figures: append(throughput("run", 8, 12), confirmTimes("run", aim{}, aim{})...)},
		{name: "stream", about: "a stream, 1 KiB, 1000 unconfirmed publishes; then it is read from the first message, an ack per 100 deliveries",
			args:    timed("-workload", "stream"),
			figures: append(append(throughput("publish", 0, 0), confirmTimes("publish", aim{}, aim{})...), throughput("drain", 0, 0)...)},
		{name: "replay", about: "a stream of messages of 1 KiB is read from the first one by 1 consumer, and by 100 at once",
			args: func(o *options) []string {
				return []string{"-workload", "replay", "-messages", strconv.Itoa(o.replay), "-consumers", "100"}
			},
			fresh: true, figures: append(throughput("one", 0, 0), throughput("all", 0, 0)...)},
		{name: "tail", about: "200 confirmed messages of 1 KiB a second to a stream, and a consumer at its end, alone and while 20 others read its million messages from the first one",
			args:  timed("-workload", "tail"),
			fresh: true, figures: tailFigures()},
		{name: "fair", about: "200 confirmed messages of 1 KiB a second through a quorum queue, alone and beside another one of its slot to which 4 publishers with 20,000 unconfirmed messages each publish",
			args:    timed("-workload", "fair"),
			figures: fairFigures()},
		{name: "fair-stream", about: "the same with streams",
			args:    timed("-workload", "fair", "-queue-type", "stream"),
			figures: fairFigures()},
		{name: "fanout", about: "a fanout exchange and 10 queues with a consumer each (deliveries are counted)",
			args:    timed("-workload", "fanout"),
			figures: throughput("run", leading*25, 80)},
		{name: "topic", about: "a topic exchange with many wildcard bindings, a key for each in random order",
			args:    topicArgs(),
			figures: throughput("run", leading*0.6, 50)},
		{name: "topic-fresh", about: "a topic exchange with many wildcard bindings, keys that are never repeated",
			args:    topicArgs("-fresh-keys"),
			figures: throughput("run", 0, 20)},
		{name: "churn", about: "2 workers: connect, open a channel, publish 1, close both (connections are counted)",
			args:    func(o *options) []string { return []string{"-workload", "churn", "-duration", o.duration.String()} },
			figures: throughput("churn", leading*9.4, 20)},
		{name: "churn-exclusive", about: "2 workers: connect, open a channel, declare and bind an exclusive queue, receive 1 message, close (connections are counted)",
			args: func(o *options) []string {
				return []string{"-workload", "churn-exclusive", "-duration", o.duration.String()}
			},
			figures: append(throughput("churn", 0, 0), endToEndTimes("churn", 0)...)},
		{name: "get", about: "basic.get in a loop on a filled queue",
			args: func(o *options) []string {
				return []string{"-workload", "get", "-duration", o.duration.String(), "-messages", strconv.Itoa(o.get)}
			},
			figures: append(throughput("get", leading*1.4, 2), endToEndTimes("get", 0)...)},
		{name: "latency", about: "1,000 persistent, confirmed messages a second",
			args: timed("-workload", "latency"),
			figures: append(append(endToEndTimes("run", 0.15), confirmTimes("run",
				atMostBySyncs("1.2 × s50 + 0.3", func(s50, _ float64) float64 { return 1.2*s50 + 0.3 }), aim{})...),
				cpuPerMessage("run", 250), anonymous("run"))},
		{name: "latency-10k", about: "10,000 persistent, confirmed messages a second",
			args: timed("-workload", "latency", "-rate", "10000"),
			figures: append(append(endToEndTimes("run", 0), confirmTimes("run", aim{},
				atMostBySyncs("the larger of 10 and 3 × s99", func(_, s99 float64) float64 { return max(10, 3*s99) }))...),
				cpuPerMessage("run", 0), anonymous("run"))},
		{name: "backlog", about: "persistent messages of 128 octets without a consumer, then drained",
			args: func(o *options) []string {
				return []string{"-workload", "backlog", "-messages", strconv.Itoa(o.backlog)}
			},
			figures: append(throughput("publish", max(leading*4.3, 8), 25), throughput("drain", max(leading*14, 20), 35)...)},
		{name: "queues", about: "declares queues, passes one message through each, deletes them",
			args: func(o *options) []string {
				return []string{"-workload", "queues", "-queues", strconv.Itoa(o.queues)}
			},
			figures: append(append(append(throughput("declare", 10, 0), throughput("publish", 10, 0)...),
				throughput("consume", 10, 0)...), throughput("delete", 30, 0)...)},
		{name: "idle", about: "connections with a channel each that do nothing",
			args: func(o *options) []string {
				return []string{"-workload", "idle", "-connections", strconv.Itoa(o.connections)}
			},
			fresh: true, figures: idleFigures()},
		{name: "quorum3", about: "a quorum queue of three nodes, 1 KiB: a publisher at each, with 1000 unconfirmed publishes, and a consumer at each, with an ack per 100 deliveries",
			args:    timed("-workload", "quorum", "-producers", "3", "-consumers", "3"),
			cluster: true, figures: quorumFigures(4)},
		{name: "quorum3-queues", about: "the same with 9 quorum queues, declared at the nodes in turn: 6 publishers to all of them, a consumer for each queue",
			args:    timed("-workload", "quorum", "-queues", "9", "-producers", "6"),
			cluster: true, figures: quorumFigures(4)},
		{name: "churn3", about: "6 workers, at three nodes in turn: connect, open a channel, declare and bind an exclusive queue, receive 1 message, close (connections are counted)",
			args: func(o *options) []string {
				return []string{"-workload", "churn-exclusive", "-producers", "6", "-duration", o.duration.String()}
			},
			cluster: true, figures: append(throughput("churn", 15, 0), endToEndTimes("churn", 0)...)},
		{name: "declare3", about: "30 connections to three nodes declare quorum queues, each one after another, and delete them",
			args: func(o *options) []string {
				return []string{"-workload", "declare", "-queues", strconv.Itoa(o.declared)}
			},
			cluster: true, figures: declareFigures(1000)},
		{name: "stored", about: "a long backlog of persistent messages of 128 octets; the broker is killed and started again before it drains",
			args:  func(o *options) []string { return storedArgs(o, 1) },
			fresh: true, alone: true, figures: storedFigures()},
		{name: "stored-queues", about: "the same backlog in 1,000 queues",
			args:  func(o *options) []string { return storedArgs(o, 1000) },
			fresh: true, alone: true, figures: storedFigures()},
		{name: "stored-quorum", about: "a long backlog of messages of 128 octets in one quorum queue; the broker is killed and started again before it drains",
			args: func(o *options) []string {
				return append(storedArgs(o, 1), "-queue-type", "quorum", "-messages", strconv.Itoa(o.stored/2))
			},
			fresh: true, alone: true, figures: storedQuorumFigures()},
		{name: "old-unacked-quorum", about: "one message of a quorum queue stays unacknowledged while others of 128 octets pass through",
			args: func(o *options) []string {
				return []string{"-workload", "old-unacked", "-queue-type", "quorum", "-messages", strconv.Itoa(o.passing), "-data-dir", dataDirOf}
			},
			fresh: true, alone: true, figures: append(append(throughput("run", 0, 0), diskFigures(slotsDisk)...), courseFigures(false)...)},
		{name: "old-unacked", about: "one message stays unacknowledged while others of 128 octets pass through its queue",
			args: func(o *options) []string {
				return []string{"-workload", "old-unacked", "-messages", strconv.Itoa(o.passing), "-data-dir", dataDirOf}
			},
			fresh: true, alone: true, figures: append(append(throughput("run", 0, 0), diskFigures(512)...), courseFigures(false)...)},
		{name: "cut", about: "1,000 persistent, confirmed messages a second, alone and while a policy cuts a queue of persistent messages of 128 octets to 10; all others are dead-lettered",
			args: func(o *options) []string {
				return []string{"-workload", "cut", "-http", httpOf, "-messages", strconv.Itoa(o.passing), "-duration", cutDuration(o).String()}
			},
			fresh: true, alone: true, paired: true, figures: cutFigures()},
		{name: "stalled", about: "a hot queue as in persistent, alone and beside one that grows and whose consumer never acknowledges",
			args:  timed("-workload", "stalled"),
			alone: true, figures: stalledFigures()},
	}
}

// timed returns amqpload's flags for a workload that runs for a time after a warm-up.
func timed(args ...string) func(*options) []string {
	return func(o *options) []string {
		return append(append([]string{}, args...), "-duration", o.duration.String(), "-warmup", o.warmup.String())
	}
}

func topicArgs(args ...string) func(*options) []string {
	return func(o *options) []string {
		return timed(append([]string{"-workload", "topic", "-bindings", strconv.Itoa(o.bindings)}, args...)...)(o)
	}
}

// cutDuration is long enough for a p99.9 that some ten messages decide.
func cutDuration(o *options) time.Duration { return max(o.duration, 10*time.Second) }

func storedArgs(o *options, queues int) []string {
	return []string{"-workload", "backlog", "-messages", strconv.Itoa(o.stored), "-queues", strconv.Itoa(queues),
		"-data-dir", dataDirOf, "-restart", startOf}
}

func storedFigures() []figure {
	drainToPublish := func(r *loadReport) (float64, bool) {
		publish, drain := r.phase("publish"), r.phase("drain")
		if publish == nil || drain == nil || publish.PublishRate == 0 {
			return 0, false
		}
		return drain.DeliveryRate / publish.PublishRate, true
	}
	firstDelivery := func(r *loadReport) (float64, bool) {
		if r.Restart == nil {
			return 0, false
		}
		return r.Restart.FirstDelivery, true
	}
	return append(append(append(throughput("publish", 0, 0), throughput("drain", 0, 0)...), courseFigures(true)...),
		figure{name: "drain rate : publish rate", aim: noLess(1.5), read: drainToPublish},
		figure{name: firstDeliveryFigure, aim: atMost(1.5), read: firstDelivery})
}

const (
	firstDeliveryFigure = "restart to first delivery, s"
	lastStretchFigure   = "publish rate, last stretch : second"
)

// fewSamples are too few to tell whether memory is flat.
const fewSamples = 4

// courseFigures are read from the samples over time; the aims hold for ten million messages of 128 octets.
func courseFigures(aims bool) []figure {
	figures := []figure{
		{name: lastStretchFigure, aim: noLess(0.85), read: inCourse(func(c *courseReport) (float64, bool) {
			return c.LastRate / c.SecondRate, c.SecondRate > 0 && c.LastRate > 0
		})},
		{name: "anonymous memory, last 90 % of publishes, MB", aim: atMost(220), read: inCourse(func(c *courseReport) (float64, bool) {
			return c.AnonHigh / 1e6, c.AnonHigh > 0
		})},
		{name: "its highest less its lowest, MB", aim: atMost(20), read: inCourse(func(c *courseReport) (float64, bool) {
			return (c.AnonHigh - c.AnonLow) / 1e6, c.AnonSamples >= fewSamples
		})},
	}
	if !aims {
		for i := range figures {
			figures[i].aim = aim{}
		}
	}
	return figures
}

// slotsDisk is what the slots of a node without peers may take beyond twice the live data, in MiB: 256 each.
const slotsDisk = 4 * 256

// storedQuorumFigures are of half as many messages, in a quorum queue, which has every message in a Raft log besides.
func storedQuorumFigures() []figure {
	figures := storedFigures()
	for i := range figures {
		figures[i].aim = aim{}
		switch figures[i].name {
		case firstDeliveryFigure:
			figures[i].aim = atMost(5)
		case lastStretchFigure:
			figures[i].aim = noLess(0.85)
		}
	}
	return append(figures, diskFigures(slotsDisk)...)
}

func diskFigures(most float64) []figure {
	mib := func(of func(*courseReport) float64) func(*loadReport) (float64, bool) {
		return inCourse(func(c *courseReport) (float64, bool) { return of(c) / (1 << 20), c.DiskHigh > 0 })
	}
	return []figure{
		{name: "disk at the end beyond twice the live data, MiB", aim: atMost(most), read: mib(func(c *courseReport) float64 { return c.ExcessEnd })},
		{name: "the same, at most during the run, MiB", read: mib(func(c *courseReport) float64 { return c.ExcessHigh })},
		{name: "disk at most, MiB", read: mib(func(c *courseReport) float64 { return c.DiskHigh })},
	}
}

func stalledFigures() []figure {
	read := func(of func(*stalledReport) float64) func(*loadReport) (float64, bool) {
		return func(r *loadReport) (float64, bool) {
			if r.Stalled == nil || r.Stalled.Alone == 0 {
				return 0, false
			}
			return of(r.Stalled), true
		}
	}
	return []figure{
		{name: "alone: per second", read: read(func(s *stalledReport) float64 { return s.Alone })},
		{name: "beside: per second", read: read(func(s *stalledReport) float64 { return s.Beside })},
		{name: "rate beside : alone", aim: noLess(0.9), read: read(func(s *stalledReport) float64 { return s.Beside / s.Alone })},
	}
}

func tailFigures() []figure {
	figures := append(endToEndTimes("alone", 0), endToEndTimes("beside", 0)...)
	return append(figures, figure{name: "end to end p99 beside : alone", aim: atMost(2), read: func(r *loadReport) (float64, bool) {
		alone, beside := r.phase("alone"), r.phase("beside")
		if alone == nil || beside == nil || alone.EndToEnd == nil || beside.EndToEnd == nil || alone.EndToEnd.P99 == 0 {
			return 0, false
		}
		return beside.EndToEnd.P99 / alone.EndToEnd.P99, true
	}})
}

func fairFigures() []figure {
	return append(append(confirmTimes("alone", aim{}, aim{}), confirmTimes("beside", aim{}, aim{})...),
		figure{name: "flood: per second", read: inPhase("flood", (*phaseReport).rate)})
}

func cutFigures() []figure {
	read := func(of func(*cutReport) float64) func(*loadReport) (float64, bool) {
		return func(r *loadReport) (float64, bool) {
			if r.Cut == nil || r.Cut.Alone == 0 {
				return 0, false
			}
			return of(r.Cut), true
		}
	}
	return []figure{
		{name: "alone: end to end p99.9, ms", read: read(func(c *cutReport) float64 { return c.Alone / 1000 })},
		{name: "beside: end to end p99.9, ms", read: read(func(c *cutReport) float64 { return c.Beside / 1000 })},
		{name: "p99.9 beside : alone", aim: atMost(2), read: read(func(c *cutReport) float64 { return c.Beside / c.Alone })},
		{name: "from the policy to the new length, s", aim: atMost(60), read: read(func(c *cutReport) float64 { return c.Seconds })},
	}
}

func inCourse(read func(*courseReport) (float64, bool)) func(*loadReport) (float64, bool) {
	return func(r *loadReport) (float64, bool) {
		if r.Course == nil {
			return 0, false
		}
		return read(r.Course)
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

// quorumFigures are of all nodes of a cluster together, but for the times.
func quorumFigures(rateAim float64) []figure {
	return append(append(append(throughput("run", rateAim, 0),
		figure{name: "run: messages of 1 KiB per second", aim: noLess(30_000), read: inPhase("run", (*phaseReport).rate)},
		cpuPerMessage("run", 0)), endToEndTimes("run", 0)...), confirmTimes("run", aim{}, aim{})...)
}

func declareFigures(rateAim float64) (figures []figure) {
	figures = append(throughput("declare", 0, 0), endToEndTimes("declare", 0)...)
	figures[0].aim = noLess(rateAim)
	return append(append(figures, throughput("delete", 0, 0)...), endToEndTimes("delete", 0)...)
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
	return times(phase, "end to end", atMost(p50Aim), aim{}, func(p *phaseReport) *latency { return p.EndToEnd })
}

func confirmTimes(phase string, p50Aim, p99Aim aim) []figure {
	return times(phase, "confirm", p50Aim, p99Aim, func(p *phaseReport) *latency { return p.Confirm })
}

func times(phase, what string, p50Aim, p99Aim aim, of func(*phaseReport) *latency) []figure {
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
		{name: fmt.Sprintf("%s: %s p50, ms", phase, what), aim: p50Aim, read: read(func(l *latency) float64 { return l.P50 })},
		{name: fmt.Sprintf("%s: %s p99, ms", phase, what), aim: p99Aim, read: read(func(l *latency) float64 { return l.P99 })},
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

package main

import (
	"encoding/json"
	"strings"
	"testing"
)

const sample = `{"workload":"latency","broker":"RabbitMQ 4.3.6","phases":[
 {"name":"publish","seconds":4,"published":1000,"publish_rate":250,"broker_cpu":2,"messages_per_broker_cpu_second":500,"other_cpu":0.4},
 {"name":"run","seconds":2,"published":900,"delivered":800,"publish_rate":450,"delivery_rate":400,
  "confirm":{"p50_us":1600,"p99_us":9000},"end_to_end":{"p50_us":150,"p99_us":1250},"broker_cpu":0.2,
  "messages_per_broker_cpu_second":4000,"broker_peak_anonymous":2097152,"other_cpu":1}],
 "course":{"second_stretch_rate":1000,"last_stretch_rate":900,"anonymous_low":90000000,"anonymous_samples":4,"anonymous_high":110000000,
  "disk_high":209715200,"disk_excess_end":-1048576,"disk_excess_high":104857600},
 "restart":{"first_delivery":0.75},"stalled":{"alone":1000,"beside":950},
 "idle":{"growth_per_connection":19999,"settled":true},
 "verdict":{"sent":900,"lost":0,"duplicated":0,"out_of_order":0,"nacked":0,"foreign":0}}`

func parsed(t *testing.T, change func(*loadReport)) *loadReport {
	r := &loadReport{}
	if err := json.Unmarshal([]byte(sample), r); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	return r
}

func TestFiguresOfAReport(t *testing.T) {
	r := parsed(t, nil)
	want := map[string]float64{
		"publish: per second":                               250,
		"run: per second":                                   400,
		"run: per broker CPU-second":                        4000,
		"run: anonymous memory at most, MiB":                2,
		"run: messages of 1 KiB per second":                 400,
		"run: end to end p50, ms":                           0.15,
		"run: end to end p99, ms":                           1.25,
		"run: confirm p50, ms":                              1.6,
		"run: confirm p99, ms":                              9,
		"run: broker CPU per message, µs":                   250,
		"growth of anonymous memory per connection, octets": 19999,
		"publish rate, last stretch : second":               0.9,
		"anonymous memory, last 90 % of publishes, MB":      110,
		"its highest less its lowest, MB":                   20,
		"restart to first delivery, s":                      0.75,
		"disk at the end beyond twice the live data, MiB":   -1,
		"the same, at most during the run, MiB":             100,
		"disk at most, MiB":                                 200,
		"alone: per second":                                 1000,
		"beside: per second":                                950,
		"rate beside : alone":                               0.95,
	}
	for _, w := range workloads() {
		for _, f := range w.figures {
			if value, ok := want[f.name]; ok {
				if got, ok := f.read(r); !ok || got != value {
					t.Errorf("%s, %s: %v %v, want %v", w.name, f.name, got, ok, value)
				}
			}
		}
	}
	for _, f := range append(throughput("drain", 1, 1), append(endToEndTimes("publish", 1), confirmTimes("publish", aim{}, aim{})...)...) {
		if f.name == "drain: per second" || f.name == "publish: confirm p50, ms" {
			if _, ok := f.read(r); ok {
				t.Errorf("%s is read from a report without it", f.name)
			}
		}
	}
	for name := range want {
		found := false
		for _, w := range workloads() {
			for _, f := range w.figures {
				found = found || f.name == name
			}
		}
		if !found {
			t.Errorf("no workload has the figure %q", name)
		}
	}
	r.Course.AnonSamples = 3
	if _, ok := courseFigures(true)[2].read(r); ok {
		t.Error("flat after three samples")
	}
	r.Course, r.Restart, r.Stalled = nil, nil, nil
	for _, f := range append(append(diskFigures(512), stalledFigures()...), storedFigures()[6:]...) {
		if value, ok := f.read(r); ok {
			t.Errorf("%s is %v in a report without it", f.name, value)
		}
	}
	r.Phases[1].PerCPUSecond = 0
	if _, ok := throughput("run", 1, 1)[1].read(r); ok {
		t.Error("messages per CPU-second without CPU time")
	}
	if got := r.othersShare(2); got != 0.25 {
		t.Errorf("other processes' share %v, want that of the worse phase", got)
	}
}

func TestDrainIsComparedWithPublish(t *testing.T) {
	r := &loadReport{Phases: []phaseReport{{Name: "publish", PublishRate: 200}, {Name: "drain", DeliveryRate: 500}}}
	for _, f := range storedFigures() {
		if f.name == "drain rate : publish rate" {
			if value, ok := f.read(r); !ok || value != 2.5 {
				t.Errorf("%v %v", value, ok)
			}
			return
		}
	}
	t.Error("no such figure")
}

func TestArgumentsTakeWhatTheBrokerKnows(t *testing.T) {
	args := []string{"-workload", "backlog", "-data-dir", dataDirOf, "-restart", startOf, "-queues", "3"}
	w := &warren{binary: "/some where/warren", dir: "/tmp/it's", started: []string{"server", "--listen", "127.0.0.1:1"}}
	got := strings.Join(fill(args, w), "|")
	const want = `-workload|backlog|-data-dir|/tmp/it's/data|-restart|` +
		`exec '/some where/warren' 'server' '--listen' '127.0.0.1:1' >>'/tmp/it'\''s/log' 2>&1|-queues|3`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := strings.Join(fill(args, &given{}), " "); got != "-workload backlog -queues 3" {
		t.Errorf("of a broker that does not tell: %s", got)
	}
}

// TestEveryFaultVoids changes each count that amqpload checks.
func TestEveryFaultVoids(t *testing.T) {
	if got := parsed(t, nil).faults(); got != "" {
		t.Fatalf("a faultless report: %s", got)
	}
	for want, change := range map[string]func(*loadReport){
		"of 900 messages lost 1":         func(r *loadReport) { r.Verdict.Lost = 1 },
		"of 900 messages duplicated 2":   func(r *loadReport) { r.Verdict.Duplicated = 2 },
		"of 900 messages out of order 3": func(r *loadReport) { r.Verdict.OutOfOrder = 3 },
		"of 900 messages nacked 4":       func(r *loadReport) { r.Verdict.Nacked = 4 },
		"of 900 messages foreign 5":      func(r *loadReport) { r.Verdict.Foreign = 5 },
		"nothing was sent":               func(r *loadReport) { r.Verdict.Sent = 0 },
		"no verdict":                     func(r *loadReport) { r.Verdict = nil },
		"the memory did not settle":      func(r *loadReport) { r.Idle.Settled = false },
	} {
		if got := parsed(t, change).faults(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestRoundNamesTheSideAtFault(t *testing.T) {
	good := func() *side { return &side{report: parsed(t, nil)} }
	lossy := &side{report: parsed(t, func(r *loadReport) { r.Verdict.Lost = 1 })}
	for want, r := range map[string]*round{
		"":                               {Warren: good(), Peer: good()},
		"Warren: of 900 messages lost 1": {Warren: lossy, Peer: good()},
		"Hare: of 900 messages lost 1":   {Warren: good(), Peer: lossy},
		"Warren: it broke":               {Warren: &side{Error: "it broke"}},
		"Hare: no report":                {Peer: &side{}},
	} {
		if got := r.fault("Hare"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

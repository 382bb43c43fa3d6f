package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// loadReport is what is read of amqpload's -json; times are in microseconds, memory in octets.
type loadReport struct {
	Broker  string         `json:"broker"`
	Phases  []phaseReport  `json:"phases"`
	Idle    *idleReport    `json:"idle"`
	Course  *courseReport  `json:"course"`
	Restart *restartReport `json:"restart"`
	Stalled *stalledReport `json:"stalled"`
	Cut     *cutReport     `json:"cut"`
	Verdict *loadVerdict   `json:"verdict"`
}

type phaseReport struct {
	Name         string   `json:"name"`
	Seconds      float64  `json:"seconds"`
	Published    float64  `json:"published"`
	Delivered    float64  `json:"delivered"`
	PublishRate  float64  `json:"publish_rate"`
	DeliveryRate float64  `json:"delivery_rate"`
	Confirm      *latency `json:"confirm"`
	EndToEnd     *latency `json:"end_to_end"`
	BrokerCPU    float64  `json:"broker_cpu"`
	PerCPUSecond float64  `json:"messages_per_broker_cpu_second"`
	PeakAnon     float64  `json:"broker_peak_anonymous"`
	OtherCPU     float64  `json:"other_cpu"`
}

type latency struct {
	P50 float64 `json:"p50_us"`
	P99 float64 `json:"p99_us"`
}

type idleReport struct {
	Before  float64 `json:"anonymous_before"`
	Open    float64 `json:"anonymous_open"`
	Closed  float64 `json:"anonymous_closed"`
	Each    float64 `json:"growth_per_connection"`
	Settled bool    `json:"settled"`
}

type courseReport struct {
	SecondRate  float64 `json:"second_stretch_rate"`
	LastRate    float64 `json:"last_stretch_rate"`
	AnonLow     float64 `json:"anonymous_low"`
	AnonHigh    float64 `json:"anonymous_high"`
	AnonSamples int     `json:"anonymous_samples"`
	DiskHigh    float64 `json:"disk_high"`
	ExcessEnd   float64 `json:"disk_excess_end"`
	ExcessHigh  float64 `json:"disk_excess_high"`
}

type restartReport struct {
	FirstDelivery float64 `json:"first_delivery"` // seconds
}

type cutReport struct {
	Seconds float64 `json:"seconds"`
	Alone   float64 `json:"alone_p999"` // microseconds
	Beside  float64 `json:"beside_p999"`
}

type stalledReport struct {
	Alone  float64 `json:"alone"`
	Beside float64 `json:"beside"`
}

type loadVerdict struct {
	Sent       uint64 `json:"sent"`
	Lost       uint64 `json:"lost"`
	Duplicated uint64 `json:"duplicated"`
	OutOfOrder uint64 `json:"out_of_order"`
	Nacked     uint64 `json:"nacked"`
	Foreign    uint64 `json:"foreign"`
}

// load runs amqpload once and returns its report, also as it was printed.
func load(ctx context.Context, amqpload string, b broker, args []string) (*loadReport, json.RawMessage, error) {
	var pids []string
	for _, pid := range b.pids() {
		pids = append(pids, strconv.Itoa(pid))
	}
	args = append([]string{"-json", "-uri", b.uri(), "-pid", strings.Join(pids, ",")}, fill(args, b)...)
	cmd := exec.CommandContext(ctx, amqpload, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	printed, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(tail(stderr.String(), 500)))
	}
	r := &loadReport{}
	if err := json.Unmarshal(printed, r); err != nil {
		return nil, nil, fmt.Errorf("amqpload's report: %w", err)
	}
	return r, bytes.TrimSpace(printed), nil
}

// What stands in a workload's arguments for what only the broker knows.
const (
	dataDirOf = "{data}"  // its data directory
	startOf   = "{start}" // the shell command that starts it again
	httpOf    = "{http}"  // its HTTP API
)

// keeper is a broker that tells where its data is, how to start it with that again, and where its HTTP API is.
type keeper interface {
	dataDir() string
	startCommand() string
	http() string
}

// fill puts in what the broker knows; of one that does not tell, the flags with that are left out.
func fill(args []string, b broker) (filled []string) {
	k, ok := b.(keeper)
	for _, arg := range args {
		switch {
		case arg != dataDirOf && arg != startOf && arg != httpOf:
			filled = append(filled, arg)
		case !ok:
			filled = filled[:len(filled)-1]
		case arg == dataDirOf:
			filled = append(filled, k.dataDir())
		case arg == httpOf:
			filled = append(filled, k.http())
		default:
			filled = append(filled, k.startCommand())
		}
	}
	return filled
}

// faults tells why the run's figures are none; "" means that they are.
func (r *loadReport) faults() string {
	v := r.Verdict
	if v == nil {
		return "no verdict"
	}
	if v.Sent == 0 {
		return "nothing was sent"
	}
	var found []string
	for _, f := range []struct {
		what string
		n    uint64
	}{{"lost", v.Lost}, {"duplicated", v.Duplicated}, {"out of order", v.OutOfOrder}, {"nacked", v.Nacked}, {"foreign", v.Foreign}} {
		if f.n > 0 {
			found = append(found, fmt.Sprintf("%s %d", f.what, f.n))
		}
	}
	if len(found) > 0 {
		return fmt.Sprintf("of %d messages %s", v.Sent, strings.Join(found, ", "))
	}
	if r.Idle != nil && !r.Idle.Settled {
		return "the memory did not settle"
	}
	return ""
}

// phase returns the phase of that name, or nil.
func (r *loadReport) phase(name string) *phaseReport {
	for i := range r.Phases {
		if r.Phases[i].Name == name {
			return &r.Phases[i]
		}
	}
	return nil
}

// rate is of deliveries where there are any, else of publishes: as in messages per CPU-second.
func (p *phaseReport) rate() float64 {
	if p.Delivered > 0 {
		return p.DeliveryRate
	}
	return p.PublishRate
}

// othersShare returns the largest share of the machine that other processes used in a phase, 0 to 1.
func (r *loadReport) othersShare(cores int) (share float64) {
	for _, p := range r.Phases {
		if p.Seconds > 0 {
			share = max(share, p.OtherCPU/(p.Seconds*float64(cores)))
		}
	}
	return share
}

// tail returns the last n octets of s.
func tail(s string, n int) string { return s[max(0, len(s)-n):] }

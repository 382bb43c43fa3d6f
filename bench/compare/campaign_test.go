package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// stub is a broker that notes what is done to it.
type stub struct {
	name  string
	calls *[]string
}

func (s *stub) uri() string { return s.name }
func (s *stub) pids() []int { return []int{1} }
func (s *stub) start(context.Context) error {
	*s.calls = append(*s.calls, s.name+" starts")
	return nil
}
func (s *stub) stop() error { *s.calls = append(*s.calls, s.name+" stops"); return nil }

// stubCampaign measures two stubs with a script in amqpload's place, which sees the broker's name as $3.
func stubCampaign(t *testing.T, script string) (c *campaign, calls *[]string) {
	root, calls := t.TempDir(), &[]string{}
	h := &house{root: root, build: filepath.Join(root, "build", "compare")}
	if err := os.MkdirAll(h.build, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(h.build, "amqpload")
	report := strings.ReplaceAll(sample, "\n", " ")
	script = "#!/bin/sh\necho $3 >>" + root + "/runs\nreport='" + report + "'\n" + script + "\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	o, err := parseOptions([]string{"-rounds", "3"})
	if err != nil {
		t.Fatal(err)
	}
	return &campaign{options: o, house: h, log: io.Discard, amqpload: program, source: "abc",
		warrenServer: &stub{"warren", calls}, peerServer: &stub{"peer", calls}}, calls
}

func pick(t *testing.T, names ...string) []workload {
	chosen, err := choose(workloads(), names)
	if err != nil {
		t.Fatal(err)
	}
	return chosen
}

func TestBrokersAlternate(t *testing.T) {
	c, _ := stubCampaign(t, `echo "$report"`)
	if err := c.run(context.Background(), pick(t, "fanout")); err != nil {
		t.Fatal(err)
	}
	if runs := readText(filepath.Join(c.root, "runs")); runs != strings.Repeat("warren\npeer\n", 3) {
		t.Errorf("runs:\n%s", runs)
	}
	page := readText(filepath.Join(c.root, "docs", "performance.md"))
	for _, want := range []string{"### fanout", "commit abc", "3 rounds", "| run: per second | 400 | 400 | 1× (1 to 1) | ≥ 50× | missed |"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	var raw struct {
		Rounds []struct {
			Workload string
			Warren   struct{ Report struct{ Broker string } }
			Sync     []float64 `json:"sync_4k_ms"`
		}
	}
	if err := json.Unmarshal([]byte(readText(filepath.Join(c.root, c.rawPath()))), &raw); err != nil {
		t.Fatal(err)
	}
	if len(raw.Rounds) != 3 || raw.Rounds[2].Warren.Report.Broker != "RabbitMQ 4.3.6" || len(raw.Rounds[0].Sync) != syncsEach {
		t.Errorf("raw rounds: %+v", raw)
	}
}

// The factors are RabbitMQ's: another peer is no measure of them.
func TestOtherPeersHaveNoAimsOfRatio(t *testing.T) {
	for _, change := range []func(*campaign){
		func(c *campaign) { c.peerName = "before" },
		func(c *campaign) { c.peerServer = nil },
	} {
		c, _ := stubCampaign(t, `echo "$report"`)
		change(c)
		if err := c.run(context.Background(), pick(t, "fanout", "latency")); err != nil {
			t.Fatal(err)
		}
		page := readText(filepath.Join(c.root, "docs", "performance.md"))
		if strings.Contains(page, "≥ 50×") || !strings.Contains(page, "| latency | run: end to end p50, ms | 0.15 |") {
			t.Errorf("page:\n%s", page)
		}
	}
}

func TestALostMessageVoidsTheWorkloadAndFails(t *testing.T) {
	c, calls := stubCampaign(t, `[ $3 = peer ] && [ $(wc -l <`+"`dirname $0`"+`/../../runs) -ge 4 ] && report=$(echo "$report" | sed 's/"lost":0/"lost":7/')
echo "$report"`)
	err := c.run(context.Background(), pick(t, "fanout", "get"))
	if err == nil || err.Error() != "void: fanout, get" {
		t.Errorf("error %v", err)
	}
	page := readText(filepath.Join(c.root, "docs", "performance.md"))
	if !strings.Contains(page, "**Void**: round 2, RabbitMQ 4.3.6: of 900 messages lost 7\n") ||
		!strings.Contains(page, "**Void**: round 1, RabbitMQ 4.3.6: of 900 messages lost 7\n") || strings.Contains(page, "| run: per second") {
		t.Errorf("page:\n%s", page)
	}
	if runs := readText(filepath.Join(c.root, "runs")); runs != strings.Repeat("warren\npeer\n", 3) { // two rounds of fanout, one of get
		t.Errorf("runs:\n%s", runs)
	}
	if strings.Contains(strings.Join(*calls, ", "), "stops") {
		t.Errorf("a broker that answers was stopped: %v", *calls)
	}
}

func TestABrokerThatFailsIsStopped(t *testing.T) {
	c, calls := stubCampaign(t, `[ $3 = warren ] && { echo stalled at 7 >&2; exit 1; }; echo "$report"`)
	if err := c.run(context.Background(), pick(t, "fanout")); err == nil {
		t.Error("no error")
	}
	if got := strings.Join(*calls, ", "); got != "warren starts, warren stops, peer starts" {
		t.Errorf("calls: %s", got)
	}
	if page := readText(filepath.Join(c.root, "docs", "performance.md")); !strings.Contains(page, "**Void**: round 1, Warren: exit status 1: stalled at 7\n") {
		t.Errorf("page:\n%s", page)
	}
}

func TestIdleConnectionsMeetAFreshBroker(t *testing.T) {
	c, calls := stubCampaign(t, `echo "$report"`)
	c.rounds, c.peerServer = 2, nil
	if err := c.run(context.Background(), pick(t, "idle")); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(*calls, ", "); got != "warren stops, warren starts, warren stops, warren starts" {
		t.Errorf("calls: %s", got)
	}
	if page := readText(filepath.Join(c.root, "docs", "performance.md")); !strings.Contains(page,
		"| growth of anonymous memory per connection, octets | 20,000 | – | – | ≤ 20,000 | met |") {
		t.Errorf("page:\n%s", page)
	}
}

func TestAWorkloadWithoutPeerRunsOnWarrenOnly(t *testing.T) {
	c, _ := stubCampaign(t, `echo "$report"`)
	c.rounds = 7
	if err := c.run(context.Background(), pick(t, "stalled")); err != nil {
		t.Fatal(err)
	}
	if runs := readText(filepath.Join(c.root, "runs")); runs != strings.Repeat("warren\n", aloneRounds) {
		t.Errorf("runs:\n%s", runs)
	}
	if page := readText(filepath.Join(c.root, "docs", "performance.md")); !strings.Contains(page, "| rate beside : alone | 0.95 | – | – | ≥ 0.9 | met |") {
		t.Errorf("page:\n%s", page)
	}
}

// The bound follows from the sync times of the same rounds.
func TestLatencyIsHeldAgainstTheDisk(t *testing.T) {
	c, _ := stubCampaign(t, `echo "$report"`)
	c.rounds = 1
	if err := c.run(context.Background(), pick(t, "latency-10k")); err != nil {
		t.Fatal(err)
	}
	s99 := quantile(c.measured[0].SyncTimes, 0.99)
	want := fmt.Sprintf("| ≤ %s (the larger of 10 and 3 × s99) | met |", number(max(10, 3*s99)))
	if page := readText(filepath.Join(c.root, "docs", "performance.md")); !strings.Contains(page, want) {
		t.Errorf("the page lacks %q:\n%s", want, page)
	}
}

func TestAnInterruptWritesNothing(t *testing.T) {
	c, _ := stubCampaign(t, `echo "$report"`)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.run(ctx, pick(t, "fanout")); err == nil || err.Error() != "interrupted" {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(filepath.Join(c.root, "docs")); err == nil {
		t.Error("a page was written")
	}
}

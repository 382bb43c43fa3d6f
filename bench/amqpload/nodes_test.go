package main

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// clusterWorkload is a preset at three brokers that know nothing of each other, of which each knows all queues.
func clusterWorkload(t *testing.T, preset string) (workload, []*fakeBroker) {
	w := presets()[preset].workload
	w.Name = preset
	var brokers []*fakeBroker
	for i := range 3 {
		b := &fakeBroker{copies: func(uint64) int { return 1 }}
		brokers = append(brokers, b)
		if e := b.start(t); i == 0 {
			w.endpoint = e
		} else {
			w.others = append(w.others, e)
		}
	}
	return w, brokers
}

func connections(brokers []*fakeBroker) (n []int64) {
	for _, b := range brokers {
		n = append(n, b.connections.Load())
	}
	return n
}

func TestSeveralAddresses(t *testing.T) {
	first, others, err := parseEndpoints("amqp://a,amqp://u:p@b:1/v,amqp://c")
	if err != nil || first.address != "a:5672" || len(others) != 2 || others[0] != (endpoint{"b:1", "u", "p", "v"}) || others[1].address != "c:5672" {
		t.Errorf("%v %v %v", first, others, err)
	}
	if _, _, err := parseEndpoints("amqp://a,"); err == nil {
		t.Error("an empty address is accepted")
	}
	if pids, err := parsePids("1,22"); err != nil || !slices.Equal(pids, []int{1, 22}) {
		t.Error(pids, err)
	}
	if pids, err := parsePids(""); err != nil || pids != nil {
		t.Error(pids, err)
	}
	for _, bad := range []string{"x", "1,", "-1"} {
		if _, err := parsePids(bad); err == nil {
			t.Errorf("process id %q is accepted", bad)
		}
	}
}

// The consumers of what one node declares are at all nodes.
func TestConsumersAreSpreadOverTheNodes(t *testing.T) {
	w := workload{endpoint: endpoint{address: "0"}, others: []endpoint{{address: "1"}, {address: "2"}}}
	var at []string
	for i := range 9 {
		at = append(at, w.consumerAt(i).address)
	}
	if got := strings.Join(at, ""); got != "012120201" {
		t.Errorf("consumers at %s", got)
	}
	alone := workload{endpoint: endpoint{address: "0"}}
	if alone.at(7).address != "0" || alone.consumerAt(7).address != "0" {
		t.Error("a node alone does not have all consumers")
	}
}

func TestLoadReachesAllNodes(t *testing.T) {
	w, brokers := clusterWorkload(t, "quorum")
	w.Producers, w.Consumers, w.Messages, w.Warmup = 3, 3, 600, 0
	r, err := runLoad(&w, &meter{})
	if err != nil {
		t.Fatal(err)
	}
	if want := (verdict{Sent: 600, Expected: 600, Received: 600}); r.Verdict != want {
		t.Errorf("%+v, want %+v", r.Verdict, want)
	}
	for i, b := range brokers {
		if b.tag != 200 {
			t.Errorf("node %d got %d messages", i, b.tag)
		}
	}
}

func TestQueuesAreDeclaredAtTheNodesInTurn(t *testing.T) {
	w, brokers := clusterWorkload(t, "quorum")
	w.Queues = 5
	c, err := dial(w.endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := w.declare(c); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"0 3", "1 4", "2"} {
		for _, seen := range [][]string{brokers[i].declared, brokers[i].deleted} {
			var got []string
			for _, name := range seen {
				got = append(got, name[len(name)-1:])
			}
			if strings.Join(got, " ") != want {
				t.Errorf("node %d: queues %v, want %s", i, got, want)
			}
		}
	}
}

// A declaration is not over before all nodes know of it.
func TestDeclaringWaitsForTheOtherNodes(t *testing.T) {
	w, brokers := clusterWorkload(t, "quorum")
	brokers[2].unknown.Store(3)
	c, err := dial(w.endpoint)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := w.declare(c); err != nil {
		t.Fatal(err)
	}
	if left := brokers[2].unknown.Load(); left > 0 {
		t.Errorf("the last node would have denied the queue %d times more", left)
	}
	brokers[1].unknown.Store(1 << 30)
	err = awaitKnown(w.at(1), 20*time.Millisecond, func(c *conn) error { _, err := c.queueDepth("q"); return err })
	if err == nil || !strings.Contains(err.Error(), "NOT_FOUND") {
		t.Errorf("error %v", err)
	}
}

func TestChurnGoesRoundTheNodes(t *testing.T) {
	w, brokers := clusterWorkload(t, "churn-exclusive")
	w.Producers, w.Duration = 1, 50*time.Millisecond
	r, err := runExclusive(&w, &meter{})
	if err != nil {
		t.Fatal(err)
	}
	n := connections(brokers)
	if least := int64(r.Verdict.Sent / 3); n[0] < least || n[1] < least || n[2] < least {
		t.Errorf("%d cycles, connections %v", r.Verdict.Sent, n)
	}
}

// A queue must be gone at every node.
func TestExclusiveQueueThatStaysAtAnotherNode(t *testing.T) {
	w, brokers := clusterWorkload(t, "churn-exclusive")
	brokers[2].queues = true
	w.Producers, w.Duration, w.gone = 1, 10*time.Millisecond, 50*time.Millisecond
	if _, err := runExclusive(&w, &meter{}); err == nil || !strings.Contains(err.Error(), "still there") {
		t.Errorf("error %v", err)
	}
}

func TestDeclaredQueuesMustBeKnownAtAnotherNode(t *testing.T) {
	w, brokers := clusterWorkload(t, "declare")
	w.Queues, w.Producers, w.spread = 20, 6, 50*time.Millisecond
	for _, b := range brokers {
		b.forgets = true
	}
	r, err := runDeclare(&w, &meter{})
	if err == nil || !strings.Contains(err.Error(), "NOT_FOUND") {
		t.Fatalf("queues that no other node knows: %+v, %v", r, err)
	}
}

func TestDeclareAtOneNode(t *testing.T) {
	b := &fakeBroker{forgets: true}
	w := presets()["declare"].workload
	w.Name, w.endpoint, w.Queues, w.Producers = "declare", b.start(t), 20, 6
	r, err := runDeclare(&w, &meter{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Phases) != 2 || r.Phases[0].Name != "declare" || r.Phases[1].Name != "delete" || r.Phases[0].Published != 20 || r.Phases[0].EndToEnd == nil {
		t.Errorf("phases %+v", r.Phases)
	}
	if want := (verdict{Sent: 20, Expected: 20, Received: 20}); r.Verdict != want {
		t.Errorf("%+v", r.Verdict)
	}
	slices.Sort(b.declared)
	if all := slices.Compact(b.declared); len(all) != 20 || len(b.deleted) != 40 { // before and after
		t.Errorf("declared %d, deleted %d", len(all), len(b.deleted))
	}
}

func TestTogetherReturnsAnError(t *testing.T) {
	w := workload{Producers: 5}
	var ran atomic.Int64
	err := w.together(func(k int) error {
		ran.Add(1)
		if k == 3 {
			return errStalled
		}
		return nil
	})
	if err != errStalled || ran.Load() != 5 {
		t.Errorf("%v after %d", err, ran.Load())
	}
}

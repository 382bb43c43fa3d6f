package main

import (
	"strings"
	"testing"
	"time"
)

func names(all []workload) string {
	var names []string
	for _, w := range all {
		names = append(names, w.name)
	}
	return strings.Join(names, " ")
}

func TestChoose(t *testing.T) {
	all := workloads()
	for given, want := range map[string]string{
		"":                       names(all),
		"fanout":                 "fanout",
		"transient fanout":       "transient-16 transient-1k transient-ack fanout",
		"fanout transient-1k":    "transient-1k fanout",
		"topic topic-fresh":      "topic topic-fresh",
		"topic-fresh":            "topic-fresh",
		"transient transient-16": "transient-16 transient-1k transient-ack",
	} {
		got, err := choose(all, strings.Fields(given))
		if err != nil || names(got) != want {
			t.Errorf("%q: %s (%v), want %s", given, names(got), err, want)
		}
	}
	for _, unknown := range []string{"trans", "fanout hare"} {
		if _, err := choose(all, strings.Fields(unknown)); err == nil {
			t.Errorf("%q is accepted", unknown)
		}
	}
}

func TestOptionsInAnyOrder(t *testing.T) {
	o, err := parseOptions([]string{"fanout", "-rounds", "7", "get", "-only=warren"})
	if err != nil || strings.Join(o.workloads, " ") != "fanout get" || o.rounds != 7 || o.only != onlyWarren {
		t.Errorf("%+v %v", o, err)
	}
}

func TestOptionsThatContradict(t *testing.T) {
	for _, args := range []string{
		"-rounds 0", "-only both", "-peer-uri amqp://x", "-peer-pid 3", "-duration 0s", "-peer-uri amqp://x -peer-pid 3 -peer-binary y",
	} {
		if _, err := parseOptions(strings.Fields(args)); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}

// Only the comparison that the published page is about may change it.
func TestPageOfOtherComparisons(t *testing.T) {
	for args, want := range map[string]string{
		"":                               "docs/performance.md",
		"fanout -duration 2s":            "docs/performance.md",
		"-only warren":                   "build/performance.md",
		"-warren old":                    "build/performance.md",
		"-peer-binary old":               "build/performance.md",
		"-peer-uri amqp://x -peer-pid 3": "build/performance.md",
		"-only peer -out some.md":        "some.md",
	} {
		o, err := parseOptions(strings.Fields(args))
		if err != nil || o.page() != want {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
}

func TestQuickShortensWhatIsNotGiven(t *testing.T) {
	o, err := parseOptions([]string{"-quick", "-queues", "77", "-rounds=6"})
	if err != nil || o.rounds != 6 || o.queues != 77 || o.duration != 1500*time.Millisecond || o.backlog != 100_000 || o.stored != 1_000_000 {
		t.Errorf("%+v %v", o, err)
	}
	if o, _ := parseOptions([]string{"-quick"}); o.rounds < 5 {
		t.Errorf("%d rounds", o.rounds)
	}
	for _, w := range quickly(workloads()) {
		if w.alone {
			t.Errorf("%s is measured without a peer", w.name)
		}
	}
	if len(quickly(workloads())) < 15 {
		t.Errorf("only %s", names(quickly(workloads())))
	}
}

func TestWorkloadsAreDistinctAndHaveFigures(t *testing.T) {
	seen := map[string]bool{}
	o, _ := parseOptions(nil)
	for _, w := range workloads() {
		if seen[w.name] || w.about == "" || len(w.args(o)) < 2 || len(w.figures) == 0 {
			t.Errorf("%s: %d figures, arguments %v", w.name, len(w.figures), w.args(o))
		}
		seen[w.name] = true
	}
}

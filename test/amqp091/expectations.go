package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/warrenmq/warren/test/gotest"
)

// The words of an expectations file: one test a line, `word name`, a reason after " - "; # starts a comment.
const (
	mustPass = "pass"      // RabbitMQ passes it, so every broker must
	mustSkip = "skip"      // not run, for the reason given; the test itself says so
	mayPass  = "either"    // it passes or skips, by chance, on RabbitMQ too
	excepted = "exception" // known to differ from RabbitMQ, for the reason given
)

type expectation struct{ word, reason string }

type expectations map[string]expectation

func parseExpectations(text string) (expectations, error) {
	all := expectations{}
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		entry, reason, _ := strings.Cut(line, " - ")
		word, name, _ := strings.Cut(entry, " ")
		name = strings.TrimSpace(name)
		switch word {
		case mustPass:
		case mustSkip, mayPass, excepted:
			if reason == "" {
				return nil, fmt.Errorf("line %d: %q needs a reason after \" - \"", i+1, word)
			}
		default:
			return nil, fmt.Errorf("line %d: unknown word %q", i+1, word)
		}
		if _, twice := all[name]; name == "" || twice {
			return nil, fmt.Errorf("line %d: no name, or a name named before", i+1)
		}
		all[name] = expectation{word, reason}
	}
	return all, nil
}

// only returns the expectations of the tests that ran.
func (e expectations) only(run *gotest.Log) expectations {
	part := expectations{}
	for _, t := range run.Tests {
		if x, ok := e[t.Name]; ok {
			part[t.Name] = x
		}
	}
	return part
}

// record writes a run's outcomes as an expectations file, to be completed by hand with reasons.
func record(run *gotest.Log) []byte {
	var b bytes.Buffer
	for _, t := range run.Tests {
		switch t.Outcome {
		case gotest.Passed:
			fmt.Fprintf(&b, "%s %s\n", mustPass, t.Name)
		case gotest.Skipped:
			fmt.Fprintf(&b, "%s %s - %s\n", mustSkip, t.Name, t.LastWords())
		default:
			fmt.Fprintf(&b, "%s %s - failed when this was recorded\n", excepted, t.Name)
		}
	}
	return b.Bytes()
}

// verdict is a run held against its expectations.
type verdict struct {
	passed   int
	skipped  []string // with reasons
	excepted []string // with what happened, and reasons
	failed   []string // with what the tests printed
}

func judge(e expectations, run *gotest.Log) *verdict {
	v := &verdict{}
	fail := func(name, why, output string) {
		v.failed = append(v.failed, name+": "+why+"\n"+indent(output))
	}
	ran := map[string]bool{}
	named := false // a failure of the suite as a whole has its cause in a test
	for _, t := range run.Tests {
		ran[t.Name] = true
		got := t.Outcome
		if got == gotest.Endless {
			got = "never ended"
		}
		named = named || got != gotest.Passed && got != gotest.Skipped
		x, known := e[t.Name]
		switch {
		case !known:
			fail(t.Name, got+", but the expectations do not name it", t.Output)
		case x.word == excepted:
			v.excepted = append(v.excepted, fmt.Sprintf("%s: %s (%s)", t.Name, got, x.reason))
		case got == gotest.Passed:
			v.passed++
		case got == gotest.Skipped && x.word != mustPass:
			v.skipped = append(v.skipped, t.Name+": "+x.reason)
		case got == gotest.Skipped:
			fail(t.Name, "skipped, but RabbitMQ passes it", t.Output)
		default:
			fail(t.Name, got, t.Output)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e)) {
		if !ran[name] {
			fail(name, "did not run", "")
		}
	}
	for _, p := range run.Packages {
		if p.Outcome != gotest.Passed && !named {
			fail("the suite", "it failed and no test did, as when goroutines of the client are left behind", p.Output)
		}
	}
	return v
}

func (v *verdict) print(w io.Writer) {
	for _, s := range v.skipped {
		fmt.Fprintln(w, "skipped  ", s)
	}
	for _, s := range v.excepted {
		fmt.Fprintln(w, "exception", s)
	}
	for _, s := range v.failed {
		fmt.Fprintln(w, "FAILED   ", s)
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d skipped\n", v.passed, len(v.failed), len(v.skipped)+len(v.excepted))
}

func indent(output string) string {
	if output = strings.TrimRight(output, "\n"); output == "" {
		return ""
	}
	return "    " + strings.ReplaceAll(output, "\n", "\n    ") + "\n"
}

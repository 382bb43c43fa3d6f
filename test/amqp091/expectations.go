package main

import (
	"bytes"
	"fmt"
	"io"
	"sort"
	"strings"
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
func (e expectations) only(r *result) expectations {
	part := expectations{}
	for _, name := range r.names {
		if x, ok := e[name]; ok {
			part[name] = x
		}
	}
	return part
}

// record writes a run's outcomes as an expectations file, to be completed by hand with reasons.
func (r *result) record() []byte {
	var b bytes.Buffer
	for _, name := range r.names {
		switch r.outcome[name] {
		case "pass":
			fmt.Fprintf(&b, "%s %s\n", mustPass, name)
		case "skip":
			fmt.Fprintf(&b, "%s %s - %s\n", mustSkip, name, lastLine(r.output[name]))
		default:
			fmt.Fprintf(&b, "%s %s - failed when this was recorded\n", excepted, name)
		}
	}
	return b.Bytes()
}

// lastLine is what a test said last: the reason of a skip.
func lastLine(output string) string {
	last := ""
	for _, line := range strings.Split(output, "\n") {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "===") {
			last = line
		}
	}
	return last
}

// verdict is a run held against its expectations.
type verdict struct {
	passed   int
	skipped  []string // with reasons
	excepted []string // with reasons and what happened
	failed   []string // with what the test printed
}

func judge(e expectations, r *result) *verdict {
	v := &verdict{}
	fail := func(name, why string) {
		v.failed = append(v.failed, fmt.Sprintf("%s: %s\n%s", name, why, indent(r.output[name])))
	}
	named := false // a failure of the suite as a whole has its cause in a test
	for _, name := range r.names {
		got := r.outcome[name]
		if got == "" {
			got = "never ended"
		}
		named = named || got != "pass" && got != "skip"
		x, known := e[name]
		switch {
		case !known:
			fail(name, got+", but nothing is written about it in the expectations")
		case x.word == excepted:
			v.excepted = append(v.excepted, fmt.Sprintf("%s: %s (%s)", name, got, x.reason))
		case got == "pass":
			v.passed++
		case got == "skip" && x.word != mustPass:
			v.skipped = append(v.skipped, fmt.Sprintf("%s: %s", name, x.reason))
		case got == "skip":
			fail(name, "skipped, but RabbitMQ passes it")
		default:
			fail(name, got)
		}
	}
	for name := range e {
		if !ran(r, name) {
			fail(name, "expected, but it did not run")
		}
	}
	if !r.passed && !named {
		fail("", "no test failed but the suite did, as it does when goroutines of the client are left behind")
	}
	sort.Strings(v.failed)
	return v
}

func ran(r *result, name string) bool {
	for _, n := range r.names {
		if n == name {
			return true
		}
	}
	return false
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

// Package gotest reads what `go test -json` and `go tool test2json` print. It owns nothing else: it neither runs tests
// nor judges them.
package gotest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// The outcomes of a test or a package.
const (
	Passed  = "pass"
	Failed  = "fail"
	Skipped = "skip" // of a package: it has no tests
	Endless = ""     // it began and never ended: the process died
)

// Test is a test, a subtest (its Name has slashes), or, with an empty Name, a whole package.
type Test struct {
	Package string
	Name    string
	Outcome string
	Output  string  // all it printed; of a package what belongs to no test, compiler errors included
	Seconds float64 // how long it ran, where it is known
}

// Log is a run of tests, each in the order in which it began.
type Log struct {
	Tests    []*Test
	Packages []*Test
}

// event is one line; `go doc test2json` describes it. A compiler's output has an ImportPath, like "p [p.test]".
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Output     string
	Elapsed    float64
}

// Read reads events until the end of r. It calls ended, if that is not nil, with every test and package when it ends. A
// line that is no event is an error, returned together with the log so far.
func Read(r io.Reader, ended func(*Test)) (*Log, error) {
	log := &Log{}
	seen := map[[2]string]*Test{}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if err := json.Unmarshal(line, &e); err != nil {
				return log, fmt.Errorf("no event of a test: %w: %q", err, line)
			}
			log.add(e, seen, ended)
		}
		if err == io.EOF {
			return log, nil
		}
		if err != nil {
			return log, err
		}
	}
}

func (log *Log) add(e event, seen map[[2]string]*Test, ended func(*Test)) {
	if e.ImportPath != "" {
		e.Package, _, _ = strings.Cut(e.ImportPath, " ")
	}
	t := seen[[2]string{e.Package, e.Test}]
	if t == nil {
		t = &Test{Package: e.Package, Name: e.Test}
		seen[[2]string{e.Package, e.Test}] = t
		if e.Test == "" {
			log.Packages = append(log.Packages, t)
		} else {
			log.Tests = append(log.Tests, t)
		}
	}
	switch e.Action {
	case "output", "build-output":
		t.Output += e.Output
	case Passed, Failed, Skipped:
		if e.Test == "" {
			log.cut(e.Package, ended)
		}
		t.Outcome, t.Seconds = e.Action, e.Elapsed
		if ended != nil {
			ended(t)
		}
	}
}

// cut ends the tests that were running when their package ended: it took too long, or the process did not survive. What they printed says
// why.
func (log *Log) cut(pkg string, ended func(*Test)) {
	for _, t := range log.Tests {
		if t.Package == pkg && t.Outcome == "" {
			if t.Outcome = Failed; ended != nil {
				ended(t)
			}
		}
	}
}

// LastWords is the last line that a test printed itself: the reason of a skip, as a rule.
func (t *Test) LastWords() string {
	last := ""
	for _, line := range strings.Split(t.Output, "\n") {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "===") {
			last = line
		}
	}
	return last
}

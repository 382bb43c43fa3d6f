package main

import (
	"os"
	"strings"
	"testing"

	"github.com/warrenmq/warren/test/gotest"
)

func TestParseExpectations(t *testing.T) {
	got, err := parseExpectations("# a comment\n\npass TestA/b-c\nskip TestB - no disk - really\n")
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got["TestA/b-c"].word != mustPass || got["TestB"] != (expectation{mustSkip, "no disk - really"}) {
		t.Errorf("parsed %v", got)
	}
	for _, bad := range []string{"skip TestA", "exception TestA", "maybe TestA", "pass", "pass TestA\npass TestA"} {
		if _, err := parseExpectations(bad); err == nil {
			t.Errorf("accepted %q", bad)
		}
	}
}

// The file in the tree is well-formed and not empty.
func TestExpectationsFile(t *testing.T) {
	text, err := os.ReadFile("expectations.txt")
	if err != nil {
		t.Fatal(err)
	}
	all, err := parseExpectations(string(text))
	if err != nil {
		t.Fatal(err)
	}
	pass := 0
	for _, x := range all {
		if x.word == mustPass {
			pass++
		}
	}
	if pass < 300 || pass < len(all)-5 {
		t.Errorf("%d of %d tests must pass: that is too few", pass, len(all))
	}
}

func TestJudge(t *testing.T) {
	const expected = "pass TestA\nskip TestB - why\neither TestC - why\nexception TestD - why\n"
	for _, c := range []struct {
		name    string
		tests   string // name:outcome; no outcome: it never ended
		suite   string
		passed  int
		failed  string // name of the one that fails
		skipped int
		except  int
	}{
		{"as expected", "TestA:pass TestB:skip TestC:skip TestD:fail", "fail", 1, "", 2, 1},
		{"better than expected", "TestA:pass TestB:pass TestC:pass TestD:pass", "pass", 3, "", 0, 1},
		{"a failure", "TestA:fail TestB:skip TestC:pass TestD:pass", "fail", 1, "TestA", 1, 1},
		{"an unexpected skip", "TestA:skip TestB:skip TestC:pass TestD:pass", "pass", 1, "TestA", 1, 1},
		{"a failure where a skip is allowed", "TestA:pass TestB:skip TestC:fail TestD:pass", "fail", 1, "TestC", 1, 1},
		{"a crash", "TestA: TestB:skip TestC:pass TestD:pass", "fail", 1, "TestA", 1, 1},
		{"a test missing", "TestB:skip TestC:pass TestD:pass", "pass", 1, "TestA", 1, 1},
		{"a test unknown", "TestA:pass TestB:skip TestC:pass TestD:pass TestE:pass", "pass", 2, "TestE", 1, 1},
		{"goroutines left behind", "TestA:pass TestB:skip TestC:pass TestD:pass", "fail", 2, "the suite", 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := &gotest.Log{Packages: []*gotest.Test{{Outcome: c.suite}}}
			for _, entry := range strings.Fields(c.tests) {
				name, outcome, _ := strings.Cut(entry, ":")
				run.Tests = append(run.Tests, &gotest.Test{Name: name, Outcome: outcome})
			}
			e, err := parseExpectations(expected)
			if err != nil {
				t.Fatal(err)
			}
			v := judge(e, run)
			var failed []string
			for _, f := range v.failed {
				name, _, _ := strings.Cut(f, ":")
				failed = append(failed, name)
			}
			if v.passed != c.passed || strings.Join(failed, " ") != c.failed || len(v.skipped) != c.skipped || len(v.excepted) != c.except {
				t.Errorf("%d passed, failed %q, skipped %q, excepted %q", v.passed, failed, v.skipped, v.excepted)
			}
		})
	}
}

package gotest

import (
	"strings"
	"testing"
)

const events = `{"Action":"start","Package":"a"}
{"Action":"run","Package":"a","Test":"TestX"}
{"Action":"output","Package":"a","Test":"TestX","Output":"=== RUN   TestX\n"}
{"Action":"output","Package":"a","Test":"TestX","Output":"    x_test.go:3: no disk\n"}
{"Action":"output","Package":"a","Test":"TestX","Output":"--- SKIP: TestX (0.01s)\n"}
{"Action":"skip","Package":"a","Test":"TestX","Elapsed":0.01}
{"Action":"run","Package":"a","Test":"TestY"}
{"Action":"run","Package":"b","Test":"TestX"}
{"Action":"run","Package":"b","Test":"TestZ"}
{"Action":"output","Package":"b","Test":"TestZ","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"b","Test":"TestX"}
{"Action":"fail","Package":"b"}
{"ImportPath":"c [c.test]","Action":"build-output","Output":"c/c.go:1:1: broken\n"}
{"ImportPath":"c [c.test]","Action":"build-fail"}
{"Action":"fail","Package":"c","FailedBuild":"c [c.test]"}`

func TestRead(t *testing.T) {
	var ends []string
	log, err := Read(strings.NewReader(events), func(t *Test) { ends = append(ends, t.Package+"."+t.Name+":"+t.Outcome) })
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(ends, " "), "a.TestX:skip b.TestX:fail b.TestZ:fail b.:fail c.:fail"; got != want {
		t.Errorf("ended %s, want %s", got, want)
	}
	var tests []string
	for _, x := range log.Tests {
		tests = append(tests, x.Package+"."+x.Name+":"+x.Outcome)
	}
	if got, want := strings.Join(tests, " "), "a.TestX:skip a.TestY: b.TestX:fail b.TestZ:fail"; got != want {
		t.Errorf("tests %s, want %s", got, want)
	}
	if got := log.Tests[0].LastWords(); got != "x_test.go:3: no disk" {
		t.Errorf("last words %q", got)
	}
	if c := log.Packages[2]; c.Package != "c" || c.Output != "c/c.go:1:1: broken\n" {
		t.Errorf("a package that does not compile: %+v", c)
	}
}

func TestReadRefusesOtherLines(t *testing.T) {
	log, err := Read(strings.NewReader(`{"Action":"run","Package":"a","Test":"TestX"}`+"\npanic: no JSON\n"), nil)
	if err == nil || len(log.Tests) != 1 {
		t.Errorf("%d tests, error %v", len(log.Tests), err)
	}
}

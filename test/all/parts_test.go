package main

import (
	"os/exec"
	"strings"
	"testing"
)

func TestCounted(t *testing.T) {
	for _, c := range []struct {
		name, script   string
		passed, failed int
		left           string
		wrong          bool
	}{
		{"all well", `echo "3 passed, 0 failed, 1 skipped"`, 3, 0, "", false},
		{"the last counts count", `echo "1 passed, 0 failed"; echo "warren 1: 4 passed, 0 failed in 2 s"; echo ok`, 4, 0, "", false},
		{"failures", `echo "3 passed, 2 failed"; exit 1`, 3, 2, "", true},
		{"died behind its counts", `echo "3 passed, 0 failed"; exit 1`, 3, 0, "", true},
		{"no counts", `echo fine`, 0, 0, "", true},
		{"left out", `echo "left out  ruby: needs Bunny"; echo "3 passed, 0 failed"`, 3, 0, "ruby: needs Bunny", false},
		{"left out, and strict about it", `echo "left out  ruby: needs Bunny"; echo "3 passed, 0 failed"; exit 1`, 3, 0, "ruby: needs Bunny", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, err := counted(exec.Command("sh", "-c", c.script))
			if (err != nil) != c.wrong || o.passed != c.passed || o.failed != c.failed || strings.Join(o.left, ";") != c.left {
				t.Errorf("%+v, error %v", o, err)
			}
		})
	}
}

package conformance

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestCoverageNamesCases keeps COVERAGE.md true: every transcript it names is there.
func TestCoverageNamesCases(t *testing.T) {
	text, err := os.ReadFile("COVERAGE.md")
	if err != nil {
		t.Fatal(err)
	}
	cases, err := Cases()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]bool{}
	for _, c := range cases {
		files[c.File] = true
	}
	n := 0
	for _, m := range regexp.MustCompile("`([a-z]+)/([^`]+)`").FindAllStringSubmatch(string(text), -1) {
		if !files[m[1]] {
			t.Errorf("no file transcripts/%s.txt", m[1])
			continue
		}
		prefix, open := strings.CutSuffix(m[1]+"/"+m[2], "*")
		found := false
		for _, c := range cases {
			found = found || c.FullName() == prefix || open && strings.HasPrefix(c.FullName(), prefix)
		}
		if !found {
			t.Errorf("no case %s/%s", m[1], m[2])
		}
		n++
	}
	if n < 50 {
		t.Fatalf("only %d names found", n)
	}
}

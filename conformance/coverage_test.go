package conformance

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCoverageNamesCases keeps pages true that name transcripts: every one is there.
func TestCoverageNamesCases(t *testing.T) {
	for _, page := range []string{"COVERAGE.md", "../docs/design/cases.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if n := namedCases(t, page, string(text)); n < 50 {
			t.Fatalf("%s: only %d names found", page, n)
		}
	}
}

func namedCases(t *testing.T, page, text string) (n int) {
	t.Helper()
	cases, err := Cases()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]bool{}
	for _, c := range cases {
		files[c.File] = true
	}
	for _, m := range regexp.MustCompile("`([a-z]+)/([^`]+)`").FindAllStringSubmatch(text, -1) {
		if goTest.MatchString(m[0]) || m[0] == "`conformance/transcripts/`" || m[0] == "`file/case`" {
			continue
		}
		if !files[m[1]] {
			t.Errorf("%s: no file transcripts/%s.txt", page, m[1])
			continue
		}
		prefix, open := strings.CutSuffix(m[1]+"/"+m[2], "*")
		found := false
		for _, c := range cases {
			found = found || c.FullName() == prefix || open && strings.HasPrefix(c.FullName(), prefix)
		}
		if !found {
			t.Errorf("%s: no case %s/%s", page, m[1], m[2])
		}
		n++
	}
	return n
}

var goTest = regexp.MustCompile("`([a-z/]+)\\.(Test\\w+)`")

// TestCasesNameTests keeps docs/design/cases.md true where it names tests of other directories.
func TestCasesNameTests(t *testing.T) {
	text, err := os.ReadFile("../docs/design/cases.md")
	if err != nil {
		t.Fatal(err)
	}
	named := goTest.FindAllStringSubmatch(string(text), -1)
	if len(named) < 30 {
		t.Fatalf("only %d names found", len(named))
	}
	for _, m := range named {
		if m[2] == "TestX" {
			continue // how they are written
		}
		files, err := filepath.Glob("../" + m[1] + "/*_test.go")
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, f := range files {
			source, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(source), "func "+m[2]+"(")
		}
		if !found {
			t.Errorf("no test %s in %s", m[2], m[1])
		}
	}
}

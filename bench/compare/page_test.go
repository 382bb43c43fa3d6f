package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func sampleSection(name, verdict string) *section {
	return &section{name: name, about: "some load", peer: "RabbitMQ 4.3.6", context: []string{"5 rounds."}, rows: []row{
		{"run: per second", outcome{598_432, 47_511, 12.6, 11, 14}, atLeast(25.2), verdict},
		{"run: anonymous memory at most, MiB", outcome{20, math.NaN(), math.NaN(), math.NaN(), math.NaN()}, aim{}, ""},
	}}
}

func TestSectionRenders(t *testing.T) {
	const want = `### fanout

Some load.
5 rounds.

| figure | Warren | RabbitMQ 4.3.6 | ratio (rounds) | aim | |
|---|---|---|---|---|---|
| run: per second | 598,000 | 47,500 | 12.6× (11 to 14) | ≥ 25.2× | missed |
| run: anonymous memory at most, MiB | 20 | – | – |  |  |
`
	if got := sampleSection("fanout", "missed").String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestVoidSectionHasNoFigures(t *testing.T) {
	s := sampleSection("fanout", "met")
	s.void = "round 2, Warren: of 9 messages lost 1\nand more"
	got := s.String()
	if !strings.HasSuffix(got, "**Void**: round 2, Warren: of 9 messages lost 1 and more\n") || strings.Contains(got, "598") {
		t.Errorf("got\n%s", got)
	}
	page, err := withSection(newPage, s)
	if err != nil || !strings.Contains(page, "| fanout | | | | | void |") {
		t.Errorf("%v\n%s", err, page)
	}
}

func TestPageKeepsWhatIsNotMeasuredAgain(t *testing.T) {
	page := "# By hand\n\nAbove.\n\n" + beginMark + "\n" + endMark + "\n\nBelow.\n"
	var err error
	for _, s := range []*section{
		sampleSection("latency", "missed"), sampleSection("no-longer-known", ""), sampleSection("fanout", "missed"),
		sampleSection("transient-16", "met"), sampleSection("fanout", "met"), // fanout a second time
	} {
		if page, err = withSection(page, s); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.HasPrefix(page, "# By hand\n\nAbove.\n\n"+beginMark) || !strings.HasSuffix(page, endMark+"\n\nBelow.\n") {
		t.Errorf("what is written by hand changed:\n%s", page)
	}
	var order []string
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "### ") {
			order = append(order, strings.TrimSpace(line[4:]))
		}
	}
	if got := strings.Join(order, " "); got != "Aims transient-16 fanout latency no-longer-known" {
		t.Errorf("sections: %s", got)
	}
	aims, _, _ := strings.Cut(page, "### transient-16")
	_, aims, _ = strings.Cut(aims, "### Aims\n\n")
	const want = `| workload | figure | Warren | ratio (rounds) | aim | |
|---|---|---|---|---|---|
| transient-16 | run: per second | 598,000 | 12.6× (11 to 14) | ≥ 25.2× | met |
| fanout | run: per second | 598,000 | 12.6× (11 to 14) | ≥ 25.2× | met |
| latency | run: per second | 598,000 | 12.6× (11 to 14) | ≥ 25.2× | missed |

`
	if aims != want {
		t.Errorf("aims:\n%s\nwant:\n%s", aims, want)
	}
	again, err := withSection(page, sampleSection("fanout", "met"))
	if err != nil || again != page {
		t.Errorf("%v: the same section again changes the page:\n%s", err, again)
	}
}

func TestPageWithoutMarksIsAppendedTo(t *testing.T) {
	page, err := withSection("# By hand\n", sampleSection("get", "met"))
	if err != nil || !strings.HasPrefix(page, "# By hand\n\n"+beginMark) || !strings.HasSuffix(page, endMark+"\n") {
		t.Errorf("%v\n%s", err, page)
	}
}

func TestPageWithBrokenMarksIsLeftAlone(t *testing.T) {
	for _, page := range []string{
		"text " + beginMark + " no end", "text " + endMark, endMark + beginMark,
		beginMark + endMark + beginMark + endMark,
	} {
		path := filepath.Join(t.TempDir(), "page.md")
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := updatePage(path, sampleSection("get", "met")); err == nil {
			t.Errorf("%q is accepted", page)
		}
		if after, _ := os.ReadFile(path); string(after) != page {
			t.Errorf("%q became %q", page, after)
		}
	}
}

func TestPageIsMadeWhenThereIsNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "docs", "performance.md")
	if err := updatePage(path, sampleSection("get", "met")); err != nil {
		t.Fatal(err)
	}
	if page := readText(path); !strings.HasPrefix(page, "# Performance\n") || !strings.Contains(page, "\n### get\n") {
		t.Errorf("page:\n%s", page)
	}
}

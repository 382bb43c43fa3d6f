package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The program owns what lies between these lines of the page; the rest is written by hand.
const (
	beginMark   = "<!-- figures: written by bench/compare, lost at its next run -->"
	endMark     = "<!-- end of figures -->"
	sectionMark = "### "
	aimsTitle   = "Aims"
)

const newPage = `# Performance

How these figures come about, and how to repeat them: ` + "`bench/README.md`" + `.

` + beginMark + "\n" + endMark + "\n"

// updatePage replaces one workload's section of the page, keeps those of the others, and makes the
// table of aims anew from all of them. It makes a page that is not there.
func updatePage(path string, s *section) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		data, err = []byte(newPage), os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err != nil {
		return err
	}
	page, err := withSection(string(data), s)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(page), 0o644)
}

// withSection returns the page with the section in it.
func withSection(page string, s *section) (string, error) {
	before, rest, began := strings.Cut(page, beginMark)
	figures, after, ended := strings.Cut(rest, endMark)
	switch {
	case !began && strings.Contains(page, endMark), began && !ended, strings.Contains(after, beginMark):
		return "", errors.New("the lines that mark the figures are not a pair")
	case !began:
		before, after = strings.TrimRight(page, "\n")+"\n\n", "\n"
	}
	sections := splitSections(figures)
	sections[s.name] = s.String()
	var b strings.Builder
	b.WriteString(before + beginMark + "\n\n" + aimsTable(sections))
	for _, name := range inOrder(sections) {
		b.WriteString("\n" + strings.TrimSpace(sections[name]) + "\n")
	}
	b.WriteString("\n" + endMark + after)
	return b.String(), nil
}

// splitSections returns the sections by workload, without the aims.
func splitSections(figures string) map[string]string {
	sections := map[string]string{}
	for _, part := range strings.Split("\n"+figures, "\n"+sectionMark)[1:] {
		name, _, _ := strings.Cut(part, "\n")
		if name = strings.TrimSpace(name); name != aimsTitle {
			sections[name] = sectionMark + part
		}
	}
	return sections
}

// inOrder returns the workloads in the order in which they run; those no longer known come last.
func inOrder(sections map[string]string) (names []string) {
	for _, w := range workloads() {
		if sections[w.name] != "" {
			names = append(names, w.name)
		}
	}
	var others []string
	for name := range sections {
		if !slices.Contains(names, name) {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	return append(names, others...)
}

// aimsTable gathers the rows with an aim from all sections.
func aimsTable(sections map[string]string) string {
	var b strings.Builder
	b.WriteString(sectionMark + aimsTitle + "\n\n| workload | figure | Warren | ratio (rounds) | aim | |\n|---|---|---|---|---|---|\n")
	for _, name := range inOrder(sections) {
		if strings.Contains(sections[name], "\n**Void**") {
			fmt.Fprintf(&b, "| %s | | | | | void |\n", name)
			continue
		}
		for line := range strings.Lines(sections[name]) {
			cells := strings.Split(strings.TrimSpace(line), "|")
			if len(cells) != 8 { // six cells between bars
				continue
			}
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			if verdict := cells[6]; verdict == "met" || verdict == "missed" {
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", name, cells[1], cells[2], cells[4], cells[5], verdict)
			}
		}
	}
	return b.String()
}

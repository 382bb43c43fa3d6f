package conformance

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sort"
	"strings"
)

//go:embed transcripts/*.txt
var transcripts embed.FS

// A Case is one conversation of a transcript file.
type Case struct {
	File string // base name, without .txt
	Name string
	Line int // of its "case"

	steps []*step
	skip  map[string]string // product -> why the case is not for it
	http  bool              // has steps that need the management API
}

// FullName is File/Name: what Options.Match is compared with.
func (c Case) FullName() string { return c.File + "/" + c.Name }

// Cases returns the cases of the transcripts in the package, sorted by file and line.
func Cases() ([]Case, error) { return parseFS(transcripts, "transcripts") }

func parseFS(files fs.FS, dir string) ([]Case, error) {
	names, err := fs.Glob(files, path.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	sort.Strings(names)
	var cases []Case
	var errs []error
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		parsed, err := parseFile(name, string(text))
		cases, errs = append(cases, parsed...), append(errs, err)
	}
	seen := map[string]bool{}
	for _, c := range cases {
		if seen[c.FullName()] {
			errs = append(errs, fmt.Errorf("%s.txt:%d: the name %q is taken", c.File, c.Line, c.Name))
		}
		seen[c.FullName()] = true
	}
	return cases, errors.Join(errs...)
}

// A sourceLine is one line that says something.
type sourceLine struct {
	number, indent int
	text           string
}

func parseFile(name, text string) ([]Case, error) {
	var blocks [][]sourceLine
	var errs []error
	number := 0
	for raw := range strings.Lines(text) {
		number++
		trimmed := strings.TrimSpace(raw)
		indent := len(raw) - len(strings.TrimLeft(raw, " \t"))
		if trimmed == "" || trimmed[0] == '#' && indent == 0 {
			continue // an indented # may be a binding key
		}
		l := sourceLine{number, indent, trimmed}
		switch {
		case indent > 0 && len(blocks) > 0:
			blocks[len(blocks)-1] = append(blocks[len(blocks)-1], l)
		case indent == 0 && strings.HasPrefix(trimmed, "case "):
			blocks = append(blocks, []sourceLine{l})
		default:
			errs = append(errs, fmt.Errorf("%s:%d: neither a case nor a step of one", name, number))
		}
	}
	var cases []Case
	for _, block := range blocks {
		parsed, err := parseCase(strings.TrimSuffix(path.Base(name), ".txt"), block)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%w", name, err))
		}
		cases = append(cases, parsed...)
	}
	return cases, errors.Join(errs...)
}

// parseCase reads one case; with a "rows" table it makes one case of each row.
func parseCase(file string, block []sourceLine) ([]Case, error) {
	head, body := block[0], block[1:]
	name := strings.TrimSpace(strings.TrimPrefix(head.text, "case "))
	var columns []string
	var rows []sourceLine
	for i, l := range body {
		if rest, ok := strings.CutPrefix(l.text, "rows "); ok {
			columns, rows, body = splitRow(rest), body[i+1:], body[:i]
			break
		}
	}
	if columns == nil {
		c, err := compileCase(Case{File: file, Name: name, Line: head.number}, body)
		return []Case{c}, err
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("%d: rows without a row", head.number)
	}
	var cases []Case
	for _, row := range rows {
		cells := splitRow(row.text)
		if len(cells) != len(columns) {
			return cases, fmt.Errorf("%d: %d cells for %d columns", row.number, len(cells), len(columns))
		}
		filled := make([]sourceLine, len(body))
		for i, l := range body {
			for j, column := range columns {
				l.text = strings.ReplaceAll(l.text, "<"+column+">", cells[j])
			}
			filled[i] = l
		}
		c, err := compileCase(Case{File: file, Name: name + " [" + row.text + "]", Line: row.number}, filled)
		if err != nil {
			return cases, fmt.Errorf("%w (row of line %d)", err, row.number)
		}
		cases = append(cases, c)
	}
	return cases, nil
}

func splitRow(s string) []string {
	cells := strings.Split(" "+s+" ", " | ")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

func compileCase(c Case, body []sourceLine) (Case, error) {
	c.skip = map[string]string{}
	var lines []sourceLine
	for _, l := range body {
		rest, ok := strings.CutPrefix(l.text, "not on ")
		if !ok {
			lines = append(lines, l)
			continue
		}
		product, reason, _ := strings.Cut(rest, ":")
		if strings.TrimSpace(reason) == "" {
			return c, fmt.Errorf("%d: a difference needs its reason", l.number)
		}
		c.skip[strings.TrimSpace(product)] = strings.TrimSpace(reason)
	}
	var err error
	if c.steps, err = compileBlock(lines); err != nil {
		return c, err
	}
	known := map[string]bool{"vhost": true, "user": true, "password": true, "i": true}
	return c, checkVariables(c.steps, known, &c.http)
}

// checkVariables refuses a variable that is used before anything gave it a value, and notes whether HTTP is used.
func checkVariables(steps []*step, known map[string]bool, http *bool) error {
	var walk func(l literal) error
	text := func(s string) error {
		for i := range len(s) {
			if s[i] != '$' {
				continue
			}
			name, _ := variable(s[i:])
			if base, _, dotted := strings.Cut(name, "."); name != "" && !known[name] && (!dotted || base == "") {
				return fmt.Errorf("no variable $%s", name)
			}
		}
		return nil
	}
	walk = func(l literal) error {
		err := text(l.text)
		if l.kind == kindCapture {
			known[l.text] = true
			err = nil
		}
		for _, k := range l.keys {
			err = errors.Join(err, text(k))
		}
		for _, item := range l.items {
			err = errors.Join(err, walk(item))
		}
		return err
	}
	for _, s := range steps {
		var err error
		if s.verb == "names" {
			for _, w := range s.words {
				known[w] = true
			}
		}
		if s.verb == "http" {
			*http = true
			for _, w := range s.words {
				err = errors.Join(err, text(w))
			}
		}
		for _, f := range append(append([]fieldLiteral{}, s.fields...), s.reply...) {
			err = errors.Join(err, walk(f.value))
		}
		for _, l := range []*literal{s.body, s.tail} {
			if l != nil {
				err = errors.Join(err, walk(*l))
			}
		}
		if s.verb == "set" {
			known[s.words[0]] = true
		}
		if err != nil {
			return fmt.Errorf("%d: %w", s.line, err)
		}
		if err := checkVariables(s.steps, known, http); err != nil {
			return err
		}
	}
	return nil
}

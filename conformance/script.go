package conformance

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sort"
	"strconv"
	"strings"
	"time"
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

// A step is one line of a case with the lines indented below it.
type step struct {
	line     int
	conn     string
	channel  int           // -1: not written
	limit    time.Duration // "within"; 0: the run's limit
	after    time.Duration // "after": not earlier than this
	eventual bool          // "eventually": a call repeated until it matches

	verb    string
	words   []string // names, product and reason, method of an error
	method  *methodSpec
	fields  []fieldLiteral
	reply   []fieldLiteral // after "->"
	hasTail bool           // a "->" was written
	body    *literal       // what a quoted string at the end of the fields gives
	tail    *literal       // the same in the reply
	count   int            // repeat, reply code, HTTP status
	ranges  map[string][][2]uint64
	steps   []*step
}

// A fieldLiteral is name=value in a step.
type fieldLiteral struct {
	name  string
	value literal
}

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

func compileBlock(lines []sourceLine) ([]*step, error) {
	var steps []*step
	for i := 0; i < len(lines); {
		end := i + 1
		for end < len(lines) && lines[end].indent > lines[i].indent {
			end++
		}
		s, err := compileStep(lines[i])
		if err != nil {
			return nil, fmt.Errorf("%d: %w", lines[i].number, err)
		}
		if s.steps, err = compileBlock(lines[i+1 : end]); err != nil {
			return nil, err
		}
		switch s.verb {
		case "either", "or", "any order", "repeat", "on", "together":
			if len(s.steps) == 0 {
				return nil, fmt.Errorf("%d: nothing is indented below %q", s.line, s.verb)
			}
		default:
			if len(s.steps) > 0 {
				return nil, fmt.Errorf("%d: nothing may be indented below %q", s.line, s.verb)
			}
		}
		if s.verb == "or" {
			if len(steps) == 0 || steps[len(steps)-1].verb != "either" {
				return nil, fmt.Errorf("%d: or without either", s.line)
			}
			either := steps[len(steps)-1] // its branches: own steps, then each "or"
			either.steps = append(either.steps, s)
		} else {
			steps = append(steps, s)
		}
		i = end
	}
	return steps, nil
}

func compileStep(l sourceLine) (*step, error) {
	s := &step{line: l.number, conn: "A", channel: -1}
	sc := &scanner{s: l.text}
	if c := l.text[0]; 'A' <= c && c <= 'Z' || c == '/' {
		name, channel, ok := strings.Cut(sc.word(""), "/")
		if name != "" {
			s.conn = name
		}
		if ok {
			n, err := strconv.ParseUint(channel, 10, 16)
			if err != nil {
				return nil, fmt.Errorf("%q is no channel number", channel)
			}
			s.channel = int(n)
		}
	}
	for {
		save, err := sc.i, error(nil)
		switch sc.word("") {
		case "within":
			s.limit, err = time.ParseDuration(sc.word(""))
		case "after":
			s.after, err = time.ParseDuration(sc.word(""))
		case "eventually":
			s.eventual = true
		default:
			sc.i = save
			return s, s.compileVerb(sc)
		}
		if err != nil {
			return nil, err
		}
	}
}

func (s *step) compileVerb(sc *scanner) error {
	s.verb = sc.word("")
	switch s.verb {
	case "names":
		s.words = strings.Fields(sc.rest())
		return nil
	case "tcp", "unopened", "drop", "reset", "ignore", "either", "or", "together":
		return s.finish(sc)
	case "any":
		s.verb = "any order"
		if !sc.acceptWord("order") {
			return errors.New("any what?")
		}
		return s.finish(sc)
	case "nothing", "closes":
		var err error
		if sc.acceptWord("within") {
			s.limit, err = time.ParseDuration(sc.word(""))
		}
		return errors.Join(err, s.finish(sc))
	case "on":
		product, reason, _ := strings.Cut(sc.rest(), ":")
		s.words = []string{strings.TrimSpace(product), strings.TrimSpace(reason)}
		if s.words[1] == "" {
			return errors.New("a difference needs its reason")
		}
		return nil
	case "repeat":
		var err error
		s.count, err = strconv.Atoi(sc.word(""))
		return errors.Join(err, s.finish(sc))
	case "send", "set":
		if s.verb == "set" {
			s.words = []string{sc.word("")}
		}
		l, err := sc.literal("")
		s.body = &l
		return errors.Join(err, s.finish(sc))
	case "!", "!!":
		return s.compileError(sc)
	case "confirms":
		return s.compileConfirms(sc)
	case "http":
		return s.compileHTTP(sc)
	case "connect":
		return s.compileFields(sc)
	case ">", "<":
		s.words = []string{sc.word("")}
		switch s.words[0] {
		case "header", "body", "frame", "heartbeat", "protocol":
		case "method":
			return s.compileMethod(sc, sc.word(""))
		default:
			return s.compileMethod(sc, s.words[0])
		}
		return s.compileFields(sc)
	}
	name := s.verb
	s.verb = "call"
	if err := s.compileMethod(sc, name); err != nil {
		return err
	}
	if name != "basic.get" && methodsByName[name+"-ok"] == nil {
		return fmt.Errorf("%s has no reply; write > %s", name, name)
	}
	return nil
}

func (s *step) finish(sc *scanner) error {
	if !sc.done() {
		return fmt.Errorf("too much: %q", sc.rest())
	}
	return nil
}

func (s *step) compileMethod(sc *scanner, name string) error {
	if s.method = methodsByName[name]; s.method == nil {
		return fmt.Errorf("no method %q", name)
	}
	if err := s.compileFields(sc); err != nil {
		return err
	}
	replies := []*methodSpec{methodsByName[name+"-ok"]}
	for _, f := range s.fields {
		if !knownField(s.method, f.name) {
			return fmt.Errorf("%s has no %s", name, f.name)
		}
	}
	for _, f := range s.reply {
		if f.name != "empty" && !knownField(replies[0], f.name) {
			return fmt.Errorf("%s-ok has no %s", name, f.name)
		}
	}
	return nil
}

func knownField(m *methodSpec, name string) bool {
	if m == nil {
		return false
	}
	_, ok := m.field(name)
	if !ok && m.content {
		_, ok = findField(propertySpecs, name)
	}
	return ok
}

// compileFields reads name=value, bits and a body up to the end or "->", and what follows "->".
func (s *step) compileFields(sc *scanner) error {
	fields, body := &s.fields, &s.body
	for !sc.done() {
		if sc.acceptWord("->") {
			s.hasTail, fields, body = true, &s.reply, &s.tail
			continue
		}
		if sc.atBody() {
			l, err := sc.literal("")
			if err != nil {
				return err
			}
			*body = &l
			continue
		}
		name := sc.word("=")
		value := literal{kind: kindWord, text: "true"}
		if sc.i < len(sc.s) && sc.s[sc.i] == '=' {
			sc.i++
			var err error
			if value, err = sc.literal(""); err != nil {
				return err
			}
		}
		*fields = append(*fields, fieldLiteral{name, value})
	}
	return nil
}

// atBody reports whether a value comes that is no field: a body.
func (s *scanner) atBody() bool {
	rest := s.s[s.i:]
	return strings.ContainsRune("\"`~?", rune(rest[0])) || rest == "_" || strings.HasPrefix(rest, `hex"`) ||
		strings.HasPrefix(rest, "join(") || strings.HasPrefix(rest, "random(")
}

// anyCode is the count of an error step whose code is "_".
const anyCode = -1

// compileError reads "! 404 (basic.publish) text".
func (s *step) compileError(sc *scanner) error {
	code, err := sc.word(""), error(nil)
	if s.count = anyCode; code != "_" {
		if s.count, err = strconv.Atoi(code); err != nil {
			return err
		}
	}
	s.words = []string{""}
	if sc.accept("(") {
		s.words[0] = sc.word(")")
		if !sc.accept(")") {
			return errors.New("( without )")
		}
	}
	switch rest := sc.rest(); {
	case rest == "":
		s.body = &literal{kind: kindAny}
	case strings.HasPrefix(rest, "~ "):
		s.body = &literal{kind: kindRegexp, text: rest[2:]}
	default:
		s.body = &literal{kind: kindString, text: rest, repeat: 1}
	}
	return nil
}

// compileConfirms reads "ack=1-3,5 nack=4".
func (s *step) compileConfirms(sc *scanner) error {
	s.ranges = map[string][][2]uint64{}
	for !sc.done() {
		kind, list, _ := strings.Cut(sc.word(""), "=")
		if kind != "ack" && kind != "nack" {
			return fmt.Errorf("confirms are ack=... and nack=..., not %q", kind)
		}
		for _, part := range strings.Split(list, ",") {
			low, high, ok := strings.Cut(part, "-")
			if !ok {
				high = low
			}
			a, err1 := strconv.ParseUint(low, 10, 64)
			b, err2 := strconv.ParseUint(high, 10, 64)
			if err := errors.Join(err1, err2); err != nil {
				return err
			}
			s.ranges[kind] = append(s.ranges[kind], [2]uint64{a, b})
		}
	}
	return nil
}

// compileHTTP reads `http PUT /api/path {json} -> 201`.
func (s *step) compileHTTP(sc *scanner) error {
	request, reply, ok := strings.Cut(sc.rest(), " -> ")
	if !ok {
		return errors.New("http METHOD PATH [BODY] -> STATUS")
	}
	parts := strings.SplitN(strings.TrimSpace(request), " ", 3)
	if len(parts) < 2 {
		return errors.New("http METHOD PATH [BODY] -> STATUS")
	}
	s.words = parts
	status, rest, _ := strings.Cut(strings.TrimSpace(reply), " ")
	var err error
	if s.count, err = strconv.Atoi(status); err != nil {
		return err
	}
	if rest = strings.TrimSpace(rest); rest != "" {
		s.tail = &literal{kind: kindRegexp, text: strings.TrimPrefix(rest, "~ ")}
	}
	return nil
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

package conformance

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

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
	case "tcp", "unopened", "drop", "reset", "stall", "resume", "ignore", "either", "or", "together":
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
		ok = ok || name == bodyFrames
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

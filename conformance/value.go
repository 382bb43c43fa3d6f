package conformance

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"sort"
	"strconv"
	"strings"
)

// kind is the form of a literal in a transcript.
type kind int

const (
	kindWord    kind = iota // bare: a number, a bit, a name; $variables are replaced
	kindString              // "quoted" or `quoted`
	kindBytes               // hex"00 ff"
	kindTable               // {key: value, ...}
	kindArray               // [value, ...]
	kindTyped               // I(5), S("x"), raw(U, hex"00")
	kindAny                 // _
	kindCapture             // ?name
	kindRegexp              // ~"..."
)

// A literal is a value, or a pattern of values, as written in a transcript.
type literal struct {
	kind    kind
	text    string // word, string, name of a capture, type letter, regular expression
	repeat  int    // "x"*300
	data    []byte
	keys    []string  // of a table
	items   []literal // of a table, an array, a typed value
	partial bool      // a table that ends with ...: more entries may follow
}

// A scanner reads one line of a transcript.
type scanner struct {
	s string
	i int
}

func (s *scanner) space() {
	for s.i < len(s.s) && (s.s[s.i] == ' ' || s.s[s.i] == '\t') {
		s.i++
	}
}

func (s *scanner) rest() string { s.space(); return s.s[s.i:] }
func (s *scanner) done() bool   { s.space(); return s.i >= len(s.s) }

// accept moves past prefix if it comes next.
func (s *scanner) accept(prefix string) bool {
	s.space()
	if !strings.HasPrefix(s.s[s.i:], prefix) {
		return false
	}
	s.i += len(prefix)
	return true
}

// word reads up to the next space or one of stop.
func (s *scanner) word(stop string) string {
	s.space()
	start := s.i
	for s.i < len(s.s) && s.s[s.i] != ' ' && s.s[s.i] != '\t' && !strings.ContainsRune(stop, rune(s.s[s.i])) {
		if s.s[s.i] == '$' && strings.HasPrefix(s.s[s.i:], "${") {
			if end := strings.IndexByte(s.s[s.i:], '}'); end > 0 {
				s.i += end
			}
		}
		s.i++
	}
	return s.s[start:s.i]
}

func (s *scanner) acceptWord(w string) bool {
	save := s.i
	if s.word("") == w {
		return true
	}
	s.i = save
	return false
}

func (s *scanner) quoted() (string, error) {
	quote, start := s.s[s.i], s.i
	for s.i++; s.i < len(s.s); s.i++ {
		switch {
		case s.s[s.i] == '\\' && quote == '"':
			s.i++
		case s.s[s.i] == quote:
			s.i++
			if quote == '`' {
				return s.s[start+1 : s.i-1], nil
			}
			return strconv.Unquote(s.s[start:s.i])
		}
	}
	return "", fmt.Errorf("a string that does not end: %s", s.s[start:])
}

const typeLetters = "tbBsuIilLfdDSxAFTV"

// literal reads a value; stop are the characters that end a bare word.
func (s *scanner) literal(stop string) (literal, error) {
	s.space()
	if s.i >= len(s.s) {
		return literal{}, errors.New("a value is missing")
	}
	switch c := s.s[s.i]; {
	case c == '"' || c == '`':
		text, err := s.quoted()
		l := literal{kind: kindString, text: text, repeat: 1}
		if err == nil && s.i < len(s.s) && s.s[s.i] == '*' {
			s.i++
			l.repeat, err = strconv.Atoi(s.word(stop))
			if err == nil && (l.repeat < 0 || l.repeat*len(text) > 32<<20) {
				err = errors.New("a string too long")
			}
		}
		return l, err
	case strings.HasPrefix(s.s[s.i:], `hex"`):
		s.i += len("hex")
		text, err := s.quoted()
		if err != nil {
			return literal{}, err
		}
		data, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
		return literal{kind: kindBytes, data: data}, err
	case strings.HasPrefix(s.s[s.i:], `~"`) || strings.HasPrefix(s.s[s.i:], "~`"):
		s.i++
		text, err := s.quoted()
		return literal{kind: kindRegexp, text: text}, err
	case c == '{' || c == '[':
		return s.list()
	case c == '?':
		s.i++
		name := s.word(stop)
		if name == "" {
			return literal{}, errors.New("? without a name")
		}
		return literal{kind: kindCapture, text: name}, nil
	}
	if open := s.typeOpen(); open > 0 {
		l := literal{kind: kindTyped, text: s.s[s.i : s.i+open]}
		s.i += open + 1
		for !s.accept(")") {
			item, err := s.literal(",)")
			if err != nil {
				return l, err
			}
			l.items = append(l.items, item)
			s.accept(",")
		}
		return l, nil
	}
	w := s.word(stop)
	if w == "_" {
		return literal{kind: kindAny}, nil
	}
	if w == "" {
		return literal{}, fmt.Errorf("a value is missing before %q", s.rest())
	}
	return literal{kind: kindWord, text: w}, nil
}

// typeOpen returns the length of a type name that is followed by '(', or 0.
func (s *scanner) typeOpen() int {
	rest := s.s[s.i:]
	for _, name := range []string{"raw", "join", "random"} {
		if strings.HasPrefix(rest, name+"(") {
			return len(name)
		}
	}
	switch {
	case len(rest) > 1 && rest[1] == '(' && strings.IndexByte(typeLetters, rest[0]) >= 0:
		return 1
	}
	return 0
}

// list reads a table or an array.
func (s *scanner) list() (literal, error) {
	l, end := literal{kind: kindTable}, "}"
	if s.s[s.i] == '[' {
		l.kind, end = kindArray, "]"
	}
	s.i++
	for !s.accept(end) {
		if s.accept("...") {
			l.partial = true
			continue
		}
		if l.kind == kindTable {
			s.space()
			key := ""
			if s.i < len(s.s) && s.s[s.i] == '"' {
				var err error
				if key, err = s.quoted(); err != nil {
					return l, err
				}
			} else {
				key = s.word(":,}")
			}
			if !s.accept(":") {
				return l, fmt.Errorf("a key without ':' before %q", s.rest())
			}
			l.keys = append(l.keys, key)
		}
		item, err := s.literal(",}])")
		if err != nil {
			return l, err
		}
		l.items = append(l.items, item)
		s.accept(",")
	}
	return l, nil
}

// A scope holds the variables of a running case.
type scope map[string]any

// expand replaces $name, ${name} and \$ in text.
func (v scope) expand(text string) (string, error) {
	if strings.IndexByte(text, '$') < 0 {
		return text, nil
	}
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '$' {
			out.WriteByte(text[i])
			continue
		}
		name, n := variable(text[i:])
		if name == "" {
			out.WriteByte('$')
			continue
		}
		value, ok := v[name]
		if !ok {
			return "", fmt.Errorf("no variable $%s", name)
		}
		if b, isBytes := value.([]byte); isBytes {
			value = string(b)
		}
		fmt.Fprint(&out, value)
		i += n - 1
	}
	return out.String(), nil
}

// variable returns the name at the start of text and its length with the dollar and the braces.
func variable(text string) (string, int) {
	if strings.HasPrefix(text, "${") {
		if end := strings.IndexByte(text, '}'); end > 0 {
			return text[2:end], end + 1
		}
		return "", 0
	}
	n := 1
	for n < len(text) && (text[n] == '_' || '0' <= text[n] && text[n] <= '9' || 'a' <= text[n] && text[n] <= 'z' || 'A' <= text[n] && text[n] <= 'Z') {
		n++
	}
	return text[1:n], n
}

// value makes a literal a table value: "x" is a long string, 5 an int32 or int64, 1.5 a double, true a bool, void nothing.
func (v scope) value(l literal) (any, error) {
	switch l.kind {
	case kindString:
		s, err := v.expand(l.text)
		return strings.Repeat(s, l.repeat), err
	case kindBytes:
		return l.data, nil
	case kindArray:
		list := []any{}
		for _, item := range l.items {
			e, err := v.value(item)
			if err != nil {
				return nil, err
			}
			list = append(list, e)
		}
		return list, nil
	case kindTable:
		t := table{}
		for i, item := range l.items {
			key, err := v.expand(l.keys[i])
			if err != nil {
				return nil, err
			}
			e, err := v.value(item)
			if err != nil {
				return nil, err
			}
			t = append(t, entry{key, e})
		}
		return t, nil
	case kindTyped:
		return v.typed(l)
	case kindWord:
		return v.word(l.text)
	}
	return nil, errors.New("a pattern where a value is sent")
}

func (v scope) word(w string) (any, error) {
	if name, n := variable(w); w[0] == '$' && n == len(w) {
		value, ok := v[name]
		if !ok {
			return nil, fmt.Errorf("no variable %s", w)
		}
		return value, nil
	}
	switch w {
	case "true":
		return true, nil
	case "false":
		return false, nil
	case "void":
		return nil, nil
	}
	w, err := v.expand(w)
	if err != nil {
		return nil, err
	}
	if n, err := strconv.ParseInt(w, 0, 64); err == nil {
		if n == int64(int32(n)) {
			return int32(n), nil
		}
		return n, nil
	}
	if f, err := strconv.ParseFloat(w, 64); err == nil {
		return f, nil
	}
	return nil, fmt.Errorf("%q is no number, true, false or void; strings in tables are quoted", w)
}

// typed makes a value of the given AMQP type.
func (v scope) typed(l literal) (any, error) {
	if l.text == "V" {
		return nil, nil
	}
	if l.text == "raw" && len(l.items) == 2 && len(l.items[0].text) == 1 {
		return rawField{l.items[0].text[0], l.items[1].data}, nil
	}
	if l.text == "join" || l.text == "random" {
		return v.octets(l)
	}
	if l.text == "D" && len(l.items) == 2 {
		scale, err1 := strconv.ParseUint(l.items[0].text, 10, 8)
		value, err2 := strconv.ParseUint(l.items[1].text, 10, 32)
		return decimal{uint8(scale), uint32(value)}, errors.Join(err1, err2)
	}
	if len(l.items) != 1 {
		return nil, fmt.Errorf("%s(...) takes one value", l.text)
	}
	inner, err := v.value(l.items[0])
	if err != nil {
		return nil, err
	}
	if l.text == "f" || l.text == "d" {
		f, isFloat := inner.(float64)
		if n, ok := asInteger(inner); ok && !isFloat {
			f = float64(n)
		} else if !isFloat {
			return nil, fmt.Errorf("%s(...) takes a number", l.text)
		}
		if l.text == "f" {
			return float32(f), nil
		}
		return f, nil
	}
	if strings.Contains("bBsuIilLT", l.text) {
		n, ok := asInteger(inner)
		if !ok {
			return nil, fmt.Errorf("%s(...) takes an integer", l.text)
		}
		return map[string]any{"b": int8(n), "B": uint8(n), "s": int16(n), "u": uint16(n), "I": int32(n), "i": uint32(n),
			"l": n, "L": longL(n), "T": stamp(n)}[l.text], nil
	}
	switch s := inner.(type) {
	case string:
		if l.text == "x" {
			return []byte(s), nil
		}
	case []byte:
		if l.text == "S" {
			return string(s), nil
		}
	}
	return inner, nil // t, S, x, A, F around a literal of that type
}

// octets makes join(a, b, ...) and random(seed, size): the same octets for the same seed, on every run.
func (v scope) octets(l literal) ([]byte, error) {
	values := make([]any, len(l.items))
	for i, item := range l.items {
		var err error
		if values[i], err = v.value(item); err != nil {
			return nil, err
		}
	}
	if l.text == "join" {
		out := []byte{}
		for _, value := range values {
			out = append(out, asText(value)...)
		}
		return out, nil
	}
	if len(values) != 2 {
		return nil, errors.New("random(seed, size)")
	}
	seed, ok1 := asInteger(values[0])
	size, ok2 := asInteger(values[1])
	if !ok1 || !ok2 || size < 0 || size > 32<<20 {
		return nil, errors.New("random(seed, size)")
	}
	out := make([]byte, size)
	source := rand.NewPCG(uint64(seed), 0)
	for i := range out {
		out[i] = byte(source.Uint64())
	}
	return out, nil
}

// field makes a literal the value of a method's field or a property.
func (v scope) field(l literal, domain string) (any, error) {
	switch domain {
	case "shortstr", "longstr":
		if l.kind == kindWord {
			return v.expand(l.text)
		}
		return v.value(l)
	case "table":
		return v.value(l)
	case "bit":
		value, err := v.value(l)
		if _, ok := value.(bool); !ok && err == nil {
			return nil, errors.New("a bit is true or false")
		}
		return value, err
	}
	value, err := v.value(l)
	if err != nil {
		return nil, err
	}
	if s, ok := value.(string); ok {
		n, err := strconv.ParseInt(s, 10, 64)
		return n, err
	}
	if _, ok := asInteger(value); !ok {
		return nil, fmt.Errorf("%s is no number", format(value))
	}
	return value, nil
}

// match compares what came with a literal and stores captures. Numbers written without a type match any integer type.
func (v scope) match(l literal, got any) error {
	switch l.kind {
	case kindAny:
		return nil
	case kindCapture:
		v[l.text] = got
		return nil
	case kindRegexp:
		text, err := v.expand(l.text)
		if err != nil {
			return err
		}
		re, err := regexp.Compile(text)
		if err != nil {
			return err
		}
		if s, ok := got.(string); !ok || !re.MatchString(s) {
			return fmt.Errorf("%s does not match ~%q", format(got), text)
		}
		return nil
	case kindTable:
		t, ok := got.(table)
		if !ok {
			return fmt.Errorf("%s is not a table", format(got))
		}
		return v.matchTable(l, t)
	case kindArray:
		list, ok := got.([]any)
		if !ok || len(list) < len(l.items) || len(list) > len(l.items) && !l.partial {
			return fmt.Errorf("%s, expected an array of %d", format(got), len(l.items))
		}
		for i, item := range l.items {
			if err := v.match(item, list[i]); err != nil {
				return fmt.Errorf("[%d]: %w", i, err)
			}
		}
		return nil
	case kindWord:
		if s, ok := got.(string); ok {
			want, err := v.expand(l.text)
			if err == nil && want != s {
				err = fmt.Errorf("%q, expected %q", s, want)
			}
			return err
		}
	}
	want, err := v.value(l)
	if err != nil {
		return err
	}
	if l.kind == kindWord {
		w, wantInt := asInteger(want)
		if g, gotInt := asInteger(got); wantInt && gotInt && w == g {
			return nil
		}
	}
	if !same(want, got) {
		return fmt.Errorf("%s, expected %s", format(got), format(want))
	}
	return nil
}

func (v scope) matchTable(l literal, got table) error {
	for i, item := range l.items {
		key, err := v.expand(l.keys[i])
		if err != nil {
			return err
		}
		value, ok := got.get(key)
		if !ok {
			if item.kind == kindWord && item.text == "none" {
				continue
			}
			return fmt.Errorf("no %q in %s", key, format(got))
		}
		if item.kind == kindWord && item.text == "none" {
			return fmt.Errorf("%q is in %s", key, format(got))
		}
		if err := v.match(item, value); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	if !l.partial && len(got) != len(l.items) {
		return fmt.Errorf("%s has %d entries, expected %d", format(got), len(got), len(l.items))
	}
	return nil
}

// same compares two table values, types included.
func same(a, b any) bool {
	switch a := a.(type) {
	case []byte:
		b, ok := b.([]byte)
		return ok && bytes.Equal(a, b)
	case table:
		b, ok := b.(table)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if a[i].name != b[i].name || !same(a[i].value, b[i].value) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !same(a[i], b[i]) {
				return false
			}
		}
		return true
	case float64:
		b, ok := b.(float64)
		return ok && math.Float64bits(a) == math.Float64bits(b)
	}
	switch b.(type) {
	case []byte, table, []any:
		return false
	}
	return a == b
}

// format writes a value as a transcript would.
func format(v any) string {
	switch v := v.(type) {
	case nil:
		return "void"
	case string:
		if len(v) > 300 {
			return fmt.Sprintf("%q...(%d octets)", v[:60], len(v))
		}
		return strconv.Quote(v)
	case []byte:
		if len(v) > 100 {
			return fmt.Sprintf("hex\"%x\"...(%d octets)", v[:60], len(v))
		}
		return fmt.Sprintf("hex%q", hex.EncodeToString(v))
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = format(e)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case table:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = e.name + ": " + format(e.value)
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case bool, uint64, int64:
		return fmt.Sprint(v)
	case stamp:
		return fmt.Sprintf("T(%d)", v)
	case decimal:
		return fmt.Sprintf("D(%d, %d)", v.scale, v.value)
	}
	letter := map[string]string{"int8": "b", "uint8": "B", "int16": "s", "uint16": "u", "int32": "I", "uint32": "i",
		"float32": "f", "float64": "d", "conformance.longL": "L"}[fmt.Sprintf("%T", v)]
	return fmt.Sprintf("%s(%v)", letter, v)
}

// String writes a message as a transcript would; zero fields are left out.
func (m message) String() string {
	var out strings.Builder
	out.WriteString(m.spec.name)
	write := func(name string, v any) {
		switch {
		case v == true:
			fmt.Fprintf(&out, " %s", name)
		default:
			fmt.Fprintf(&out, " %s=%s", name, format(v))
		}
	}
	for _, f := range m.spec.fields {
		v, ok := m.values[f.name]
		if t, isTable := v.(table); !ok || v == false || f.name == "ticket" || isTable && len(t) == 0 {
			continue
		}
		write(f.name, v)
	}
	if m.spec.content {
		names := make([]string, 0, len(m.values))
		for name := range m.values {
			if _, ok := m.spec.field(name); !ok {
				names = append(names, name)
			}
		}
		sort.Strings(names)
		for _, name := range names {
			write(name, m.values[name])
		}
		out.WriteString(" " + format(string(m.body)))
	}
	return out.String()
}

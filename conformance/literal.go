package conformance

import (
	"encoding/hex"
	"errors"
	"fmt"
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

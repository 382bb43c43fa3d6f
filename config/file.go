package config

import (
	"fmt"
	"strings"
)

// Setting is one assignment of a file.
type Setting struct {
	// Key holds the segments between the dots, each not empty.
	Key []string
	// Value is without its quotes, and before any $(NAME) in it is replaced.
	Value string
	// Quoted says that the value stood in quotes.
	Quoted bool
	// Line counts from 1.
	Line int
}

// Name is the key as it is written: segments joined by dots, with a backslash before dots inside a segment.
func (s Setting) Name() string {
	var b strings.Builder
	for i, segment := range s.Key {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(strings.ReplaceAll(segment, ".", `\.`))
	}
	return b.String()
}

// Problem is what is wrong with one line of a file.
type Problem struct {
	File string
	Line int
	Text string
}

func (p Problem) Error() string {
	if p.Line == 0 {
		return p.File + ": " + p.Text
	}
	return fmt.Sprintf("%s:%d: %s", p.File, p.Line, p.Text)
}

// Parse reads the text of a file in rabbitmq.conf's format and returns its settings in their order, and a Problem for each line that is none.
//
// A line is empty, a comment that begins with #, or key = value. A key is segments of letters, digits, _, - and \. (a dot that does
// not separate), joined by dots. A value ends before # or the end of the line, without the space around it; in single quotes it may
// contain #. Source: RabbitMQ docs, configure: "The sysctl-like format".
func Parse(file, text string) ([]Setting, []error) {
	var settings []Setting
	var problems []error
	text = strings.TrimPrefix(text, "\uFEFF")
	for number := 1; text != ""; number++ {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		setting, fault := parseLine(line)
		if fault != "" {
			problems = append(problems, Problem{File: file, Line: number, Text: fault})
			continue
		}
		setting.Line = number
		settings = append(settings, setting)
	}
	return settings, problems
}

func parseLine(line string) (s Setting, fault string) {
	left, right, found := strings.Cut(line, "=")
	if !found {
		return s, fmt.Sprintf("%.60q is no setting: expected key = value", line)
	}
	s.Key, fault = parseKey(strings.TrimSpace(left))
	if fault != "" {
		return s, fault
	}
	right = strings.TrimSpace(right)
	if strings.HasPrefix(right, "'") {
		value, rest, closed := strings.Cut(right[1:], "'")
		rest = strings.TrimSpace(rest)
		if !closed || rest != "" && rest[0] != '#' {
			return s, fmt.Sprintf("the value of %s has an opening quote and text after its closing one, or none", s.Name())
		}
		s.Value, s.Quoted = value, true
		return s, ""
	}
	right, _, _ = strings.Cut(right, "#")
	s.Value = strings.TrimSpace(right)
	if s.Value == "" {
		return s, fmt.Sprintf("%s has no value", s.Name())
	}
	return s, ""
}

func parseKey(text string) (segments []string, fault string) {
	var segment []byte
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text) && text[i+1] == '.':
			segment = append(segment, '.')
			i++
		case c == '.' && len(segment) > 0:
			segments = append(segments, string(segment))
			segment = segment[:0]
		case c == '_' || c == '-' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
			segment = append(segment, c)
		default:
			return nil, fmt.Sprintf("%.60q is no key: keys are words of letters, digits, _ and -, joined by dots", text)
		}
	}
	if len(segment) == 0 {
		return nil, fmt.Sprintf("%.60q is no key: keys are words of letters, digits, _ and -, joined by dots", text)
	}
	return append(segments, string(segment)), ""
}

// expand replaces each $(NAME) by the environment variable of that name.
func expand(value string, lookup func(string) (string, bool)) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(value, "$(")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		name, after, closed := strings.Cut(rest, ")")
		if !closed {
			return "", fmt.Errorf("$( without )")
		}
		replacement, ok := lookup(name)
		if !ok {
			return "", fmt.Errorf("the environment variable %s is not set", name)
		}
		b.WriteString(replacement)
		value = after
	}
}

package broker

import (
	"regexp"
	"strings"
)

// expression is a regular expression as operators of RabbitMQ write it. That is Go's syntax, and look-aheads at the
// beginning of what is anchored there: '^(?!amq\.).*' has been in its documentation for years. It matches anywhere in a
// name unless it is anchored. The zero value matches nothing.
type expression []alternative

// alternative matches what all of ahead do and none of the others, and re.
type alternative struct {
	ahead []lookahead
	re    *regexp.Regexp
}

type lookahead struct {
	not bool
	expression
}

// maxLookaheads bounds them in one expression, nested ones included.
const maxLookaheads = 16

// compileExpression errors are those of regexp.Compile.
func compileExpression(source string) (expression, error) {
	left := maxLookaheads
	return compileAhead(source, &left)
}

func compileAhead(source string, left *int) (expression, error) {
	re, err := regexp.Compile(source)
	if err == nil {
		return expression{{re: re}}, nil
	}
	if !strings.Contains(source, "(?!") && !strings.Contains(source, "(?=") {
		return nil, err
	}
	var e expression
	for _, branch := range branches(source) {
		a, ok := compileBranch(branch, left)
		if !ok {
			return nil, err
		}
		e = append(e, a)
	}
	return e, nil
}

// compileBranch compiles what has no | outside of parentheses: without look-aheads, or with some behind a ^.
func compileBranch(source string, left *int) (a alternative, ok bool) {
	re, err := regexp.Compile(source)
	if err == nil {
		return alternative{re: re}, true
	}
	rest, anchored := strings.CutPrefix(source, "^")
	for anchored && (strings.HasPrefix(rest, "(?!") || strings.HasPrefix(rest, "(?=")) {
		end := closing(rest)
		if *left--; end < 0 || *left < 0 {
			return a, false
		}
		var ahead expression
		for _, branch := range branches(rest[3:end]) {
			one, ok := compileBranch("^"+branch, left)
			if !ok {
				return a, false
			}
			ahead = append(ahead, one)
		}
		a.ahead = append(a.ahead, lookahead{rest[2] == '!', ahead})
		rest = rest[end+1:]
	}
	if len(a.ahead) == 0 {
		return a, false
	}
	a.re, err = regexp.Compile("^(?:" + rest + ")")
	return a, err == nil
}

func (e expression) match(name []byte) bool {
	for i := range e {
		if e[i].match(name) {
			return true
		}
	}
	return false
}

func (a *alternative) match(name []byte) bool {
	for _, l := range a.ahead {
		if l.match(name) == l.not {
			return false
		}
	}
	return a.re.Match(name)
}

// branches splits at every | outside of parentheses and classes.
func branches(source string) (list []string) {
	from := 0
	walk(source, func(at, depth int) bool {
		if source[at] == '|' && depth == 0 {
			list = append(list, source[from:at])
			from = at + 1
		}
		return true
	})
	return append(list, source[from:])
}

// closing is where the parenthesis that source begins with is closed, or -1.
func closing(source string) (end int) {
	end = -1
	walk(source, func(at, depth int) bool {
		if source[at] == ')' && depth == 0 {
			end = at
		}
		return end < 0
	})
	return end
}

// walk visits the octets that mean something by themselves, with how many parentheses are open behind each, until visit
// returns false.
func walk(source string, visit func(at, depth int) bool) {
	depth, class := 0, -1 // where a class began
	for at := 0; at < len(source); at++ {
		switch c := source[at]; {
		case c == '\\' && strings.HasPrefix(source[at:], `\Q`):
			end := strings.Index(source[at:], `\E`)
			if end < 0 {
				return
			}
			at += end + 1
			continue
		case c == '\\':
			at++
			continue
		case class >= 0:
			if c == ']' && at > class+1 && source[class+1:at] != "^" {
				class = -1
			}
			continue
		case c == '[':
			class = at
			continue
		case c == '(':
			depth++
		case c == ')':
			depth--
		}
		if !visit(at, depth) {
			return
		}
	}
}

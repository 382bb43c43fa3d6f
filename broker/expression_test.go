package broker

import (
	"regexp"
	"strings"
	"testing"
)

// TestExpressions: what matches is what Perl would match.
func TestExpressions(t *testing.T) {
	for _, c := range []struct{ source, matches, not string }{
		{``, `a `, ``},
		{`b`, `abc b`, `ac`},
		{`^b`, `b bc`, `ab`},
		{`^(?!amq\.).*`, `a amq amqp x.amq.y`, `amq. amq.gen-x`},
		{`^(?!amq\.)`, `a amq`, `amq.x`},
		{`^(?!amq\.|tmp).+$`, `a amqp tm`, `amq.x tmp tmpx`},
		{`^(?!^amq\.).*`, `a amq`, `amq.x`},
		{`^(?!a)(?!b)c?`, `c d`, `a b ax`},
		{`^(?=a)(?!ab).c`, `ac acx`, `abc bc a`},
		{`^(?=.*b)a`, `ab acb`, `a ba`},
		{`^(?!(a|b)x)..`, `ay cx xa`, `ax bx a`},
		{`^(?!a)b|^c`, `b bx c cx`, `a ab xb`},
		{`^(?![ab)]).*`, `c (`, `a b )`},
		{`^(?!\)).*`, `a (`, `)`},
		{`^(?!x$).*`, `xx a`, `x`},
		{`^(?!.*-dev$).*`, `a dev-a a-devx`, `a-dev -dev`},
		{`^(?!a(?:b|c)).*|z`, `ad xz z abz`, `ab ac`},
		{`^(?!)`, ``, `a b`},
		{`^(?!a|)`, ``, `a b`},
	} {
		e, err := compileExpression(c.source)
		if err != nil {
			t.Errorf("%s: %v", c.source, err)
			continue
		}
		for _, name := range strings.Fields(c.matches) {
			if !e.match([]byte(name)) {
				t.Errorf("%s does not match %s", c.source, name)
			}
		}
		for _, name := range strings.Fields(c.not) {
			if e.match([]byte(name)) {
				t.Errorf("%s matches %s", c.source, name)
			}
		}
	}
	for _, source := range []string{
		`(?!a)b`, `a(?!b)`, `^a(?!b)`, `(`, `^(?!a`, `^(?<!a)b`, `(a)\1`, `^(?!(?!a)b)(`, `^(?!a)(?!`, `^(?!(?=a)b(?!c)).*`, `^(?i)(?!a)b`,
		"^" + strings.Repeat("(?!a)", maxLookaheads+1),
	} {
		if _, err := compileExpression(source); err == nil {
			t.Errorf("%s compiles", source)
		} else if _, want := regexp.Compile(source); want == nil || err.Error() != want.Error() {
			t.Errorf("%s: %v, want %v", source, err, want)
		}
	}
}

func FuzzExpression(f *testing.F) {
	for _, s := range []string{`^(?!amq\.).*`, `^(?![ab)]).*|\Qa|b\E`, `[^]]|\`, `^(?=a)(?!`} {
		f.Add(s, "amq.gen")
	}
	f.Fuzz(func(t *testing.T, source, name string) {
		e, err := compileExpression(source)
		plain, plainErr := regexp.Compile(source)
		switch {
		case plainErr == nil && (err != nil || e.match([]byte(name)) != plain.MatchString(name)):
			t.Errorf("%q: differs from what it was without look-aheads", source)
		case err == nil:
			e.match([]byte(name))
		}
	})
}

package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
)

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

// match compares an event with a method, fields and body. "redelivered" is compared also where it is not written.
func (r *run) match(e event, m *methodSpec, fields []fieldLiteral, body *literal) error {
	vars := maps.Clone(r.vars)
	err := func() error {
		if e.protocol != nil || e.msg.spec != m {
			return errors.New("another method")
		}
		redelivered := false
		for _, f := range fields {
			redelivered = redelivered || f.name == "redelivered"
			v, ok := e.msg.values[f.name]
			none := f.value.kind == kindWord && f.value.text == "none"
			switch {
			case none && ok:
				return fmt.Errorf("%s is there", f.name)
			case none:
				continue
			case !ok:
				return fmt.Errorf("%s is missing", f.name)
			}
			if err := vars.match(textual(f.value, v), v); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
		}
		if e.msg.values["redelivered"] == true && !redelivered {
			return errors.New("it is marked redelivered")
		}
		if body == nil {
			return nil
		}
		got := string(e.msg.body)
		if err := vars.match(textual(*body, got), got); err != nil {
			return fmt.Errorf("body: %w", err)
		}
		return nil
	}()
	if err != nil {
		return fmt.Errorf("expected %s (%w)\n    came %s", m.name, err, e)
	}
	maps.Copy(r.vars, vars)
	return nil
}

// textual makes hex"..." a string where a field or a body, which are strings, is compared.
func textual(l literal, got any) literal {
	made := l.kind == kindTyped && (l.text == "join" || l.text == "random")
	if _, ok := got.(string); ok && (l.kind == kindBytes || made) {
		return literal{kind: kindTyped, text: "S", items: []literal{l}}
	}
	return l
}

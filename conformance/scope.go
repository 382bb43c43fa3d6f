package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

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

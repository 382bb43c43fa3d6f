package broker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Invalid is the error for a value that was refused: a policy, a parameter, a limit or a definition. Text is what
// RabbitMQ tells of it.
type Invalid struct{ Text string }

func (e *Invalid) Error() string { return e.Text }

// invalid is the error of a validation, with the frame that RabbitMQ puts around its text.
func invalid(format string, args ...any) error {
	return &Invalid{"Validation failed\n\n" + fmt.Sprintf(format, args...) + "\n"}
}

// DecodeJSON decodes one JSON value, with numbers as json.Number, so that what is stored is what was given.
func DecodeJSON(data []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return v, nil
}

// encodeJSON is the one spelling of a JSON value that is stored: keys sorted, no spaces.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// copyJSON is a copy of a JSON value that shares nothing with it, its numbers as json.Number.
func copyJSON(v any) (any, error) {
	data, err := encodeJSON(v)
	if err != nil {
		return nil, err
	}
	return DecodeJSON(data)
}

// integerOf is a JSON value as an integer; one of more than 64 bits becomes the nearest that fits. A number that has a
// fraction or an exponent is none, as in Erlang.
func integerOf(v any) (n int64, ok bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case int:
		return int64(v), true
	case json.Number:
		n, err := strconv.ParseInt(string(v), 10, 64)
		if err == nil || errors.Is(err, strconv.ErrRange) {
			return n, true
		}
	}
	return 0, false
}

// term writes a JSON value as RabbitMQ's texts show it: an Erlang term.
func term(v any) string {
	var b strings.Builder
	appendTerm(&b, v)
	return b.String()
}

func appendTerm(b *strings.Builder, v any) {
	switch v := v.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		fmt.Fprint(b, v)
	case string:
		b.WriteString("<<")
		b.WriteString(`"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(v) + `"`)
		if strings.ContainsFunc(v, func(r rune) bool { return r > 0x7e }) {
			b.WriteString("/utf8")
		}
		b.WriteString(">>")
	case json.Number:
		b.WriteString(number(v))
	case []any:
		b.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			appendTerm(b, e)
		}
		b.WriteByte(']')
	case map[string]any:
		b.WriteString("#{")
		for i, k := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b.WriteByte(',')
			}
			appendTerm(b, k)
			b.WriteString(" => ")
			appendTerm(b, v[k])
		}
		b.WriteByte('}')
	default:
		fmt.Fprint(b, v)
	}
}

// number spells a number as Erlang does: floats have a fraction always, and an exponent without sign.
func number(n json.Number) string {
	s := string(n)
	if !strings.ContainsAny(s, ".eE") {
		return s
	}
	f, err := n.Float64()
	if err != nil || math.IsInf(f, 0) {
		return s
	}
	s = strconv.FormatFloat(f, 'g', -1, 64)
	mantissa, exponent, scientific := strings.Cut(s, "e")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	if !scientific {
		return mantissa
	}
	return mantissa + "e" + strings.TrimPrefix(exponent, "+")
}

// terms writes a map as a list of pairs.
func terms(m map[string]any) string {
	var b strings.Builder
	b.WriteByte('[')
	for i, k := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('{')
		appendTerm(&b, k)
		b.WriteByte(',')
		appendTerm(&b, m[k])
		b.WriteByte('}')
	}
	b.WriteByte(']')
	return b.String()
}

package broker

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/warrenmq/warren/amqp"
)

// definition is one object of the definitions that are imported. It remembers the first thing that was wrong in it, so
// that whoever reads it asks once.
type definition struct {
	what   string // "queue"
	fields map[string]any
	wrong  string
}

// has reports whether a field is there and not null.
func (d *definition) has(name string) bool { return d.fields[name] != nil }

func (d *definition) fail(format string, args ...any) {
	if d.wrong == "" {
		d.wrong = fmt.Sprintf(format, args...)
	}
}

// field is a field of one type, or otherwise if it is missing or null.
func field[T any](d *definition, name, what string, otherwise T) T {
	v := d.fields[name]
	if v == nil {
		return otherwise
	}
	t, ok := v.(T)
	if !ok {
		d.fail("%s should be %s but was %s", name, what, term(v))
	}
	return t
}

func (d *definition) text(name, otherwise string) string {
	return field(d, name, "a string", otherwise)
}

// needed is a string that must be there.
func (d *definition) needed(name string) string {
	if !d.has(name) {
		d.fail("%s is missing", name)
	}
	return d.text(name, "")
}

// short is needed for a string that AMQP must be able to carry.
func (d *definition) short(name string) string {
	s := d.needed(name)
	if len(s) > amqp.MaxShortstr {
		d.fail("%s is longer than %d octets", name, amqp.MaxShortstr)
	}
	return s
}

func (d *definition) flag(name string, otherwise bool) bool {
	return field(d, name, "true or false", otherwise)
}

// object is a field that is an object. An empty list is an empty object, as RabbitMQ 3 spells some.
func (d *definition) object(name string) map[string]any {
	if l, ok := d.fields[name].([]any); ok && len(l) == 0 {
		return map[string]any{}
	}
	return field(d, name, "an object", map[string]any{})
}

// words is a field that is a list of strings, or a string with commas between them.
func (d *definition) words(name string) []string {
	var words []string
	switch v := d.fields[name].(type) {
	case nil:
	case string:
		for w := range strings.SplitSeq(v, ",") {
			if w = strings.TrimSpace(w); w != "" {
				words = append(words, w)
			}
		}
	case []any:
		for _, e := range v {
			w, ok := e.(string)
			if !ok {
				d.fail("%s should be strings but was %s", name, term(v))
			}
			words = append(words, w)
		}
	default:
		d.fail("%s should be a list but was %s", name, term(v))
	}
	return words
}

// describe names the object for errors.
func (d *definition) describe() string {
	name := d.fields["name"]
	if name == nil {
		name = d.fields["user"]
	}
	s := d.what
	if d.what == "binding" {
		s += fmt.Sprintf(" from exchange '%v' to %v '%v'", d.fields["source"], d.fields["destination_type"], d.fields["destination"])
	} else if name != nil {
		s += fmt.Sprintf(" '%v'", name)
	}
	if v, ok := d.fields["vhost"].(string); ok && d.what != "vhost" {
		s += " in vhost '" + v + "'"
	}
	return s
}

// error is what is wrong with the object, nil if nothing is.
func (d *definition) error() error {
	if d.wrong == "" {
		return nil
	}
	return &Invalid{d.describe() + ": " + d.wrong}
}

// refused is err, if it is one, with the object's name.
func (d *definition) refused(err error) error {
	if err == nil {
		return nil
	}
	return &Invalid{d.describe() + ": " + err.Error()}
}

// definitionsOf reads a list of objects.
func definitionsOf(all map[string]any, name, what string) ([]definition, error) {
	list, ok := all[name].([]any)
	if !ok && all[name] != nil {
		if m, isObject := all[name].(map[string]any); !isObject || len(m) > 0 {
			return nil, &Invalid{name + " should be a list but was " + term(all[name])}
		}
	}
	objects := make([]definition, len(list))
	for i, v := range list {
		fields, ok := v.(map[string]any)
		if !ok {
			return nil, &Invalid{fmt.Sprintf("%s should be a list of objects but number %d is %s", name, i+1, term(v))}
		}
		objects[i] = definition{what: what, fields: maps.Clone(fields)}
	}
	return objects, nil
}

// ErrNotJSON refuses definitions that are no JSON object.
var ErrNotJSON = &Invalid{"failed_to_parse_json"}

func parseDefinitions(data []byte) (map[string]any, error) {
	v, err := DecodeJSON(data)
	all, ok := v.(map[string]any)
	if err != nil || !ok {
		return nil, ErrNotJSON
	}
	return all, nil
}

// whole is a JSON number that is an integer, for fields that were written by something that knows floats only.
func whole(v any) (int64, bool) {
	if n, ok := integerOf(v); ok {
		return n, true
	}
	if n, ok := v.(json.Number); ok {
		if f, err := n.Float64(); err == nil && f == float64(int64(f)) {
			return int64(f), true
		}
	}
	return 0, false
}

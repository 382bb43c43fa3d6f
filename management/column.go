package management

import (
	"encoding/json"
	"reflect"
	"strings"
)

// A view is a struct whose json tags are RabbitMQ's field names. Columns and sort keys name its fields by paths such as
// message_stats.publish_details.rate; they are found by reflection, so that items which are not shown are not encoded either.

// columns say which members of an object are wanted. Nil means all.
type columns struct {
	members map[string]*columns
	// fields are those of the struct type that was met last, as far as they are wanted: a list is of one type.
	of     reflect.Type
	fields []field
}

// field is a wanted field of a view.
type field struct {
	key       []byte // its name and a colon, as JSON
	index     []int
	omitEmpty bool
	below     *columns
}

// columnsOf reads the parameter columns: paths separated by commas.
func columnsOf(parameter string) *columns {
	if parameter == "" {
		return nil
	}
	tree := &columns{members: map[string]*columns{}}
	for path := range strings.SplitSeq(parameter, ",") {
		at := tree
		parts := strings.Split(path, ".")
		for i, part := range parts {
			below, known := at.members[part]
			if known && below == nil {
				break // the whole member is wanted already
			}
			if i == len(parts)-1 {
				at.members[part] = nil
			} else if !known {
				below = &columns{members: map[string]*columns{}}
				at.members[part] = below
			}
			at = below
		}
	}
	return tree
}

// encode appends v as JSON, pruned to the columns.
func (c *columns) encode(dst []byte, v any) []byte {
	if c == nil {
		return append(dst, encode(v)...)
	}
	return c.prune(dst, reflect.ValueOf(v))
}

func (c *columns) prune(dst []byte, v reflect.Value) []byte {
	if c == nil {
		return append(dst, encode(v.Interface())...)
	}
	if encoded, ok := v.Interface().(json.RawMessage); ok { // by another node, to the same columns
		return append(dst, encoded...)
	}
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return append(dst, "null"...)
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Slice:
		dst = append(dst, '[')
		for i := range v.Len() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = c.prune(dst, v.Index(i))
		}
		return append(dst, ']')
	case reflect.Map:
		return c.pruneMap(dst, v)
	case reflect.Struct:
		return c.pruneStruct(dst, v)
	}
	return append(dst, encode(v.Interface())...)
}

func (c *columns) pruneMap(dst []byte, v reflect.Value) []byte {
	kept := map[string]json.RawMessage{}
	for name, below := range c.members {
		if member := v.MapIndex(reflect.ValueOf(name)); member.IsValid() {
			kept[name] = below.prune(nil, member)
		}
	}
	return append(dst, encode(kept)...)
}

func (c *columns) pruneStruct(dst []byte, v reflect.Value) []byte {
	if c.of != v.Type() {
		c.learn(v.Type())
	}
	dst = append(dst, '{')
	first := true
	for i := range c.fields {
		f := &c.fields[i]
		value, err := v.FieldByIndexErr(f.index)
		if err != nil || f.omitEmpty && empty(value) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = f.below.prune(append(dst, f.key...), value)
	}
	return append(dst, '}')
}

// learn finds the wanted fields of a struct type.
func (c *columns) learn(t reflect.Type) {
	c.of, c.fields = t, nil
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		below, wanted := c.members[name]
		if name == "" || f.Anonymous || !wanted {
			continue
		}
		c.fields = append(c.fields, field{append(encode(name), ':'), f.Index, options == "omitempty", below})
	}
}

// empty is what encoding/json leaves out for omitempty.
func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map, reflect.String:
		return v.Len() == 0
	}
	return v.IsZero()
}

// sortKey is what items are ordered by. As in Erlang, numbers come before truth values and those before texts; what is missing is 0.
type sortKey struct {
	kind uint8 // 0 number, 1 truth value, 2 text
	num  float64
	text string
}

func (k sortKey) compare(other sortKey) int {
	switch {
	case k.kind != other.kind:
		return int(k.kind) - int(other.kind)
	case k.kind == 2:
		return strings.Compare(k.text, other.text)
	case k.num < other.num:
		return -1
	case k.num > other.num:
		return 1
	}
	return 0
}

// sortKeyOf reads the field of a view under a path.
func sortKeyOf(view any, path []string) sortKey {
	v := reflect.ValueOf(view)
	for {
		for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
			if v.IsNil() {
				return sortKey{}
			}
			v = v.Elem()
		}
		if len(path) == 0 {
			break
		}
		switch v.Kind() {
		case reflect.Struct:
			v = fieldNamed(v, path[0])
		case reflect.Map:
			v = v.MapIndex(reflect.ValueOf(path[0]))
		default:
			return sortKey{}
		}
		if !v.IsValid() {
			return sortKey{}
		}
		path = path[1:]
	}
	switch {
	case v.CanInt():
		return sortKey{num: float64(v.Int())}
	case v.CanUint():
		return sortKey{num: float64(v.Uint())}
	case v.CanFloat():
		return sortKey{num: v.Float()}
	case v.Kind() == reflect.Bool:
		k := sortKey{kind: 1}
		if v.Bool() {
			k.num = 1
		}
		return k
	case v.Kind() == reflect.String:
		return sortKey{kind: 2, text: v.String()}
	}
	return sortKey{kind: 2, text: string(encode(v.Interface()))}
}

func fieldNamed(v reflect.Value, name string) reflect.Value {
	if v.Kind() == reflect.Pointer { // embedded, for what not all items have
		if v.IsNil() {
			return reflect.Value{}
		}
		v = v.Elem()
	}
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			if found := fieldNamed(v.Field(i), name); found.IsValid() {
				return found
			}
			continue
		}
		if tag, _, _ := strings.Cut(f.Tag.Get("json"), ","); tag == name {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}

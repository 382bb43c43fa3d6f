package conformance

import (
	"encoding/hex"
	"fmt"
	"sort"
	"strconv"
	"strings"
)

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
			if _, ok := m.spec.field(name); !ok && (name != bodyFrames || m.values[name] != uint64(1)) {
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

package amqp

import (
	"bytes"
	"iter"
	"slices"
)

// MaxDepth is how deep tables and arrays may lie within a table. RabbitMQ knows
// no limit but the size of a frame; this one keeps a hostile table from using
// up the stack.
const MaxDepth = 128

// A Table is a view of an encoded field table without its length prefix. nil is
// the empty table. Keys may repeat; lookups find the first.
//
// A table that came with a decoded method or a parsed header is valid. On a
// malformed one, lookups and iteration end where the fault is.
type Table []byte

// Validate returns [ErrTable] unless the table is well formed in all depths:
// every entry fits, every tag is known, no float is an infinity or NaN, and
// nothing lies deeper than [MaxDepth]. Keys and strings need not be UTF-8.
func (t Table) Validate() error {
	if len(t) != 0 && !t.validate(MaxDepth) {
		return ErrTable
	}
	return nil
}

func (t Table) validate(depth int) bool {
	for rest := []byte(t); len(rest) > 0; {
		_, v, next, ok := nextEntry(rest)
		if !ok || !v.validate(depth) {
			return false
		}
		rest = next
	}
	return true
}

// nextEntry takes an entry off the front of src.
func nextEntry(src []byte) (key []byte, v Value, rest []byte, ok bool) {
	if len(src) < 1 || len(src) <= int(src[0]) {
		return nil, Value{}, nil, false
	}
	n := 1 + int(src[0])
	key = src[1:n:n]
	v, rest, ok = nextValue(src[n:])
	return key, v, rest, ok
}

// Get returns the first value of that key, a view into the table.
func (t Table) Get(key string) (Value, bool) {
	for rest := []byte(t); len(rest) > 0; {
		k, v, next, ok := nextEntry(rest)
		if !ok {
			break
		}
		if string(k) == key {
			return v, true
		}
		rest = next
	}
	return Value{}, false
}

// All goes through the entries in their order, repeated keys included. Keys and
// values are views into the table.
func (t Table) All() iter.Seq2[[]byte, Value] {
	return func(yield func([]byte, Value) bool) {
		for rest := []byte(t); len(rest) > 0; {
			k, v, next, ok := nextEntry(rest)
			if !ok || !yield(k, v) {
				return
			}
			rest = next
		}
	}
}

// Len is the number of entries.
func (t Table) Len() int {
	n := 0
	for range t.All() {
		n++
	}
	return n
}

// Canonical returns the table as RabbitMQ compares the arguments of bindings:
// entries sorted by key, those of equal keys and those of nested tables in
// their order, 'L' written as 'l' and true as 1. Two valid tables are equal as
// arguments exactly when their canonical bytes are. The result is a new table,
// or nil for an empty one.
func (t Table) Canonical() Table {
	if len(t) == 0 {
		return nil
	}
	t = t.respelt()
	type entry struct{ key, whole []byte }
	var entries []entry
	for rest := []byte(t); len(rest) > 0; {
		k, _, next, ok := nextEntry(rest)
		if !ok {
			break
		}
		entries = append(entries, entry{k, rest[:len(rest)-len(next)]})
		rest = next
	}
	byKey := func(a, b entry) int { return bytes.Compare(a.key, b.key) }
	if slices.IsSortedFunc(entries, byKey) {
		return t
	}
	slices.SortStableFunc(entries, byKey)
	sorted := make(Table, 0, len(t))
	for _, e := range entries {
		sorted = append(sorted, e.whole...)
	}
	return sorted
}

// Equal reports whether two tables are the same arguments; see
// [Table.Canonical].
func (t Table) Equal(u Table) bool {
	if len(t) != len(u) {
		return false
	}
	return bytes.Equal(t, u) || bytes.Equal(t.Canonical(), u.Canonical())
}

// respelt returns a copy in which values that can be written in two ways are
// written in one.
func (t Table) respelt() Table {
	t = slices.Clone(t)
	t.respell(MaxDepth)
	return t
}

func (t Table) respell(depth int) {
	for rest := []byte(t); len(rest) > 0; {
		k, v, next, ok := nextEntry(rest)
		if !ok {
			return
		}
		v.respell(&rest[1+len(k)], depth)
		rest = next
	}
}

func (a Array) respelt() Array {
	a = slices.Clone(a)
	a.respell(MaxDepth)
	return a
}

func (a Array) respell(depth int) {
	for rest := []byte(a); len(rest) > 0; {
		v, next, ok := nextValue(rest)
		if !ok {
			return
		}
		v.respell(&rest[0], depth)
		rest = next
	}
}

// respell changes the value where it lies; tag is where its tag lies.
func (v Value) respell(tag *byte, depth int) {
	switch {
	case v.Tag == TagInt64L:
		*tag = TagInt64
	case v.Tag == TagBool && v.Raw[0] != 0:
		v.Raw[0] = 1
	case v.Tag == TagTable && depth > 0:
		Table(v.Raw).respell(depth - 1)
	case v.Tag == TagArray && depth > 0:
		Array(v.Raw).respell(depth - 1)
	}
}

// An Edit changes one key of a table; see [Table.AppendEdited].
type Edit struct {
	Key    string
	Value  Value
	Remove bool // rather than set
}

// AppendEdited appends to dst the table with some keys set or removed. A key
// that is set takes the place of its first occurrence, or comes at the end when
// there was none; one that is removed goes with all its occurrences. All other
// entries stay byte for byte in their order. A key may have one edit only, and
// there may be 64 edits. dst must not overlap t. It panics when a new key is
// longer than [MaxShortstr].
func (t Table) AppendEdited(dst Table, edits ...Edit) Table {
	if len(edits) > 64 {
		panic("amqp: more than 64 edits of a table")
	}
	var done uint64 // a bit for each edit whose key was met
	for rest := []byte(t); len(rest) > 0; {
		key, _, next, ok := nextEntry(rest)
		if !ok {
			break
		}
		i := editOf(edits, key)
		switch {
		case i >= 0 && edits[i].Remove:
		case i >= 0 && done&(1<<i) == 0:
			done |= 1 << i
			dst = dst.AppendValue(edits[i].Key, edits[i].Value)
		default:
			dst = append(dst, rest[:len(rest)-len(next)]...)
		}
		rest = next
	}
	for i, e := range edits {
		if !e.Remove && done&(1<<i) == 0 {
			dst = dst.AppendValue(e.Key, e.Value)
		}
	}
	return dst
}

// editOf is the index of the edit of key, or -1.
func editOf(edits []Edit, key []byte) int {
	for i := range edits {
		if edits[i].Key == string(key) {
			return i
		}
	}
	return -1
}

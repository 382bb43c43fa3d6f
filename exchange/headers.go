package exchange

import (
	"hash/maphash"
	"math"
	"slices"
	"strings"

	"github.com/warrenmq/warren/amqp"
)

// headers is the rule of headers exchanges. Bindings with the same arguments share one filter. A filter waits under
// conditions of which a matching message must meet at least one: all of them for an "any" filter, the one that fewest
// other filters wait under for an "all" filter. So a message is compared only with filters that it half meets already.
type headers struct {
	filters map[string]*filter // by canonical arguments; looked up only
	always  members[*filter]   // those without conditions that match everything
	waiting map[uint64][]*filter
	voids   int // places in waiting that ask for the presence of a header only
	seed    maphash.Seed
}

type filter struct {
	set        set
	any        bool
	conditions []condition
	places     []uint64 // keys of waiting
	voids      int      // how many of places ask for presence only
}

type condition struct {
	name  string
	value amqp.Value
}

func newHeaders() *headers {
	return &headers{filters: make(map[string]*filter), waiting: make(map[uint64][]*filter), seed: maphash.MakeSeed()}
}

func (h *headers) bind(b *Binding) {
	key := string(b.Arguments.Canonical())
	f := h.filters[key]
	if f == nil {
		f = newFilter(b.Arguments)
		h.filters[key] = f
		h.await(f)
	}
	f.set.add(b.Destination)
}

func newFilter(args amqp.Table) *filter {
	f := new(filter)
	mode, _ := args.Get("x-match")
	m, _ := mode.Str()
	f.any = strings.HasPrefix(string(m), "any")
	withX := strings.HasSuffix(string(m), "-with-x")
	for name, v := range args.All() {
		n := string(name)
		if n == "x-match" || !withX && strings.HasPrefix(n, "x-") ||
			slices.ContainsFunc(f.conditions, func(c condition) bool { return c.name == n }) {
			continue
		}
		f.conditions = append(f.conditions, condition{n, amqp.Value{Tag: v.Tag, Raw: slices.Clone(v.Raw)}})
	}
	return f
}

func (h *headers) await(f *filter) {
	if len(f.conditions) == 0 {
		if !f.any {
			h.always.add(f)
		}
		return
	}
	conditions := f.conditions
	if !f.any {
		rarest, fewest := 0, math.MaxInt
		for i, c := range conditions {
			n := len(h.waiting[h.place([]byte(c.name), c.value)])
			if c.value.Tag == amqp.TagVoid {
				n += math.MaxInt / 2 // any value will do: the last choice
			}
			if n < fewest {
				rarest, fewest = i, n
			}
		}
		conditions = conditions[rarest : rarest+1]
	}
	for _, c := range conditions {
		p := h.place([]byte(c.name), c.value)
		f.places = append(f.places, p)
		h.waiting[p] = append(h.waiting[p], f)
		if c.value.Tag == amqp.TagVoid {
			f.voids++
			h.voids++
		}
	}
}

func (h *headers) unbind(b *Binding) {
	key := string(b.Arguments.Canonical())
	f := h.filters[key]
	if f.set.remove(b.Destination); !f.set.empty() {
		return
	}
	delete(h.filters, key)
	if len(f.conditions) == 0 && !f.any {
		h.always.remove(f)
	}
	h.voids -= f.voids
	for _, p := range f.places {
		list := h.waiting[p]
		i := slices.Index(list, f)
		list[i] = list[len(list)-1]
		list[len(list)-1] = nil
		if list = list[:len(list)-1]; len(list) == 0 {
			delete(h.waiting, p)
		} else {
			h.waiting[p] = list
		}
	}
}

// place is where filters wait for a header: equal for all values that [amqp.Value.Matches] takes for the same. Distinct
// ones may share a place.
func (h *headers) place(name []byte, v amqp.Value) uint64 {
	var value uint64
	if n, ok := v.Int(); ok {
		value = uint64(n)
	} else if s, ok := v.Bytes(); ok {
		value = maphash.Bytes(h.seed, s)
	} else if f, ok := v.Float(); ok {
		value = math.Float64bits(f + 0) // -0 as 0
	} else {
		value = uint64(v.Tag)
		switch v.Tag {
		case amqp.TagTimestamp, amqp.TagDecimal:
			value ^= maphash.Bytes(h.seed, v.Raw)
		}
	}
	return hash64(maphash.Bytes(h.seed, name) ^ hash64(value+1).sum()).sum()
}

func (h *headers) route(m *Message, out *Matches) bool {
	found := false
	for _, f := range h.always.list {
		out.addAll(&f.set)
		found = true
	}
	if len(h.waiting) == 0 {
		return found
	}
	out.unstable = true
	for name, v := range m.Headers.All() {
		if h.try(h.waiting[h.place(name, v)], m, out) {
			found = true
		}
		if h.voids > 0 && v.Tag != amqp.TagVoid && h.try(h.waiting[h.place(name, amqp.Value{Tag: amqp.TagVoid})], m, out) {
			found = true
		}
	}
	return found
}

// try adds the destinations of those filters that match.
func (h *headers) try(filters []*filter, m *Message, out *Matches) bool {
	found := false
	for _, f := range filters {
		if f.matches(m.Headers) {
			out.addAll(&f.set)
			found = true
		}
	}
	return found
}

func (f *filter) matches(headers amqp.Table) bool {
	for i := range f.conditions {
		c := &f.conditions[i]
		v, ok := headers.Get(c.name)
		if met := ok && c.value.Matches(v); met == f.any {
			return met
		}
	}
	return !f.any
}

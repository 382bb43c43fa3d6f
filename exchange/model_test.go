package exchange

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/test/seeds"
)

// The model is the definition of routing, written down without thought of speed: a list of bindings, compared one by
// one.
type model struct {
	exchanges map[string]Declaration
	queues    map[string]bool
	bindings  []modelBinding
}

type modelBinding struct {
	source, dest string
	toExchange   bool
	key          string
	args         amqp.Table
}

func (b modelBinding) same(c modelBinding) bool {
	return b.source == c.source && b.dest == c.dest && b.toExchange == c.toExchange && b.key == c.key && b.args.Equal(c.args)
}

func (m *model) bind(b modelBinding) bool {
	if slices.ContainsFunc(m.bindings, b.same) {
		return false
	}
	m.bindings = append(m.bindings, b)
	return true
}

// drop removes bindings, and then the auto-delete exchanges that have lost their last.
func (m *model) drop(match func(modelBinding) bool) (found bool, gone []string) {
	sources := map[string]bool{}
	m.bindings = slices.DeleteFunc(m.bindings, func(b modelBinding) bool {
		if match(b) {
			found = true
			sources[b.source] = true
			return true
		}
		return false
	})
	for s := range sources {
		d, ok := m.exchanges[s]
		if ok && d.AutoDelete && !slices.ContainsFunc(m.bindings, func(b modelBinding) bool { return b.source == s }) {
			gone = append(gone, m.delete(s)...)
		}
	}
	return found, gone
}

func (m *model) delete(name string) []string {
	delete(m.exchanges, name)
	_, gone := m.drop(func(b modelBinding) bool { return b.source == name || b.toExchange && b.dest == name })
	return append(gone, name)
}

func (m *model) route(exchange string, keys []string, headers amqp.Table) []string {
	found := map[string]bool{}
	if exchange == "" {
		for _, k := range keys {
			if m.queues[k] {
				found[k] = true
			}
		}
		return slices.Sorted(maps.Keys(found))
	}
	visited := map[string]bool{}
	var visit func(x string)
	visit = func(x string) {
		d, ok := m.exchanges[x]
		if !ok || visited[x] {
			return
		}
		visited[x] = true
		any := false
		for _, b := range m.bindings {
			if b.source != x || !matches(d.Type, b, keys, headers) {
				continue
			}
			any = true
			if b.toExchange {
				visit(b.dest)
			} else {
				found[b.dest] = true
			}
		}
		if alt := d.AlternateArgument(); !any && alt != "" {
			visit(alt)
		}
	}
	visit(exchange)
	return slices.Sorted(maps.Keys(found))
}

func matches(typ string, b modelBinding, keys []string, headers amqp.Table) bool {
	switch typ {
	case Fanout:
		return true
	case Direct:
		return slices.Contains(keys, b.key)
	case Topic:
		return slices.ContainsFunc(keys, func(k string) bool { return topicMatches(words(b.key), words(k)) })
	}
	mode := text(b.args, "x-match")
	met, considered := 0, 0
	for name, v := range b.args.All() {
		if string(name) == "x-match" || strings.HasPrefix(string(name), "x-") && !strings.HasSuffix(mode, "-with-x") {
			continue
		}
		considered++
		if h, ok := headers.Get(string(name)); ok && v.Matches(h) {
			met++
		}
	}
	if strings.HasPrefix(mode, "any") {
		return met > 0
	}
	return met == considered
}

func words(key string) []string {
	if key == "" {
		return nil
	}
	return strings.Split(key, ".")
}

func topicMatches(pattern, key []string) bool {
	if len(pattern) == 0 {
		return len(key) == 0
	}
	if pattern[0] == "#" {
		return topicMatches(pattern[1:], key) || len(key) > 0 && topicMatches(pattern, key[1:])
	}
	return len(key) > 0 && (pattern[0] == "*" || pattern[0] == key[0]) && topicMatches(pattern[1:], key[1:])
}

// small draws from few names, so that everything meets everything.
type small struct{ *rand.Rand }

func (r small) key() string {
	n := r.IntN(5)
	list := make([]string, n)
	for i := range list {
		list[i] = string("ab"[r.IntN(2)])
		if r.IntN(8) == 0 {
			list[i] = ""
		}
	}
	return strings.Join(list, ".")
}

func (r small) pattern() string {
	for {
		list := words(r.key())
		for i := range list {
			switch r.IntN(4) {
			case 0:
				list[i] = "*"
			case 1:
				list[i] = "#"
			}
		}
		p := strings.Join(list, ".")
		if (&Exchange{Declaration: Declaration{Type: Topic}}).CheckBinding(p, nil, "") == nil {
			return p
		}
	}
}

func (r small) table(binding bool) amqp.Table {
	var t amqp.Table
	if binding && r.IntN(5) > 0 {
		t = t.AppendString("x-match", []string{"all", "any", "all-with-x", "any-with-x"}[r.IntN(4)])
	}
	for _, name := range []string{"h", "i", "x-j"} {
		switch r.IntN(7) {
		case 0:
			t = t.AppendInt32(name, int32(r.IntN(2)))
		case 1:
			t = t.AppendInt64(name, int64(r.IntN(2)))
		case 2:
			t = t.AppendString(name, string("ab"[r.IntN(2)]))
		case 3:
			t = t.AppendValue(name, amqp.Value{Tag: amqp.TagVoid})
		case 4:
			t = t.AppendBool(name, r.IntN(2) == 0)
		}
	}
	return t
}

func TestAgainstModel(t *testing.T) {
	seed := seeds.Of(t)
	for round := range 150 {
		runModel(t, small{rand.New(rand.NewPCG(seed, uint64(round)))})
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
}

func runModel(t *testing.T, r small) {
	top := New()
	m := &model{exchanges: map[string]Declaration{}, queues: map[string]bool{}}
	types := []string{Direct, Fanout, Topic, Headers}
	xname := func() string { return fmt.Sprintf("x%d", r.IntN(6)) }
	qname := func() string { return fmt.Sprintf("q%d", r.IntN(40)) }
	var out Matches
	for range 400 {
		switch r.IntN(14) {
		case 0:
			d := Declaration{Name: xname(), Type: types[r.IntN(4)], AutoDelete: r.IntN(2) == 0}
			if r.IntN(2) == 0 {
				d.Arguments = d.Arguments.AppendString("alternate-exchange", xname())
			}
			if _, ok := m.exchanges[d.Name]; !ok {
				m.exchanges[d.Name] = d
			}
			top.Declare(d)
		case 1:
			if r.IntN(3) == 0 {
				name := xname()
				if x := top.Exchange(name); x != nil {
					sameExchanges(t, top.Delete(x), m.delete(name))
				}
			}
		case 2, 3:
			name := qname()
			if !m.queues[name] {
				m.queues[name] = true
				top.AddQueue(name, true)
			}
		case 4:
			name := qname()
			if q, ok := top.Queue(name); ok {
				delete(m.queues, name)
				_, gone := m.drop(func(b modelBinding) bool { return !b.toExchange && b.dest == name })
				sameExchanges(t, top.RemoveQueue(q), gone)
			}
		case 5, 6, 7, 8, 9:
			b, d := randomBinding(r, top, xname, qname)
			if x := top.Exchange(b.source); x != nil && b.dest != "" {
				if top.Bind(x, d, b.key, b.args) != m.bind(b) {
					t.Errorf("bind %+v: newness differs", b)
				}
			}
		case 10:
			if len(m.bindings) > 0 && r.IntN(2) == 0 {
				b := m.bindings[r.IntN(len(m.bindings))]
				d := Destination{Exchange: top.Exchange(b.dest)}
				if !b.toExchange {
					q, _ := top.Queue(b.dest)
					d = Destination{Queue: q}
				}
				found, gone := top.Unbind(top.Exchange(b.source), d, b.key, b.args)
				wantFound, want := m.drop(b.same)
				if found != wantFound {
					t.Errorf("unbind %+v: found %v, want %v", b, found, wantFound)
				}
				sameExchanges(t, gone, want)
			}
		default:
			name := ""
			if r.IntN(6) > 0 {
				name = xname()
			}
			msg := Message{Key: []byte(r.key()), Headers: r.table(false)}
			if name == "" {
				msg.Key = []byte(qname())
			}
			keys := []string{string(msg.Key)}
			for r.IntN(3) == 0 {
				k := r.key()
				if name == "" {
					k = qname()
				}
				keys = append(keys, k)
				msg.More = append(msg.More, []byte(k))
			}
			x := top.Exchange(name)
			if x == nil {
				continue
			}
			top.Route(x, &msg, &out)
			var got []string
			for _, q := range out.Queues {
				got = append(got, top.Name(Destination{Queue: q}))
			}
			slices.Sort(got)
			if want := m.route(name, keys, msg.Headers); !slices.Equal(got, want) {
				t.Errorf("route %q keys %q headers %v: got %q, want %q", name, keys, msg.Headers.Map(), got, want)
				return
			}
		}
	}
	// Everything taken apart again leaves nothing behind.
	for name := range m.exchanges {
		if x := top.Exchange(name); x != nil {
			for b := range x.Bindings() {
				top.Unbind(x, b.Destination, b.Key, b.Arguments)
			}
			if topic, ok := x.rule.(*topic); ok && (topic.edges.n != 0 || len(topic.numbers) != 0 || len(topic.free) != len(topic.nodes)-1) {
				t.Errorf("a topic tree without bindings keeps %d edges, %d words, %d of %d nodes", topic.edges.n, len(topic.numbers), len(topic.nodes)-1-len(topic.free), len(topic.nodes))
			}
			if h, ok := x.rule.(*headers); ok && (len(h.filters) != 0 || len(h.waiting) != 0 || h.voids != 0) {
				t.Errorf("a headers exchange without bindings keeps %d filters, %d places, %d voids", len(h.filters), len(h.waiting), h.voids)
			}
		}
	}
}

func randomBinding(r small, top *Topology, xname, qname func() string) (modelBinding, Destination) {
	b := modelBinding{source: xname(), key: r.key()}
	x := top.Exchange(b.source)
	if x == nil {
		return b, Destination{}
	}
	switch x.Type {
	case Topic:
		b.key = r.pattern()
	case Headers:
		b.args = r.table(true)
	case Direct:
		if r.IntN(3) == 0 {
			b.args = r.table(true)
		}
	}
	if r.IntN(4) == 0 {
		b.toExchange = true
		to := top.Exchange(xname())
		if to != nil {
			b.dest = to.Name
		}
		return b, Destination{Exchange: to}
	}
	name := qname()
	q, ok := top.Queue(name)
	if ok {
		b.dest = name
	}
	return b, Destination{Queue: q}
}

func sameExchanges(t *testing.T, got []*Exchange, want []string) {
	t.Helper()
	var names []string
	for _, x := range got {
		names = append(names, x.Name)
	}
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("deleted exchanges: got %q, want %q", names, want)
	}
}

func FuzzTopic(f *testing.F) {
	f.Add("a.*.#", "a.b.c")
	f.Add("#.a.#", "a")
	f.Add("", "")
	f.Add("*", "")
	f.Add(".", "..")
	f.Add("#.*.#.b", "a.b.c.b")
	f.Fuzz(func(t *testing.T, pattern, key string) {
		if len(pattern) > 40 || len(key) > 40 {
			return
		}
		top := New()
		x := top.Declare(Declaration{Name: "x", Type: Topic})
		if x.CheckBinding(pattern, nil, "") != nil {
			return
		}
		q := Destination{Queue: top.AddQueue("q", true)}
		top.Bind(x, q, "a.#.b", nil)
		top.Unbind(x, q, "a.#.b", nil)
		top.Bind(x, q, pattern, nil)
		var out Matches
		top.Route(x, &Message{Key: []byte(key)}, &out)
		if got, want := len(out.Queues) == 1, topicMatches(words(pattern), words(key)); got != want {
			t.Errorf("pattern %q key %q: got %v, want %v", pattern, key, got, want)
		}
	})
}

package exchange

import (
	"fmt"
	"strings"
	"testing"

	"github.com/warrenmq/warren/amqp"
)

// routed measures one Route, and that it allocates nothing.
func routed(b *testing.B, top *Topology, x *Exchange, want int, next func(i int) *Message) {
	var out Matches
	for i := range 10000 {
		m := next(i)
		top.Route(x, m, &out)
		if len(out.Queues) != want {
			b.Fatalf("%q leads to %d queues, want %d", m.Key, len(out.Queues), want)
		}
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		top.Route(x, next(i), &out)
		i++
	}
}

func withQueues(n int) (*Topology, []Destination) {
	top := New()
	list := make([]Destination, n)
	for i := range list {
		list[i] = Destination{Queue: top.AddQueue(fmt.Sprintf("queue.%06d", i), true)}
	}
	return top, list
}

func BenchmarkDefault(b *testing.B) {
	top, _ := withQueues(5000)
	m := &Message{}
	keys := make([][]byte, 5000)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "queue.%06d", i)
	}
	routed(b, top, top.Exchange(""), 1, func(i int) *Message { m.Key = keys[i%5000]; return m })
}

func BenchmarkDirect(b *testing.B) {
	top, queues := withQueues(10)
	x := top.Declare(Declaration{Name: "x", Type: Direct})
	keys := make([][]byte, 10000)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "route.%06d", i)
		top.Bind(x, queues[i%10], string(keys[i]), nil)
	}
	m := &Message{}
	routed(b, top, x, 1, func(i int) *Message { m.Key = keys[i%10000]; return m })
}

func BenchmarkFanout(b *testing.B) {
	for _, n := range []int{1, 10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			top, queues := withQueues(n)
			x := top.Declare(Declaration{Name: "x", Type: Fanout})
			for _, q := range queues {
				top.Bind(x, q, "", nil)
			}
			m := &Message{}
			routed(b, top, x, n, func(int) *Message { return m })
		})
	}
}

// fresh writes a number that no key had before into a key.
func fresh(key []byte, at, n int) {
	for i := at + 11; i >= at; i-- {
		key[i] = byte('0' + n%10)
		n /= 10
	}
}

func BenchmarkTopic(b *testing.B) {
	top, queues := withQueues(10)
	x := top.Declare(Declaration{Name: "x", Type: Topic})
	for i := range 10000 {
		if i%2 == 0 {
			top.Bind(x, queues[i%10], fmt.Sprintf("a%03d.b%03d.*", i/100, i%100), nil)
		} else {
			top.Bind(x, queues[i%10], fmt.Sprintf("a%03d.#.b%03d", i/100, i%100), nil)
		}
	}
	keys := make([][]byte, 10000)
	for i := range keys {
		if i%2 == 0 {
			keys[i] = fmt.Appendf(nil, "a%03d.b%03d.c%012d", i/100, i%100, i)
		} else {
			keys[i] = fmt.Appendf(nil, "a%03d.c%012d.b%03d", i/100, i, i%100)
		}
	}
	m := &Message{}
	b.Run("repeated", func(b *testing.B) {
		routed(b, top, x, 1, func(i int) *Message { m.Key = keys[i*7919%10000]; return m })
	})
	b.Run("fresh", func(b *testing.B) {
		routed(b, top, x, 1, func(i int) *Message {
			k := i * 7919 % 10000
			m.Key = keys[k]
			if k%2 == 0 {
				fresh(m.Key, 11, i+20000)
			} else {
				fresh(m.Key, 6, i+20000)
			}
			return m
		})
	})
}

// BenchmarkTopicWorst is the worst that a key of 255 octets can do with two # on every way.
func BenchmarkTopicWorst(b *testing.B) {
	top, queues := withQueues(10)
	x := top.Declare(Declaration{Name: "x", Type: Topic})
	for i := range 1000 {
		top.Bind(x, queues[i%10], fmt.Sprintf("#.a.#.%s.b%d", strings.Repeat("a.", i%20)+"*", i), nil)
	}
	m := &Message{Key: []byte(strings.Repeat("a.", 127) + "a")}
	routed(b, top, x, 0, func(int) *Message { return m })
}

func BenchmarkHeaders(b *testing.B) {
	top, queues := withQueues(10)
	x := top.Declare(Declaration{Name: "x", Type: Headers})
	tables := make([]amqp.Table, 10000)
	for i := range tables {
		route := fmt.Sprintf("route.%06d", i)
		top.Bind(x, queues[i%10], "", amqp.Table(nil).AppendString("x-match", "all").AppendString("kind", "event").AppendString("route", route))
		tables[i] = amqp.Table(nil).AppendString("kind", "event").AppendString("route", route).AppendInt64("n", int64(i))
	}
	m := &Message{}
	routed(b, top, x, 1, func(i int) *Message { m.Headers = tables[i*7919%10000]; return m })
}

func BenchmarkConsistentHash(b *testing.B) {
	top, queues := withQueues(10)
	x := top.Declare(Declaration{Name: "x", Type: ConsistentHash})
	for _, q := range queues {
		top.Bind(x, q, "100", nil)
	}
	m := &Message{Key: []byte("a000.b000.c000000000000")}
	routed(b, top, x, 1, func(i int) *Message { fresh(m.Key, 11, i); return m })
}

// BenchmarkBind is a binding made and removed beside 10,000 others.
func BenchmarkBind(b *testing.B) {
	for _, typ := range []string{Direct, Fanout, Topic, Headers} {
		b.Run(typ, func(b *testing.B) {
			top, queues := withQueues(10001)
			x := top.Declare(Declaration{Name: "x", Type: typ})
			args := amqp.Table(nil).AppendString("a", "b")
			for i, q := range queues[:10000] {
				top.Bind(x, q, fmt.Sprintf("a.b%d", i), args)
			}
			for b.Loop() {
				top.Bind(x, queues[10000], "a.new", args)
				top.Unbind(x, queues[10000], "a.new", args)
			}
		})
	}
}

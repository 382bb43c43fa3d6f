package exchange

import (
	"fmt"
	"slices"
	"testing"

	"github.com/warrenmq/warren/amqp"
)

// spread routes n messages and counts how many went to each queue; each must go to exactly one.
func spread(t *testing.T, top *Topology, x *Exchange, n int, next func(i int) *Message) map[Queue]int {
	t.Helper()
	counts := map[Queue]int{}
	var out Matches
	for i := range n {
		top.Route(x, next(i), &out)
		if len(out.Queues) != 1 {
			t.Fatalf("message %d goes to %d queues", i, len(out.Queues))
		}
		counts[out.Queues[0]]++
	}
	return counts
}

func numbered(i int) *Message { return &Message{Key: fmt.Appendf(nil, "key.%d", i), Seed: uint64(i)} }

func near(t *testing.T, what string, got, want int) {
	t.Helper()
	if got < want*9/10 || got > want*11/10 {
		t.Errorf("%s: %d, want about %d", what, got, want)
	}
}

func TestOneOfMany(t *testing.T) {
	for _, typ := range []string{ConsistentHash, ModulusHash, Random, LocalRandom} {
		t.Run(typ, func(t *testing.T) {
			top, queues := withQueues(5)
			x := top.Declare(Declaration{Name: "x", Type: typ})
			var out Matches
			top.Route(x, numbered(0), &out)
			if len(out.Queues) != 0 {
				t.Error("without bindings there is a route")
			}
			key := map[string]string{ConsistentHash: "2"}[typ]
			for _, q := range queues {
				top.Bind(x, q, key, nil)
			}
			counts := spread(t, top, x, 50000, numbered)
			for _, q := range queues {
				near(t, fmt.Sprint(q.Queue), counts[q.Queue], 10000)
			}
			top.Unbind(x, queues[2], key, nil)
			counts = spread(t, top, x, 40000, numbered)
			if counts[queues[2].Queue] != 0 {
				t.Error("a queue that is not bound any more is chosen")
			}
			for _, e := range top.RemoveQueue(queues[0].Queue) {
				t.Errorf("%s is gone", e.Name)
			}
			if counts = spread(t, top, x, 40000, numbered); len(counts) != 3 {
				t.Errorf("%d queues are chosen of 3", len(counts))
			}
		})
	}
}

func TestConsistentHash(t *testing.T) {
	top, queues := withQueues(3)
	x := top.Declare(Declaration{Name: "x", Type: ConsistentHash})
	top.Bind(x, queues[0], "1", nil)
	top.Bind(x, queues[1], "3", nil)
	top.Bind(x, queues[1], "10000", nil) // only the first binding of a destination counts
	counts := spread(t, top, x, 40000, numbered)
	near(t, "weight 1", counts[0], 10000)
	near(t, "weight 3", counts[1], 30000)

	// A third queue of weight 1 takes a fifth away from the others, and nothing moves between them.
	before := routesOf(top, x)
	top.Bind(x, queues[2], "1", nil)
	moved := 0
	for i, q := range routesOf(top, x) {
		if q != before[i] {
			moved++
			if q != queues[2].Queue {
				t.Fatal("a key moved between two queues that were there before")
			}
		}
	}
	near(t, "moved", moved, 2000)
	top.Unbind(x, queues[2], "1", nil)
	if !slices.Equal(routesOf(top, x), before) {
		t.Error("the old routes are not back")
	}
}

func routesOf(top *Topology, x *Exchange) (list []Queue) {
	var out Matches
	for i := range 10000 {
		top.Route(x, numbered(i), &out)
		list = append(list, out.Queues...)
	}
	return list
}

func TestHashOfHeaderAndProperty(t *testing.T) {
	properties := func(l amqp.PropertyList) amqp.Properties {
		b, err := amqp.AppendHeader(nil, 0, &l)
		if err != nil {
			t.Fatal(err)
		}
		h, err := amqp.ParseHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		return h.Properties
	}
	for arg, message := range map[string]func(i int) *Message{
		"hash-header user": func(i int) *Message {
			return &Message{Headers: amqp.Table(nil).AppendString("user", fmt.Sprint(i))}
		},
		"hash-property message_id": func(i int) *Message {
			return &Message{Properties: properties(amqp.PropertyList{MessageID: fmt.Sprint(i)})}
		},
		"hash-property correlation_id": func(i int) *Message {
			return &Message{Properties: properties(amqp.PropertyList{CorrelationID: fmt.Sprint(i)})}
		},
		"hash-property timestamp": func(i int) *Message {
			return &Message{Properties: properties(amqp.PropertyList{Timestamp: uint64(i + 1)})}
		},
	} {
		top, queues := withQueues(2)
		var name, value string
		fmt.Sscan(arg, &name, &value)
		x := top.Declare(Declaration{Name: "x", Type: ConsistentHash, Arguments: amqp.Table(nil).AppendString(name, value)})
		for _, q := range queues {
			top.Bind(x, q, "1", nil)
		}
		counts := spread(t, top, x, 10000, message)
		near(t, arg, counts[0], 5000)
		same := spread(t, top, x, 100, func(i int) *Message {
			m := message(7)
			m.Key = fmt.Appendf(nil, "%d", i) // plays no part
			return m
		})
		if len(same) != 1 {
			t.Errorf("%s: equal values go to different queues", arg)
		}
	}
}

func TestLocalRandomPassesOverOthers(t *testing.T) {
	top := New()
	x := top.Declare(Declaration{Name: "x", Type: LocalRandom})
	far := Destination{Queue: top.AddQueue("far", false)}
	near := Destination{Queue: top.AddQueue("near", true)}
	top.Bind(x, far, "", nil)
	var out Matches
	if top.Route(x, numbered(1), &out); len(out.Queues) != 0 {
		t.Error("a queue of another node was chosen")
	}
	top.Bind(x, near, "", nil)
	if counts := spread(t, top, x, 100, numbered); counts[near.Queue] != 100 {
		t.Error("the queue of this node was passed over")
	}
}

func TestStable(t *testing.T) {
	for typ, want := range map[string]bool{
		Direct: true, Fanout: true, Topic: true, Headers: false,
		ConsistentHash: true, ModulusHash: true, Random: false, LocalRandom: false,
	} {
		top, queues := withQueues(1)
		first := top.Declare(Declaration{Name: "first", Type: Fanout})
		x := top.Declare(Declaration{Name: "x", Type: typ})
		top.Bind(first, x.Destination(), "", nil)
		top.Bind(x, queues[0], map[string]string{ConsistentHash: "1"}[typ], amqp.Table(nil).AppendString("a", "b"))
		var out Matches
		if top.Route(first, &Message{}, &out); out.Stable() != want {
			t.Errorf("%s: stable %v", typ, out.Stable())
		}
	}
}

func TestCarbonCopies(t *testing.T) {
	headers := amqp.Table(nil).AppendArray("CC", amqp.Array(nil).AppendString("a").AppendInt64(1).AppendString("b")).AppendString("BCC", "c")
	keys, err := AppendKeys(nil, headers, CC)
	if err != nil || len(keys) != 2 || string(keys[1]) != "b" {
		t.Errorf("%q, %v", keys, err)
	}
	_, err = AppendKeys(nil, headers, BCC)
	if want := `PRECONDITION_FAILED - invalid message: {unacceptable_type_in_header,"BCC",longstr}`; err == nil || err.Text != want {
		t.Errorf("%v", err)
	}
}

func TestAlternate(t *testing.T) {
	top, queues := withQueues(2)
	ae := amqp.Table(nil).AppendString("alternate-exchange", "b")
	a := top.Declare(Declaration{Name: "a", Type: Direct, Arguments: ae})
	route := func() int {
		var out Matches
		top.Route(a, &Message{Key: []byte("k")}, &out)
		return len(out.Queues)
	}
	if route() != 0 {
		t.Error("an alternate exchange that is missing")
	}
	b := top.Declare(Declaration{Name: "b", Type: Fanout})
	top.Bind(b, queues[0], "", nil)
	if route() != 1 {
		t.Error("the alternate exchange is not asked")
	}
	nowhere := top.Declare(Declaration{Name: "nowhere", Type: Fanout})
	top.Bind(a, nowhere.Destination(), "k", nil)
	if route() != 0 {
		t.Error("a binding that leads nowhere is a destination, and keeps the alternate out")
	}
	a.Alternate = ""
	top.Delete(nowhere)
	if route() != 0 {
		t.Error("the default exchange is no alternate")
	}
}

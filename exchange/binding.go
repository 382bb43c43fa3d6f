package exchange

import (
	"iter"
	"strconv"
	"strings"

	"github.com/warrenmq/warren/amqp"
)

// Binding is a binding between a source and a destination. It is not changed after it was made.
type Binding struct {
	Source      *Exchange
	Destination Destination
	Key         string
	Arguments   amqp.Table

	prev, next [2]*Binding // in the chains of source and destination
}

// identity is what makes two bindings of one source the same; the order of arguments does not.
type identity struct {
	to        Destination
	key       string
	arguments string
}

func (b *Binding) identity() identity {
	return identity{b.Destination, b.Key, string(b.Arguments.Canonical())}
}

// chain is a list of bindings in the order in which they were made, from which any can be removed at once.
type chain struct {
	first, last *Binding
	n           int
}

// The two chains that a binding is in.
const (
	asSource = iota
	asDestination
)

func (c *chain) add(b *Binding, side int) {
	b.prev[side], b.next[side] = c.last, nil
	if c.last == nil {
		c.first = b
	} else {
		c.last.next[side] = b
	}
	c.last = b
	c.n++
}

func (c *chain) remove(b *Binding, side int) {
	if p := b.prev[side]; p == nil {
		c.first = b.next[side]
	} else {
		p.next[side] = b.next[side]
	}
	if n := b.next[side]; n == nil {
		c.last = b.prev[side]
	} else {
		n.prev[side] = b.prev[side]
	}
	c.n--
}

func (c *chain) all(side int) iter.Seq[*Binding] {
	return func(yield func(*Binding) bool) {
		for b := c.first; b != nil; b = b.next[side] {
			if !yield(b) {
				return
			}
		}
	}
}

// CheckBinding returns the error for a binding that the source's type does not allow. queueType is the type of the
// destination queue as error texts name it (rabbit_classic_queue), "" when the destination is an exchange.
func (x *Exchange) CheckBinding(key string, args amqp.Table, queueType string) *amqp.Error {
	refuse := func(format string, a ...any) *amqp.Error { return amqp.Errorf(amqp.PreconditionFailed, format, a...) }
	switch x.Type {
	case Topic:
		n := 0
		for w := range strings.SplitSeq(key, ".") {
			if w == "#" {
				n++
			}
		}
		if n > 2 {
			return refuse("Topic binding key '%s' uses %d '#' wildcards, at most 2 are allowed", key, n)
		}
	case Headers:
		v, ok := args.Get("x-match")
		if !ok {
			return nil
		}
		mode, ok := v.Str()
		if !ok {
			return refuse("Invalid x-match field type %s (value %s); expected longstr", v.TypeName(), term(v))
		}
		switch string(mode) {
		case "all", "any", "all-with-x", "any-with-x":
		default:
			return refuse("Invalid x-match field value %s; expected all, any, all-with-x, or any-with-x", amqp.ErlangBinary(mode))
		}
	case ConsistentHash:
		n, err := strconv.ParseInt(key, 10, 64)
		switch {
		case err != nil && !allDigits(key):
			return refuse("The binding key must be an integer: %s", amqp.ErlangBinary([]byte(key)))
		case err == nil && n < 1 || strings.HasPrefix(key, "-"):
			return refuse("The binding key must be greater than 0")
		case err != nil || n > maxWeight:
			return refuse("The binding key must not exceed %d", maxWeight)
		}
	case LocalRandom:
		switch {
		case key != "":
			return refuse("Non empty binding '%s' key not permitted", key)
		case queueType == "":
			return refuse("Destination not found")
		case queueType != "rabbit_classic_queue":
			return refuse("Queue type %s not valid for this exchange type", queueType)
		}
	}
	return nil
}

// allDigits reports whether s is an integer of any size.
func allDigits(s string) bool {
	s = strings.TrimLeft(s, "+-")
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

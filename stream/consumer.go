package stream

import (
	"time"

	"github.com/warrenmq/warren/amqp"
)

// Consumer is what the arguments of basic.consume say to a stream.
type Consumer struct {
	Start  Spec
	Filter Filter
	// Name is under what offsets are committed, "" under none. Then Start is not Stored.
	Name string
	// Reset is what to do when the stored offset was removed.
	Reset Reset
}

// ArgumentError is of an argument of basic.consume that a stream refuses. Why is what RabbitMQ's text says of the value.
type ArgumentError struct{ Argument, Why string }

func (e *ArgumentError) Error() string { return "stream: invalid " + e.Argument + ": " + e.Why }

// ParseConsumer reads the arguments of basic.consume. Those that no stream knows are passed over. now is for intervals.
// Errors are *ArgumentError.
func ParseConsumer(args amqp.Table, now time.Time) (c Consumer, err error) {
	offset, hasOffset := args.Get("x-stream-offset")
	if c.Start, err = ParseSpec(offset, now); err != nil || hasOffset && offset.Tag == 0 {
		return c, &ArgumentError{"x-stream-offset", "{invalid_stream_offset_arg," + erlang(offset) + "}"}
	}
	values, _ := args.Get("x-stream-filter")
	unfiltered, _ := args.Get("x-stream-match-unfiltered")
	if c.Filter, err = ParseFilter(values, unfiltered); err != nil {
		return c, &ArgumentError{"x-stream-filter", "invalid_filter"}
	}
	if v, ok := args.Get("x-stream-consumer-name"); ok {
		name, ok := v.Str()
		if !ok || len(name) < 1 || len(name) > MaxName {
			return c, &ArgumentError{"x-stream-consumer-name", "a name has 1 to 255 octets"}
		}
		c.Name = string(name)
		if !hasOffset {
			c.Start = Spec{Kind: Stored}
		}
	}
	if c.Start.Kind == Stored && c.Name == "" {
		return c, &ArgumentError{"x-stream-offset", "'stored' needs x-stream-consumer-name"}
	}
	if v, ok := args.Get("x-stream-offset-reset"); ok {
		s, _ := v.Str()
		if c.Reset, ok = ParseReset(string(s)); !ok {
			return c, &ArgumentError{"x-stream-offset-reset", "it is error, first or next"}
		}
	}
	return c, nil
}

// erlang prints a value as RabbitMQ does in the text about an offset.
func erlang(v amqp.Value) string {
	if b, ok := v.Bytes(); ok {
		return "{" + v.TypeName() + ",<<\"" + string(b) + "\">>}"
	}
	return v.TypeName()
}

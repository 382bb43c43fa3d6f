package broker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
)

// The types of queues.
const (
	Classic = "classic"
	Quorum  = "quorum"
	Stream  = "stream"
)

// module is how error texts name a type.
func module(typ string) string { return "rabbit_" + typ + "_queue" }

// maxMillis is the longest time to live and expiry: ten years.
const maxMillis = 315360000000

// queueArgument is an argument of queue.declare that one of the types knows. check returns what is wrong with a value, as
// it stands at the end of the error text.
type queueArgument struct {
	name    string
	classic bool
	quorum  bool
	stream  bool
	relaxed bool // compared even where the type is not
	check   func(v amqp.Value, all amqp.Table) string
}

func (a *queueArgument) known(typ string) bool {
	switch typ {
	case Classic:
		return a.classic
	case Quorum:
		return a.quorum
	case Stream:
		return a.stream
	}
	return false
}

// queueArguments are checked in this order (RabbitMQ docs: queues, "Optional Arguments"; the texts are those of 4.3).
var queueArguments = []queueArgument{
	{name: "x-expires", classic: true, quorum: true, relaxed: true, check: atLeast(1, maxMillis, "value_too_large")},
	{name: "x-message-ttl", classic: true, quorum: true, relaxed: true, check: atLeast(0, maxMillis, "value_too_large")},
	{name: "x-dead-letter-exchange", classic: true, quorum: true, relaxed: true, check: accept}, // checked earlier, with a text of its own
	{name: "x-dead-letter-routing-key", classic: true, quorum: true, relaxed: true, check: checkDeadLetterKey},
	{name: "x-dead-letter-strategy", quorum: true, check: oneOf("invalid_dlx_strategy", "at-most-once", "at-least-once")},
	{name: "x-max-length", classic: true, quorum: true, relaxed: true, check: atLeast(0, noMax, "")},
	{name: "x-max-length-bytes", classic: true, quorum: true, stream: true, relaxed: true, check: atLeast(0, noMax, "")},
	{name: "x-max-in-memory-length", quorum: true, check: atLeast(0, noMax, "")},
	{name: "x-max-in-memory-bytes", quorum: true, check: atLeast(0, noMax, "")},
	{name: "x-max-priority", classic: true, check: atLeast(0, 255, "max_value_exceeded")},
	{name: "x-overflow", classic: true, quorum: true, check: oneOf("invalid_overflow", "drop-head", "reject-publish", "reject-publish-dlx")},
	{name: "x-queue-mode", classic: true, check: accept},
	{name: "x-queue-version", classic: true, check: checkVersion},
	{name: "x-single-active-consumer", classic: true, quorum: true, relaxed: true, check: checkBool},
	{name: "x-queue-type", classic: true, quorum: true, stream: true, check: checkType},
	{name: "x-quorum-initial-group-size", quorum: true, check: atLeast(1, noMax, "")},
	{name: "x-delivery-limit", quorum: true, check: accept},
	{name: "x-consumer-timeout", quorum: true, check: atLeast(0, noMax, "")},
	{name: "x-consumer-disconnected-timeout", quorum: true, check: atLeast(0, noMax, "")},
	{name: "x-delayed-retry-type", quorum: true, check: accept},
	{name: "x-delayed-retry-min", quorum: true, check: accept},
	{name: "x-delayed-retry-max", quorum: true, check: accept},
	{name: "x-queue-leader-locator", classic: true, quorum: true, stream: true, check: oneOf("invalid_queue_locator_arg", "client-local", "balanced", "random", "least-leaders", "min-masters")},
	{name: "x-queue-master-locator", classic: true, check: accept}, // of old clients; no effect
	{name: "x-max-age", stream: true, check: checkMaxAge},
	{name: "x-stream-max-segment-size-bytes", stream: true, check: checkSegmentSize},
	{name: "x-stream-filter-size-bytes", stream: true, check: checkFilterSize},
	{name: "x-initial-cluster-size", stream: true, check: atLeast(1, noMax, "")},
}

// checkQueueArguments returns the error for arguments that the type does not allow. v.mu need not be held.
func (v *VHost) checkQueueArguments(name, typ string, args amqp.Table) *amqp.Error {
	for i := range queueArguments {
		a := &queueArguments[i]
		value, ok := args.Get(a.name)
		if !ok {
			continue
		}
		if wrong := a.check(value, args); wrong != "" {
			return amqp.Errorf(amqp.PreconditionFailed, "invalid arg '%s' for %s: %s", a.name, v.queueResource(name), wrong)
		}
	}
	for i := range queueArguments {
		a := &queueArguments[i]
		if _, ok := args.Get(a.name); ok && !a.known(typ) {
			return amqp.Errorf(amqp.PreconditionFailed, "invalid arg '%s' for %s of queue type %s", a.name, v.queueResource(name), module(typ))
		}
	}
	return nil
}

func accept(amqp.Value, amqp.Table) string { return "" }

const noMax = 1<<63 - 1

func notInteger(v amqp.Value) string { return `"expected integer, got ` + v.TypeName() + `"` }

func unacceptable(v amqp.Value) string { return "{unacceptable_type," + v.TypeName() + "}" }

// atLeast accepts integers from least, which is 0 or 1, to most.
func atLeast(least, most int64, tooLarge string) func(amqp.Value, amqp.Table) string {
	return func(v amqp.Value, _ amqp.Table) string {
		n, ok := v.Int()
		switch {
		case !ok:
			return notInteger(v)
		case n < 0:
			return fmt.Sprintf("{value_negative,%d}", n)
		case n < least:
			return "{value_zero,0}"
		case n > most:
			return fmt.Sprintf("{%s,%d}", tooLarge, n)
		}
		return ""
	}
}

func oneOf(wrong string, values ...string) func(amqp.Value, amqp.Table) string {
	return func(v amqp.Value, _ amqp.Table) string {
		s, ok := v.Str()
		if !ok {
			return unacceptable(v)
		}
		if !slices.Contains(values, string(s)) {
			return wrong
		}
		return ""
	}
}

func checkDeadLetterKey(v amqp.Value, all amqp.Table) string {
	if _, ok := v.Str(); !ok {
		return unacceptable(v)
	}
	if _, ok := all.Get("x-dead-letter-exchange"); !ok {
		return "routing_key_but_no_dlx_defined"
	}
	return ""
}

func checkBool(v amqp.Value, _ amqp.Table) string {
	if _, ok := v.Bool(); !ok {
		return unacceptable(v)
	}
	return ""
}

func checkVersion(v amqp.Value, _ amqp.Table) string {
	switch n, ok := v.Int(); {
	case !ok:
		return notInteger(v)
	case n != 2:
		return fmt.Sprintf(`"unsupported queue version '%d'"`, n)
	}
	return ""
}

func checkType(v amqp.Value, _ amqp.Table) string {
	s, ok := v.Str()
	if !ok {
		return unacceptable(v)
	}
	switch string(s) {
	case Classic, Quorum, Stream:
		return ""
	}
	return `"unsupported queue type '` + string(s) + `'"`
}

func checkMaxAge(v amqp.Value, _ amqp.Table) string {
	s, ok := v.Str()
	if !ok {
		return unacceptable(v)
	}
	if n := len(s); n > 1 && strings.IndexByte("YMDhms", s[n-1]) >= 0 {
		digits := strings.TrimLeft(string(s[:n-1]), "0")
		if digits != "" && strings.Trim(digits, "0123456789") == "" {
			return ""
		}
	}
	return "invalid_max_age"
}

func checkSegmentSize(v amqp.Value, _ amqp.Table) string {
	switch n, ok := v.Int(); {
	case !ok:
		return notInteger(v)
	case n < 0:
		return fmt.Sprintf("{value_negative,%d}", n)
	case n > maxSegmentSize:
		return "Exceeded max value for x-stream-max-segment-size-bytes"
	}
	return ""
}

func checkFilterSize(v amqp.Value, _ amqp.Table) string {
	switch n, ok := v.Int(); {
	case !ok:
		return notInteger(v)
	case n < 16 || n > 255:
		return "Invalid value for x-stream-filter-size-bytes"
	}
	return ""
}

// withType returns the arguments with x-queue-type filled in where it is missing or empty, and the type. A type that is
// none of ours is returned as "". v.mu is held.
func (v *VHost) withType(d *QueueDeclaration) (amqp.Table, string) {
	const name = "x-queue-type"
	value, ok := d.Arguments.Get(name)
	s, isString := value.Str()
	if ok && (!isString || len(s) > 0) {
		if typ := string(s); isString && (typ == Classic || typ == Quorum || typ == Stream) {
			return d.Arguments, typ
		}
		return d.Arguments, ""
	}
	typ := v.defaultType
	if typ == "" {
		typ = v.broker.DefaultQueueType
	}
	if typ != Classic && (d.Exclusive || d.AutoDelete || !d.Durable) {
		typ = Classic
	}
	return d.Arguments.AppendEdited(nil, amqp.Edit{Key: name, Value: amqp.StringValue(typ)}), typ
}

// checkQueueEquivalent returns the error for a declaration of a queue that exists and is not like it.
func (q *Queue) checkEquivalent(a Actor, d *QueueDeclaration) *amqp.Error {
	v := q.VHost
	if !q.accessible(a.Connection) || d.Exclusive != (q.Owner != 0) {
		return v.locked(q.Name)
	}
	if d.Durable != q.Durable {
		return q.unlike("durable", fmt.Sprintf("'%t'", d.Durable), fmt.Sprintf("'%t'", q.Durable))
	}
	if d.AutoDelete != q.AutoDelete {
		return q.unlike("auto_delete", fmt.Sprintf("'%t'", d.AutoDelete), fmt.Sprintf("'%t'", q.AutoDelete))
	}
	return q.checkArguments(d, func(a *queueArgument) bool { return a.known(q.Type) })
}

// checkAlike is checkEquivalent for applications that declare a classic queue and shall not mind that it is a quorum queue by
// now (RabbitMQ docs: quorum queues, "Relaxed Property Equivalence"): neither flags nor the type are compared.
func (q *Queue) checkAlike(a Actor, d *QueueDeclaration) *amqp.Error {
	if !q.accessible(a.Connection) {
		return q.VHost.locked(q.Name)
	}
	return q.checkArguments(d, func(a *queueArgument) bool { return a.relaxed })
}

func (q *Queue) checkArguments(d *QueueDeclaration, which func(*queueArgument) bool) *amqp.Error {
	for i := range queueArguments {
		if arg := &queueArguments[i]; which(arg) {
			if received, current, same := exchange.Unlike(d.Arguments, q.Arguments, arg.name); !same {
				return q.unlike(arg.name, received, current)
			}
		}
	}
	return nil
}

func (q *Queue) unlike(field, received, current string) *amqp.Error {
	return amqp.Errorf(amqp.PreconditionFailed, "inequivalent arg '%s' for %s: received %s but current is %s", field, q.VHost.queueResource(q.Name), received, current)
}

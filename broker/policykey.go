package broker

import (
	"maps"
	"slices"
	"strings"

	"github.com/warrenmq/warren/amqp"
)

// policyKey is a setting that a policy may make.
type policyKey struct {
	name     string
	argument string // of queue.declare; "": none
	operator bool   // whether operator policies may have it
	bad      types  // queue types for which a policy with this key does not count at all
	used     types  // those on which it has an effect
	check    func(v any) string
	merge    rule    // of the values of a policy and an operator policy
	combine  [3]rule // of a policy's value and an argument's, by type
}

// types is a set of queue types.
type types uint8

const (
	classics types = 1 << iota
	quorums
	streams
)

// typeIndex is the place of a type in lists by type, -1 for an exchange.
func typeIndex(typ string) int {
	return slices.Index([]string{Classic, Quorum, Stream}, typ)
}

func (t types) has(typ string) bool {
	i := typeIndex(typ)
	return i >= 0 && t>>i&1 != 0
}

// rule says which of two values of one key counts: a, that of the argument or of the user's policy, or b, that of the
// policy or of the operator's.
type rule uint8

const (
	lower       rule = iota // of equal ones b's
	higher                  // of equal ones b's
	lowerOrNone             // the lower; if one is negative, the higher
	first                   // a
	second                  // b
)

func (r rule) choosesFirst(a, b any) bool {
	n, isNumber := integerOf(a)
	m, _ := integerOf(b)
	if r < first && !isNumber { // an argument whose type is not checked
		return false
	}
	switch r {
	case lower:
		return n < m
	case higher:
		return n > m
	case lowerOrNone:
		if n < 0 || m < 0 {
			return n > m
		}
		return n < m
	case first:
		return true
	}
	return false
}

func each(r rule) [3]rule { return [3]rule{r, r, r} }

// policyKeys are in the order of their names (RabbitMQ docs: policies; the texts, and which key counts for which type,
// are those of 4.3).
var policyKeys = []policyKey{
	{name: "alternate-exchange", check: isString("alternate exchange name")},
	{name: "consumer-disconnected-timeout", argument: "x-consumer-disconnected-timeout", used: quorums, check: from(0, "consumer disconnected timeout")},
	{name: "consumer-timeout", argument: "x-consumer-timeout", used: quorums, check: from(0, "consumer timeout")},
	{name: "dead-letter-exchange", argument: "x-dead-letter-exchange", bad: streams, used: classics | quorums, check: isString("dead letter exchange name"), combine: each(first)},
	{name: "dead-letter-routing-key", argument: "x-dead-letter-routing-key", bad: streams, used: classics | quorums, check: isString("dead letter routing key"), combine: each(first)},
	{name: "dead-letter-strategy", argument: "x-dead-letter-strategy", bad: classics | streams, used: quorums, check: isOne("dead letter strategy", "at-most-once", "at-least-once"), combine: each(first)},
	{name: "delayed-retry-max", argument: "x-delayed-retry-max", operator: true, used: quorums, check: positive("delayed retry maximum delay")},
	{name: "delayed-retry-min", argument: "x-delayed-retry-min", operator: true, used: quorums, check: positive("delayed retry minimum delay"), merge: higher},
	{name: "delayed-retry-type", argument: "x-delayed-retry-type", operator: true, used: quorums, check: checkRetryType, merge: second, combine: each(second)},
	{name: "delivery-limit", argument: "x-delivery-limit", operator: true, bad: classics | streams, used: quorums, check: isInteger("delivery limit"), merge: lowerOrNone, combine: each(lowerOrNone)},
	{name: "expires", argument: "x-expires", operator: true, bad: streams, used: classics | quorums, check: from(1, "queue expiry")},
	{name: "initial-cluster-size", argument: "x-initial-cluster-size", bad: classics | quorums, used: streams, check: from(0, "cluster size"), combine: each(second)},
	{name: "max-age", argument: "x-max-age", bad: classics | quorums, used: streams, check: checkAge, combine: each(second)},
	{name: "max-in-memory-bytes", operator: true, bad: classics | streams, check: from(0, "maximum memory in bytes")},
	{name: "max-in-memory-length", operator: true, bad: classics | streams, check: from(0, "maximum memory in bytes")},
	{name: "max-length", argument: "x-max-length", operator: true, bad: streams, used: classics | quorums, check: from(0, "maximum length")},
	{name: "max-length-bytes", argument: "x-max-length-bytes", operator: true, used: classics | quorums | streams, check: from(0, "maximum length in bytes"), combine: [3]rule{lower, lower, second}},
	{name: "message-ttl", argument: "x-message-ttl", operator: true, bad: streams, used: classics | quorums, check: from(0, "message TTL")},
	{name: "overflow", argument: "x-overflow", operator: true, bad: streams, used: classics | quorums, check: isOne("overflow value", "drop-head", "reject-publish", "reject-publish-dlx"), merge: second, combine: [3]rule{first, second, second}},
	{name: "queue-leader-locator", used: quorums | streams, check: isOne("queue leader locator value", "client-local", "balanced", "random", "least-leaders")},
	{name: "queue-master-locator", operator: true, check: func(any) string { return "use of deprecated queue-master-locator argument is not permitted" }},
	{name: "queue-mode", bad: quorums | streams, check: isOne("queue-mode value", "default", "lazy")},
	{name: "queue-version", operator: true, check: checkQueueVersion, merge: second},
	{name: "stream-filter-size-bytes", argument: "x-stream-filter-size-bytes", used: streams, check: checkFilter, combine: each(second)},
	{name: "stream-max-segment-size-bytes", argument: "x-stream-max-segment-size-bytes", bad: classics | quorums, used: streams, check: checkSegment, combine: each(second)},
	{name: "target-group-size", operator: true, bad: classics | streams, used: quorums, check: from(1, "qq target count value"), merge: higher},
}

func policyKeyOf(name string) *policyKey {
	i, ok := slices.BinarySearchFunc(policyKeys, name, func(k policyKey, name string) int { return strings.Compare(k.name, name) })
	if !ok {
		return nil
	}
	return &policyKeys[i]
}

// checkDefinition returns the error for a definition that a policy cannot have: the first key that is wrong, in the order
// of their names, then what does not go together, then keys that there are not.
func checkDefinition(d map[string]any, operator bool) error {
	if len(d) == 0 {
		return invalid("no policy provided")
	}
	unknown := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(d)) {
		k := policyKeyOf(name)
		if k == nil || operator && !k.operator {
			unknown[name] = d[name]
			continue
		}
		if wrong := k.check(d[name]); wrong != "" {
			return invalid("%s", wrong)
		}
	}
	if err := checkRetry(d); err != nil {
		return err
	}
	if len(unknown) > 0 {
		return invalid("%s are not recognised policy settings", terms(unknown))
	}
	return nil
}

func checkRetry(d map[string]any) error {
	least, hasLeast := d["delayed-retry-min"]
	if typ, ok := d["delayed-retry-type"]; ok && typ != "disabled" && !hasLeast {
		return invalid("delayed-retry-min is required when delayed-retry-type is %s", typ)
	}
	if most, ok := d["delayed-retry-max"]; ok && hasLeast {
		if n, m := number64(most), number64(least); n < m {
			return invalid("delayed-retry-max (%d) must not be smaller than delayed-retry-min (%d)", n, m)
		}
	}
	return nil
}

func number64(v any) int64 {
	n, _ := integerOf(v)
	return n
}

func notValid(v any, what string) string { return term(v) + " is not a valid " + what }

func isString(what string) func(any) string {
	return func(v any) string {
		if _, ok := v.(string); ok {
			return ""
		}
		return notValid(v, what)
	}
}

func isInteger(what string) func(any) string {
	return func(v any) string {
		if _, ok := integerOf(v); ok {
			return ""
		}
		return notValid(v, what)
	}
}

// from accepts integers from least.
func from(least int64, what string) func(any) string {
	return func(v any) string {
		if n, ok := integerOf(v); ok && n >= least {
			return ""
		}
		return notValid(v, what)
	}
}

func positive(what string) func(any) string {
	return from(1, what+". Must be a positive integer")
}

func isOne(what string, values ...string) func(any) string {
	return func(v any) string {
		if s, ok := v.(string); ok && slices.Contains(values, s) {
			return ""
		}
		return notValid(v, what)
	}
}

func checkRetryType(v any) string {
	return isOne("delayed retry type. Must be one of: all, failed, returned, disabled", "all", "failed", "returned", "disabled")(v)
}

func checkQueueVersion(v any) string {
	if n, ok := integerOf(v); ok && (n == 1 || n == 2) {
		return ""
	}
	return notValid(v, "queue-version value")
}

func checkAge(v any) string {
	if s, ok := v.(string); ok && checkMaxAge(amqp.StringValue(s), nil) == "" {
		return ""
	}
	return notValid(v, "max age")
}

func checkFilter(v any) string {
	if n, ok := integerOf(v); ok && n >= 16 && n <= 255 {
		return ""
	}
	return notValid(v, "filter size. Valid range is 16-255")
}

func checkSegment(v any) string {
	if n, ok := integerOf(v); ok && n >= 0 && n <= maxSegmentSize {
		return ""
	}
	return notValid(v, "segment size")
}

// maxSegmentSize is the longest segment of a stream in octets.
const maxSegmentSize = 3000000000

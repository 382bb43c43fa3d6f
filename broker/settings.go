package broker

import (
	"cmp"
	"fmt"
	"maps"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/stream"
)

// Settings are what counts for a queue in the end.
type Settings struct {
	Config      queue.Config
	MaxPriority int   // 0: no priorities
	Expires     int64 // milliseconds unused until the queue is deleted, -1: never

	// Of a stream, 0: the default. What counts is the first value of its life, and that of the node's start.
	SegmentBytes int64
	FilterSize   uint8

	DeadLetter         bool // whether there is a dead-letter exchange
	DeadLetterExchange string
	RouteDeadLetters   bool // whether dead letters get a routing key of their own
	DeadLetterKey      string

	Policy, OperatorPolicy string // the names of those that count, "" if none does
	policies               [2]*policy
}

// origin says where a setting comes from.
type origin uint8

const (
	fromArgument origin = iota
	fromPolicy
	fromOperator
)

// merged is what a policy and an operator policy, each nil if there is none, say of a key together.
func merged(k *policyKey, user, operator *policy) (value any, from origin, ok bool) {
	var u, o any
	var hasUser, hasOperator bool
	if user != nil {
		u, hasUser = user.Definition[k.name]
	}
	if operator != nil {
		o, hasOperator = operator.Definition[k.name]
	}
	switch {
	case hasUser && (!hasOperator || k.merge.choosesFirst(u, o)):
		return u, fromPolicy, true
	case hasOperator:
		return o, fromOperator, true
	}
	return nil, 0, false
}

// resolve goes through the keys that count for a queue: what arguments and policies say of each together.
func resolve(typ string, args amqp.Table, user, operator *policy, yield func(k *policyKey, v any, from origin)) {
	at := typeIndex(typ)
	if at < 0 {
		return
	}
	for i := range policyKeys {
		k := &policyKeys[i]
		if !k.used.has(typ) {
			continue
		}
		value, from, ok := merged(k, user, operator)
		if arg, has := argument(args, k.argument); has && (!ok || k.combine[at].choosesFirst(arg, value)) {
			value, from, ok = arg, fromArgument, true
		}
		if ok {
			yield(k, value, from)
		}
	}
}

// argument is an argument of queue.declare as JSON has it.
func argument(args amqp.Table, name string) (any, bool) {
	if name == "" || len(args) == 0 {
		return nil, false
	}
	v, ok := args.Get(name)
	if !ok {
		return nil, false
	}
	return v.Any(), true
}

// effective works out the settings of a queue from its arguments and the policies that count for it, nil if there is
// none. (RabbitMQ docs: policies, "Combining"; the rules are in policyKeys.)
func effective(typ string, args amqp.Table, user, operator *policy) *Settings {
	s := &Settings{
		Config:   queue.Config{TTL: -1, MaxLength: -1, MaxBytes: -1, DeliveryLimit: 20},
		Expires:  -1,
		policies: [2]*policy{user, operator},
	}
	resolve(typ, args, user, operator, func(k *policyKey, v any, _ origin) { s.set(k.name, v) })
	if typ == Quorum {
		if s.Config.Overflow == queue.RejectPublishDLX { // accepted, and without effect
			s.Config.Overflow = queue.DropHead
		}
		s.Config.KeepDiscards = s.Config.KeepDiscards && s.DeadLetter && s.Config.Overflow == queue.RejectPublish
	}
	if v, ok := args.Get("x-single-active-consumer"); ok {
		s.Config.SingleActive, _ = v.Bool()
	}
	if n := integer(args, "x-max-priority", -1); n >= 0 {
		s.MaxPriority = int(max(n, 1))
	}
	if user != nil {
		s.Policy = user.Name
	}
	if operator != nil {
		s.OperatorPolicy = operator.Name
	}
	return s
}

// delayTypes are the values of delayed-retry-type; anything else is disabled.
var delayTypes = map[string]queue.DelayType{"all": queue.DelayAll, "failed": queue.DelayFailed, "returned": queue.DelayReturned}

// DelayedRetry says in RabbitMQ's words how returned messages are delayed.
func (s *Settings) DelayedRetry() string {
	c := &s.Config
	for name, t := range delayTypes {
		if t == c.DelayType && c.DelayMin > 0 {
			return fmt.Sprintf("%s (min: %dms, max: %dms)", name, c.DelayMin, cmp.Or(c.DelayMax, c.DelayMin))
		}
	}
	return "disabled"
}

// effective works out the settings of a queue of this virtual host. Of queues declared one after the other most have the same: those
// share them.
func (v *VHost) effective(typ string, args amqp.Table, user, operator *policy) *Settings {
	s := effective(typ, args, user, operator)
	if typ == Quorum && s.Config.ConsumerTimeout == 0 {
		s.Config.ConsumerTimeout = v.broker.ConsumerTimeout
	}
	if last := v.settled.Load(); last != nil && *last == *s {
		return last
	}
	v.settled.Store(s)
	return s
}

func (s *Settings) set(key string, v any) {
	n, isNumber := integerOf(v)
	str, _ := v.(string)
	switch key {
	case "message-ttl":
		s.Config.TTL = min(n, maxMillis)
	case "expires":
		s.Expires = min(n, maxMillis)
	case "max-length":
		s.Config.MaxLength = n
	case "max-length-bytes":
		s.Config.MaxBytes = n
	case "delivery-limit":
		if isNumber { // arguments of another type are passed over
			s.Config.DeliveryLimit = max(n, -1)
		}
	case "overflow":
		switch str {
		case "reject-publish":
			s.Config.Overflow = queue.RejectPublish
		case "reject-publish-dlx":
			s.Config.Overflow = queue.RejectPublishDLX
		}
	case "consumer-timeout":
		s.Config.ConsumerTimeout = max(n, 1) // 0 there is for ever
	case "delayed-retry-type":
		s.Config.DelayType = delayTypes[str]
	case "delayed-retry-min":
		s.Config.DelayMin = max(n, 0)
	case "delayed-retry-max":
		s.Config.DelayMax = max(n, 0)
	case "max-age":
		s.Config.TTL, _ = stream.ParseAge(str) // it was checked
	case "stream-max-segment-size-bytes":
		s.SegmentBytes = n
	case "stream-filter-size-bytes":
		s.FilterSize = uint8(n) // from 16 to 255
	case "dead-letter-strategy":
		s.Config.KeepDiscards = str == "at-least-once"
	case "dead-letter-exchange":
		s.DeadLetter, s.DeadLetterExchange = true, str
	case "dead-letter-routing-key":
		s.RouteDeadLetters, s.DeadLetterKey = true, str
	}
}

// EffectiveKey is a setting that counts for a queue, under the name that policies have for it.
type EffectiveKey struct {
	Key    string
	Value  any    // as JSON has it
	Origin string // "argument", "policy NAME" or "operator policy NAME"
}

// Effective lists what arguments and policies make of the queue, by key.
func (q *Queue) Effective() []EffectiveKey {
	var list []EffectiveKey
	s := q.Settings()
	resolve(q.Type, q.Arguments, s.policies[0], s.policies[1], func(k *policyKey, v any, from origin) {
		whose := "argument"
		switch from {
		case fromPolicy:
			whose = "policy " + s.Policy
		case fromOperator:
			whose = "operator policy " + s.OperatorPolicy
		}
		list = append(list, EffectiveKey{k.name, v, whose})
	})
	return list
}

// EffectivePolicy is what the policy and the operator policy of the queue say together, nil if it has none.
func (q *Queue) EffectivePolicy() map[string]any {
	user, operator := q.Settings().policies[0], q.Settings().policies[1]
	switch {
	case user == nil && operator == nil:
		return nil
	case operator == nil:
		return maps.Clone(user.Definition)
	}
	all := map[string]any{}
	for i := range policyKeys {
		if v, _, ok := merged(&policyKeys[i], user, operator); ok {
			all[policyKeys[i].name] = v
		}
	}
	return all
}

func integer(t amqp.Table, name string, otherwise int64) int64 {
	v, _ := t.Get(name)
	if n, ok := v.Int(); ok {
		return n
	}
	return otherwise
}

func text(t amqp.Table, name string) (string, bool) {
	v, _ := t.Get(name)
	s, ok := v.Str()
	return string(s), ok
}

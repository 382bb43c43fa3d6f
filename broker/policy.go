package broker

import (
	"cmp"
	"errors"
	"regexp/syntax"
	"slices"

	"github.com/warrenmq/warren/exchange"
	"github.com/warrenmq/warren/queue"
)

// Policy makes settings of the queues and exchanges whose names match it. An operator policy limits what queues may get
// from arguments and policies.
type Policy struct {
	Name string
	// Pattern is a regular expression that may match anywhere in a name.
	Pattern string
	// ApplyTo is all (also if empty), queues, classic_queues, quorum_queues, streams or exchanges.
	ApplyTo string
	// Priority decides which of those that match is the one that counts: the highest. Of equal ones that of the lowest
	// name does.
	Priority int64
	// Definition has JSON values, numbers as json.Number. It is not changed once it was set.
	Definition map[string]any
}

// applyTos are what ApplyTo may be, and the queue types that it means.
var applyTos = map[string]types{
	"all": classics | quorums | streams, "queues": classics | quorums | streams,
	"classic_queues": classics, "quorum_queues": quorums, "streams": streams, "exchanges": 0,
}

// ParsePolicy reads a policy in RabbitMQ's JSON: pattern, definition, priority (0) and apply-to (all). Errors are Invalid.
func ParsePolicy(name string, body map[string]any) (Policy, error) {
	p := Policy{Name: name, ApplyTo: "all"}
	for _, key := range []string{"pattern", "definition"} {
		if _, ok := body[key]; !ok {
			return p, &Invalid{"[{key_missing," + key + "}]"}
		}
	}
	var ok bool
	if p.Pattern, ok = body["pattern"].(string); !ok {
		return p, invalid("pattern should be a binary but was %s", term(body["pattern"]))
	}
	if p.Definition, ok = body["definition"].(map[string]any); !ok {
		return p, invalid("definition should be an object but was %s", term(body["definition"]))
	}
	if v, has := body["priority"]; has && v != nil {
		if p.Priority, ok = integerOf(v); !ok {
			return p, invalid("priority should be a number, actually was %s", term(v))
		}
	}
	if v, has := body["apply-to"]; has && v != nil {
		if p.ApplyTo, ok = v.(string); !ok {
			return p, invalid("apply-to should be a binary but was %s", term(v))
		}
	}
	return p, nil
}

// policy is a Policy ready to be applied. It is not changed after it was made.
type policy struct {
	Policy
	operator bool
	all      bool // whatever the name
	re       expression
	to       types // queue types
	exchange bool  // whether to exchanges too
}

// compilePolicy checks a policy, and completes it.
func compilePolicy(p Policy, operator bool) (*policy, error) {
	c := &policy{operator: operator}
	p.ApplyTo = cmp.Or(p.ApplyTo, "all")
	var ok bool
	if c.to, ok = applyTos[p.ApplyTo]; !ok {
		return nil, invalid("apply-to '%s' unrecognised; should be one of: 'queues', 'classic_queues',  'quorum_queues', 'streams', 'exchanges', or 'all'", p.ApplyTo)
	}
	re, err := compileExpression(p.Pattern)
	if err != nil {
		why := err.Error()
		var wrong *syntax.Error
		if errors.As(err, &wrong) {
			why = wrong.Code.String() + ": " + wrong.Expr
		}
		return nil, invalid("pattern should be regular expression but is invalid: %s", why)
	}
	definition, err := copyJSON(p.Definition)
	if err != nil {
		return nil, invalid("definition has no JSON: %s", err)
	}
	p.Definition, _ = definition.(map[string]any)
	if err := checkDefinition(p.Definition, operator); err != nil {
		return nil, err
	}
	for name := range p.Definition {
		c.to &^= policyKeyOf(name).bad
	}
	c.exchange = !operator && (p.ApplyTo == "all" || p.ApplyTo == "exchanges")
	c.all = p.Pattern == "" || p.Pattern == ".*" || p.Pattern == "^.*" || p.Pattern == "^.*$"
	c.Policy, c.re = p, re
	return c, nil
}

// names reports whether the pattern matches a name, whatever bears it.
func (p *policy) names(name string) bool { return p.all || p.re.match([]byte(name)) }

// applies reports whether p may count for the queue, or, if typ is empty, for the exchange of that name.
func (p *policy) applies(typ, name string) bool {
	if typ == "" && !p.exchange || typ != "" && !p.to.has(typ) {
		return false
	}
	return p.names(name)
}

// policies are those of one kind in a virtual host.
type policies struct {
	byName map[string]*policy
	ranked []*policy // the first that matches counts
}

func (s *policies) put(p *policy) (old *policy) {
	if s.byName == nil {
		s.byName = make(map[string]*policy)
	}
	old = s.remove(p.Name)
	s.byName[p.Name] = p
	i, _ := slices.BinarySearchFunc(s.ranked, p, rank)
	s.ranked = slices.Insert(s.ranked, i, p)
	return old
}

func rank(a, b *policy) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
}

func (s *policies) remove(name string) (old *policy) {
	if old = s.byName[name]; old != nil {
		delete(s.byName, name)
		s.ranked = slices.DeleteFunc(s.ranked, func(p *policy) bool { return p == old })
	}
	return old
}

// match is the policy that counts for the queue, or, if typ is empty, for the exchange of that name; nil: none does.
func (s *policies) match(typ, name string) *policy {
	for _, p := range s.ranked {
		if p.applies(typ, name) {
			return p
		}
	}
	return nil
}

// kindOf is the index of a kind of policies in VHost.policies.
func kindOf(operator bool) int {
	if operator {
		return 1
	}
	return 0
}

// SetPolicy makes or replaces a policy and applies it to the queues and exchanges that exist, before it calls done, which
// hears whether it existed. Errors of what p says are Invalid. It may take time in proportion to the number of queues.
func (v *VHost) SetPolicy(operator bool, p Policy, done func(existed bool, err error)) {
	c, err := compilePolicy(p, operator)
	if err != nil {
		done(false, err)
		return
	}
	v.changePolicy(PutPolicy{VHost: v.Name, Operator: operator, Policy: c.Policy}, done)
}

// ClearPolicy removes a policy; what it made of queues and exchanges ends before it calls done, which hears whether it
// existed.
func (v *VHost) ClearPolicy(operator bool, name string, done func(existed bool, err error)) {
	v.changePolicy(DeletePolicy{VHost: v.Name, Operator: operator, Name: name}, done)
}

func (v *VHost) changePolicy(c Command, done func(existed bool, err error)) {
	v.broker.commit(c, func(r result) {
		if !r.carried {
			v.reconfigure(r.policies)
		}
		v.broker.removed(done)(r)
	})
}

// applyPolicy changes a policy. v.mu is held.
func (v *VHost) applyPolicy(operator bool, name string, p *policy) (r result) {
	set := &v.policies[kindOf(operator)]
	var old *policy
	if p != nil {
		old = set.put(p)
		r.policies = append(r.policies, p)
	} else {
		old = set.remove(name)
	}
	if r.existed = old != nil; r.existed {
		r.policies = append(r.policies, old)
	}
	if !operator {
		v.realternate(r.policies)
	}
	return r
}

// realternate gives exchanges the alternate exchange that counts after some policies have changed. v.mu is held.
func (v *VHost) realternate(changed []*policy) {
	any := false
	for _, p := range v.policies[0].ranked {
		any = any || p.exchange && p.Definition[alternate] != nil
	}
	for _, p := range changed {
		any = any || p.exchange && p.Definition[alternate] != nil
	}
	if !any {
		return
	}
	for x := range v.topology.Exchanges() {
		if slices.ContainsFunc(changed, func(p *policy) bool { return p.applies("", x.Name) }) {
			v.setAlternate(x)
		}
	}
}

const alternate = "alternate-exchange"

// setAlternate works out the alternate exchange of x: that of its argument, or of the policy that counts. v.mu is held.
func (v *VHost) setAlternate(x *exchange.Exchange) {
	if _, ok := x.Arguments.Get(alternate); ok || x.Name == "" {
		return
	}
	x.Alternate = ""
	if p := v.policies[0].match("", x.Name); p != nil {
		x.Alternate, _ = p.Definition[alternate].(string)
	}
}

// configuredAtOnce is how many queues are configured between two flushes of what that causes.
const configuredAtOnce = 64

// reconfigure works out anew the settings of the queues that some of the policies, which have changed, match. Readers of
// the virtual host are not held up: the queues are listed under its lock and looked at without.
func (v *VHost) reconfigure(changed []*policy) {
	if len(changed) == 0 {
		return
	}
	v.configuring.Lock() // so that the last settings worked out are the last that a queue gets
	defer v.configuring.Unlock()
	v.mu.RLock()
	queues := slices.Clone(v.queues)
	v.mu.RUnlock()
	var w queue.Wake
	n := 0
	for _, q := range queues {
		if q != nil && slices.ContainsFunc(changed, func(p *policy) bool { return p.applies(q.Type, q.Name) }) {
			q.reconfigure(&w)
			if n++; n%configuredAtOnce == 0 {
				w.Flush()
			}
		}
	}
	w.Flush()
}

// Policies lists the policies in the order in which they are tried.
func (v *VHost) Policies(operator bool) []Policy {
	v.mu.RLock()
	defer v.mu.RUnlock()
	ranked := v.policies[kindOf(operator)].ranked
	list := make([]Policy, 0, len(ranked))
	for _, p := range ranked {
		list = append(list, p.Policy)
	}
	return list
}

// Policy finds a policy by name.
func (v *VHost) Policy(operator bool, name string) (Policy, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if p := v.policies[kindOf(operator)].byName[name]; p != nil {
		return p.Policy, true
	}
	return Policy{}, false
}

// PoliciesFor finds the policies that count, or would count, for a queue of a type; typ "" is an exchange. nil: none.
func (v *VHost) PoliciesFor(typ, name string) (user, operator *Policy) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if p := v.policies[0].match(typ, name); p != nil {
		user = &p.Policy
	}
	if p := v.policies[1].match(typ, name); p != nil {
		operator = &p.Policy
	}
	return user, operator
}

// ExchangePolicy is the name and the definition of the policy that counts for an exchange, "" and nil if none does.
func (v *VHost) ExchangePolicy(name string) (policy string, definition map[string]any) {
	if p, _ := v.PoliciesFor("", name); p != nil && name != "" {
		return p.Name, p.Definition
	}
	return "", nil
}

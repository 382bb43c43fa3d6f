package broker

import (
	"cmp"
	"slices"

	"github.com/warrenmq/warren/amqp"
)

// Parameter is a runtime parameter: of a component in a virtual host, or, with both empty, a global one. Value has JSON
// values, numbers as json.Number, and is not changed once it was set.
type Parameter struct {
	VHost, Component, Name string
	Value                  any
}

// Components of runtime parameters. Policies of operators are shown as parameters too, those of users are not.
const (
	limitsComponent   = "vhost-limits"
	limitsName        = "limits"
	operatorComponent = "operator_policy"
)

type parameterKey struct{ component, name string }

// SetParameter sets a runtime parameter, and calls done with whether it existed. The component is vhost-limits, with the
// name limits, or operator_policy. Errors: Invalid.
func (v *VHost) SetParameter(component, name string, value any, done func(existed bool, err error)) {
	if component == operatorComponent {
		p, err := parseOperatorPolicy(name, value)
		if err != nil {
			done(false, err)
			return
		}
		v.SetPolicy(true, p, done)
		return
	}
	c, err := v.checkParameter(component, name, value)
	if err != nil {
		done(false, err)
		return
	}
	v.broker.commit(c, v.broker.removed(done))
}

func parseOperatorPolicy(name string, value any) (p Policy, err error) {
	if value, err = copyJSON(value); err != nil {
		return p, &Invalid{err.Error()}
	}
	body, _ := value.(map[string]any)
	for _, key := range []string{"pattern", "definition", "priority"} {
		if _, ok := body[key]; !ok {
			return p, invalid("Key %q not found in %s", key, name)
		}
	}
	return ParsePolicy(name, body)
}

// checkParameter makes the command that sets a parameter other than a policy.
func (v *VHost) checkParameter(component, name string, value any) (c SetParameter, err error) {
	if component == "policy" {
		return c, &Invalid{"policies may not be set using this method"}
	}
	if component != limitsComponent {
		return c, invalid("component %s not found", component)
	}
	if value, err = copyJSON(value); err != nil {
		return c, &Invalid{err.Error()}
	}
	limits, isObject := value.(map[string]any)
	if list, ok := value.([]any); ok && len(list) == 0 { // how some exports spell an empty object
		limits, isObject = map[string]any{}, true
	}
	wrong := ""
	switch {
	case name != limitsName:
		wrong = "name of limits should be 'limits' but was '" + name + "'"
	case !isObject:
		wrong = "limits should be an object but was " + term(value)
	default:
		wrong = checkLimits(limits, vhostLimits, "limits")
	}
	if wrong != "" {
		return c, invalid("%s", wrong)
	}
	data, err := encodeJSON(limits)
	return SetParameter{v.Name, component, name, data}, err
}

// ClearParameter removes a runtime parameter. done hears whether it existed.
func (v *VHost) ClearParameter(component, name string, done func(existed bool, err error)) {
	if component == operatorComponent {
		v.ClearPolicy(true, name, done)
		return
	}
	v.broker.commit(ClearParameter{v.Name, component, name}, v.broker.removed(done))
}

func (v *VHost) setParameter(c SetParameter) (r result) {
	value, err := DecodeJSON(c.Value)
	if err != nil {
		return result{refused: amqp.Errorf(amqp.PreconditionFailed, "%s", err)}
	}
	key := parameterKey{c.Component, c.Name}
	_, r.existed = v.parameters[key]
	if v.parameters == nil {
		v.parameters = make(map[parameterKey]any)
	}
	v.parameters[key] = value
	if c.Component == limitsComponent {
		m, _ := value.(map[string]any)
		v.limits = limitsOf(m)
	}
	return r
}

func (v *VHost) clearParameter(c ClearParameter) (r result) {
	key := parameterKey{c.Component, c.Name}
	_, r.existed = v.parameters[key]
	delete(v.parameters, key)
	if c.Component == limitsComponent && r.existed {
		v.limits = nil
	}
	return r
}

// Parameters lists the runtime parameters by component and name, policies of operators included.
func (v *VHost) Parameters() []Parameter {
	v.mu.RLock()
	list := []Parameter{}
	for key, value := range v.parameters {
		list = append(list, Parameter{v.Name, key.component, key.name, value})
	}
	for _, p := range v.policies[1].ranked {
		list = append(list, Parameter{v.Name, operatorComponent, p.Name, map[string]any{
			"pattern": p.Pattern, "definition": p.Definition, "priority": p.Priority, "apply-to": p.ApplyTo,
		}})
	}
	v.mu.RUnlock()
	slices.SortFunc(list, func(a, b Parameter) int {
		return cmp.Or(cmp.Compare(a.Component, b.Component), cmp.Compare(a.Name, b.Name))
	})
	return list
}

// SetGlobalParameter sets a global runtime parameter, and calls done with whether it existed. Errors: Invalid, for a value
// that has no JSON.
func (b *Broker) SetGlobalParameter(name string, value any, done func(existed bool, err error)) {
	data, err := encodeJSON(value)
	if err != nil {
		done(false, &Invalid{err.Error()})
		return
	}
	b.commit(SetGlobalParameter{name, data}, b.removed(done))
}

// ClearGlobalParameter removes a global runtime parameter. done hears whether it existed.
func (b *Broker) ClearGlobalParameter(name string, done func(existed bool, err error)) {
	b.commit(ClearGlobalParameter{name}, b.removed(done))
}

// ImportedHash is the global parameter that keeps the hash of the definitions imported last. It is shown to nobody, as in
// RabbitMQ.
const ImportedHash = "imported_definition_hash_value"

// GlobalParameters lists the global runtime parameters by name.
func (b *Broker) GlobalParameters() []Parameter {
	b.mu.RLock()
	list := []Parameter{}
	for name, value := range b.parameters {
		if name != ImportedHash {
			list = append(list, Parameter{Name: name, Value: value})
		}
	}
	b.mu.RUnlock()
	slices.SortFunc(list, func(a, b Parameter) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// GlobalParameter finds a global runtime parameter.
func (b *Broker) GlobalParameter(name string) (value any, ok bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	value, ok = b.parameters[name]
	return value, ok
}

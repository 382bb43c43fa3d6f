package cli

import (
	"cmp"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/management"
)

// What management sees and changes of policies, parameters and definitions.

// Policies implements management.Broker.
func (r *rooms) Policies(vhost string, operator bool) []management.Policy {
	v := r.broker.VHost(vhost)
	if v == nil {
		return nil
	}
	var list []management.Policy
	for _, p := range v.Policies(operator) {
		list = append(list, management.Policy(p))
	}
	return list
}

// SetPolicy implements management.Broker.
func (r *rooms) SetPolicy(vhost, name string, operator bool, body map[string]any) (created bool, err error) {
	v := r.broker.VHost(vhost)
	if v == nil {
		return false, noVHost(vhost)
	}
	p, err := broker.ParsePolicy(name, body)
	if err != nil {
		return false, told(err)
	}
	existed, err := answered(func(done func(bool, error)) { v.SetPolicy(operator, p, done) })
	return !existed, err
}

// ClearPolicy implements management.Broker.
func (r *rooms) ClearPolicy(vhost, name string, operator bool) (existed bool, err error) {
	v := r.broker.VHost(vhost)
	if v == nil {
		return false, noVHost(vhost)
	}
	return answered(func(done func(bool, error)) { v.ClearPolicy(operator, name, done) })
}

// Effective implements management.Broker.
func (r *rooms) Effective(vhost, queue string) ([]management.EffectiveKey, bool) {
	v := r.broker.VHost(vhost)
	if v == nil || v.Queue(queue) == nil {
		return nil, false
	}
	var keys []management.EffectiveKey
	for _, k := range v.Queue(queue).Effective() {
		keys = append(keys, management.EffectiveKey{Key: k.Key, Value: k.Value, Origin: k.Origin})
	}
	return keys, true
}

// Parameters implements management.Broker.
func (r *rooms) Parameters(vhost string) []management.Parameter {
	v := r.broker.VHost(vhost)
	if v == nil {
		return nil
	}
	return parameters(v.Parameters())
}

func parameters(of []broker.Parameter) []management.Parameter {
	var list []management.Parameter
	for _, p := range of {
		list = append(list, management.Parameter(p))
	}
	return list
}

// SetParameter implements management.Broker.
func (r *rooms) SetParameter(vhost, component, name string, value any) (created bool, err error) {
	v := r.broker.VHost(vhost)
	if v == nil {
		return false, noVHost(vhost)
	}
	existed, err := answered(func(done func(bool, error)) { v.SetParameter(component, name, value, done) })
	return !existed, err
}

// ClearParameter implements management.Broker.
func (r *rooms) ClearParameter(vhost, component, name string) (existed bool, err error) {
	v := r.broker.VHost(vhost)
	if v == nil {
		return false, noVHost(vhost)
	}
	return answered(func(done func(bool, error)) { v.ClearParameter(component, name, done) })
}

// GlobalParameters implements management.Broker.
func (r *rooms) GlobalParameters() []management.Parameter {
	return parameters(r.broker.GlobalParameters())
}

// SetGlobalParameter implements management.Broker.
func (r *rooms) SetGlobalParameter(name string, value any) (created bool, err error) {
	existed, err := answered(func(done func(bool, error)) { r.broker.SetGlobalParameter(name, value, done) })
	return !existed, err
}

// ClearGlobalParameter implements management.Broker.
func (r *rooms) ClearGlobalParameter(name string) (existed bool, err error) {
	return answered(func(done func(bool, error)) { r.broker.ClearGlobalParameter(name, done) })
}

// Export implements management.Broker.
func (r *rooms) Export(vhost string) any {
	if vhost == "" {
		return r.broker.Export(r.origin())
	}
	if v := r.broker.VHost(vhost); v != nil {
		return v.Export(r.origin())
	}
	return nil
}

// origin is what an export says of the node.
func (r *rooms) origin() broker.Origin {
	cluster := r.cfg.ClusterName
	if name, ok := r.broker.GlobalParameter("cluster_name"); ok {
		cluster, _ = name.(string)
	}
	return broker.Origin{Cluster: cluster, Product: r.cfg.Product, ProductVersion: cmp.Or(r.cfg.ProductVersion, release), Version: behavesAs}
}

// Import implements management.Broker.
func (r *rooms) Import(vhost string, data []byte) error {
	take := r.broker.Import
	if vhost != "" {
		v := r.broker.VHost(vhost)
		if v == nil {
			return noVHost(vhost)
		}
		take = v.Import
	}
	warnings, err := take(data)
	for _, w := range warnings {
		r.log.Warn("definitions", "warning", w)
	}
	return told(err)
}

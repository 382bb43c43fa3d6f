package broker

import (
	"cmp"
	"slices"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
)

// The lists here are copies made under a short lock, for management. They are sorted, where nothing else is said.

// Description is the metadata of a virtual host.
type Description struct {
	Description      string
	Tags             []string
	DefaultQueueType string
}

// Description returns the metadata of v, with the default queue type that counts.
func (v *VHost) Description() Description {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return Description{v.description, slices.Clone(v.tags), cmp.Or(v.defaultType, v.broker.DefaultQueueType)}
}

// Queues lists the queues by name.
func (v *VHost) Queues() []*Queue {
	list := v.AllQueues()
	slices.SortFunc(list, func(a, b *Queue) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// AllQueues lists the queues in no order, for who only counts.
func (v *VHost) AllQueues() []*Queue {
	v.mu.RLock()
	defer v.mu.RUnlock()
	list := make([]*Queue, 0, v.count)
	for _, q := range v.queues {
		if q != nil {
			list = append(list, q)
		}
	}
	return list
}

// Queue finds a queue by name without asking for permissions, nil if there is none.
func (v *VHost) Queue(name string) *Queue {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.queue(name)
}

// Exchanges lists the exchanges by name, the default exchange first.
func (v *VHost) Exchanges() []exchange.Declaration {
	v.mu.RLock()
	var list []exchange.Declaration
	for x := range v.topology.Exchanges() {
		list = append(list, x.Declaration)
	}
	v.mu.RUnlock()
	slices.SortFunc(list, func(a, b exchange.Declaration) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Exchange finds an exchange by name without asking for permissions.
func (v *VHost) Exchange(name string) (exchange.Declaration, bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if x := v.topology.Exchange(name); x != nil {
		return x.Declaration, true
	}
	return exchange.Declaration{}, false
}

// Bindings lists all bindings: those of queues to the default exchange, which stand nowhere, by queue, then the others by
// source, oldest first.
func (v *VHost) Bindings() []Binding {
	v.mu.RLock()
	var list []Binding
	for _, q := range v.queues {
		if q != nil {
			list = append(list, Binding{Destination: q.Name, Key: q.Name})
		}
	}
	for x := range v.topology.Exchanges() {
		list = v.appendBindings(list, x)
	}
	v.mu.RUnlock()
	slices.SortStableFunc(list, func(a, b Binding) int {
		if c := cmp.Compare(a.Source, b.Source); c != 0 || a.Source != "" {
			return c
		}
		return cmp.Compare(a.Destination, b.Destination)
	})
	return list
}

// BindingsFrom lists the bindings of one source, oldest first; those of the default exchange stand nowhere and are left
// out.
func (v *VHost) BindingsFrom(source string) []Binding {
	v.mu.RLock()
	defer v.mu.RUnlock()
	if x := v.topology.Exchange(source); x != nil {
		return v.appendBindings(nil, x)
	}
	return nil
}

// BindingsTo lists the bindings that lead to a queue or exchange, oldest first; that of a queue to the default exchange
// comes before the others.
func (v *VHost) BindingsTo(name string, isExchange bool) []Binding {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var list []Binding
	var d exchange.Destination
	if isExchange {
		if d.Exchange = v.topology.Exchange(name); d.Exchange == nil {
			return nil
		}
	} else {
		q := v.queue(name)
		if q == nil {
			return nil
		}
		d.Queue = q.number
		list = append(list, Binding{Destination: name, Key: name})
	}
	for b := range v.topology.BindingsTo(d) {
		list = append(list, v.listed(b))
	}
	return list
}

func (v *VHost) appendBindings(list []Binding, x *exchange.Exchange) []Binding {
	for b := range x.Bindings() {
		list = append(list, v.listed(b))
	}
	return list
}

func (v *VHost) listed(b *exchange.Binding) Binding {
	return Binding{
		Source: b.Source.Name, Destination: v.topology.Name(b.Destination), ToExchange: b.Destination.Exchange != nil,
		Key: b.Key, Arguments: amqp.Table(b.Arguments),
	}
}

package broker

import (
	"iter"
	"slices"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
)

// apply changes the state as a command says. Checks that need more than the state (who asks, what the queue holds) were
// made before; those that another command may have overtaken are made here again.
func (b *Broker) apply(c Command) (r result) {
	switch c := c.(type) {
	case PutQueue:
		return b.in(c.VHost, func(v *VHost) result { return v.putQueue(c) })
	case DeleteQueue:
		return b.in(c.VHost, func(v *VHost) result {
			q := v.queue(c.Name)
			if q != nil && q.ID == c.ID {
				r.existed, r.durable, r.queue = true, v.recorded(q), q
				sources := v.autoSources(nil, v.topology.BindingsTo(exchange.Destination{Queue: q.number}))
				r.unbound = v.durableBindings(nil, v.topology.BindingsTo(exchange.Destination{Queue: q.number}))
				r.gone = v.forget(q)
				r.idle = v.idle(sources)
			}
			return r
		})
	case Bind:
		return b.in(c.VHost, func(v *VHost) result { return v.bind(c.Binding, c.Soft) })
	case Unbind:
		return b.in(c.VHost, func(v *VHost) result { return v.unbind(c.Binding, c.Soft) })
	}
	return b.applyRare(c)
}

// applyRare is apply for commands that connections do not live by; see recordRare.
func (b *Broker) applyRare(c Command) (r result) {
	switch c := c.(type) {
	case PutVHost, DeleteVHost, PutUser, DeleteUser, SetGlobalParameter, ClearGlobalParameter, SetUserLimits, PutMember, DeleteMember, PutSlots, PutReplica:
		return b.applyGlobal(c)
	case SetPermissions:
		if b.User(c.User) == nil {
			return result{refused: noUser(c.User)}
		}
		return b.in(c.VHost, func(v *VHost) result { return v.setPermissions(c) })
	case ClearPermissions:
		return b.in(c.VHost, func(v *VHost) result {
			_, r.existed = v.permissions[c.User]
			delete(v.permissions, c.User)
			return r
		})
	case SetTopicPermissions:
		if b.User(c.User) == nil {
			return result{refused: noUser(c.User)}
		}
		return b.in(c.VHost, func(v *VHost) result { return v.setTopicPermissions(c) })
	case ClearTopicPermissions:
		return b.in(c.VHost, func(v *VHost) result {
			if c.All {
				r.topics = v.topicsOf(nil, c.User)
				delete(v.topics, c.User)
			} else if _, ok := v.topics[c.User][c.Exchange]; ok {
				r.topics = []permissionID{{c.VHost, c.Exchange}}
				delete(v.topics[c.User], c.Exchange)
			}
			r.existed = len(r.topics) > 0
			return r
		})
	case PutExchange:
		return b.in(c.VHost, func(v *VHost) result {
			r.existed = v.topology.Exchange(c.Exchange.Name) != nil
			if r.exchange = v.topology.Declare(c.Exchange); !r.existed {
				v.setAlternate(r.exchange)
			}
			return r
		})
	case DeleteExchange:
		return b.in(c.VHost, func(v *VHost) result { return v.deleteExchange(c) })
	case PutPolicy:
		return b.in(c.VHost, func(v *VHost) result {
			p, err := compilePolicy(c.Policy, c.Operator)
			if err != nil { // of a newer version
				return result{refused: amqp.Errorf(amqp.PreconditionFailed, "%s", err)}
			}
			return v.applyPolicy(c.Operator, p.Name, p)
		})
	case DeletePolicy:
		return b.in(c.VHost, func(v *VHost) result { return v.applyPolicy(c.Operator, c.Name, nil) })
	case SetParameter:
		return b.in(c.VHost, func(v *VHost) result { return v.setParameter(c) })
	case ClearParameter:
		return b.in(c.VHost, func(v *VHost) result { return v.clearParameter(c) })
	}
	panic("broker: unknown command")
}

// in runs a change of one virtual host. In one that is gone nothing is found.
func (b *Broker) in(vhost string, change func(*VHost) result) result {
	v := b.VHost(vhost)
	if v == nil {
		return result{refused: noVHost(vhost)}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.deleted {
		return result{refused: noVHost(vhost)}
	}
	v.version.Add(1)
	return change(v)
}

func (b *Broker) applyGlobal(c Command) (r result) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch c := c.(type) {
	case PutVHost:
		v := b.vhosts[c.Name]
		if r.existed = v != nil; !r.existed {
			v = newVHost(b, c.Name, c.Default)
			b.vhosts[c.Name] = v
			for x := range v.topology.Exchanges() {
				if x.Name != "" {
					r.declared = append(r.declared, x.Declaration)
				}
			}
		}
		v.mu.Lock()
		v.description, v.tags, v.defaultType = c.Description, slices.Clone(c.Tags), c.DefaultQueueType
		v.mu.Unlock()
	case DeleteVHost:
		v := b.vhosts[c.Name]
		if v == nil {
			return r
		}
		r.existed = true
		delete(b.vhosts, c.Name)
		r.queues = v.close()
	case PutUser:
		u := c.User
		_, r.existed = b.users[u.Name]
		u.Hash, u.Tags = slices.Clone(u.Hash), slices.Clone(u.Tags)
		b.users[u.Name] = &u
	case DeleteUser:
		_, r.existed = b.users[c.Name]
		delete(b.users, c.Name)
		b.accounts.limit(c.Name, nil)
		for _, v := range b.vhosts {
			v.mu.Lock()
			if v.permissions[c.Name] != nil {
				r.permissions = append(r.permissions, permissionID{VHost: v.Name})
			}
			r.topics = v.topicsOf(r.topics, c.Name)
			delete(v.permissions, c.Name)
			delete(v.topics, c.Name)
			v.version.Add(1)
			v.mu.Unlock()
		}
	case SetGlobalParameter:
		_, r.existed = b.parameters[c.Name]
		b.parameters[c.Name], _ = DecodeJSON(c.Value)
	case ClearGlobalParameter:
		_, r.existed = b.parameters[c.Name]
		delete(b.parameters, c.Name)
	case SetUserLimits:
		if b.users[c.User] == nil {
			r.refused = noUser(c.User)
			return r
		}
		v, _ := DecodeJSON(c.Limits)
		m, _ := v.(map[string]any)
		b.accounts.limit(c.User, limitsOf(m))
	default:
		b.applyCluster(c, &r)
	}
	return r
}

// close empties a virtual host and returns its queues.
func (v *VHost) close() []*Queue {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.deleted = true
	var all []*Queue
	for _, q := range v.queues {
		if q != nil {
			v.forget(q)
			all = append(all, q)
		}
	}
	for _, x := range slices.Collect(v.topology.Exchanges()) {
		if x.Name != "" {
			v.topology.Delete(x)
		}
	}
	clear(v.permissions)
	clear(v.topics)
	clear(v.parameters)
	v.policies = [2]policies{}
	v.version.Add(1)
	return all
}

func (v *VHost) deleteExchange(c DeleteExchange) (r result) {
	x := v.topology.Exchange(c.Name)
	if x == nil {
		return r
	}
	used := v.used(x)
	if c.Auto && (used || !x.AutoDelete) {
		return r
	}
	r.existed = true
	if c.IfUnused && used {
		r.refused = v.inUse(v.exchangeResource(c.Name))
		return r
	}
	r.deleted = true
	sources := v.autoSources(nil, v.topology.BindingsTo(x.Destination()))
	r.unbound = v.durableBindings(nil, x.Bindings())
	r.unbound = v.durableBindings(r.unbound, v.topology.BindingsTo(x.Destination()))
	r.gone = v.topology.Delete(x)
	r.idle = v.idle(sources)
	return r
}

// durableBindings appends those of bindings that are in the store.
func (v *VHost) durableBindings(list []Binding, bindings iter.Seq[*exchange.Binding]) []Binding {
	if v.broker.committer == nil {
		return list
	}
	for b := range bindings {
		if v.durable(b.Source, b.Destination) {
			list = append(list, v.listed(b))
		}
	}
	return list
}

// durable reports whether a binding is in the store. v.mu is held.
func (v *VHost) durable(source *exchange.Exchange, d exchange.Destination) bool {
	if v.broker.replicated.Load() {
		return d.Exchange != nil || v.queues[d.Queue].Owner == 0
	}
	if d.Exchange != nil {
		return source.Durable && d.Exchange.Durable
	}
	return source.Durable && v.queues[d.Queue].Durable
}

// topicsOf appends the topic permissions of a user. v.mu is held.
func (v *VHost) topicsOf(list []permissionID, user string) []permissionID {
	for x := range v.topics[user] {
		list = append(list, permissionID{v.Name, x})
	}
	return list
}

func (v *VHost) putQueue(c PutQueue) (r result) {
	hard := v.broker.replicated.Load() && !c.Soft
	before := v.queue(c.Queue.Name)
	if before != nil && (!hard || before.Owner == 0) {
		return result{existed: true, queue: before}
	}
	id := c.ID
	if id == 0 {
		n := v.count
		if hard {
			n -= v.softs
		}
		if r.refused = v.queueLimit(c.Queue.Name, n); r.refused != nil {
			return r
		}
	}
	if before != nil {
		sources := v.autoSources(nil, v.topology.BindingsTo(exchange.Destination{Queue: before.number}))
		v.forget(before)
		r.displaced, r.idle = before, v.idle(sources)
	}
	switch {
	case id != 0:
	case c.Soft:
		id = QueueID(v.broker.lastSoft.Add(1)) | softQueue
	default:
		id = QueueID(v.broker.lastQueue.Add(1))
	}
	q := newQueue(v, id, c)
	if q.Queue == nil {
		r.refused, r.unbuilt = notBuilt(q.Type), true
		return r
	}
	q.number = v.topology.AddQueue(q.Name, q.Type == Classic && v.broker.here(q))
	if int(q.number) == len(v.queues) {
		v.queues = append(v.queues, nil)
	}
	v.queues[q.number] = q
	if v.broker.replicated.Load() && q.Type == Classic && v.broker.here(q) {
		v.broker.homes.Store(q.ID, q)
	}
	v.count++
	if q.Owner != 0 {
		v.softs++
		v.owned[q.Owner] = append(v.owned[q.Owner], q)
	}
	r.queue = q
	return r
}

// forget takes a queue and its bindings out of the topology, and returns the auto-delete exchanges that went with them.
// v.mu is held.
func (v *VHost) forget(q *Queue) []*exchange.Exchange {
	gone := v.topology.RemoveQueue(q.number)
	v.queues[q.number] = nil
	v.broker.homes.Delete(q.ID)
	v.count--
	if q.Owner == 0 {
		return gone
	}
	v.softs--
	if list := slices.DeleteFunc(v.owned[q.Owner], func(other *Queue) bool { return other == q }); len(list) > 0 {
		v.owned[q.Owner] = list
	} else {
		delete(v.owned, q.Owner)
	}
	return gone
}

func (v *VHost) bind(b Binding, soft bool) (r result) {
	source, d, err := v.endsOf(b, soft)
	if err != nil {
		r.refused = err
		return r
	}
	queueType := ""
	if d.Exchange == nil {
		queueType = module(v.queues[d.Queue].Type)
	}
	if r.refused = source.CheckBinding(b.Key, b.Arguments, queueType); r.refused == nil {
		r.durable = v.durable(source, d)
		r.existed = !v.topology.Bind(source, d, b.Key, b.Arguments)
	}
	return r
}

func (v *VHost) unbind(b Binding, soft bool) (r result) {
	source, d, err := v.endsOf(b, soft)
	if err == nil {
		r.durable = v.durable(source, d)
		r.existed, r.gone = v.topology.Unbind(source, d, b.Key, b.Arguments)
		if r.existed && source.AutoDelete && v.topology.Keep {
			r.idle = v.idle([]*exchange.Exchange{source})
		}
	}
	return r
}

// ends finds both ends of a binding; if both are missing, the source is reported. v.mu is held.
func (v *VHost) ends(b Binding) (source *exchange.Exchange, d exchange.Destination, err *amqp.Error) {
	if source = v.topology.Exchange(b.Source); source == nil {
		return nil, d, v.noExchange(b.Source)
	}
	if b.ToExchange {
		if d.Exchange = v.topology.Exchange(b.Destination); d.Exchange == nil {
			return nil, d, v.noExchange(b.Destination)
		}
		return source, d, nil
	}
	q, ok := v.topology.Queue(b.Destination)
	if !ok {
		return nil, d, v.noQueue(b.Destination)
	}
	return source, exchange.Destination{Queue: q}, nil
}

func noUser(name string) *amqp.Error { return amqp.Errorf(amqp.NotFound, "no user '%s'", name) }

func noVHost(name string) *amqp.Error {
	return amqp.Errorf(amqp.NotFound, "no vhost '%s'", name)
}

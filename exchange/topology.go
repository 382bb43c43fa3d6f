package exchange

import (
	"iter"
	"slices"

	"github.com/warrenmq/warren/amqp"
)

// Topology holds the exchanges, bindings and queue names of one virtual host. Use New.
type Topology struct {
	// Keep has auto-delete exchanges stay when they lose their last binding: whoever owns the Topology deletes them.
	Keep bool

	exchanges map[string]*Exchange
	queues    map[string]Queue
	byNumber  []queueEntry // by Queue
	freeQueue []Queue
	numbers   uint32 // exchanges numbered so far
	freeNames []uint32
	fallback  *Exchange // the default exchange
}

type queueEntry struct {
	name  string
	local bool
	to    chain
}

// New returns a Topology with the default exchange only.
func New() *Topology {
	t := &Topology{exchanges: make(map[string]*Exchange), queues: make(map[string]Queue)}
	t.fallback = t.Declare(Declaration{Type: Direct, Durable: true})
	return t
}

// Exchange finds an exchange by name, nil if there is none.
func (t *Topology) Exchange(name string) *Exchange { return t.exchanges[name] }

// ExchangeNamed is Exchange for a name in a buffer.
func (t *Topology) ExchangeNamed(name []byte) *Exchange { return t.exchanges[string(name)] }

// Exchanges goes through all exchanges in no particular order.
func (t *Topology) Exchanges() iter.Seq[*Exchange] {
	return func(yield func(*Exchange) bool) {
		for _, x := range t.exchanges {
			if !yield(x) {
				return
			}
		}
	}
}

// Declare makes an exchange, or returns the one of that name. The declaration was checked: CheckType, CheckAlternate,
// CheckArguments. Its arguments are copied.
func (t *Topology) Declare(d Declaration) *Exchange {
	if x := t.exchanges[d.Name]; x != nil {
		return x
	}
	d.Arguments = slices.Clone(d.Arguments)
	x := &Exchange{
		Declaration: d,
		Alternate:   d.AlternateArgument(),
		bindings:    make(map[identity]*Binding),
	}
	x.rule = t.newRule(d)
	if n := len(t.freeNames); n > 0 {
		x.number, t.freeNames = t.freeNames[n-1], t.freeNames[:n-1]
	} else {
		x.number = t.numbers
		t.numbers++
	}
	t.exchanges[d.Name] = x
	return x
}

// Delete removes an exchange and the bindings from and to it. It returns what was removed: x and the auto-delete
// exchanges that lost their last binding by it.
func (t *Topology) Delete(x *Exchange) []*Exchange {
	if x.deleted {
		return nil
	}
	x.deleted = true
	gone := []*Exchange{x}
	for i := 0; i < len(gone); i++ {
		x := gone[i]
		delete(t.exchanges, x.Name)
		t.freeNames = append(t.freeNames, x.number)
		for b := x.from.first; b != nil; b = b.next[asSource] {
			b.Destination.chain(t).remove(b, asDestination)
		}
		gone = t.dropInto(&x.to, gone)
		x.from, x.to, x.bindings = chain{}, chain{}, nil
	}
	return gone
}

// dropInto removes the bindings that lead to one destination, and appends the exchanges that are to be deleted for it.
func (t *Topology) dropInto(to *chain, gone []*Exchange) []*Exchange {
	for b := to.first; b != nil; b = b.next[asDestination] {
		if s := b.Source; !s.deleted {
			gone = t.detach(b, gone)
		}
	}
	*to = chain{}
	return gone
}

// detach takes a binding out of its source, which follows if it is an auto-delete exchange without others.
func (t *Topology) detach(b *Binding, gone []*Exchange) []*Exchange {
	s := b.Source
	s.rule.unbind(b)
	s.from.remove(b, asSource)
	delete(s.bindings, b.identity())
	if s.AutoDelete && s.from.n == 0 && !t.Keep {
		s.deleted = true
		gone = append(gone, s)
	}
	return gone
}

// AddQueue gives a queue a number and binds it to the default exchange. The name must be new. A local queue is one that
// x-local-random may choose: a classic queue that lives on this node.
func (t *Topology) AddQueue(name string, local bool) Queue {
	var q Queue
	if n := len(t.freeQueue); n > 0 {
		q, t.freeQueue = t.freeQueue[n-1], t.freeQueue[:n-1]
	} else {
		q = Queue(len(t.byNumber))
		t.byNumber = append(t.byNumber, queueEntry{})
	}
	t.byNumber[q] = queueEntry{name: name, local: local}
	t.queues[name] = q
	return q
}

// RemoveQueue removes a queue and its bindings, and returns the auto-delete exchanges that went with them.
func (t *Topology) RemoveQueue(q Queue) []*Exchange {
	e := &t.byNumber[q]
	delete(t.queues, e.name)
	gone := t.dropInto(&e.to, nil)
	*e = queueEntry{}
	t.freeQueue = append(t.freeQueue, q)
	return t.deleteAll(gone)
}

// deleteAll deletes exchanges that detach has condemned.
func (t *Topology) deleteAll(condemned []*Exchange) []*Exchange {
	var gone []*Exchange
	for _, x := range condemned {
		x.deleted = false
		gone = append(gone, t.Delete(x)...)
	}
	return gone
}

// Queue finds a queue by name.
func (t *Topology) Queue(name string) (Queue, bool) { q, ok := t.queues[name]; return q, ok }

// QueueNamed is Queue for a name in a buffer.
func (t *Topology) QueueNamed(name []byte) (Queue, bool) {
	q, ok := t.queues[string(name)]
	return q, ok
}

// Name is the name of a destination.
func (t *Topology) Name(d Destination) string {
	if d.Exchange != nil {
		return d.Exchange.Name
	}
	return t.byNumber[d.Queue].name
}

// Bind adds a binding and reports whether it is new. CheckBinding was asked, with nothing changed since. Key and arguments are copied.
func (t *Topology) Bind(source *Exchange, d Destination, key string, args amqp.Table) bool {
	b := &Binding{Source: source, Destination: d, Key: key, Arguments: args}
	id := b.identity()
	if source.bindings[id] != nil {
		return false
	}
	b.Arguments = slices.Clone(args)
	source.bindings[id] = b
	source.from.add(b, asSource)
	d.chain(t).add(b, asDestination)
	source.rule.bind(b)
	return true
}

// Bound reports whether there is such a binding.
func (t *Topology) Bound(source *Exchange, d Destination, key string, args amqp.Table) bool {
	b := Binding{Destination: d, Key: key, Arguments: args}
	return source.bindings[b.identity()] != nil
}

// Unbind removes a binding. It reports whether there was one, and returns the auto-delete exchanges that went with it.
func (t *Topology) Unbind(source *Exchange, d Destination, key string, args amqp.Table) (bool, []*Exchange) {
	id := (&Binding{Destination: d, Key: key, Arguments: args}).identity()
	b := source.bindings[id]
	if b == nil {
		return false, nil
	}
	d.chain(t).remove(b, asDestination)
	return true, t.deleteAll(t.detach(b, nil))
}

// Bindings goes through the bindings with x as their source, in the order in which they were made.
func (x *Exchange) Bindings() iter.Seq[*Binding] { return x.from.all(asSource) }

// BindingsTo goes through the bindings that lead to d, in the order in which they were made.
func (t *Topology) BindingsTo(d Destination) iter.Seq[*Binding] { return d.chain(t).all(asDestination) }

func (d Destination) chain(t *Topology) *chain {
	if d.Exchange != nil {
		return &d.Exchange.to
	}
	return &t.byNumber[d.Queue].to
}

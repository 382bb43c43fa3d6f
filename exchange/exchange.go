package exchange

import (
	"bytes"

	"github.com/warrenmq/warren/amqp"
)

// The types of exchanges.
const (
	Direct         = "direct"
	Fanout         = "fanout"
	Topic          = "topic"
	Headers        = "headers"
	ConsistentHash = "x-consistent-hash"
	ModulusHash    = "x-modulus-hash"
	Random         = "x-random"
	LocalRandom    = "x-local-random"
)

// Declaration is what exchange.declare says of an exchange.
type Declaration struct {
	Name, Type                    string
	Durable, AutoDelete, Internal bool
	Arguments                     amqp.Table // valid
}

// Exchange is an exchange of one Topology, which alone changes it.
type Exchange struct {
	Declaration
	// Alternate is the exchange that takes what this one leads nowhere, "" if there is none. (The default exchange has
	// no bindings and so, as an alternate, routes nothing.)
	Alternate string

	number   uint32
	rule     rule
	bindings map[identity]*Binding // by what makes a binding the same; never iterated
	from, to chain                 // bindings with this exchange as source, as destination
	deleted  bool
}

// Sources is how many bindings have x as their source.
func (x *Exchange) Sources() int { return x.from.n }

// Destination is x as the destination of a binding.
func (x *Exchange) Destination() Destination { return Destination{Exchange: x} }

// rule is what an exchange type does.
type rule interface {
	bind(b *Binding)
	unbind(b *Binding)
	// route adds where m goes, and reports whether that is anywhere, even if it was known already.
	route(m *Message, out *Matches) bool
}

func (t *Topology) newRule(d Declaration) rule {
	switch d.Type {
	case Direct:
		return &direct{keys: make(map[string]*set)}
	case Fanout:
		return new(fanout)
	case Topic:
		return newTopic()
	case Headers:
		return newHeaders()
	case ConsistentHash:
		return newConsistentHash(d.Arguments)
	case ModulusHash:
		return &modulusHash{t: t}
	case Random:
		return new(random)
	case LocalRandom:
		return &localRandom{t: t}
	}
	panic("exchange: type was not checked")
}

// CheckType returns the error for a type that cannot be declared.
func CheckType(typ string) *amqp.Error {
	switch typ {
	case Direct, Fanout, Topic, Headers, ConsistentHash, ModulusHash, Random, LocalRandom:
		return nil
	}
	return amqp.Errorf(amqp.PreconditionFailed, "unknown exchange type '%s'", typ)
}

// Resource is how error texts name an exchange.
func Resource(name, vhost string) string {
	return "exchange '" + name + "' in vhost '" + vhost + "'"
}

// CheckAlternate returns the error for an alternate-exchange argument that is no long string.
func (d *Declaration) CheckAlternate(vhost string) *amqp.Error {
	return d.checkString("alternate-exchange", vhost)
}

func (d *Declaration) checkString(arg, vhost string) *amqp.Error {
	v, ok := d.Arguments.Get(arg)
	if _, isString := v.Str(); !ok || isString {
		return nil
	}
	return amqp.Errorf(amqp.PreconditionFailed, "invalid type '%s' for arg '%s' in %s", v.TypeName(), arg, Resource(d.Name, vhost))
}

// AlternateArgument is the alternate-exchange argument, "" if there is none.
func (d *Declaration) AlternateArgument() string {
	v, _ := d.Arguments.Get("alternate-exchange")
	name, _ := v.Str()
	return string(name)
}

// CheckArguments returns the error for arguments that the type does not allow.
func (d *Declaration) CheckArguments(vhost string) *amqp.Error {
	if d.Type != ConsistentHash {
		return nil
	}
	if err := d.checkString("hash-header", vhost); err != nil {
		return err
	}
	_, header := d.Arguments.Get("hash-header")
	property, ok := d.Arguments.Get("hash-property")
	if header && ok {
		return amqp.Errorf(amqp.PreconditionFailed, "hash-header and hash-property are mutually exclusive")
	}
	if !ok {
		return nil
	}
	name, _ := property.Str()
	switch string(name) {
	case "correlation_id", "message_id", "timestamp":
		return nil
	}
	return amqp.Errorf(amqp.PreconditionFailed, "Unsupported property: %s", Text(property))
}

// CheckEquivalent returns the error for a declaration of an exchange that exists and is not like it. Arguments other
// than alternate-exchange are not compared.
func (x *Exchange) CheckEquivalent(d Declaration, vhost string) *amqp.Error {
	unlike := func(field, received, current string) *amqp.Error {
		return amqp.Errorf(amqp.PreconditionFailed, "inequivalent arg '%s' for %s: received %s but current is %s", field, Resource(x.Name, vhost), received, current)
	}
	if d.Type != x.Type {
		return unlike("type", "'"+d.Type+"'", "'"+x.Type+"'")
	}
	for _, f := range [...]struct {
		name              string
		received, current bool
	}{{"durable", d.Durable, x.Durable}, {"auto_delete", d.AutoDelete, x.AutoDelete}, {"internal", d.Internal, x.Internal}} {
		if f.received != f.current {
			return unlike(f.name, atom(f.received), atom(f.current))
		}
	}
	const arg = "alternate-exchange"
	if received, current, same := Unlike(d.Arguments, x.Arguments, arg); !same {
		return unlike(arg, received, current)
	}
	return nil
}

func atom(b bool) string {
	if b {
		return "'true'"
	}
	return "'false'"
}

// Unlike compares one argument of two declarations, and gives both sides as the texts of inequivalent arguments show
// them. Integers are the same whatever their width.
func Unlike(received, current amqp.Table, arg string) (r, c string, same bool) {
	a, hasA := received.Get(arg)
	b, hasB := current.Get(arg)
	switch {
	case !hasA && !hasB:
		return "", "", true
	case hasA && hasB:
		n, isInt := a.Int()
		m, isInt2 := b.Int()
		f, isFloat := a.Float()
		g, isFloat2 := b.Float()
		s, isString := a.Bytes()
		u, isString2 := b.Bytes()
		if isInt && isInt2 && n == m || isFloat && isFloat2 && f == g || isString && isString2 && bytes.Equal(s, u) || a.Equal(b) {
			return "", "", true
		}
		return "'" + Text(a) + "'", "'" + Text(b) + "'", false
	case hasA:
		return "the value '" + Text(a) + "' of type '" + a.TypeName() + "'", "none", false
	}
	return "none", "the value '" + Text(b) + "' of type '" + b.TypeName() + "'", false
}

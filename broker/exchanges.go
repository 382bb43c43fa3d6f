package broker

import (
	"strings"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
)

const reserved = "amq."

// newlines are taken out of the names of queues and exchanges in declarations, bindings and deletions.
var newlines = strings.NewReplacer("\n", "", "\r", "")

func noDefault() *amqp.Error {
	return amqp.Errorf(amqp.AccessRefused, "operation not permitted on the default exchange")
}

func (v *VHost) inUse(resource string) *amqp.Error {
	return amqp.Errorf(amqp.PreconditionFailed, "%s in use", resource)
}

// DeclareExchange makes an exchange, or finds one like it. d.Arguments are copied.
func (v *VHost) DeclareExchange(a Actor, d exchange.Declaration, done func(*amqp.Error)) {
	v.declareExchange(a, d, v.answer(a, done))
}

func (v *VHost) declareExchange(a Actor, d exchange.Declaration, done func(*amqp.Error)) {
	d.Name = newlines.Replace(d.Name)
	v.mu.RLock()
	exists, err := v.checkDeclareExchange(a, &d)
	v.mu.RUnlock()
	if exists || err != nil {
		done(err)
		return
	}
	v.broker.commit(PutExchange{v.Name, d}, func(r result) {
		if r.refused == nil && r.existed { // another was first
			v.declareExchange(a, d, done)
			return
		}
		done(r.refused)
	})
}

func (v *VHost) checkDeclareExchange(a Actor, d *exchange.Declaration) (exists bool, err *amqp.Error) {
	if err := exchange.CheckType(d.Type); err != nil {
		return false, err
	}
	if d.Name == "" {
		return false, noDefault()
	}
	if err := v.checkExchange(a.User, Configure, d.Name); err != nil {
		return false, err
	}
	if x := v.topology.Exchange(d.Name); x != nil {
		return true, x.CheckEquivalent(*d, v.Name)
	}
	if strings.HasPrefix(d.Name, reserved) {
		return false, amqp.Errorf(amqp.AccessRefused, "exchange name '%s' contains reserved prefix 'amq.*'", d.Name)
	}
	if err := d.CheckAlternate(v.Name); err != nil {
		return false, err
	}
	if _, ok := d.Arguments.Get("alternate-exchange"); ok {
		if err := v.checkExchange(a.User, Read, d.Name); err != nil {
			return false, err
		}
		if err := v.checkExchange(a.User, Write, d.AlternateArgument()); err != nil {
			return false, err
		}
	}
	return false, d.CheckArguments(v.Name)
}

// FindExchange is a passive declaration: done hears whether there is such an exchange that the actor may know of.
func (v *VHost) FindExchange(a Actor, name string, done func(*amqp.Error)) {
	name = newlines.Replace(name)
	v.broker.twice(func(done func(*amqp.Error)) {
		v.mu.RLock()
		err := v.checkFindExchange(a, name)
		v.mu.RUnlock()
		done(err)
	}, v.answer(a, done))
}

func (v *VHost) checkFindExchange(a Actor, name string) *amqp.Error {
	switch {
	case name == "":
		return noDefault()
	case !v.allowsAny(a.User, name):
		return v.refusedExchange(a.User, Configure, name)
	case v.topology.Exchange(name) == nil:
		return v.noExchange(name)
	}
	return nil
}

// DeleteExchange removes an exchange with its bindings. One that does not exist is no error.
func (v *VHost) DeleteExchange(a Actor, name string, ifUnused bool, done func(*amqp.Error)) {
	name = newlines.Replace(name)
	done = v.answer(a, done)
	v.mu.RLock()
	err := v.checkDeleteExchange(a, name)
	if x := v.topology.Exchange(name); err == nil && ifUnused && x != nil && x.Sources() > 0 {
		err = v.inUse(v.exchangeResource(name))
	}
	v.mu.RUnlock()
	if err != nil {
		done(err)
		return
	}
	v.broker.commit(DeleteExchange{VHost: v.Name, Name: name, IfUnused: ifUnused}, func(r result) { done(r.refused) })
}

func (v *VHost) checkDeleteExchange(a Actor, name string) *amqp.Error {
	switch {
	case name == "":
		return noDefault()
	case strings.HasPrefix(name, reserved):
		return amqp.Errorf(amqp.AccessRefused, "deletion of system %s not allowed", v.exchangeResource(name))
	}
	return v.checkExchange(a.User, Configure, name)
}

package broker

import (
	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/exchange"
)

// Command is a change of metadata, one of the types below. Values only, so that it can be written down; what it does
// depends on nothing but itself and the state it is applied to.
type Command interface{ command() }

// PutVHost makes a virtual host, or changes the metadata of one.
type PutVHost struct {
	Name, Description string
	Tags              []string
	DefaultQueueType  string // "": the node's
	Default           bool   // a new one is the default virtual host: it gets amq.rabbitmq.log
}

// DeleteVHost removes a virtual host with all that is in it.
type DeleteVHost struct{ Name string }

// PutUser makes or replaces a user.
type PutUser struct{ User User }

// DeleteUser removes a user with its permissions.
type DeleteUser struct{ Name string }

// SetPermissions gives a user the permissions of a virtual host. The patterns were compiled once.
type SetPermissions struct{ VHost, User, Configure, Write, Read string }

// ClearPermissions takes them away.
type ClearPermissions struct{ VHost, User string }

// SetTopicPermissions gives a user the topic permissions of an exchange.
type SetTopicPermissions struct{ VHost, User, Exchange, Write, Read string }

// ClearTopicPermissions takes them away, those of all exchanges if Exchange is empty and All is set.
type ClearTopicPermissions struct {
	VHost, User, Exchange string
	All                   bool
}

// PutExchange declares an exchange that was checked. One that exists stays as it is.
type PutExchange struct {
	VHost    string
	Exchange exchange.Declaration
}

// DeleteExchange removes an exchange and its bindings, and the auto-delete exchanges that lose their last binding by it.
type DeleteExchange struct {
	VHost, Name string
	IfUnused    bool
	// Auto removes an auto-delete exchange that has lost its last binding, and is passed over if it has got another. Commands
	// from a log remove such exchanges in no other way; see ApplyEntry.
	Auto bool
}

// PutQueue declares a queue that was checked. One that exists stays as it is.
type PutQueue struct {
	VHost string
	Queue QueueDeclaration
	Owner uint64  // connection of an exclusive queue
	Soft  bool    // soft state: not to be written
	ID    QueueID // 0: the next one. Others come from the store
	Home  uint64  // number of the member on which a classic queue lives; 0: the first one
}

// DeleteQueue removes the queue of that name if it is the one with that id.
type DeleteQueue struct {
	VHost, Name string
	ID          QueueID
	Soft        bool
}

// Bind makes a binding; one that exists stays. Source and destination must exist.
type Bind struct {
	VHost   string
	Binding Binding
	Soft    bool
}

// Unbind removes a binding, and the auto-delete exchanges that lose their last binding by it.
type Unbind struct {
	VHost   string
	Binding Binding
	Soft    bool
}

// PutPolicy makes or replaces a policy that was checked.
type PutPolicy struct {
	VHost    string
	Operator bool
	Policy   Policy
}

// DeletePolicy removes a policy.
type DeletePolicy struct {
	VHost    string
	Operator bool
	Name     string
}

// SetParameter sets a runtime parameter of a virtual host, other than policies, that was checked. Value is JSON.
type SetParameter struct {
	VHost, Component, Name string
	Value                  []byte
}

// ClearParameter removes a runtime parameter of a virtual host.
type ClearParameter struct{ VHost, Component, Name string }

// SetGlobalParameter sets a global runtime parameter. Value is JSON.
type SetGlobalParameter struct {
	Name  string
	Value []byte
}

// ClearGlobalParameter removes a global runtime parameter.
type ClearGlobalParameter struct{ Name string }

// SetUserLimits replaces the limits of a user; with none they are removed. Limits is a JSON object.
type SetUserLimits struct {
	User   string
	Limits []byte
}

// PutMember makes or changes a member of the cluster. One whose Number is 0 is known by its NodeID, and gets the next
// number, which nobody had before, if it is new.
type PutMember struct{ Member Member }

// DeleteMember removes a member. Its number is never given out again. It is refused when one of Rest is no member any more: whoever
// saw that the others can do without it counted on that one.
type DeleteMember struct {
	Number uint64
	Rest   []uint64
}

// PutSlots says how many slots for quorum queues the cluster has, which members it has been made with, and how many of these
// have a vote in each slot from the start, 0: all. Only the first one counts.
type PutSlots struct {
	Count   uint64
	Members []uint64
	Size    uint64
}

// PutReplica says whether a member's replica of a shard shall have a vote, or how many before it were removed; see Replica. What is 0
// stays as it is. Of one who is no member any more it can only be said that it has no vote.
type PutReplica struct{ Replica }

// Binding names a binding.
type Binding struct {
	Source, Destination string
	ToExchange          bool // rather than to a queue
	Key                 string
	Arguments           amqp.Table
}

func (PutVHost) command()              {}
func (DeleteVHost) command()           {}
func (PutUser) command()               {}
func (DeleteUser) command()            {}
func (SetPermissions) command()        {}
func (ClearPermissions) command()      {}
func (SetTopicPermissions) command()   {}
func (ClearTopicPermissions) command() {}
func (PutExchange) command()           {}
func (DeleteExchange) command()        {}
func (PutQueue) command()              {}
func (DeleteQueue) command()           {}
func (Bind) command()                  {}
func (Unbind) command()                {}
func (PutPolicy) command()             {}
func (DeletePolicy) command()          {}
func (SetParameter) command()          {}
func (ClearParameter) command()        {}
func (SetGlobalParameter) command()    {}
func (ClearGlobalParameter) command()  {}
func (SetUserLimits) command()         {}
func (PutMember) command()             {}
func (DeleteMember) command()          {}
func (PutSlots) command()              {}
func (PutReplica) command()            {}

// result is what a command came to.
type result struct {
	existed  bool // what was to be made existed, or what was to be removed did
	replica  Replica
	refused  *amqp.Error
	exchange *exchange.Exchange
	queue    *Queue
	queues   []*Queue  // removed with their virtual host; not ended yet
	policies []*policy // that came or went, each of which may have a place in what counts for a queue
	number   uint64    // of a member, or how many slots there are

	// Of commands from a log.
	carried   bool     // what follows from it was done where it was applied
	unbuilt   bool     // this node cannot run the queue
	displaced *Queue   // a soft queue that a hard one of its name put an end to
	idle      []string // auto-delete exchanges that lost a binding and, as far as this node knows, have none left

	// What record needs besides. Bindings and permissions are gathered only where there is a store.
	durable     bool                   // the queue that was removed; both ends of the binding
	declared    []exchange.Declaration // with their virtual host
	gone        []*exchange.Exchange   // removed
	deleted     bool                   // the first of gone was, by name
	unbound     []Binding              // durable ones removed with their queue, or with the first of gone
	permissions []permissionID         // removed with their user
	topics      []permissionID         // removed
}

// permissionID tells permissions of one user apart.
type permissionID struct{ VHost, Exchange string }

// commit makes a change and calls done with its result, at once or later. What was changed is durable when Sync, called
// afterwards, calls back. No lock of this package is held.
func (b *Broker) commit(c Command, done func(result)) {
	t := b.committer
	if t == nil {
		done(b.apply(c))
		return
	}
	r, proposed := t.commit(b, c, done)
	switch {
	case proposed:
	case len(r.idle) > 0:
		b.deleteIdle(c, r.idle, func() { done(r) })
	default:
		done(r)
	}
}

// Sync calls done when all that was changed so far will survive a power cut: before it returns if it does already, or
// without a store; otherwise on another goroutine, which done must not hold up. Calls are answered in their order. The error
// (541) says that what was changed may be lost; the store has failed then, and the node had better end. What came from a
// log is safe there.
func (b *Broker) Sync(done func(*amqp.Error)) {
	if b.committer == nil {
		done(nil)
		return
	}
	b.committer.sync(done)
}

// synced is done, called when what was changed is durable.
func (b *Broker) synced(done func(error)) func(error) {
	return func(err error) {
		if err != nil {
			done(err)
			return
		}
		b.Sync(func(err *amqp.Error) { done(orNil(err)) })
	}
}

// orNil is err as an error, which is nil if err is.
func orNil(err *amqp.Error) error {
	if err == nil {
		return nil
	}
	return err
}

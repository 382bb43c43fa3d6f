// Package broker holds what a node knows of virtual hosts, exchanges, queues, bindings, users and permissions, and is the
// only place where any of it changes.
//
// A change is a [Command], a value that one function, apply, turns into a new state in memory, always in the same way.
// Whoever wants a change calls a method of [VHost] or [Broker], which checks what the client may do, forms the command and
// commits it. Today a commit applies the command at once; it will write it to a journal first, or agree on it with other
// nodes. Every such method therefore takes a done callback, and no caller may count on its having run when the method
// returns. Commands of soft state (exclusive queues, their bindings: they live and die with a connection) are marked so
// and will never be written.
//
// Reading is what connections do all the time. A connection's reader opens a [Scope] of its virtual host once per batch:
// within it topology stands still and routing takes no lock.
//
// The package knows messages only as queues do; it reads one only to dead-letter it. It owns no socket and no thread.
//
// Locks, in the order in which they may be taken: VHost.configuring, Broker.mu, VHost.mu, a queue's own lock (package queue), Queue.mu and
// letterbox.mu. No callback is called and no method of a queue.Queue entered with a lock of this package held, but
// for two: Options.NewQueue is called under VHost.mu, and touches memory only; Queue.Configure and what it causes run
// under VHost.configuring, which nothing they lead to takes. Within a Scope the caller itself holds VHost.mu for
// reading: see there what it may call.
package broker

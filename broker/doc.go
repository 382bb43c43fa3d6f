// Package broker holds what a node knows of virtual hosts, exchanges, queues, bindings, users and permissions, and is the
// only place where any of it changes.
//
// A change is a [Command], a value that one function, apply, turns into a new state in memory, always in the same way.
// Whoever wants a change calls a method of [VHost] or [Broker], which checks what the client may do, forms the command and
// commits it. Where there is a store, what a command has changed of the durable state joins a group of changes that is
// written with one sync (see committer and record), and the client is answered when that is done. In a
// cluster commands come from a log that all members share (see [Broker.Replicate]), and change something when they are applied.
// Every such method therefore takes a done callback, and no caller may count on its
// having run when the method returns, nor on which goroutine it runs. Soft state (exclusive queues and their bindings: they live
// and die with a connection) is never written.
//
// Reading is what connections do all the time. A connection's reader opens a [Scope] of its virtual host once per batch:
// within it topology stands still and routing takes no lock.
//
// The package knows messages only as queues do; it reads one only to dead-letter it. It owns no socket and no thread.
//
// Locks, in the order in which they may be taken: VHost.configuring, committer.mu, Broker.mu, VHost.mu, a queue's own lock
// (package queue), Queue.mu and letterbox.mu; accounts.mu is a leaf. No callback is called and no method of a queue.Queue
// entered with a lock of this package held, but for two: Options.NewQueue is called under the second to fourth, and touches
// memory only; Queue.Configure and what it causes run under VHost.configuring, which nothing they lead to takes. Within a
// Scope the caller itself holds VHost.mu for reading: see there what it may call.
package broker

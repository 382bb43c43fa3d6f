// Package exchange decides where a message goes: the exchanges and bindings of one virtual host, compiled so that routing
// costs a few nanoseconds a destination, also for routing keys that were never seen before.
//
// A [Topology] owns exchanges, their bindings and the names of queues. It knows a queue only as a small number
// ([Queue]) that it gives out itself; what stands behind the number is the caller's. Destinations are therefore lists of
// numbers without pointers, copied to the caller's [Matches] and never allocated per message.
//
// Everything here is a plain value: no lock, clock, I/O, goroutine or source of randomness, and nothing depends on the
// order of a map. Those who change a Topology must be alone with it; any number may route at the same time, each with
// its own Matches. Who may do what is decided elsewhere.
//
// The rules are those of RabbitMQ 4.3: AMQP 0-9-1 §3.1 for the standard types, RabbitMQ's documentation of
// exchange-to-exchange bindings, alternate exchanges, sender-selected distribution and its hash exchanges for the rest.
package exchange

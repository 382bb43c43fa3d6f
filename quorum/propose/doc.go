// Package propose is how the commands of a node get through a Raft log once each and in order, whatever is lost on the way: the
// Proposer gathers them in a lane for each queue, makes numbered batches of what the lanes have, by turns, and proposes again what it does not know the outcome of; the Origins of a machine
// tell which batch is the next one of its node. It knows neither what the commands are nor the Raft engine: that is for package
// quorum and for stream/slots, which both are built on it.
package propose

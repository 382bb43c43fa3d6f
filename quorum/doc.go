// Package quorum is quorum queues: many of them in each of a few Raft shards, the slots. It owns the Raft engine
// (Dragonboat, which nothing else imports), the slots' state machines and what they keep on disk, and the way of a command
// from a connection through the log to its effects. It never routes, and knows nothing of topology, channels and sockets;
// the order of a queue's messages and what becomes of each is decided by package queue's State.
//
//	Queue ── commands ──► proposer ──► Raft log ──► machine ──► ring ──► dispatcher ──► Queue ──► outlets, confirms
//
// The proposer, and how batches are numbered, is package propose's.
//
// Every member of a cluster has a replica of every slot, proposes the commands of its own clients, and carries out on its
// own replica what concerns them. What is to be done once is done by the node that leads, which is part of the state
// (cmdLead). Of a cluster whose majority is lost for good one member goes on with what it has (inherit.go). A member that lags too far gets the slot as a snapshot (snapshot.go), and its clients go on (reload.go).
//
// docs/design/cluster.md tells the whole.
//
// On disk, below the directory of Options:
//
//	log/        the Raft engine's own
//	slot-N/     runs of slot N's messages (package storage)
//
// and in the node's database below k/:
//
//	k/slots           how many slots there are, u64
//	k/members         numbers of the members that they were made with, uvarints: nothing if this one joined them later, and
//	                  no such key where a node was alone
//	k/boot            how many times this node has started, u64
//	k/cluster         the number under which the Raft engines of a cluster know each other, u64
//	k/ S u16 /a       what slot S has applied, and its next run
//	k/ S u16 /o       its time, who leads it, its origins
//	k/ S u16 /q ID    a queue: limits, and the snapshot of its State
//	k/ S u16 /r RUN   a run
//
// Locks, in the order in which they may be held together: a machine's, a Queue's, then those of outlets; a proposer's and a
// ring's are leaves. Confirms, dead letters and wake-ups run without any.
package quorum

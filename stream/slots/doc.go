// Package slots is streams as a node has them: many of them in each of a few Raft shards, the slots. It owns the state
// machine of a slot, what that keeps on disk beside the streams' segments, the way of what is published through the log, and
// the consumers of this node. Segments, readers, offsets and retention are package stream's; the Raft engine is package
// quorum's, the proposer and the numbering of batches package propose's.
//
//	Queue ── chunks, commands ──► proposer ──► Raft log ──► machine ──► dispatcher ──► confirms, answers
//	                                                           └──► stream.Log ──► workers ──► outlets
//
// Every replica carries out on its own node what concerns its own clients: nothing here knows more than one node, and what is
// to be done once (retention) may be proposed twice.
//
// On disk, below the directory of Options:
//
//	slot-N/M/   the segments of a stream (package stream); M is counted by the slot
//	slot-N.C/M/ the same, in directories that were copied as a whole once
//
// and in the node's database:
//
//	k/streams             how many slots of streams there are, u64
//	k/stream/ S u16 /a    what slot S has applied
//	k/stream/ S u16 /c    which directory is the slot's, u64; none: 0
//	k/stream/ S u16 /o    its clock, its counter of directories, its origins
//	k/stream/ S u16 /s ID a stream: limits, what offsets it has, and what consumers have committed
//	k/stream/ S u16 /d ID up to which offset this node's readers pass over damage in it, u64
//
// Locks, in the order in which they may be held together: a machine's, a Queue's, a consumer's, then those of outlets; those
// of a proposer, of the workers and of a ring are leaves. Confirms and wake-ups run without any.
package slots

package quorum

import (
	"time"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
)

// What this node's clients publish waits while the pool is full. What others publish comes all the same, and a disk that is
// too slow for it would have it gather in memory: far above the pool's bound nothing is applied until the slot's messages are
// on disk. What the Raft engine is sent meanwhile would gather there: it is dropped, as a network might. Others go on without
// this replica where they have a majority, and it catches up.

// crowded reports whether the slot must move messages to disk before it takes more.
func (m *machine) crowded() bool {
	bound := m.pool.Bound()
	if m.pool.InUse() <= bound+bound/4 {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.memory >= bound/16
}

// makeRoom returns when there is room for another entry. It does not leave that to the keeper, who may be waiting for the
// Raft engine, which waits for us.
func (m *machine) makeRoom() {
	if !m.crowded() {
		return
	}
	m.choked.Store(true)
	defer m.choked.Store(false)
	for m.crowded() {
		_, err := m.checkpoint()
		if err == nil {
			continue
		}
		m.log.Error("messages of quorum queues could not be moved to disk, and memory is short: a slot waits", "slot", m.slot, "error", err.Error())
		select {
		case <-m.quit:
			return
		case <-time.After(checkpointRetry):
		}
	}
}

// sieve is a transport that does not let through what would gather behind a slot that waits for its disk.
type sieve struct {
	config.TransportFactory
	choked func(shard uint64) bool
}

// Create implements config.TransportFactory.
func (s sieve) Create(c config.NodeHostConfig, messages raftio.MessageHandler, chunks raftio.ChunkHandler) raftio.ITransport {
	return s.TransportFactory.Create(c, func(b raftpb.MessageBatch) {
		for i := range b.Requests {
			if s.drops(&b.Requests[i]) {
				b.Requests = s.rest(b.Requests)
				break
			}
		}
		messages(b)
	}, chunks)
}

// drops reports whether a message brings entries to a slot that takes none now.
func (s sieve) drops(m *raftpb.Message) bool {
	return (m.Type == raftpb.Replicate || m.Type == raftpb.Propose) && len(m.Entries) > 0 && s.choked(m.ShardID)
}

// rest is a copy of what passes.
func (s sieve) rest(all []raftpb.Message) (rest []raftpb.Message) {
	for i := range all {
		if !s.drops(&all[i]) {
			rest = append(rest, all[i])
		}
	}
	return rest
}

// choked reports whether a shard is a slot that takes nothing now.
func (h *Host) choked(shard uint64) bool {
	if shard < firstShard {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	n := shard - firstShard
	return n < uint64(len(h.slots)) && h.slots[n].machine.choked.Load()
}

package quorum

import (
	"math"

	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/plugin/tan"
	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"

	"github.com/warrenmq/warren/storage"
)

// A leader answers each sign of life of a member that lags, ten a second of each slot, by reading what that one lacks from its
// log, and sending it, whether or not the last part has arrived: up to 64 MiB, with a file opened for each batch. On a machine with
// other work that takes longer than the next sign of life does to come: the leader does nothing else any more, loses its
// office, and the next one begins anew. So no reading is longer than this.
const (
	partEntries = 128
	partOctets  = 1 << 20
)

// logFactory makes the Raft log, which is read in parts.
type logFactory struct{ config.LogDBFactory }

var partedLog config.LogDBFactory = logFactory{tan.Factory}

func (f logFactory) Create(c config.NodeHostConfig, done config.LogDBCallback, dirs, wals []string) (raftio.ILogDB, error) {
	db, err := f.LogDBFactory.Create(c, done, dirs, wals)
	if err != nil {
		return nil, err
	}
	return logParts{db}, nil
}

type logParts struct{ raftio.ILogDB }

// SaveRaftState implements raftio.ILogDB.
func (l logParts) SaveRaftState(updates []raftpb.Update, worker uint64) error {
	storage.Slow()
	return l.ILogDB.SaveRaftState(updates, worker)
}

// IterateEntries implements raftio.ILogDB. That there is more behind a part it says as the log itself does: by a size beyond maxSize.
func (l logParts) IterateEntries(ents []raftpb.Entry, size, shard, replica, low, high, maxSize uint64) ([]raftpb.Entry, uint64, error) {
	if maxSize == 0 || maxSize == math.MaxUint64 { // no bound that could be met
		return l.ILogDB.IterateEntries(ents, size, shard, replica, low, high, maxSize)
	}
	before := len(ents)
	end, most := min(high, low+partEntries), min(maxSize, partOctets)
	ents, size, err := l.ILogDB.IterateEntries(ents, size, shard, replica, low, end, most)
	if n := uint64(len(ents) - before); err == nil && n < high-low && (n == end-low || size > most) {
		size = max(size, maxSize+1)
	}
	return ents, size, err
}

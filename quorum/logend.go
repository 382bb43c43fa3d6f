package quorum

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
	sm "github.com/lni/dragonboat/v4/statemachine"

	"github.com/warrenmq/warren/storage"
)

// LogEnd is where the log of a replica ends, on a node that is stopped.
type LogEnd struct {
	Shard  uint64
	Name   string // metadata, slot N, slot N of streams
	Last   uint64 // index of its last entry
	Term   uint64 // in which the replica was last
	Agreed uint64 // index up to which it knew that a majority has what it has
}

// LogEnds reads where the logs of a member end, from its directory of quorum queues and its database, and has metadata apply what is in
// its log behind what it has. The Raft engine tidies its files up as for a start; nothing is lost or added. meta may be nil, fatal is
// that of Options.
func LogEnds(dir string, db *storage.DB, node uint64, meta MetaStore, log *slog.Logger, fatal func(error)) (ends []LogEnd, err error) {
	quiet(log, fatal)
	defer func() {
		if p := recover(); p != nil { // as the engine does where a file is damaged
			err = fmt.Errorf("the Raft log in %s: %v", dir, p)
		}
	}()
	v, err := db.Get(keyCluster)
	if err != nil {
		return nil, err
	}
	if len(v) != 8 {
		return nil, fmt.Errorf("%w: %s", errFormat, keyCluster)
	}
	o := engineOptions{dir: filepath.Join(dir, "log"), node: node, cluster: binary.LittleEndian.Uint64(v), tick: aloneTick}
	if _, err := os.Stat(filepath.Join(o.dir, "dragonboat.ds")); err != nil {
		return nil, fmt.Errorf("the Raft log in %s: %w", o.dir, err)
	}
	if err := adopt(o.dir); err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	c := o.config()
	if err := c.Prepare(); err != nil {
		return nil, err
	}
	at := []string{filepath.Join(c.NodeHostDir, host, fmt.Sprintf("%020d", o.cluster))}
	files, err := partedLog.Create(c, nil, at, at)
	if err != nil {
		return nil, fmt.Errorf("the Raft log in %s: %w", o.dir, err)
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	replicas, err := files.ListNodeInfo()
	if err != nil {
		return nil, err
	}
	h := Host{o: Options{DB: db}, generations: map[uint64]uint64{}, renewed: map[uint64]*renewed{}}
	if err := h.readReplicas(); err != nil {
		return nil, err
	}
	slices.SortFunc(replicas, func(a, b raftio.NodeInfo) int { return cmp.Compare(a.ShardID, b.ShardID) })
	for _, r := range replicas {
		if r.ReplicaID != replicaID(node, h.generations[r.ShardID]) { // of another one, or one that was removed
			continue
		}
		snapshot, err := files.GetSnapshot(r.ShardID, r.ReplicaID)
		if err != nil {
			return nil, err
		}
		e := LogEnd{Shard: r.ShardID, Name: ShardName(r.ShardID), Last: snapshot.Index, Term: snapshot.Term, Agreed: snapshot.Index}
		state, err := files.ReadRaftState(r.ShardID, r.ReplicaID, snapshot.Index)
		switch {
		case errors.Is(err, raftio.ErrNoSavedLog):
		case err != nil:
			return nil, err
		default:
			e.Last, e.Term, e.Agreed = snapshot.Index+state.EntryCount, state.State.Term, max(e.Agreed, state.State.Commit)
		}
		ends = append(ends, e)
		if r.ShardID == metaShard && meta != nil {
			if err := applyLog(files, node, meta, e.Last); err != nil {
				return nil, err
			}
		}
	}
	return ends, nil
}

// applyLog has metadata apply the entries of its log up to the last.
func applyLog(files raftio.ILogDB, node uint64, meta MetaStore, last uint64) error {
	m := metaMachine{store: meta, p: &metaProposer{node: math.MaxUint64}} // nobody waits for results
	at, err := m.Open(nil)
	for err == nil && at < last {
		var entries []raftpb.Entry
		if entries, _, err = files.IterateEntries(nil, 0, metaShard, node, at+1, last+1, partOctets); err != nil {
			break
		}
		if len(entries) == 0 {
			return fmt.Errorf("the Raft log of metadata lacks entry %d", at+1)
		}
		for _, e := range entries {
			at = e.Index
			if command := payload(e); len(command) > 0 {
				if _, err = m.Update([]sm.Entry{{Index: e.Index, Cmd: command}}); err != nil {
					break
				}
			}
		}
	}
	return err
}

// payload is what was proposed in an entry, none if that was the engine itself. Without compression it lies behind one octet.
func payload(e raftpb.Entry) []byte {
	switch {
	case e.Type == raftpb.ApplicationEntry:
		return e.Cmd
	case e.Type == raftpb.EncodedEntry && len(e.Cmd) > 0 && e.Cmd[0] == 0:
		return e.Cmd[1:]
	}
	return nil
}

// ShardName is what people know a shard by.
func ShardName(id uint64) string {
	switch {
	case id == metaShard:
		return "metadata"
	case id >= firstShard:
		return fmt.Sprintf("slot %d", id-firstShard)
	}
	return fmt.Sprintf("slot %d of streams", id-firstStream)
}

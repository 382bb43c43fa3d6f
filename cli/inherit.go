package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/cluster"
	"github.com/warrenmq/warren/config"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/stream/slots"
)

const (
	// leadPatience is how long a member that is being restored may take to lead metadata.
	leadPatience = time.Minute
	// inheritTime is how long it may take to apply its logs, and to settle what they have.
	inheritTime = 10 * time.Minute
	// inheritPause is between two looks whether that is done.
	inheritPause = 10 * time.Millisecond
)

// heritage is what a member has that goes on without the others.
type heritage struct {
	queues, messages              uint64 // quorum queues, and what waits in them
	streams, records              uint64
	classic, classicMessages      uint64
	orphans                       int // classic queues that lived on others
	unknownQueues, unknownStreams int // that metadata does not know
}

// inherit makes the member of a stopped node's directory the only one of a cluster of its own. It starts the node, but for what
// clients see, with stand-ins for the others, who agree to everything, and does what forgetting them does. If it is
// interrupted a server refuses the directory, and inherit may be called again.
func inherit(cfg config.Config, log *slog.Logger) (h heritage, err error) {
	r := &rooms{cfg: cfg, pool: queue.NewPool(int64(cfg.MemoryBound)), clock: queue.NewClock(), log: log, failed: make(chan error, 1), restoring: true}
	defer func() {
		if e := r.closeData(); err != nil {
			err = errors.Join(err, e)
		} else if e != nil { // the next start takes up what was not written
			log.Error("the node was restored, and did not stop in good order", "error", e.Error())
		}
	}()
	if err := leave(cfg.DataDir); err != nil {
		return h, err
	}
	if err := r.openData(); err != nil {
		return h, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), inheritTime)
	defer cancel()
	if err := r.member.inherit(ctx, &h); err != nil {
		return h, err
	}
	h.count(r)
	return h, r.settle()
}

// leave gives the node a cluster of its own, before anything else changes: whatever happens now, it and the others never meet again.
func leave(dir string) error {
	unlock, err := lockDir(dir)
	if err != nil {
		return err
	}
	defer unlock()
	db, err := storage.OpenDB(storage.OS{}, filepath.Join(dir, "meta"), storage.DBOptions{})
	if err != nil {
		return unreadable(dir, err)
	}
	return errors.Join(cluster.Leave(db), db.Close())
}

// settle ends what leave has begun.
func (r *rooms) settle() error {
	if err := r.broker.SyncEntries(); err != nil {
		return err
	}
	var b storage.Batch
	b.Delete(keyWelcome) // of the cluster that was
	if err := r.db.Commit(&b, true); err != nil {
		return err
	}
	return cluster.Settle(r.db)
}

func (m *membership) inherit(ctx context.Context, h *heritage) error {
	b, self := m.rooms.broker, m.identity.Number
	others, err := m.meta.Inherit(ctx)
	if err != nil {
		return err
	}
	newest := self
	for _, x := range b.Members() {
		newest = max(newest, x.Number)
		if x.Number != self {
			others = append(others, x.Number)
		}
	}
	gone, err := m.rooms.quorum.Inherit(ctx, others)
	if err != nil {
		return err
	}
	if n := len(gone); n > 0 && gone[n-1] > newest {
		if err := m.spend(gone[n-1]); err != nil {
			return err
		}
	}
	for _, n := range gone {
		done := make(chan error, 1)
		b.DeleteMember(n, nil, func(_ bool, err error) { done <- err })
		if err := <-done; err != nil {
			return err
		}
	}
	if err := m.noteVotes(); err != nil {
		return err
	}
	h.orphans = b.DropOrphans([]uint64{self})
	if err := m.rest(ctx, func() (int, error) { return b.DropOrphans([]uint64{self}), nil }); err != nil {
		return err
	}
	// What metadata has not heard of goes now: the next queue may get its id.
	if h.unknownQueues, err = m.rooms.quorum.Reconcile(ctx, m.meta.CaughtUp); err != nil {
		return err
	}
	if h.unknownStreams, err = m.rooms.streams.Reconcile(ctx, m.meta.CaughtUp); err != nil {
		return err
	}
	return m.rest(ctx, func() (int, error) {
		q, err := m.rooms.quorum.Reconcile(ctx, m.meta.CaughtUp)
		if err != nil {
			return q, err
		}
		s, err := m.rooms.streams.Reconcile(ctx, m.meta.CaughtUp)
		return q + s, err
	})
}

// noteVotes has metadata say that this node has a vote in each slot: in some it may have followed.
func (m *membership) noteVotes() error {
	for _, s := range m.rooms.quorum.Slots() {
		done := make(chan error, 1)
		m.rooms.broker.PutReplica(broker.Replica{Shard: s.Shard, Member: m.identity.Number, Vote: broker.Votes}, func(err error) { done <- err })
		if err := <-done; err != nil {
			return err
		}
	}
	return nil
}

// rest waits until nothing is left to do.
func (m *membership) rest(ctx context.Context, left func() (int, error)) error {
	for {
		if n, err := left(); err != nil || n == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(inheritPause):
		}
	}
}

// spend has metadata never give out numbers of members up to one: the Raft shards have heard of it, and metadata, which was
// behind, has not.
func (m *membership) spend(last uint64) error {
	type outcome struct {
		number uint64
		err    error
	}
	for {
		done := make(chan outcome, 1)
		m.rooms.broker.PutMember(broker.Member{NodeID: rand.Uint64() | 1, Name: fmt.Sprintf("member-%d", last)}, func(number uint64, err error) { done <- outcome{number, err} })
		x := <-done
		if x.err != nil {
			return x.err
		}
		removed := make(chan error, 1)
		m.rooms.broker.DeleteMember(x.number, nil, func(_ bool, err error) { removed <- err })
		if err := <-removed; err != nil || x.number >= last {
			return err
		}
	}
}

// count counts what there is.
func (h *heritage) count(r *rooms) {
	for _, v := range r.broker.VHosts() {
		for _, q := range v.Queues() {
			s := q.Stats()
			switch at, isStream := q.Queue.(*slots.Queue); {
			case isStream:
				st := at.Status()
				h.streams++
				h.records += st.Next - st.First
			case q.Type == broker.Quorum:
				h.queues++
				h.messages += s.Ready + s.Unacked + s.Delayed
			default:
				h.classic++
				h.classicMessages += s.Ready + s.Unacked
			}
		}
	}
}

// ballastOf is how large the ballast of a directory is: what is configured counts when the node starts.
func ballastOf(dir string) int64 {
	info, err := os.Stat(filepath.Join(dir, "ballast"))
	if err != nil {
		return 0
	}
	return info.Size()
}

package quorum

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/storage"
)

// TestSlowDisk: a member whose disk stands still, while others publish, stays within its memory, and so does its part of the
// Raft engine. The others go on without it; when its disk does again, it catches up.
func TestSlowDisk(t *testing.T) {
	t.Parallel()
	const bound = 8 << 20
	disk := storage.NewFaultFS(1)
	gate := make(chan struct{})
	var stuck atomic.Bool
	disk.Observe(func(e storage.Event) {
		if e.Op == storage.OpWrite && stuck.Load() {
			<-gate
		}
	})
	small := queue.NewPool(bound)
	c := newClusterWith(t, 1, func(number uint64, o *Options) {
		if number == 3 {
			o.FS, o.Pool = disk, small
		}
	})
	qs := c.declare(1, noLimits, nil)
	until(t, "one of the others leads", func() bool {
		if c.leader(0, 1, 2, 3) != 3 {
			return true
		}
		_ = c.nodes[3].host.TransferLeader(0, 1)
		return false
	})
	n := c.nodes[1]
	p := n.publisher()
	publish := func(octets int) (most int64) {
		for range octets / (16 * 16 << 10) {
			p.publish(qs[1], 16, 16<<10)
			for p.behind() > 64 {
				time.Sleep(time.Millisecond)
			}
			most = max(most, small.InUse())
		}
		p.wait()
		return max(most, small.InUse())
	}
	stuck.Store(true)
	octets := 32 << 20
	if testing.Short() { // to catch up takes long there
		octets = 16 << 20
	}
	if most := publish(octets); most > 2*bound {
		t.Errorf("%d octets are in memory, of %d", most, bound)
	}
	m := c.nodes[3].host.slots[0].machine
	if !m.choked.Load() {
		t.Error("it does not wait")
	}
	log, err := c.nodes[3].host.engine.GetLogReader(shardOf(0))
	if err != nil {
		t.Fatal(err)
	}
	_, last := log.GetRange()
	m.mu.Lock()
	behind := last - m.applied
	m.mu.Unlock()
	t.Logf("%d entries wait in the Raft engine", behind)
	if behind > 32 { // entries of at most 256 KiB and one publish
		t.Errorf("%d entries wait in the Raft engine", behind)
	}
	stuck.Store(false)
	close(gate)
	// It catches up in steps of its bound, while the race detector makes each many times slower: as long as it goes on, it is well.
	applied := func(m *machine) uint64 {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.applied
	}
	for at, since := uint64(0), time.Now(); ; time.Sleep(10 * time.Millisecond) {
		last, applied := applied(n.host.slots[0].machine), applied(m)
		if applied > at {
			at, since = applied, time.Now()
		}
		if applied >= last {
			break
		}
		if time.Since(since) > patience {
			t.Fatalf("it stands still at entry %d of %d", applied, last)
		}
	}
	c.agree()
	if most := publish(8 << 20); most > 2*bound {
		t.Errorf("%d octets are in memory, of %d", most, bound)
	}
	c.agree()
}

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
	if most := publish(32 << 20); most > 2*bound {
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
	c.agree()
	if most := publish(8 << 20); most > 2*bound {
		t.Errorf("%d octets are in memory, of %d", most, bound)
	}
	c.agree()
}

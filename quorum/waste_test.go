package quorum

import (
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/warrenmq/warren/queue"
)

// slotDisk is how much a slot may take on a node beside twice its live messages.
const slotDisk = 256 << 20

// diskOf is what a slot takes on a node: its log and its runs.
func (n *node) diskOf(slot uint16) (log, runs int64) {
	replica, messages := "node-"+fmt.Sprint(shardOf(slot))+"-", "slot-"+fmt.Sprint(slot)
	_ = filepath.WalkDir(filepath.Join(n.dir, "raft"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil // a file may go while we look
		}
		var st syscall.Stat_t
		if syscall.Lstat(path, &st) != nil {
			return nil
		}
		switch dir := filepath.Base(filepath.Dir(path)); {
		case strings.HasPrefix(dir, replica):
			log += st.Blocks * 512
		case dir == messages:
			runs += st.Blocks * 512
		}
		return nil
	})
	return log, runs
}

// within fails where a slot takes more than it may.
func (n *node) within(slot uint16, live int64) {
	n.Helper()
	if log, runs := n.diskOf(slot); log == 0 || log+runs > slotDisk+2*live {
		n.Errorf("node %d: the log takes %d MiB, runs %d MiB, with %d MiB of messages", n.host.o.Node, log>>20, runs>>20, live>>20)
	}
}

// TestDiskOfChurn: however much passes through a queue, while an old message stays unacknowledged, the log and the runs stay small,
// and so they do when the node has been started again.
func TestDiskOfChurn(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes hundreds of megabytes; the part unit runs it, without -short")
	}
	t.Parallel()
	n := open(t, t.TempDir())
	q := n.host.NewQueue(4, noLimits, nil)
	p := n.publisher()
	p.publish(q, 1, 1000)
	p.wait()
	old := n.consume(q, queue.ConsumerSpec{Prefetch: 1})
	old.wait(1)
	m := q.slot.machine
	pass := func() {
		t.Helper()
		k := n.eat(q, queue.ConsumerSpec{Prefetch: 64})
		for range 12 {
			p.publish(q, 64, 256<<10)
			p.wait()
			n.within(m.slot, 16<<20)
		}
		until(t, "everything passes", func() bool { return q.Stats().Unacked == 1 && q.Stats().Ready == 0 })
		k.mu.Lock()
		k.got, k.numbers = nil, nil
		k.mu.Unlock()
	}
	pass()
	n.crash()
	n = open(t, n.dir)
	defer n.close()
	q = n.host.NewQueue(4, noLimits, nil)
	if r := n.recover(); r.Messages != 1 {
		t.Fatalf("%+v", r)
	}
	n.within(0, 0)
	p, m = n.publisher(), q.slot.machine
	old = n.consume(q, queue.ConsumerSpec{Prefetch: 1})
	if got, _ := old.wait(1); got[0] != 1 {
		t.Fatal(got)
	}
	pass()
	until(t, "runs with nothing but the old message go", func() bool { _, runs := n.diskOf(0); return runs < mostWaste+leastWaste })
}

// TestDrainedBacklogGoes: what was consumed of a backlog is deleted by and by, though to say so takes but a few octets of the log.
func TestDrainedBacklogGoes(t *testing.T) {
	t.Parallel()
	n := open(t, t.TempDir())
	defer n.close()
	q := n.host.NewQueue(4, noLimits, nil)
	p := n.publisher()
	for range 6 {
		p.publish(q, 64, 128<<10)
		p.wait()
	}
	m := q.slot.machine
	if _, err := m.checkpoint(); err != nil {
		t.Fatal(err)
	}
	n.within(m.slot, 48<<20)
	if _, runs := n.diskOf(m.slot); runs < 48<<20 {
		t.Fatalf("%d MiB are on disk", runs>>20)
	}
	n.eat(q, queue.ConsumerSpec{Prefetch: 64})
	until(t, "everything is consumed", func() bool { return q.Stats().Unacked+q.Stats().Ready == 0 })
	until(t, "what was consumed goes", func() bool { _, runs := n.diskOf(m.slot); return runs <= 2*leastWaste })
}

// crash stops a node that writes down nothing more.
func (n *node) crash() {
	n.Helper()
	n.clock.Close()
	if err := n.host.close(0, false); err != nil {
		n.Fatal(err)
	}
	if err := n.db.Close(); err != nil {
		n.Fatal(err)
	}
}

// TestStartsLeaveNothing: a node does not take more disk with each start.
func TestStartsLeaveNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var before int64
	for start := range 4 {
		n := open(t, dir)
		q := n.host.NewQueue(4, noLimits, nil)
		n.recover()
		p := n.publisher()
		p.publish(q, 1, 1000)
		p.wait()
		log, _ := n.diskOf(0)
		if before == 0 {
			before = log
		}
		if log == 0 || log > before+1<<20 {
			t.Fatalf("start %d: the log of a slot takes %d MiB, and took %d", start+1, log>>20, before>>20)
		}
		n.crash()
	}
}

// TestLogStaysForSnapshots: what comes behind a snapshot stays in the log until who got it has had time to ask for it, but no
// more than another snapshot would take.
func TestLogStaysForSnapshots(t *testing.T) {
	t.Parallel()
	n := open(t, t.TempDir())
	defer n.close()
	q := n.host.NewQueue(4, noLimits, nil)
	p := n.publisher()
	m := q.slot.machine
	m.mu.Lock()
	m.keepLog = 1 << 20
	m.mu.Unlock()
	publish := func() {
		p.publish(q, 64, 128<<10)
		p.wait()
	}
	mayCut := func(after time.Duration) uint64 {
		t.Helper()
		index, err := m.checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.mayCut(index, nil, time.Now().Add(after))
	}
	snapshot := func() *view {
		t.Helper()
		x, err := m.PrepareSnapshot()
		if err != nil {
			t.Fatal(err)
		}
		return x.(*view)
	}
	publish()
	v := snapshot()
	publish()
	if i := mayCut(time.Hour); i != v.index {
		t.Errorf("while a snapshot of %d is sent the log is cut at %d", v.index, i)
	}
	if err := m.SaveSnapshot(v, io.Discard, nil); err != nil {
		t.Fatal(err)
	}
	publish()
	if i := mayCut(0); i != v.index {
		t.Errorf("when a snapshot of %d was sent the log is cut at %d", v.index, i)
	}
	if i := mayCut(2 * holdTime); i <= v.index {
		t.Errorf("long after a snapshot of %d was sent the log is cut at %d", v.index, i)
	}
	v = snapshot()
	defer v.release()
	m.mu.Lock()
	v.hold.octets -= holdOctets + uint64(m.onDisk) // as if so much had come since
	m.mu.Unlock()
	publish()
	if i := mayCut(0); i <= v.index {
		t.Errorf("the log behind a snapshot of %d is longer than another would be, and is cut at %d", v.index, i)
	}
}

// TestLogStaysForMembers: a member that was away for less than a snapshot would take gets what it has missed from the log, whoever
// leads when it comes back; and when it is there the log is cut.
func TestLogStaysForMembers(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes hundreds of megabytes; the part unit runs it, without -short")
	}
	t.Parallel()
	c := newCluster(t, 1)
	qs := c.declare(1, noLimits, nil)
	leader := c.leader(0, 1, 2, 3)
	away, other := others(leader)[0], others(leader)[1]
	first := func(number uint64) uint64 {
		t.Helper()
		s := c.nodes[number].host.slots[0]
		index, err := s.machine.checkpoint()
		if err == nil {
			err = s.cutLog(index)
		}
		if err != nil {
			t.Fatal(err)
		}
		r, err := c.nodes[number].host.engine.GetLogReader(shardOf(0))
		if err != nil {
			t.Fatal(err)
		}
		f, _ := r.GetRange()
		return f
	}
	p := c.nodes[other].publisher()
	publish := func(mib int) {
		for range mib {
			p.publish(qs[other], 4, 256<<10)
			p.wait()
		}
	}
	for n := range uint64(3) {
		s := c.nodes[n+1].host.slots[0]
		s.machine.mu.Lock()
		s.machine.keepLog = 1 << 20
		s.machine.mu.Unlock()
	}
	publish(8)
	c.agree()
	before := c.snapshots()
	had := c.nodes[away].host.slots[0].machine.applied
	c.kill(away)
	publish(40)
	for _, number := range []uint64{leader, other} {
		if i := first(number); i > had+1 {
			t.Errorf("the log of node %d begins at %d, and a member that is away has %d", number, i, had)
		}
	}
	n := c.start(away)
	n.host.NewQueue(1, noLimits, nil)
	n.recover()
	c.agree()
	if c.snapshots() != before {
		t.Error("it came back with a snapshot")
	}
	publish(8)
	for _, n := range c.nodes {
		n.host.slots[0].show()
	}
	until(t, "the log is cut", func() bool { return first(leader) > had && first(other) > had })
}

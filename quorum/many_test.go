package quorum

import (
	"runtime"
	"testing"
)

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestQueueCostsLittle: what a quorum queue takes of memory that was used once and is empty now.
func TestQueueCostsLittle(t *testing.T) {
	const queues = 10_000
	n := open(t, t.TempDir())
	defer n.close()
	first := n.host.NewQueue(1, noLimits, nil)
	n.settled(first)
	list := make([]*Queue, 0, queues)
	before := heapInUse()
	for id := range uint64(queues) {
		list = append(list, n.host.NewQueue(2+id, noLimits, nil))
	}
	for _, q := range list[queues-8:] {
		n.settled(q)
	}
	idle := heapInUse()
	p := n.publisher()
	for _, q := range list {
		p.publish(q, 1, 10)
	}
	p.wait()
	used := heapInUse()
	t.Logf("%d octets for an idle queue, %d with a message", (idle-before)/queues, (used-before)/queues)
	if (idle-before)/queues > 2000 || (used-before)/queues > 4000 {
		t.Error("that is too much")
	}
	for _, s := range n.host.slots {
		if _, err := s.machine.checkpoint(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d after a checkpoint", (heapInUse()-before)/queues)
	runtime.KeepAlive(list)
}

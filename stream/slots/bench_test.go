package slots

import (
	"encoding/binary"
	"sync"
	"testing"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/quorum/propose"
	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/stream"
)

// BenchmarkAlone is messages of 1 KiB into a stream of a node alone, 64 to a publish.
func BenchmarkAlone(b *testing.B) {
	n := open(b, b.TempDir())
	defer n.close()
	n.pool.Poison = false
	go n.host.start()
	q := n.host.NewQueue(1, Config{Name: "s", Limits: noLimits})
	body := string(make([]byte, 1024))
	k := &settled{}
	k.more.L = &k.mu
	var w queue.Wake
	b.SetBytes(1024)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += 64 {
		x := queue.Batch{Confirms: k}
		for j := range 64 {
			x.Messages, x.Numbers = append(x.Messages, n.message(body)), append(x.Numbers, uint64(i+j+1))
		}
		q.Publish(&x, &w)
		w.Flush()
		k.wait(i + 64 - 4096)
	}
	k.wait((b.N + 63) / 64 * 64)
}

// settled counts confirms.
type settled struct {
	mu    sync.Mutex
	more  sync.Cond
	count int
}

func (k *settled) Settled(rs []queue.Range, _ bool, _ *queue.Wake) {
	k.mu.Lock()
	for _, r := range rs {
		k.count += int(r.Last - r.First + 1)
	}
	k.more.Broadcast()
	k.mu.Unlock()
}

func (k *settled) wait(count int) {
	k.mu.Lock()
	for k.count < count {
		k.more.Wait()
	}
	k.mu.Unlock()
}

// BenchmarkApply is what the machine does with a batch that attaches a consumer, commits an offset, and has no messages.
func BenchmarkApply(b *testing.B) {
	r := &rig{TB: b}
	r.open(storage.NewFaultFS(1))
	defer r.close()
	attach := append(binary.AppendUvarint(append(appendName(appendCommand(nil, cmdAttach, 7), "name"), startStored), 0), byte(stream.ResetFirst))
	commit := binary.AppendUvarint(binary.AppendUvarint(appendName(appendCommand(nil, cmdCommit, 7), "name"), 1), 0)
	entry := appendLimits(binary.AppendUvarint(appendCommand(make([]byte, propose.HeaderLen), cmdCreate, 7), 2000), stream.Limits{})
	number := uint64(0)
	apply := func() {
		number++
		h := propose.Header{At: 1, Node: 1, Boot: 1, Number: number, Done: number - 1}
		h.Put(entry)
		if _, err := r.m.Apply(number, entry); err != nil {
			b.Fatal(err)
		}
		for _, x := range r.m.ring.take(nil) {
			r.m.ring.recycle(x)
		}
	}
	apply()
	entry = append(append(entry[:propose.HeaderLen], attach...), commit...)
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		apply()
	}
}

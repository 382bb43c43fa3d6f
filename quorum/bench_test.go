package quorum

import (
	"testing"

	"github.com/warrenmq/warren/queue"
)

// BenchmarkAlone is messages of 1 KiB through a queue of a node alone, 64 to a publish, consumed and acknowledged.
func BenchmarkAlone(b *testing.B) {
	n := open(b, b.TempDir())
	defer n.close()
	n.pool.Poison = false
	q := n.host.NewQueue(1, noLimits, nil)
	k := &acker{n: n, q: q}
	var w queue.Wake
	attached := make(chan struct{})
	q.Attach(queue.ConsumerSpec{}, k, &w, func(id queue.ConsumerID, err error) { k.id = id; close(attached) })
	<-attached
	p := n.publisher()
	b.SetBytes(1024)
	b.ResetTimer()
	for i := 0; i < b.N; i += 64 {
		p.publish(q, 64, 1024)
		for p.behind() > 4096 {
			p.mu.Lock()
			if p.next-p.confirmed > 4096 {
				p.more.Wait()
			}
			p.mu.Unlock()
		}
	}
	p.wait()
	n.settled(q)
}

func (p *publisher) behind() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next - p.confirmed
}

// acker acknowledges what it gets, and keeps nothing.
type acker struct {
	n  *node
	q  *Queue
	id queue.ConsumerID
}

func (k *acker) Offer(ds []queue.Offered, _ *queue.Wake) bool {
	for i := range ds {
		k.n.pool.Release(ds[i].Message.Ref.Slab, 1)
	}
	k.q.settle(k.id, []queue.Range{{First: ds[0].ID, Last: ds[len(ds)-1].ID}}, queue.Ack)
	return true
}
func (k *acker) Cancelled(*queue.Wake) {}
func (k *acker) Activity(bool)         {}
func (k *acker) TimedOut(*queue.Wake)  {}

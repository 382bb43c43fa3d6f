package quorum

import (
	"testing"

	sm "github.com/lni/dragonboat/v4/statemachine"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/storage"
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

// BenchmarkApply is what the machine does with a batch: 64 messages of 1 KiB are published, got by a consumer, and acknowledged.
func BenchmarkApply(b *testing.B) {
	r := newRig(b, 1, storage.NewFaultFS(1), 1)
	r.pool.Poison = false
	n := &node{TB: b, pool: r.pool}
	var messages []queue.Message
	for i := range 64 {
		messages = append(messages, n.message(uint64(i), 1024))
	}
	publish := appendPublish(nil, 7, messages, r.pool)
	apply := func(number uint64, commands ...[]byte) {
		_, err := r.m.Update([]sm.Entry{{Index: number, Cmd: entry(1, number, commands...)}})
		if err != nil {
			b.Fatal(err)
		}
		rounds, _ := r.m.ring.take(nil, nil)
		for _, x := range rounds {
			for i := range x.deliveries {
				if d := &x.deliveries[i]; d.held {
					r.pool.Release(d.message.Ref.Slab, 1)
				}
			}
			r.m.ring.recycle(x)
		}
	}
	apply(1, create(7), append(append(appendCommand(nil, cmdAttach, 7), 0), 0, 0, 0))
	number, id := uint64(1), uint64(1)
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		number++
		apply(number, publish, appendSettle(nil, 7, 1, queue.Ack, []queue.Range{{First: id, Last: id + 63}}))
		id += 64
	}
	b.StopTimer()
	if st := r.m.queues[7].state.Stats(); st.Ready+st.Unacked > 64 {
		b.Fatalf("%+v", st)
	}
}

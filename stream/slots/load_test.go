package slots

import (
	"slices"
	"testing"
	"time"

	"github.com/warrenmq/warren/queue"
)

// acker is a consumer that acknowledges each message by itself, with a prefetch of one.
type acker struct {
	n    *node
	q    *Queue
	id   queue.ConsumerID
	wake queue.Wake
	got  chan uint64
}

func (a *acker) Form() (head []byte, frameMax int)       { return listenerHead, 0 }
func (a *acker) Offer([]queue.Offered, *queue.Wake) bool { panic("a stream offers frames") }
func (a *acker) OfferFrames(fs []queue.Frames, _ int, _ *queue.Wake) bool {
	for _, f := range fs {
		a.n.pool.Release(f.Ref.Slab, 1)
		for i := range f.N {
			a.got <- f.First + uint64(i)
		}
	}
	return true
}
func (a *acker) Cancelled(*queue.Wake) { close(a.got) }
func (a *acker) TimedOut(*queue.Wake)  {}
func (a *acker) Activity(bool)         {}

// ackEach reads a stream under a name from an offset to another one and acknowledges each message.
func (n *node) ackEach(q *Queue, from, to uint64) {
	n.Helper()
	a := &acker{n: n, q: q, got: make(chan uint64, 1)}
	attached := make(chan error, 1)
	q.Attach(queue.ConsumerSpec{Prefetch: 1, Arguments: table(n, map[string]any{"x-stream-consumer-name": "n", "x-stream-offset-reset": "first"})}, a, &a.wake,
		func(id queue.ConsumerID, err error) { a.id = id; attached <- err })
	if err := <-attached; err != nil {
		n.Fatal(err)
	}
	for next := from; next < to; next++ {
		if got, ok := <-a.got; !ok || got != next {
			n.Fatalf("offset %d came, not %d", got, next)
		}
		q.Settle(a.id, []queue.Range{{First: next, Last: next}}, queue.Ack, &a.wake)
	}
	q.Detach(a.id, queue.Remove, &a.wake, func() {})
}

// TestManyCommits is case ST-10: each of many messages is acknowledged by itself. Commits ride in batches, 50 ms apart, whatever
// their number; what is kept is a number for each name; and after a start the consumer resumes behind the last one.
func TestManyCommits(t *testing.T) {
	const many = 200_000
	dir := t.TempDir()
	n := open(t, dir)
	q := n.host.NewQueue(1, Config{Name: "s", Limits: noLimits})
	body := []string{""}
	for i := 0; i < many; i += 10_000 {
		n.publish(q, slices.Repeat(body, 10_000)...)
	}
	m := q.slot.machine
	entries, begun := m.Index(), time.Now()
	n.ackEach(q, 0, many-10)
	until(t, "the last offset is committed", func() bool {
		x := q.Offsets(false)
		return len(x) == 1 && x[0].Next == many-10
	})
	most := uint64(time.Since(begun)/commitPause) + 10
	if entries = m.Index() - entries; entries > most {
		t.Errorf("%d entries in the log, and not %d", entries, most)
	}
	if size := len(m.streams[1].record(nil)); size > 64 {
		t.Errorf("%d octets are kept for one name", size)
	}
	n.close()
	n = open(t, dir)
	defer n.close()
	q = n.host.NewQueue(1, Config{Name: "s", Limits: noLimits})
	n.recover()
	n.ackEach(q, many-10, many)
}

// TestManyCommitsInCluster is the same with replicas, on a smaller scale: any node resumes behind the last one.
func TestManyCommitsInCluster(t *testing.T) {
	t.Parallel()
	const many = 5000
	c := newMembers(t)
	qs := c.declare(3)
	c.nodes[1].publish(qs[1], slices.Repeat([]string{""}, many)...)
	c.agree(0)
	m := c.nodes[2].host.slots[0].machine
	entries := m.Index()
	c.nodes[2].ackEach(qs[2], 0, many-10)
	until(t, "the offset on another node", func() bool {
		x := qs[3].Offsets(false)
		return len(x) == 1 && x[0].Next == many-10
	})
	if entries = m.Index() - entries; entries > many/10 {
		t.Errorf("%d entries in the log", entries)
	}
	c.stop(3)
	qs[3] = c.restart(3)
	c.nodes[3].ackEach(qs[3], many-10, many)
}

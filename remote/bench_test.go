package remote

import (
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/warrenmq/warren/cluster"
	"github.com/warrenmq/warren/queue"
)

// quick is a consumer that acknowledges what it gets, and a channel that counts its confirms, without any ado.
type quick struct {
	q       queue.Queue
	pool    *queue.Pool
	id      queue.ConsumerID
	ranges  []queue.Range
	offered int
	waked   bool
	got     atomic.Int64
	heard   atomic.Int64
	more    chan struct{}
}

func (k *quick) Offer(ds []queue.Offered, w *queue.Wake) bool { // one goroutine calls it
	release := queue.Releaser{Pool: k.pool}
	for i := range ds {
		release.Add(ds[i].Message.Ref.Slab)
		k.ranges = appendNumber(k.ranges, ds[i].ID)
	}
	release.Flush()
	k.offered += len(ds)
	if !k.waked {
		k.waked = true
		w.Add(k)
	}
	return true
}

func (k *quick) Wake(w *queue.Wake) {
	k.waked = false
	ranges, n := k.ranges, k.offered
	k.q.Settle(k.id, ranges, queue.Ack, w)
	k.ranges, k.offered = k.ranges[:0], 0
	k.q.Ready(k.id, w)
	k.got.Add(int64(n))
	k.tell()
}

func (k *quick) tell() {
	select {
	case k.more <- struct{}{}:
	default:
	}
}

func (k *quick) Settled(ranges []queue.Range, _ bool, _ *queue.Wake) {
	n := int64(0)
	for _, r := range ranges {
		n += int64(r.Last - r.First + 1)
	}
	k.heard.Add(n)
	k.tell()
}

func (k *quick) Cancelled(*queue.Wake) {}
func (k *quick) TimedOut(*queue.Wake)  {}
func (k *quick) Activity(bool)         {}

// flow is a publisher and a consumer of one node at a queue of another one.
type flow struct {
	*quick
	body  queue.Message
	batch queue.Batch
	last  uint64
	wake  queue.Wake
}

func newFlow(t testing.TB, size int) *flow {
	patient := func(o *cluster.Options) { o.Silence = 20 * time.Second }
	home, away := start(t, 1, nil, patient), start(t, 2, nil, patient)
	home.pool.Poison, away.pool.Poison = false, false
	meet(home, away)
	home.classic(7, noLimits)
	k := &quick{q: away.host.NewQueue(home.id, ID{0, 7}), pool: away.pool, more: make(chan struct{}, 1)}
	attached := make(chan bool)
	var w queue.Wake
	k.q.Attach(queue.ConsumerSpec{Prefetch: 2000}, k, &w, func(id queue.ConsumerID, err error) {
		k.id = id
		close(attached)
	})
	w.Flush()
	within(t, "attach", attached)
	return &flow{quick: k, body: away.message(1, 1, size)}
}

// run publishes n batches of messages, and returns when all are confirmed and have come.
func (f *flow) run(n, messages int) {
	f.batch.Confirms = f
	for range n {
		f.batch.Messages, f.batch.Numbers = f.batch.Messages[:0], f.batch.Numbers[:0]
		for range messages {
			f.last++
			f.batch.Messages = append(f.batch.Messages, f.body)
			f.batch.Numbers = append(f.batch.Numbers, f.last)
		}
		f.pool.Hold(f.body.Ref.Slab, messages)
		f.q.Publish(&f.batch, &f.wake)
		f.wake.Flush()
		for int64(f.last)-f.heard.Load() > 5000 {
			<-f.more
		}
	}
	for f.heard.Load() < int64(f.last) || f.got.Load() < int64(f.last) {
		<-f.more
	}
}

// BenchmarkQueue is messages published with confirms from one node to a queue of another one, and from there to a consumer
// that acknowledges, all in this process. The batch is what one read of a socket brings.
func BenchmarkQueue(b *testing.B) {
	for _, bc := range []struct {
		name           string
		messages, size int
	}{{"64x1KiB", 64, 1 << 10}, {"64x16B", 64, 16}, {"1x1KiB", 1, 1 << 10}} {
		b.Run(bc.name, func(b *testing.B) {
			f := newFlow(b, bc.size)
			f.run(2000, bc.messages)
			b.ReportAllocs()
			b.ResetTimer()
			before := cpu()
			f.run(b.N, bc.messages)
			n := float64(b.N) * float64(bc.messages)
			b.ReportMetric(n/b.Elapsed().Seconds(), "messages/s")
			b.ReportMetric(float64(cpu()-before)/n, "cpu-ns/message")
		})
	}
}

// cpu is what the process has used of it.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestSteady: a message costs no allocation.
func TestSteady(t *testing.T) {
	f := newFlow(t, 100)
	f.run(500, 64)
	if n := testing.AllocsPerRun(5, func() { f.run(100, 64) }) / 6400; n > 0.1 {
		t.Errorf("%.2f allocations for a message", n)
	}
}

package remote

import (
	"errors"
	"slices"
	"testing"

	"github.com/warrenmq/warren/queue"
)

// pair is a node with a queue, and another one with clients.
func pair(t testing.TB) (home, away *node, local *queue.Classic, q *Queue) {
	t.Helper()
	home, away = start(t, 1, nil, nil), start(t, 2, nil, nil)
	meet(home, away)
	local = home.classic(7, noLimits)
	return home, away, local, away.host.NewQueue(home.id, ID{0, 7})
}

func numbers(from, to uint64) (ns []uint64) {
	for ; from <= to; from++ {
		ns = append(ns, from)
	}
	return ns
}

func numbersIn(ds []delivery) (ns []uint64) {
	for _, d := range ds {
		ns = append(ns, d.number)
	}
	return ns
}

func same(t testing.TB, what string, got, want []uint64) {
	t.Helper()
	if !slices.Equal(got, want) {
		if len(got) > 20 || len(want) > 20 {
			t.Fatalf("%s: %d of them, not in order or not %d", what, len(got), len(want))
		}
		t.Fatalf("%s: %v, not %v", what, got, want)
	}
}

// TestPublish: messages of all sizes are confirmed, and come in order.
func TestPublish(t *testing.T) {
	home, away, local, q := pair(t)
	p := away.publisher(q, 1)
	for _, size := range []int{16, 1000, 40_000, 16, 3 << 20, 16, 300_000} {
		p.size = size
		p.publish(3)
	}
	p.size = 1 << 10
	p.publish(2000) // more than one batch
	acked, nacked := p.settled()
	same(t, "confirmed", acked, numbers(1, 2021))
	same(t, "refused", nacked, nil)
	k := home.client(local)
	k.must(k.attach(queue.ConsumerSpec{NoAck: true, Window: 5000}))
	same(t, "delivered", numbersIn(k.wait(2021)), numbers(1, 2021))
	away.drained()
	home.drained()
}

// TestRefused: what the queue refuses is nacked, and what it takes is confirmed.
func TestRefused(t *testing.T) {
	home, away, _, _ := pair(t)
	c := noLimits
	c.MaxLength, c.Overflow = 5, queue.RejectPublish
	home.classic(8, c)
	p := away.publisher(away.host.NewQueue(home.id, ID{0, 8}), 1)
	p.publish(8)
	acked, nacked := p.settled()
	same(t, "confirmed", acked, numbers(1, 5))
	same(t, "refused", nacked, numbers(6, 8))

	p = away.publisher(away.host.NewQueue(home.id, ID{0, 9}), 1) // there is no such queue
	p.publish(2)
	_, nacked = p.settled()
	same(t, "refused", nacked, numbers(1, 2))
}

// TestConsume: what is not acknowledged is bounded by the prefetch, and comes again when it is returned.
func TestConsume(t *testing.T) {
	_, away, local, q := pair(t)
	p := away.publisher(q, 1)
	k := away.client(q)
	k.must(k.attach(queue.ConsumerSpec{Prefetch: 10}))
	p.publish(100)
	p.settled()
	all := k.wait(10)
	if s := local.Stats(); s.Unacked != 10 || s.Ready != 90 {
		t.Fatalf("%+v", s)
	}
	k.settle(queue.Return, all[8:]...)
	again := k.wait(2)
	if !again[0].redelivered || all[0].redelivered {
		t.Error("not marked as redelivered")
	}
	same(t, "redelivered", numbersIn(again), numbers(9, 10))
	all = append(all[:8], again...)
	for last := all; len(all) < 100; {
		k.settle(queue.Ack, last...)
		last = k.wait(1)
		all = append(all, last...)
		k.ready()
	}
	same(t, "delivered", numbersIn(all), numbers(1, 100))
	k.detach(queue.Remove)
	if s := local.Stats(); s.Unacked != 0 || s.Consumers != 0 || s.Ready == 0 {
		t.Fatalf("%+v", s)
	}
}

// TestReject: what is rejected is gone, or comes again.
func TestReject(t *testing.T) {
	_, away, local, q := pair(t)
	p := away.publisher(q, 1)
	p.publish(4)
	k := away.client(q)
	k.must(k.attach(queue.ConsumerSpec{}))
	ds := k.wait(4)
	k.settle(queue.DiscardFailed, ds[0])
	k.settle(queue.Discard, ds[1])
	k.settle(queue.ReturnFailed, ds[2])
	same(t, "redelivered", numbersIn(k.wait(1)), []uint64{3})
	away.ask(q)
	if s := local.Stats(); s.Unacked != 2 || s.Rejected != 2 || s.Returned != 1 {
		t.Fatalf("%+v", s)
	}
}

// TestNoAck: many more than a window are taken, in order; those of them that wait when the consumer is cancelled still come.
func TestNoAck(t *testing.T) {
	home, away, local, q := pair(t)
	p := away.publisher(q, 1)
	k := away.client(q)
	k.must(k.attach(queue.ConsumerSpec{NoAck: true}))
	for range 10 {
		p.publish(1000)
	}
	var all []delivery
	for len(all) < 10_000 {
		all = append(all, k.wait(1)...)
		k.ready()
	}
	same(t, "delivered", numbersIn(all), numbers(1, 10_000))
	p.settled()
	for range 3 {
		p.publish(1000)
	}
	p.settled()
	k.window = 1 << 20 // what was handed over is offered beyond it
	k.mu.Lock()
	k.room = k.window
	k.mu.Unlock()
	k.detach(queue.Cancel)
	last := k.take()
	if n := uint64(len(last)) + local.Stats().Ready; n != 3000 {
		t.Fatalf("%d delivered, %d left", len(last), local.Stats().Ready)
	}
	away.purge(q)
	away.drained()
	home.drained()
}

func TestGet(t *testing.T) {
	_, away, local, q := pair(t)
	k := away.client(q)
	k.must(k.attach(queue.ConsumerSpec{Getter: true}))
	if _, _, ok := k.get(true); ok {
		t.Fatal("got something from an empty queue")
	}
	p := away.publisher(q, 1)
	p.publish(3) // not waited for: what comes behind it finds it
	d, left, ok := k.get(false)
	if !ok || d.number != 1 || left != 2 {
		t.Fatal(d, left, ok)
	}
	if d, left, ok = k.get(true); !ok || d.number != 2 || left != 1 {
		t.Fatal(d, left, ok)
	}
	k.settle(queue.Return, delivery{id: 1})
	if d, _, ok = k.get(false); !ok || d.number != 1 || !d.redelivered {
		t.Fatal(d, ok)
	}
	k.detach(queue.Remove)
	if s := local.Stats(); s.Ready != 2 || s.Unacked != 0 {
		t.Fatalf("%+v", s)
	}
	if n := away.purge(q); n != 2 {
		t.Fatal(n)
	}
}

// TestCounts: counts can be asked for, and are told when they change to who looks.
func TestCounts(t *testing.T) {
	_, away, local, q := pair(t)
	p := away.publisher(q, 1)
	p.publish(5)
	s, err := away.ask(q)
	if err != nil || s.Ready != 5 || s != local.Stats() || q.Stats() != s {
		t.Fatalf("%+v %v", s, err)
	}
	p.publish(2)
	eventually(t, "the change to be told", func() bool { return q.Stats().Ready == 7 })
	if _, err := away.ask(away.host.NewQueue(1, ID{0, 99})); !errors.Is(err, queue.ErrDeleted) {
		t.Error(err)
	}
}

func TestDelete(t *testing.T) {
	home, away, _, q := pair(t)
	p := away.publisher(q, 1)
	p.publish(3)
	if c := away.delete(q, false, true); !errors.Is(c.err, queue.ErrNotEmpty) {
		t.Fatal(c)
	}
	k, l := away.client(q), home.client(home.queues[ID{0, 7}])
	k.must(k.attach(queue.ConsumerSpec{Prefetch: 1}))
	l.must(l.attach(queue.ConsumerSpec{Prefetch: 1}))
	if c := away.delete(q, true, false); !errors.Is(c.err, queue.ErrInUse) {
		t.Fatal(c)
	}
	if c := away.delete(q, false, false); c.err != nil || c.n != 1 {
		t.Fatal(c)
	}
	for _, k := range []*client{k, l} {
		wait(t, &k.mu, k.more, "cancel", func() bool { return k.cancelled > 0 })
	}
	if c := away.delete(q, false, false); !errors.Is(c.err, queue.ErrDeleted) {
		t.Fatal(c)
	}
	if err := away.client(q).attach(queue.ConsumerSpec{}); !errors.Is(err, queue.ErrDeleted) {
		t.Fatal(err)
	}
	if k.cancels() != 1 || l.cancels() != 1 {
		t.Error("cancelled", k.cancels(), l.cancels())
	}
	p.publish(1)
	p.settled() // as the queue says of those that come late
}

// TestForget: both ends hear of it.
func TestForget(t *testing.T) {
	home, away, _, q := pair(t)
	k, l := away.client(q), home.client(home.queues[ID{0, 7}])
	k.must(k.attach(queue.ConsumerSpec{}))
	l.must(l.attach(queue.ConsumerSpec{}))
	k.flushed(q.Forget)
	for _, k := range []*client{k, l} {
		wait(t, &k.mu, k.more, "cancel", func() bool { return k.cancelled == 1 })
	}
}

func TestExclusive(t *testing.T) {
	home, away, _, q := pair(t)
	k, l := away.client(q), home.client(home.queues[ID{0, 7}])
	k.must(k.attach(queue.ConsumerSpec{Exclusive: true}))
	if err := l.attach(queue.ConsumerSpec{}); !errors.Is(err, queue.ErrExclusive) {
		t.Fatal(err)
	}
	k.detach(queue.Cancel)
	l.must(l.attach(queue.ConsumerSpec{}))
	if err := away.client(q).attach(queue.ConsumerSpec{Exclusive: true}); !errors.Is(err, queue.ErrExclusive) {
		t.Fatal(err)
	}
}

// TestSingleActive: the next consumer takes over when the first one leaves, wherever both are.
func TestSingleActive(t *testing.T) {
	home, away, _, _ := pair(t)
	c := noLimits
	c.SingleActive = true
	local := home.classic(8, c)
	q := away.host.NewQueue(1, ID{0, 8})
	first, second, third := home.client(local), away.client(q), away.client(q)
	for _, k := range []*client{first, second, third} {
		k.must(k.attach(queue.ConsumerSpec{Prefetch: 2}))
	}
	p := away.publisher(q, 1)
	p.publish(10)
	first.wait(2)
	first.detach(queue.Remove)
	same(t, "delivered to the next", numbersIn(second.wait(2)), numbers(1, 2))
	if s, _ := away.ask(q); s.Active != second.id {
		t.Errorf("active: %d, not %d", s.Active, second.id)
	}
	second.detach(queue.Remove)
	same(t, "delivered to the last", numbersIn(third.wait(2)), numbers(1, 2))
	for _, k := range []*client{second, third} {
		wait(t, &k.mu, k.more, "activity", func() bool { return len(k.active) > 0 && k.active[0] })
	}
}

// TestConfigure: limits take effect at the home.
func TestConfigure(t *testing.T) {
	_, away, local, q := pair(t)
	p := away.publisher(q, 1)
	p.publish(10)
	c := noLimits
	c.MaxLength = 4
	var w queue.Wake
	q.Configure(c, &w)
	w.Flush()
	if s, _ := away.ask(q); s.Ready != 4 || local.Stats().Ready != 4 {
		t.Fatalf("%+v", s)
	}
}

// TestSlowConsumer: of what a consumer does not take, no more comes to its node than its window and half a megabyte; and it
// still gets all, in order.
func TestSlowConsumer(t *testing.T) {
	home, away, local, q := pair(t)
	p := home.publisher(local, 1)
	p.size = 20_000
	const total = 1000
	for range total / 10 {
		p.publish(10)
	}
	k := away.client(q)
	k.limit = 50_000
	k.must(k.attach(queue.ConsumerSpec{}))
	all := k.wait(1)
	away.ask(q) // everything that was sent before has come
	if n := away.pool.InUse(); n > windowOctets+3*queue.SlabSize+2*20_000 {
		t.Fatalf("%d octets have come for a consumer that takes none", n)
	}
	if s := local.Stats(); s.Unacked > queue.DefaultWindow || s.Ready == 0 {
		t.Fatalf("%d were handed out", s.Unacked)
	}
	for all = append(all, k.take()...); len(all) < total; {
		k.ready()
		all = append(all, k.wait(1)...)
	}
	same(t, "delivered", numbersIn(all), numbers(1, total))
	away.drained()
}

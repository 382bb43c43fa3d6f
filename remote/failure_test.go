package remote

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/cluster"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/test/seeds"
)

// TestCut: connections that are cut and made again in time lose and repeat nothing, and nobody hears of it.
func TestCut(t *testing.T) {
	patient := func(o *cluster.Options) { o.Silence = 20 * time.Second }
	home, away := start(t, 1, nil, patient), start(t, 2, nil, patient)
	meet(home, away)
	local := home.classic(7, noLimits)
	q := away.host.NewQueue(home.id, ID{0, 7})
	rnd := rand.New(rand.NewPCG(seeds.Of(t), 1))
	p, k := away.publisher(q, 1), away.client(q)
	k.must(k.attach(queue.ConsumerSpec{Prefetch: 500}))
	const total = 10_000
	var work sync.WaitGroup
	work.Go(func() {
		for range total / 20 {
			p.publish(20)
		}
	})
	var all []delivery
	for len(all) < total {
		if rnd.IntN(10) == 0 {
			[]*node{home, away}[rnd.IntN(2)].relay.trouble(rnd)
		}
		ds := k.wait(1)
		all = append(all, ds...)
		k.settle(queue.Ack, ds...)
		k.ready()
	}
	work.Wait()
	acked, _ := p.settled()
	same(t, "confirmed", acked, numbers(1, total))
	same(t, "delivered", numbersIn(all), numbers(1, total))
	away.ask(q)
	if s := local.Stats(); s.Acked != total || s.Unacked != 0 || k.cancels() > 0 || away.lost(home)+home.lost(away) > 0 {
		t.Errorf("%+v, cancelled %d times, down %d and %d times", s, k.cancels(), away.lost(home), home.lost(away))
	}
	away.drained()
	home.drained()
}

// TestHomeDown: what is not confirmed is nacked, consumers are cancelled, and what is asked fails, until the home is back.
func TestHomeDown(t *testing.T) {
	home, away, _, q := pair(t)
	p, k, g := away.publisher(q, 1), away.client(q), away.client(q)
	p.publish(10)
	p.settled()
	k.must(k.attach(queue.ConsumerSpec{Prefetch: 3}))
	g.must(g.attach(queue.ConsumerSpec{Getter: true}))
	old := k.wait(3)
	home.relay.set(func() { home.relay.stalled, home.relay.refuse = [2]bool{true, true}, true })
	away.relay.set(func() { away.relay.stalled, away.relay.refuse = [2]bool{true, true}, true })
	p.publish(5)
	deleted := make(chan count, 1)
	var w queue.Wake
	q.Delete(false, false, &w, func(n uint64, err error) { deleted <- count{n, err} })
	got := make(chan bool, 1)
	q.Get(g.id, false, &w, func(_ queue.Offered, _ uint64, ok bool) { got <- ok })
	late := away.client(q)
	attached := make(chan error, 1)
	q.Attach(queue.ConsumerSpec{}, late, &w, func(_ queue.ConsumerID, err error) { attached <- err })
	w.Flush()
	home.stop()
	acked, nacked := p.settled()
	same(t, "confirmed", acked, numbers(1, 10))
	slices.Sort(nacked)
	same(t, "nacked", nacked, numbers(11, 15))
	if c := within(t, "delete", deleted); !errors.Is(c.err, ErrDown) {
		t.Error(c)
	}
	if err := within(t, "attach", attached); !errors.Is(err, ErrDown) {
		t.Error(err)
	}
	if within(t, "get", got) {
		t.Error("got something")
	}
	wait(t, &k.mu, k.more, "cancel", func() bool { return k.cancelled == 1 })
	wait(t, &g.mu, g.more, "cancel of the getter", func() bool { return g.cancelled == 1 })

	// As long as it is down.
	if !q.Down() {
		t.Error("not down")
	}
	if err := away.client(q).attach(queue.ConsumerSpec{}); !errors.Is(err, ErrDown) {
		t.Error(err)
	}
	if c := away.delete(q, false, false); !errors.Is(c.err, ErrDown) {
		t.Error(c)
	}
	if _, err := away.ask(q); !errors.Is(err, ErrDown) {
		t.Error(err)
	}
	k.detach(queue.Remove)
	if n := away.purge(q); n != 0 {
		t.Error(n)
	}
	p.publish(2)
	if _, nacked = p.settled(); len(nacked) != 7 {
		t.Error(nacked)
	}
	q.Publish(&queue.Batch{Messages: []queue.Message{away.message(1, 1, 16)}}, &w)
	if n := away.host.Counters().Dropped; n != 1 {
		t.Error(n, "dropped")
	}
	away.drained()

	home.relay.heal()
	away.relay.heal()
	again := start(t, 1, home, nil)
	local := again.classic(7, noLimits)
	meet(again, away)
	eventually(t, "the home to be back", func() bool { return !q.Down() })
	p.publish(5)
	p.settled()
	late.must(late.attach(queue.ConsumerSpec{Prefetch: 2}))
	late.wait(2)
	k.settle(queue.Ack, old...) // of before: they name nothing of now
	k.ready()
	k.detach(queue.Remove)
	away.ask(q)
	if s := local.Stats(); s.Unacked != 2 || s.Ready != 3 || s.Acked != 0 {
		t.Errorf("%+v", s)
	}
	if k.cancels() != 1 || late.cancels() != 0 {
		t.Error("cancelled", k.cancels(), late.cancels())
	}
}

// TestClientDown: what its consumers hold returns, and others get it.
func TestClientDown(t *testing.T) {
	home, away, local, q := pair(t)
	p := away.publisher(q, 1)
	p.publish(10)
	p.settled()
	k, g, c := away.client(q), away.client(q), away.client(q)
	k.must(k.attach(queue.ConsumerSpec{Prefetch: 4}))
	k.wait(4)
	g.must(g.attach(queue.ConsumerSpec{Getter: true}))
	g.get(false)
	c.must(c.attach(queue.ConsumerSpec{Prefetch: 2}))
	c.wait(2)
	c.detach(queue.Cancel) // it holds them still
	away.stop()
	home.until("down", func() bool { return home.downs[2] > 0 })
	l := home.client(local)
	l.must(l.attach(queue.ConsumerSpec{}))
	ds := l.wait(10)
	same(t, "delivered", numbersIn(ds), numbers(1, 10))
	for i, d := range ds {
		if d.redelivered != (i < 7) {
			t.Errorf("%d: redelivered %v", d.number, d.redelivered)
		}
	}
	if s := local.Stats(); s.Consumers != 1 {
		t.Errorf("%+v", s)
	}
}

// TestOneSided: one of both nodes believes that the other was down; both end what there was, and begin anew.
func TestOneSided(t *testing.T) {
	for _, who := range []string{"home", "client", "reset"} {
		t.Run(who, func(t *testing.T) {
			home, away, local, q := pair(t)
			p := away.publisher(q, 1)
			p.publish(10)
			p.settled()
			k := away.client(q)
			k.must(k.attach(queue.ConsumerSpec{Prefetch: 4}))
			old := k.wait(4)
			switch who {
			case "home":
				home.host.Down(2, 1)
				home.host.Up(2, 1)
			case "client":
				away.host.Down(1, 1)
				away.host.Up(1, 1)
			case "reset":
				remake(home, away)
			}
			wait(t, &k.mu, k.more, "cancel", func() bool { return k.cancelled == 1 })
			eventually(t, "the messages to return", func() bool { return local.Stats().Ready == 10 && local.Stats().Consumers == 0 })
			eventually(t, "the home to be back", func() bool { return !q.Down() })
			k.settle(queue.Ack, old...)
			p.publish(2)
			l := away.client(q)
			l.must(l.attach(queue.ConsumerSpec{}))
			same(t, "delivered", numbersIn(l.wait(12)), numbers(1, 12))
			p.settled()
			if k.cancels() != 1 || l.cancels() != 0 || len(k.take()) > 0 {
				t.Error("cancelled", k.cancels(), l.cancels())
			}
		})
	}
}

// remake has the link between two nodes be made anew.
func remake(n, other *node) {
	n.Helper()
	if err := n.link.SetPeers(nil); err != nil {
		n.Fatal(err)
	}
	other.until("down", func() bool { return other.downs[n.id] == 1 })
	meet(n, other)
}

// TestPressure: publishers to a node that takes nothing slow down and then rest, and go on when it does.
func TestPressure(t *testing.T) {
	patient := func(o *cluster.Options) { o.Silence = 20 * time.Second }
	home, away := start(t, 1, nil, patient), start(t, 2, nil, patient)
	meet(home, away)
	home.classic(7, noLimits)
	p := away.publisher(away.host.NewQueue(home.id, ID{0, 7}), 1)
	p.size = 64 << 10
	for _, n := range []*node{home, away} {
		n.relay.set(func() { n.relay.stalled = [2]bool{true, true} })
	}
	sent, pressed := 0, false
	for ; !away.pool.Full(0); sent++ {
		pressed = p.publish(1) || pressed
	}
	if most := (maxBacklog + 4<<20) / p.size; sent > most || !pressed {
		t.Fatalf("%d messages of %d octets wait; slowed down: %v", sent, p.size, pressed)
	}
	for _, n := range []*node{home, away} {
		n.relay.heal()
		n.relay.sever()
	}
	acked, _ := p.settled()
	same(t, "confirmed", acked, numbers(1, uint64(sent)))
	room := make(chan bool, 1)
	away.pool.WaitForRoom(0, func() { room <- true })
	within(t, "room", room)
	away.drained()
}

// TestHomeFull: a home that has no room lets the publishers of other nodes rest, until it has, or is down.
func TestHomeFull(t *testing.T) {
	home, away, _, q := pair(t)
	p := away.publisher(q, 1)
	home.pool.Block(queue.BlockedByAlarm, true)
	p.publish(1)
	eventually(t, "publishers to rest", func() bool { return away.pool.Full(0) })
	home.pool.Block(queue.BlockedByAlarm, false)
	eventually(t, "publishers to go on", func() bool { return !away.pool.Full(0) })
	home.pool.Block(queue.BlockedByAlarm, true)
	p.publish(1)
	eventually(t, "publishers to rest", func() bool { return away.pool.Full(0) })
	home.stop()
	eventually(t, "publishers to go on", func() bool { return !away.pool.Full(0) })
	p.settled()
}

// TestHomesFull: two nodes without room, which publish to each other, do not wait for each other once they have room.
func TestHomesFull(t *testing.T) {
	one, two, _, q := pair(t)
	two.classic(9, noLimits)
	to, back := two.publisher(q, 1), one.publisher(one.host.NewQueue(two.id, ID{0, 9}), 2)
	one.pool.Block(queue.BlockedByAlarm, true)
	to.publish(1)
	eventually(t, "publishers of two to rest", func() bool { return two.pool.Full(0) })
	back.publish(1)
	back.settled()
	one.pool.Block(queue.BlockedByAlarm, false)
	for _, n := range []*node{one, two} {
		eventually(t, "publishers to go on", func() bool { return !n.pool.Full(0) })
	}
	to.settled()
}

// TestBroken: what cannot be read is reported, and ends what there was; a link made anew works.
func TestBroken(t *testing.T) {
	for _, stream := range []uint32{commandsAt + 3, reportsAt + 3} {
		home, away, local, q := pair(t)
		k := away.client(q)
		k.must(k.attach(queue.ConsumerSpec{}))
		from, to := away, home
		if stream >= reportsAt {
			from, to = home, away
		}
		s, err := from.link.Stream(to.id, cluster.Data, stream)
		if err != nil {
			t.Fatal(err)
		}
		kind := uint8(batchCommands)
		if stream >= reportsAt {
			kind = batchReports
		}
		s.Send(kind, []byte{1, 200, 1, 2, 3})
		to.until("a report", func() bool { return len(to.broken) == 1 })
		if to == away {
			wait(t, &k.mu, k.more, "cancel", func() bool { return k.cancelled == 1 })
			if !q.Down() {
				t.Error("goes on")
			}
		} else {
			eventually(t, "the consumer to end", func() bool { return local.Stats().Consumers == 0 })
		}
		remake(to, from)
		eventually(t, "the lane to work", func() bool { return !q.Down() })
		wait(t, &k.mu, k.more, "cancel", func() bool { return k.cancelled == 1 })
		l := away.client(q)
		l.must(l.attach(queue.ConsumerSpec{}))
		p := away.publisher(q, 1)
		p.publish(1)
		l.wait(1)
	}
}

// TestModel: publishers and consumers on three nodes, of a queue on one of them, while the connections are cut. Without Downs
// nothing is lost or repeated. With them each publish is answered once, and what was confirmed comes. In both what a consumer
// gets of a publisher is in order.
func TestModel(t *testing.T) {
	for _, downs := range []bool{false, true} {
		t.Run(fmt.Sprint("downs=", downs), func(t *testing.T) { testModel(t, downs) })
	}
}

func testModel(t *testing.T, downs bool) {
	seed := seeds.Of(t)
	patient := func(o *cluster.Options) { o.Silence = 20 * time.Second }
	ns := []*node{start(t, 1, nil, patient), start(t, 2, nil, patient), start(t, 3, nil, patient)}
	meet(ns...)
	local := ns[0].classic(7, noLimits)
	views := []queue.Queue{local, ns[1].host.NewQueue(1, ID{0, 7}), ns[2].host.NewQueue(1, ID{0, 7})}

	const each, publishers = 1500, 6
	var mu sync.Mutex
	acked := map[[2]uint64]int{}
	var publishing, working sync.WaitGroup
	var ps []*publisher
	for i := range publishers {
		p := ns[i%3].publisher(views[i%3], uint64(i))
		ps = append(ps, p)
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		publishing.Go(func() {
			for p.last < each {
				p.size = 16 + rnd.IntN(2000)
				p.publish(1 + rnd.IntN(min(20, each-int(p.last))))
				if rnd.IntN(20) == 0 {
					time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond)
				}
			}
			p.settled()
		})
	}
	stop := make(chan struct{})
	for i := range 6 {
		rnd := rand.New(rand.NewPCG(seed, uint64(100+i)))
		working.Go(func() {
			for over := false; !over; {
				k := ns[i%3].client(views[i%3])
				var last [publishers]uint64 // of each publisher, that came and was not handed out before
				if err := k.attach(queue.ConsumerSpec{Prefetch: uint32(1 + rnd.IntN(50))}); err != nil {
					if !errors.Is(err, ErrDown) {
						t.Error(err)
					}
					time.Sleep(time.Millisecond)
					continue
				}
				for life := 1 + rnd.IntN(200); life > 0 && !over; life-- {
					k.mu.Lock()
					for len(k.got) == 0 && k.cancelled == 0 && !over {
						k.mu.Unlock()
						select {
						case <-stop:
							over = true
						case <-time.After(time.Millisecond):
						}
						k.mu.Lock()
					}
					cancelled := k.cancelled > 0
					k.mu.Unlock()
					ds := k.take()
					k.ready()
					if cancelled {
						break
					}
					var back []delivery
					mu.Lock()
					for j, d := range ds {
						if !d.redelivered {
							if d.number <= last[d.who] {
								t.Errorf("publisher %d: %d after %d", d.who, d.number, last[d.who])
							}
							last[d.who] = d.number
						}
						if rnd.IntN(8) == 0 && !over {
							back = append(back, d)
							ds[j].id = 0
							continue
						}
						acked[[2]uint64{d.who, d.number}]++
					}
					mu.Unlock()
					ds = slices.DeleteFunc(ds, func(d delivery) bool { return d.id == 0 })
					if len(ds) > 0 {
						k.settle(queue.Ack, ds...)
					}
					if len(back) > 0 {
						k.settle([]queue.Outcome{queue.Return, queue.ReturnFailed}[rnd.IntN(2)], back...)
					}
				}
				k.detach(queue.Detachment(rnd.IntN(2)))
				if rest := k.take(); len(rest) > 0 { // those that came before the answer
					k.settle(queue.Return, rest...)
				}
				k.detach(queue.Remove)
			}
		})
	}
	rnd := rand.New(rand.NewPCG(seed, 1000))
	troubles := make(chan struct{})
	working.Go(func() {
		for {
			select {
			case <-troubles:
				return
			default:
			}
			ns[rnd.IntN(3)].relay.trouble(rnd)
			if downs && rnd.IntN(3) == 0 {
				a, b := ns[0], ns[1+rnd.IntN(2)]
				if rnd.IntN(2) == 0 {
					a, b = b, a
				}
				a.host.Down(b.id, 1)
				time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond)
				a.host.Up(b.id, 1)
			}
			time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
		}
	})
	publishing.Wait()
	close(troubles)
	eventually(t, "the queue to be empty", func() bool { s := local.Stats(); return s.Ready+s.Unacked == 0 })
	close(stop)
	working.Wait()
	nacked := 0
	for _, p := range ps {
		ok, not := p.settled()
		nacked += len(not)
		for _, n := range ok {
			times := acked[[2]uint64{p.who, n}]
			if times == 0 || times > 1 && !downs {
				t.Errorf("publisher %d: %d was confirmed, and acknowledged %d times", p.who, n, times)
			}
		}
		if !downs && len(not) > 0 {
			t.Errorf("publisher %d: %d nacked", p.who, len(not))
		}
	}
	t.Logf("%d nacked, %d acknowledged", nacked, len(acked))
	for _, n := range ns {
		n.drained()
	}
}

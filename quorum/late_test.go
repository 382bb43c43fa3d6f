package quorum

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/quorum/propose"
)

// hearer is an outlet that writes down what it hears.
type hearer struct {
	name string
	pool *queue.Pool
	told *events
}

// events is what outlets have heard, and answers, in their order.
type events struct {
	mu   sync.Mutex
	list []string
}

func (h *events) add(what string) {
	h.mu.Lock()
	h.list = append(h.list, what)
	h.mu.Unlock()
}

func (h *events) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.list)
}

func (k hearer) Offer(ds []queue.Offered, _ *queue.Wake) bool {
	for i := range ds {
		k.pool.Release(ds[i].Message.Ref.Slab, 1)
		k.told.add(k.name + " got")
	}
	return true
}

func (k hearer) Cancelled(*queue.Wake) { k.told.add(k.name + " cancelled") }
func (k hearer) TimedOut(*queue.Wake)  { k.told.add(k.name + " late") }
func (k hearer) Activity(bool)         {}

// known is how many consumers and getters a queue of this node knows.
func known(q *Queue) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.consumers)
}

// TestLateIsTold: whoever has a delivery taken away hears of it before the next answer, also when it has been cancelled or got
// single messages; who holds nothing does not, and is forgotten.
func TestLateIsTold(t *testing.T) {
	const never, soon = -1, 1 // milliseconds
	for _, c := range []struct {
		name    string
		timeout int64
		down    bool
		getter  bool
		cancel  bool
		settle  bool
		want    []string
	}{
		{name: "consumer", timeout: soon, want: []string{"k got", "k late"}},
		{name: "cancelled", timeout: 300, cancel: true, want: []string{"k got", "k late"}},
		{name: "cancelled and settled", timeout: never, cancel: true, settle: true, want: []string{"k got"}},
		{name: "getter", timeout: soon, getter: true, want: []string{"k got", "k late"}},
		{name: "down: consumer", timeout: never, down: true, want: []string{"k got", "k cancelled"}},
		{name: "down: cancelled", timeout: never, down: true, cancel: true, want: []string{"k got", "k late"}},
		{name: "down: cancelled and settled", timeout: never, down: true, cancel: true, settle: true, want: []string{"k got"}},
		{name: "down: getter", timeout: never, down: true, getter: true, want: []string{"k got", "k late", "k cancelled"}},
		{name: "down: getter that has settled", timeout: never, down: true, getter: true, settle: true, want: []string{"k got", "k cancelled"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := open(t, t.TempDir())
			defer n.close()
			q := n.host.NewQueue(1, noLimits, nil)
			p := n.publisher()
			p.publish(q, 1, 10)
			p.wait()
			told := new(events)
			k := hearer{"k", n.pool, told}
			ids := make(chan queue.ConsumerID, 1)
			var w queue.Wake
			q.Attach(queue.ConsumerSpec{Getter: c.getter, Timeout: c.timeout}, k, &w, func(id queue.ConsumerID, _ error) { ids <- id })
			id := <-ids
			if c.getter {
				q.Get(id, false, &w, func(o queue.Offered, _ uint64, ok bool) { k.Offer([]queue.Offered{o}, nil) })
			}
			n.settled(q)
			if c.cancel {
				q.Detach(id, queue.Cancel, &w, func() {})
			}
			if c.settle {
				q.Settle(id, []queue.Range{{First: 1, Last: 1}}, queue.Ack, &w)
			}
			if c.down {
				n.settled(q) // which such a command does not wait for
				q.slot.end(down{n.host.o.Node, n.host.boot})
			}
			if !c.settle {
				until(t, "the message is back", func() bool { return q.Stats().Ready == 1 })
			}
			asked := make(chan struct{})
			q.Purge(&w, func(uint64) { told.add("answer"); close(asked) })
			<-asked
			if got := told.all(); !slices.Equal(got, append(c.want, "answer")) {
				t.Errorf("%q, want %q, and the answer", got, c.want)
			}
			want := 1
			if c.cancel || c.down {
				want = 0
			}
			if got := known(q); got != want {
				t.Errorf("%d consumers are known, want %d", got, want)
			}
		})
	}
}

// taken is a proposal of which nothing is heard.
type taken struct{}

func (taken) ResultC() chan Outcome { return nil }
func (taken) Release()              {}

// nowhere is an engine that takes everything, and says nothing more of it.
type nowhere struct{}

func (nowhere) propose([]byte, time.Duration) (Proposal, error) { return taken{}, nil }

// TestReloadTellsFirst: where a node comes to the present by a snapshot, those who have lost deliveries in the part that was skipped
// hear of it before any answer to what was asked there.
func TestReloadTellsFirst(t *testing.T) {
	pool := queue.NewPool(16 << 20)
	p := newProposer(1, 1, pool, func() queue.Time { return 1 }, nowhere{}, func(bool) {})
	s := &slot{proposer: p, machine: newMachine(0)}
	s.machine.ring = newRing()
	d := newDispatcher(s.machine, p)
	d.pool = pool
	q := &Queue{id: 1, slot: s, consumers: map[queue.ConsumerID]*consumer{}}
	told := new(events)
	for id, name := range map[queue.ConsumerID]string{1: "late", 2: "settled too late", 3: "well", 4: "gone", 5: "getter", 6: "empty getter", 7: "cancelled"} {
		q.consumers[id] = &consumer{queue: q, id: id, out: hearer{name, pool, told}, last: 5, getter: id == 5 || id == 6, gone: id == 7}
	}
	q.Purge(nil, func(uint64) { told.add("answer") })
	quit := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { p.Run(quit) })
	until(t, "it is proposed", func() bool { return len(p.Unheard(1)) == 1 })
	d.reload(&reload{last: 1, answers: []propose.Answered[answer]{{Number: 1, Answer: answer{results: []result{{}}}}}, queues: []holdings{{
		queue: q,
		held: map[queue.ConsumerID]holding{
			1: {late: []queue.Range{{First: 2, Last: 7}}, overdue: true}, // it has seen 5 of them
			2: {overdue: true},
			3: {},
		},
		before: map[queue.ConsumerID]bool{1: true, 2: true, 3: true, 4: true, 5: true, 7: true},
	}}})
	got := told.all()
	if n := len(got); n == 0 || got[n-1] != "answer" {
		t.Fatalf("%q", got)
	}
	slices.Sort(got)
	want := []string{"answer", "cancelled cancelled", "cancelled late", "empty getter cancelled", "getter cancelled", "getter late", "gone cancelled", "late late", "settled too late late"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if known(q) != 3 {
		t.Errorf("%d consumers are known", known(q))
	}
	// What it was never shown is settled in its stead, or it would wait for ever.
	until(t, "a settlement is proposed", func() bool { return len(p.Unheard(2)) == 1 })
	b := p.Claim(2)
	in := newReader(b.Buf[len(b.Buf)-b.Octets():])
	if k, _ := in.command(); k != cmdSettle {
		t.Fatalf("a command of kind %d", k)
	}
	id, outcome := in.U32(), in.Octet()
	if rs := in.ranges(nil); id != 1 || queue.Outcome(outcome) != queue.Ack || !slices.Equal(rs, []queue.Range{{First: 6, Last: 7}}) {
		t.Errorf("consumer %d, outcome %d, %v", id, outcome, rs)
	}
	close(quit)
	running.Wait()
}

package broker

import (
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/storage"
)

// durableNode is a broker with its messages on a simulated disk.
type durableNode struct {
	*Broker
	t     *testing.T
	fs    *storage.FaultFS
	pool  *queue.Pool
	clock *queue.Clock
	db    *storage.DB
	store *queue.Store
}

func openNode(t *testing.T, fs *storage.FaultFS) *durableNode {
	t.Helper()
	n := &durableNode{t: t, fs: fs, pool: queue.NewPool(64 << 20), clock: queue.NewClock()}
	var err error
	if n.db, err = storage.OpenDB(fs, "data/meta", storage.DBOptions{}); err != nil {
		t.Fatal(err)
	}
	n.store, err = queue.OpenStore(queue.StoreOptions{FS: fs, Dir: "data", DB: n.db, Pool: n.pool, Clock: n.clock,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), FlushAt: queue.SlabSize, JournalMax: 16 << 10})
	if err != nil {
		t.Fatal(err)
	}
	n.Broker, err = Open(Options{Node: "warren@test", Pool: n.pool, Clock: n.clock, Store: n.db, NewQueue: func(q NewQueue) queue.Queue {
		return n.store.NewClassic(storage.LogID(q.ID), q.Durable, queue.ClassicRules(q.MaxPriority), q.Config, q.DeadLetters)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.store.Recover(); err != nil {
		t.Fatal(err)
	}
	return n
}

// close ends the node; on a dead disk that goes wrong, and does not matter.
func (n *durableNode) close() {
	n.clock.Close()
	n.Broker.Close()
	n.store.Close()
	n.db.Close()
}

func (n *durableNode) declare(v *VHost, name string) *Queue {
	n.t.Helper()
	q := await(func(done func(*Queue)) {
		v.DeclareQueue(Actor{}, QueueDeclaration{Name: name, Durable: true}, func(q *Queue, err *amqp.Error) {
			if err != nil {
				n.t.Error(err)
			}
			done(q)
		})
	})
	if q == nil {
		n.t.FailNow()
	}
	return q
}

// publish sends messages with the numbers from first on, and calls confirmed with each that is confirmed.
func (n *durableNode) publish(q *Queue, first, count int, confirmed func(number int)) {
	b := queue.Batch{Confirms: confirms(confirmed)}
	for i := range count {
		body := make([]byte, 300)
		binary.BigEndian.PutUint64(body, uint64(first+i))
		header := append(binary.BigEndian.AppendUint64([]byte{0, 60, 0, 0}, uint64(len(body))), 0, 0)
		m := n.pool.NewMessage(nil, []byte(q.Name), header, func(yield func([]byte) bool) { yield(body) }, len(body), 1)
		m.Flags |= queue.Persistent
		b.Messages, b.Numbers = append(b.Messages, m), append(b.Numbers, uint64(first+i))
	}
	var w queue.Wake
	q.Publish(&b, &w)
	w.Flush()
}

// confirms calls itself with each number that is confirmed.
type confirms func(number int)

func (c confirms) Settled(ranges []queue.Range, ok bool, _ *queue.Wake) {
	for _, r := range ranges {
		for i := r.First; ok && i <= r.Last; i++ {
			c(int(i))
		}
	}
}

// take removes messages from a queue, at most so many, and returns their numbers.
func (n *durableNode) take(q *Queue, most int) (numbers []int) {
	var w queue.Wake
	getter := await(func(done func(queue.ConsumerID)) {
		q.Attach(Consumer{Spec: queue.ConsumerSpec{Getter: true}}, silent{}, &w, func(c queue.ConsumerID, _ *amqp.Error) { done(c) })
	})
	for len(numbers) < most {
		type answer struct {
			o  queue.Offered
			ok bool
		}
		a := await(func(done func(answer)) {
			q.Get(getter, true, &w, func(o queue.Offered, _ uint64, ok bool) { done(answer{o, ok}) })
			w.Flush()
		})
		if !a.ok {
			break
		}
		body := queue.ParseStored(n.pool.Bytes(a.o.Message.Ref)).AppendBody(nil)
		numbers = append(numbers, int(binary.BigEndian.Uint64(body)))
		n.pool.Release(a.o.Message.Ref.Slab, 1)
	}
	return numbers
}

// silent is the outlet of a getter.
type silent struct{}

func (silent) Offer([]queue.Offered, *queue.Wake) bool { return true }
func (silent) Cancelled(*queue.Wake)                   {}
func (silent) Activity(bool)                           {}
func (silent) TimedOut(*queue.Wake)                    {}

// TestDeletionIsWholeOrNot cuts the power, or kills the node, at every operation of the disk during the deletion of a queue or
// of its virtual host, while others go on. A start finds the queue with everything that was confirmed and not taken, or does
// not find it; and does not when the deletion was answered.
func TestDeletionIsWholeOrNot(t *testing.T) {
	for _, what := range []string{"queue", "vhost"} {
		t.Run(what, func(t *testing.T) {
			gone, back := 0, 0
			for seed := range uint64(120) {
				at := int64(seed % 12)
				if deleteAndCrash(t, what, seed, at) {
					back++
				} else {
					gone++
				}
				if t.Failed() {
					t.Fatalf("seed %d, at operation %d", seed, at)
				}
			}
			t.Logf("the queue was there %d times, and gone %d times", back, gone)
			if gone == 0 || back == 0 {
				t.Error("the crashes do not surround the deletion")
			}
		})
	}
}

func deleteAndCrash(t *testing.T, what string, seed uint64, at int64) (back bool) {
	fs := storage.NewFaultFS(seed)
	n := openNode(t, fs)
	if err := await(func(done func(error)) { n.PutVHost(PutVHost{Name: "shop"}, done) }); err != nil {
		t.Fatal(err)
	}
	shop := n.VHost("shop")
	q, busy := n.declare(shop, "q"), n.declare(n.VHost("/"), "busy")
	var mu sync.Mutex
	owed := map[int]bool{} // confirmed and not taken
	var waiting sync.WaitGroup
	waiting.Add(60)
	n.publish(q, 0, 60, func(i int) {
		mu.Lock()
		owed[i] = true
		mu.Unlock()
		waiting.Done()
	})
	waiting.Wait()
	for _, i := range n.take(q, 10) {
		delete(owed, i)
	}
	waiting.Add(1)
	n.publish(busy, 0, 1, func(int) { waiting.Done() }) // and the journal has that
	waiting.Wait()

	fs.StopAfter(at)
	ctx, running := t.Context(), sync.WaitGroup{}
	var stop atomic.Bool
	running.Go(func() { // flushes again and again
		for i := 1; !stop.Load() && ctx.Err() == nil; i += 20 {
			n.publish(busy, i, 20, func(int) {})
			time.Sleep(200 * time.Microsecond)
		}
	})
	running.Go(func() { // had found the queue before it was deleted
		for i := 1000; i < 1030; i++ {
			n.publish(q, i, 1, func(i int) {
				mu.Lock()
				owed[i] = true
				mu.Unlock()
			})
			time.Sleep(50 * time.Microsecond)
		}
	})
	answered := make(chan bool, 1)
	answer := func(err error) {
		if err == nil {
			answered <- true
		}
	}
	if what == "vhost" {
		n.DeleteVHost("shop", func(_ bool, err error) { answer(err) })
	} else {
		var w queue.Wake
		shop.DeleteQueue(Actor{}, "q", false, false, &w, func(_ uint64, err *amqp.Error) { answer(orNil(err)) })
		w.Flush()
	}
	dead := time.Now().Add(5 * time.Millisecond)
	for {
		if _, err := fs.Free("."); err != nil || time.Now().After(dead) {
			break
		}
		time.Sleep(100 * time.Microsecond)
	}
	var after *storage.FaultFS
	if seed/12%2 == 0 {
		after = fs.Crash(seed)
	} else {
		after = fs.Kill()
	}
	stop.Store(true)
	running.Wait()
	n.close()

	n = openNode(t, after)
	defer n.close()
	if shop = n.VHost("shop"); shop != nil {
		q = shop.Queue("q")
	}
	if back = shop != nil && q != nil; !back {
		return false
	}
	select {
	case <-answered:
		t.Error("the queue is there, though its deletion was answered")
	default:
	}
	found := n.take(q, 1000)
	mu.Lock()
	defer mu.Unlock()
	for i := range owed {
		if !slices.Contains(found, i) {
			t.Errorf("the queue is there, and message %d is not: %v", i, found)
		}
	}
	for _, i := range found {
		if i < 10 {
			t.Errorf("message %d is back", i)
		}
	}
	return true
}

// lasting is a queue that notes when it is to end.
type lasting struct {
	queue.Queue
	name string
	told chan string
}

func (l *lasting) Delete(ifUnused, ifEmpty bool, w *queue.Wake, done func(uint64, error)) {
	l.told <- "delete " + l.name
	done(0, nil)
}
func (l *lasting) Forget(*queue.Wake) { l.told <- "forget " + l.name }

// TestForgottenWhenDurable: a queue is not told that it is forgotten before metadata has forgotten it for good, and the one who
// deletes it hears of it after that.
func TestForgottenWhenDurable(t *testing.T) {
	for _, what := range []string{"queue", "vhost"} {
		fs := storage.NewFaultFS(1)
		db, err := storage.OpenDB(fs, "data/meta", storage.DBOptions{})
		if err != nil {
			t.Fatal(err)
		}
		told := make(chan string, 10)
		hear := func(want string) {
			t.Helper()
			select {
			case got := <-told:
				if got != want {
					t.Errorf("%s: heard %s, want %s", what, got, want)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("%s: heard nothing, want %s", what, want)
			}
		}
		b, err := Open(Options{Node: "warren@test", Pool: queue.NewPool(1 << 20), Clock: queue.NewClock(), Store: db, NewQueue: func(q NewQueue) queue.Queue {
			return &lasting{name: fmt.Sprint(q.ID), told: told}
		}})
		if err != nil {
			t.Fatal(err)
		}
		v := b.VHost("/")
		if err := await(func(done func(*amqp.Error)) {
			v.DeclareQueue(Actor{}, QueueDeclaration{Name: "q", Durable: true}, func(_ *Queue, err *amqp.Error) { done(err) })
		}); err != nil {
			t.Fatal(err)
		}
		syncing, hold := make(chan bool, 10), make(chan bool)
		fs.Observe(func(e storage.Event) {
			if e.Op == storage.OpSync {
				syncing <- true
				<-hold
			}
		})
		if what == "vhost" {
			b.DeleteVHost("/", func(bool, error) { told <- "answer" })
		} else {
			var w queue.Wake
			v.DeleteQueue(Actor{}, "q", false, false, &w, func(uint64, *amqp.Error) { told <- "answer" })
		}
		<-syncing
		if what == "queue" {
			hear("delete 1")
		}
		select {
		case got := <-told:
			t.Errorf("%s: heard %s before it was durable", what, got)
		case <-time.After(20 * time.Millisecond):
		}
		close(hold)
		hear("forget 1")
		hear("answer")
		b.Close()
		db.Close()
	}
}

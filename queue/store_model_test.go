package queue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/test/seeds"
)

// storeModel drives a store with two queues at random, restarts it in order, by death and by power cut, and holds what comes
// back against what it knows of each message. The first queue's dead letters go to the second.
type storeModel struct {
	t    *testing.T
	rng  *rand.Rand
	seed uint64
	step int

	fs      *storage.FaultFS
	db      *storage.DB
	pool    *Pool
	clock   *Clock
	store   *Store
	queues  [2]*storeQueue
	letters atomic.Pointer[Classic] // the second queue, for the clock and the workers
	config  Config
	levels  int
	nextID  storage.LogID
	lossy   bool // messages may leave the first queue by themselves
	last    uint64
	bodies  map[uint64]*storeMessage
}

type storeQueue struct {
	queue  *Classic
	id     storage.LogID
	getter ConsumerID
	held   []storeHeld
	copies map[uint64]*storeCopy
	// closing: its deletion has begun, and is not known to metadata
	closing bool
}

type storeHeld struct {
	message  uint64
	delivery DeliveryID
}

// storeMessage is what is known of a message wherever it is.
type storeMessage struct {
	persistent bool
	priority   uint8
	settled    bool         // for good, by a client; perhaps not durably
	mark       storage.Mark // at or above that of its first enqueue
	safe       bool         // it has survived, or was synced
	twice      bool         // a crash has let the second queue have it twice
	story      []string     // for the reader
}

// storeCopy is what is known of a message in one queue.
type storeCopy struct {
	state     storeState
	mark      storage.Mark // at or above that of the record which says so
	delivered bool
}

type storeState uint8

const (
	within  storeState = iota // it is there
	perhaps                   // it may be there
	outside                   // it has left, as the record at mark says
	nowhere                   // it has left, and that is safe
)

// tell notes what has happened to a message.
func (m *storeModel) tell(id uint64, format string, args ...any) {
	k := m.bodies[id]
	k.story = append(k.story, fmt.Sprintf("%d: ", m.step)+fmt.Sprintf(format, args...))
}

func (m *storeModel) fail(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("seed %d, step %d: "+format, append([]any{m.seed, m.step}, args...)...)
}

// Discard implements DeadLetters for the first queue.
func (m *storeModel) Discard(ds []DeadLetter, w *Wake, arrived func()) {
	var b Batch
	for i := range ds {
		d := ds[i].Message
		d.TTL = -1
		b.Messages = append(b.Messages, d)
	}
	m.letters.Load().Publish(&b, w)
	if arrived != nil {
		arrived()
	}
}

func (m *storeModel) Wanted() bool { return true }

func (m *storeModel) open() {
	var err error
	if m.db, err = storage.OpenDB(m.fs, "data/meta", storage.DBOptions{}); err != nil {
		m.fail("%v", err)
	}
	m.pool, m.clock = NewPool(64<<20), NewClock()
	m.pool.Poison = true
	m.store, err = OpenStore(StoreOptions{FS: m.fs, Dir: "data", DB: m.db, Pool: m.pool, Clock: m.clock,
		Log: slog.New(slog.NewTextHandler(modelLog{m}, &slog.HandlerOptions{Level: slog.LevelError})), FlushAt: SlabSize, JournalMax: 256 << 10})
	if err != nil {
		m.fail("%v", err)
	}
	for i := range m.queues {
		m.makeQueue(i)
	}
	report, err := m.store.Recover()
	if err != nil || report.Damaged > 0 || report.Journal.Lost > 0 {
		m.fail("%v, %+v", err, report)
	}
	for _, q := range m.queues {
		m.attach(q)
	}
}

// modelLog fails the test when a store complains while its disk lives.
type modelLog struct{ m *storeModel }

func (l modelLog) Write(b []byte) (int, error) {
	if _, err := l.m.fs.Free("."); err == nil {
		l.m.t.Errorf("seed %d, step %d: the store says: %s", l.m.seed, l.m.step, b)
	}
	return len(b), nil
}

func (m *storeModel) makeQueue(i int) {
	q := m.queues[i]
	if i == 0 {
		q.queue = m.store.NewClassic(q.id, true, ClassicRules(m.levels-1), m.config, m)
	} else {
		q.queue = m.store.NewClassic(q.id, true, ClassicRules(0), noLimits, nil)
		m.letters.Store(q.queue)
	}
}

func (m *storeModel) attach(q *storeQueue) {
	var w Wake
	q.queue.Attach(ConsumerSpec{Getter: true}, nowhereOutlet{}, &w, func(c ConsumerID, _ error) { q.getter = c })
}

// nowhereOutlet is that of a getter.
type nowhereOutlet struct{}

func (nowhereOutlet) Offer([]Offered, *Wake) bool { return true }
func (nowhereOutlet) Cancelled(*Wake)             {}
func (nowhereOutlet) Activity(bool)               {}
func (nowhereOutlet) TimedOut(*Wake)              {}

// counter counts confirms.
type counter chan int

func (c counter) Settled(ranges []Range, ok bool, _ *Wake) {
	n := 0
	for _, r := range ranges {
		n += int(r.Last - r.First + 1)
	}
	c <- n
}

func (m *storeModel) publish() {
	n := 1 + m.rng.IntN(12)
	confirms := make(counter, n)
	b := Batch{Confirms: confirms}
	var ids []uint64
	for range n {
		m.last++
		k := &storeMessage{persistent: m.rng.IntN(5) > 0, priority: uint8(m.rng.IntN(m.levels))}
		body := make([]byte, 8+m.rng.IntN(1500))
		binary.BigEndian.PutUint64(body, m.last)
		header := binary.BigEndian.AppendUint64([]byte{0, 60, 0, 0}, uint64(len(body)))
		msg := m.pool.NewMessage([]byte("x"), []byte("key"), append(header, 0, 0), func(yield func([]byte) bool) { yield(body) }, len(body), 1)
		if k.persistent {
			msg.Flags |= Persistent
		}
		msg.Flags |= HasPriority
		msg.Priority = k.priority
		if m.lossy && m.rng.IntN(4) == 0 {
			msg.TTL = m.rng.Int64N(40)
		}
		b.Messages, b.Numbers = append(b.Messages, msg), append(b.Numbers, m.last)
		m.bodies[m.last] = k
		ids = append(ids, m.last)
	}
	var w Wake
	m.queues[0].queue.Publish(&b, &w)
	w.Flush()
	mark := m.store.journal.Appended()
	for _, id := range ids {
		m.bodies[id].mark = mark
		m.queues[0].copies[id] = &storeCopy{mark: mark}
		m.tell(id, "published, mark %d", mark)
	}
	if m.rng.IntN(2) == 0 {
		for left := n; left > 0; left -= <-confirms {
		}
		if synced := m.store.journal.Synced(); m.anyPersistent(ids) && !m.lossy && synced == 0 {
			m.fail("confirmed and nothing is synced")
		}
		for _, id := range ids {
			m.bodies[id].safe = m.bodies[id].persistent
			m.tell(id, "confirmed")
		}
	}
}

func (m *storeModel) anyPersistent(ids []uint64) bool {
	return slices.ContainsFunc(ids, func(id uint64) bool { return m.bodies[id].persistent })
}

// get takes the next message of a queue.
func (m *storeModel) get(i int, noAck bool) (id uint64, o Offered, ok bool) {
	q := m.queues[i]
	type answer struct {
		o  Offered
		ok bool
	}
	got := make(chan answer, 1)
	var w Wake
	q.queue.Get(q.getter, noAck, &w, func(o Offered, _ uint64, ok bool) { got <- answer{o, ok} })
	w.Flush()
	var a answer
	select {
	case a = <-got:
	case <-time.After(20 * time.Second):
		m.fail("a get of queue %d was not answered, %+v", i, q.queue.Stats())
	}
	if !a.ok {
		return 0, a.o, false
	}
	body := ParseStored(m.pool.Bytes(a.o.Message.Ref)).AppendBody(nil)
	m.pool.Release(a.o.Message.Ref.Slab, 1)
	id = binary.BigEndian.Uint64(body)
	k := m.bodies[id]
	if k == nil {
		m.fail("queue %d delivers message %d, which nobody published", i, id)
	}
	return id, a.o, true
}

func (m *storeModel) getOne() {
	i := m.rng.IntN(2)
	q := m.queues[i]
	noAck := m.rng.IntN(4) == 0
	id, o, ok := m.get(i, noAck)
	if i == 0 && !m.lossy {
		maybe := ok && q.copies[id] != nil && q.copies[id].state == perhaps
		if want := m.head(q); !ok && want != 0 || ok && id != want && !(maybe && (want == 0 || m.before(id, want))) {
			m.fail("get returned message %d, %v, instead of %d", id, ok, want)
		}
	}
	if !ok {
		return
	}
	c := q.copies[id]
	if c == nil {
		c = &storeCopy{} // a dead letter that came by itself
		q.copies[id] = c
	}
	if i == 0 && c.delivered && !o.Redelivered {
		m.fail("message %d was delivered before", id)
	}
	c.delivered = true
	if c.state == perhaps {
		c.state, c.mark = within, 0
	}
	if i == 1 && slices.ContainsFunc(q.held, func(h storeHeld) bool { return h.message == id }) {
		m.bodies[id].twice = true
	}
	m.tell(id, "got from %d, no ack %v, mark %d", i, noAck, m.store.journal.Appended())
	if noAck {
		c.state, c.mark = outside, m.store.journal.Appended()
		m.bodies[id].settled = true
		return
	}
	q.held = append(q.held, storeHeld{id, o.ID})
}

// head is the message of a queue that is next.
func (m *storeModel) head(q *storeQueue) (first uint64) {
	for id, c := range q.copies {
		if c.state != within || slices.ContainsFunc(q.held, func(h storeHeld) bool { return h.message == id }) {
			continue
		}
		if first == 0 || m.before(id, first) {
			first = id
		}
	}
	return first
}

// before reports whether a goes out before b.
func (m *storeModel) before(a, b uint64) bool {
	if x, y := m.bodies[a].priority, m.bodies[b].priority; x != y {
		return x > y
	}
	return a < b
}

func (m *storeModel) settle() {
	i := m.rng.IntN(2)
	q := m.queues[i]
	if len(q.held) == 0 {
		return
	}
	at := m.rng.IntN(len(q.held))
	n := min(1+m.rng.IntN(4), len(q.held)-at)
	o := []Outcome{Ack, Ack, Return, ReturnFailed, Discard, DiscardFailed}[m.rng.IntN(6)]
	held := slices.Clone(q.held[at : at+n])
	q.held = slices.Delete(q.held, at, at+n)
	var ids []Range
	for _, h := range held {
		ids = append(ids, Range{h.delivery, h.delivery})
	}
	slices.SortFunc(ids, func(a, b Range) int { return int(a.First) - int(b.First) })
	var w Wake
	q.queue.Settle(q.getter, ids, o, &w)
	w.Flush()
	m.awaitLimbo()
	if o == Return || o == ReturnFailed {
		return
	}
	mark := m.store.journal.Appended()
	for _, h := range held {
		c := q.copies[h.message]
		c.state, c.mark = outside, mark
		m.tell(h.message, "settled in %d with %d, mark %d", i, o, mark)
		if i == 0 && o != Ack {
			m.queues[1].copies[h.message] = &storeCopy{mark: mark}
		} else {
			m.bodies[h.message].settled = true
		}
	}
}

// awaitLimbo returns when the dead letters have arrived.
func (m *storeModel) awaitLimbo() {
	q := m.queues[0].queue
	for {
		q.mu.Lock()
		n := len(q.limbo)
		q.mu.Unlock()
		if n == 0 {
			return
		}
		time.Sleep(50 * time.Microsecond)
	}
}

func (m *storeModel) purge() {
	i := m.rng.IntN(2)
	q := m.queues[i]
	var w Wake
	q.queue.Purge(&w, func(uint64) {})
	w.Flush()
	mark := m.store.journal.Appended()
	for id := range m.bodies {
		c := q.copies[id]
		if c == nil || c.state == nowhere || c.state == outside || slices.ContainsFunc(q.held, func(h storeHeld) bool { return h.message == id }) {
			continue
		}
		c.state, c.mark = outside, mark
		m.tell(id, "purged from %d, mark %d", i, mark)
		if i == 0 && m.lossy {
			c.state = perhaps // it may be one of those that had expired and are in the other queue
		}
		m.bodies[id].settled = true
	}
	if m.lossy { // dead letters that nobody told of, and those that a crash has brought back to the first queue
		for id := range m.queues[0].copies {
			m.bodies[id].settled = true
		}
	}
}

// recreate deletes a queue and makes one of the same name. Now and then metadata does not forget the queue for a while, and a
// crash meanwhile brings it back.
func (m *storeModel) recreate() {
	i := m.rng.IntN(2)
	q := m.queues[i]
	m.awaitLimbo()
	var w Wake
	if !q.closing {
		deleted := make(chan bool)
		q.queue.Delete(false, false, &w, func(uint64, error) { close(deleted) })
		w.Flush()
		<-deleted
		if q.closing = m.rng.IntN(2) == 0; q.closing {
			return
		}
	}
	if i == 0 && m.lossy {
		m.clock.Close() // nothing expires into the other queue meanwhile
		m.clock = NewClock()
		m.store.o.Clock = m.clock
	}
	q.queue.Forget(&w)
	w.Flush()
	q.closing = false
	synced := m.store.journal.Synced()
	for id, k := range m.bodies {
		c := q.copies[id]
		late := c != nil && c.state == outside && c.mark > synced // a letter that left when the deletion had begun: it may go with the queue
		if late || c != nil && c.state != nowhere && c.state != outside || i == 1 && m.lossy || i == 0 && m.lossy && c != nil {
			k.settled = true
			m.tell(id, "queue %d is made anew", i)
		}
	}
	m.nextID++
	q.id, q.held, q.copies = m.nextID, nil, map[uint64]*storeCopy{}
	m.makeQueue(i)
	m.attach(q)
}

// restart ends the store in one of three ways and opens it again.
func (m *storeModel) restart() {
	how := m.rng.IntN(3)
	synced := storage.Mark(0)
	switch how {
	case 0:
		m.clock.Close()
		if err := m.store.Close(); err != nil {
			m.fail("close: %v", err)
		}
		if err := m.db.Close(); err != nil {
			m.fail("close: %v", err)
		}
	default:
		synced = m.store.journal.Synced()
		if m.rng.IntN(2) == 0 {
			m.fs.StopAfter(m.rng.Int64N(30))
			m.store.journal.Commit(m.store.journal.Appended())
			m.store.wakeFlusher()
			time.Sleep(time.Duration(m.rng.IntN(2000)) * time.Microsecond)
			synced = max(synced, m.store.journal.Synced())
		}
		var after *storage.FaultFS
		if how == 1 {
			after = m.fs.Crash(m.rng.Uint64())
		} else {
			after = m.fs.Kill()
		}
		m.clock.Close()
		if err := m.store.Close(); err == nil && m.store.journal.Synced() < m.store.journal.Appended() {
			m.fail("a store without a disk was closed in order")
		}
		if err := m.db.Close(); err != nil && !errors.Is(err, storage.ErrDead) {
			m.t.Log(err)
		}
		m.fs = after
	}
	for id, k := range m.bodies {
		if k.safe = k.safe || how == 0 && k.mark < math.MaxUint64 || k.persistent && k.mark <= synced; !k.safe {
			k.mark = math.MaxUint64 // another record may have that mark now
		}
		for _, q := range m.queues {
			c := q.copies[id]
			switch {
			case c == nil:
				continue
			case !k.persistent:
				c.state = nowhere
			case how == 0:
				if c.state == outside {
					c.state = nowhere
				}
			case c.state == within && c.mark > synced:
				c.state = perhaps
			case c.state == outside && c.mark > synced:
				c.state = perhaps
			case c.state == outside:
				c.state = nowhere
			}
			c.delivered = c.delivered || how != 0
			m.tell(id, "restart of kind %d, synced %d: state %d, safe %v", how, synced, c.state, k.safe)
		}
	}
	for id, k := range m.bodies { // what left the first queue just before may have been undone there, and not in the other
		if c := m.queues[0].copies[id]; m.lossy && how != 0 && c != nil && c.state != nowhere && c.state != outside {
			k.twice = true
		}
	}
	for _, q := range m.queues {
		q.held, q.closing = nil, false
	}
	m.open()
	if m.rng.IntN(4) > 0 {
		m.compare(how == 0)
	}
}

// compare takes everything from both queues, holds it against what is known, and gives it back.
func (m *storeModel) compare(clean bool) {
	var found [2]map[uint64]bool
	for i, q := range m.queues {
		m.awaitLimbo() // what has expired arrives
		found[i] = map[uint64]bool{}
		last := uint64(0)
		for {
			id, o, ok := m.get(i, false)
			if !ok {
				break
			}
			c := q.copies[id]
			k := m.bodies[id]
			if c == nil {
				if i == 0 {
					m.fail("message %d is in a queue that never had it", id)
				}
				c = &storeCopy{state: perhaps}
				q.copies[id] = c
			}
			if !k.persistent && c.state == nowhere {
				m.fail("transient message %d is back", id)
			}
			other := m.queues[0].copies[id]
			if c.state == nowhere && !k.twice && (i == 0 || other == nil || other.state == nowhere) {
				m.fail("message %d is back in queue %d\n%s", id, i, strings.Join(k.story, "\n"))
			}
			if found[i][id] {
				if i == 0 {
					m.fail("message %d is in queue %d twice", id, i)
				}
				k.twice = true
			}
			if i == 0 && last != 0 && m.before(id, last) {
				m.fail("message %d comes behind %d", id, last)
			}
			if i == 0 && clean && !m.lossy && c.state == within && o.Redelivered != c.delivered {
				m.fail("message %d: redelivered %v, delivered %v", id, o.Redelivered, c.delivered)
			}
			last = id
			found[i][id] = true
			c.delivered = true
			q.held = append(q.held, storeHeld{id, o.ID})
		}
	}
	for id, k := range m.bodies {
		in := found[0][id] || found[1][id]
		if k.safe && k.persistent && !k.settled && !in {
			m.fail("message %d is lost: %+v, %+v\n%s", id, m.queues[0].copies[id], m.queues[1].copies[id], strings.Join(k.story, "\n"))
		}
		for i, q := range m.queues {
			c := q.copies[id]
			switch {
			case c == nil:
			case found[i][id]:
				c.state, c.mark = within, 0
				m.tell(id, "found in %d", i)
				k.settled = false // a settlement that was lost
			case c.state == within && (i == 1 || !m.lossy) && !found[1][id] && k.persistent && !k.twice:
				m.fail("message %d is not in queue %d: %+v\n%s", id, i, c, strings.Join(k.story, "\n"))
			case i == 0 && m.lossy && c.state != nowhere: // it may have left by itself just now, and a crash undo that
				c.state, c.mark = outside, m.store.journal.Appended()
			default:
				c.state = nowhere
			}
		}
		if !in {
			delete(m.bodies, id)
			for _, q := range m.queues {
				delete(q.copies, id)
			}
		}
	}
	for _, q := range m.queues {
		if m.rng.IntN(3) == 0 {
			continue
		}
		var w Wake
		q.queue.Settle(q.getter, []Range{{1, 1 << 40}}, Return, &w)
		w.Flush()
		q.held = nil
	}
}

func TestStoreModel(t *testing.T) {
	steps := 40_000
	if n, err := strconv.Atoi(os.Getenv("WARREN_STORE_STEPS")); err == nil {
		steps = n
	} else if testing.Short() {
		steps /= 10
	}
	seed := seeds.Of(t)
	for _, plan := range []struct {
		name   string
		levels int
		config Config
	}{
		{"plain", 1, noLimits},
		{"priorities", 4, noLimits},
		{"expiry", 2, Config{TTL: 60, MaxLength: -1, MaxBytes: -1, DeliveryLimit: -1}},
		{"limit", 1, Config{TTL: -1, MaxLength: 40, MaxBytes: -1, DeliveryLimit: -1}},
	} {
		t.Run(plan.name, func(t *testing.T) {
			t.Parallel()
			m := &storeModel{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), fs: storage.NewFaultFS(seed), levels: plan.levels, config: plan.config,
				bodies: map[uint64]*storeMessage{}, lossy: plan.config.TTL >= 0 || plan.config.MaxLength >= 0, nextID: 2}
			for i := range m.queues {
				m.queues[i] = &storeQueue{id: storage.LogID(i + 1), copies: map[uint64]*storeCopy{}}
			}
			m.open()
			for m.step = range steps {
				switch x := m.rng.IntN(400); {
				case x < 90:
					m.publish()
				case x < 240:
					m.getOne()
				case x < 370:
					m.settle()
				case x < 372:
					m.purge()
				case x < 374:
					m.recreate()
				case x < 390:
					m.store.wakeFlusher()
				case x < 397:
					m.store.journal.Rotate()
				default:
					m.restart()
				}
			}
			m.restart()
			m.clock.Close()
			m.store.Close()
			m.db.Close()
		})
	}
}

var _ io.Writer = modelLog{}

package quorum

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"encoding/binary"

	"github.com/warrenmq/warren/octet"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/quorum/propose"
	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/test/seeds"
)

// slotModel drives two replicas through the same log, in which batches come again, too early and after starts of their
// node, and knows what must be in each queue. One of the replicas loses power again and again.
type slotModel struct {
	testing.TB
	rng      *rand.Rand
	seed     uint64
	step     int
	log      [][]byte
	now      queue.Time
	boot     uint64
	number   uint64   // of the last batch of this boot
	sent     [][]byte // batches of this boot
	pool     *queue.Pool
	leader   *rig
	follower *rig
	queues   map[uint64]*modelQueue
	lastID   uint64
	deleted  []uint64
	lastBody uint64
	goOn     []uint64
	done     uint64            // answers up to here need not be known any more
	answers  map[uint64][]byte // as they were given first
	copied   int               // how often it has been
	view     any               // of the leader, to be copied to the follower
}

type modelQueue struct {
	config    queue.Config
	plain     bool            // nothing leaves but by commands: alive is exact
	alive     map[uint64]bool // messages by number
	holder    map[uint64]queue.ConsumerID
	consumers map[queue.ConsumerID]*modelConsumer
}

type modelConsumer struct {
	getter bool
	ending bool
	held   map[queue.DeliveryID]uint64
}

func (m *slotModel) fatal(format string, args ...any) {
	m.Helper()
	m.Fatalf("WARREN_SEED=%d, step %d: %s", m.seed, m.step, fmt.Sprintf(format, args...))
}

// expectation is what is done to the model when a batch is applied.
type expectation struct {
	begins  bool
	now     []func()                    // when it begins
	results []func(r *round, x *result) // for each answer
}

// batch makes a batch of random commands.
func (m *slotModel) batch() (entry []byte, e *expectation) {
	m.now += queue.Time(m.rng.IntN(50))
	m.number++
	e = &expectation{begins: m.number == 1}
	b := make([]byte, propose.HeaderLen)
	h := propose.Header{At: int64(m.now) - int64(m.rng.IntN(3)), Node: 1, Boot: m.boot, Number: m.number}
	if m.number > 3 {
		h.Done = m.number - 1 - m.rng.Uint64N(3)
	}
	m.done = max(m.done, h.Done)
	h.Put(b)
	if m.number == 1 {
		b = appendCommand(b, cmdBegin, 0)
	}
	for _, id := range m.goOn {
		b = appendCommand(b, cmdContinue, id)
	}
	m.goOn = nil
	for n := 1 + m.rng.IntN(6); n > 0; n-- {
		if before := len(b); m.rng.IntN(300) > 0 {
			b = m.command(b, e)
			if k := kind(b[before]); k == cmdPurge || k == cmdDelete || k == cmdMayDelete { // the model knows what comes before them only
				break
			}
		}
	}
	return b, e
}

func (m *slotModel) command(b []byte, e *expectation) []byte {
	ids := slices.Sorted(maps.Keys(m.queues))
	if len(ids) == 0 || len(ids) < 5 && m.rng.IntN(10) == 0 {
		m.lastID++
		id := m.lastID
		if n := len(m.deleted); n > 0 && m.rng.IntN(2) == 0 { // once more, as after a crash that metadata has lost its end in
			id, m.deleted = m.deleted[n-1], m.deleted[:n-1]
		}
		q := &modelQueue{config: noLimits, plain: m.rng.IntN(3) > 0, alive: map[uint64]bool{}, holder: map[uint64]queue.ConsumerID{}, consumers: map[queue.ConsumerID]*modelConsumer{}}
		if !q.plain {
			q.config.TTL = int64(m.rng.IntN(200))
			q.config.MaxLength = int64(m.rng.IntN(100))
			q.config.DeliveryLimit = 2
			q.config.DelayType, q.config.DelayMin = queue.DelayType(m.rng.IntN(4)), int64(m.rng.IntN(30))
			q.config.KeepDiscards = m.rng.IntN(2) == 0
			q.config.Overflow = queue.Overflow(m.rng.IntN(2))
			q.config.ConsumerTimeout = int64(m.rng.IntN(3)) * 300
		}
		m.queues[id] = q
		m.leader.know(id)
		return appendConfig(append(appendCommand(b, cmdCreate, id), rulesVersion), &q.config)
	}
	id := ids[m.rng.IntN(len(ids))]
	q := m.queues[id]
	var cs []queue.ConsumerID
	for c, k := range q.consumers {
		if !k.ending {
			cs = append(cs, c)
		}
	}
	slices.Sort(cs)
	switch x := m.rng.IntN(100); {
	case x < 40:
		var ms []queue.Message
		for range 1 + m.rng.IntN(12) {
			m.lastBody++
			body := make([]byte, 8+m.rng.IntN(200))
			if m.rng.IntN(100) == 0 {
				body = make([]byte, 60_000)
			}
			binary.BigEndian.PutUint64(body, m.lastBody)
			msg := m.pool.NewMessage([]byte("x"), []byte("k"), make([]byte, 14), func(yield func([]byte) bool) { yield(body) }, len(body), 1)
			if m.rng.IntN(4) == 0 {
				msg.Flags |= queue.HasPriority
				msg.Priority = uint8(m.rng.IntN(40))
			}
			if m.rng.IntN(8) == 0 {
				msg.Flags = msg.Flags.WithFailures(uint32(m.rng.IntN(12)))
			}
			if !q.plain && m.rng.IntN(4) == 0 {
				msg.TTL = int64(m.rng.IntN(100))
			}
			ms = append(ms, msg)
			n := m.lastBody
			e.now = append(e.now, func() { q.alive[n] = true })
		}
		b = appendPublish(b, id, ms, m.pool)
		for i := range ms {
			m.pool.Release(ms[i].Ref.Slab, 1)
		}
		return b
	case x < 48 && len(cs) < 4:
		getter := m.rng.IntN(3) == 0
		e.results = append(e.results, func(_ *round, r *result) {
			if r.code != codeDone {
				if m.queues[id] == q {
					m.fatal("attach: %d", r.code)
				}
				return
			}
			q.consumers[queue.ConsumerID(r.count)] = &modelConsumer{getter: getter, held: map[queue.DeliveryID]uint64{}}
		})
		b = append(appendCommand(b, cmdAttach, id), octet.Of(getter))
		b = binary.AppendUvarint(b, uint64(m.rng.IntN(20)))
		b = binary.AppendVarint(b, int64(m.rng.IntN(3)))
		return binary.AppendVarint(b, 0)
	case x < 78 && len(cs) > 0:
		c := cs[m.rng.IntN(len(cs))]
		k := q.consumers[c]
		var ids []queue.Range
		for _, d := range slices.Sorted(maps.Keys(k.held)) {
			if m.rng.IntN(3) > 0 {
				ids = appendRange(ids, queue.Range{First: d, Last: d})
			}
		}
		o := queue.Outcome(m.rng.IntN(int(outcomeGot) + 1))
		if m.rng.IntN(2) == 0 {
			o = queue.Ack
		}
		gone := o != queue.Return && o != queue.ReturnFailed
		e.now = append(e.now, func() {
			for _, r := range ids {
				for d := r.First; d <= r.Last; d++ {
					if n, ok := k.held[d]; ok {
						delete(k.held, d)
						delete(q.holder, n)
						if gone {
							delete(q.alive, n)
						}
					}
				}
			}
		})
		return appendSettle(b, id, c, o, ids)
	case x < 82 && len(cs) > 0:
		c := cs[m.rng.IntN(len(cs))]
		how := queue.Detachment(m.rng.IntN(2))
		k := q.consumers[c]
		if k.ending = how == queue.Remove; k.ending {
			e.results = append(e.results, func(*round, *result) { q.drop(c) })
		} else {
			e.results = append(e.results, func(*round, *result) {})
		}
		return append(binary.AppendUvarint(appendCommand(b, cmdDetach, id), uint64(c)), byte(how))
	case x < 90 && len(cs) > 0:
		c := cs[m.rng.IntN(len(cs))]
		e.results = append(e.results, func(_ *round, r *result) {
			if r.got.Seq != 0 && m.queues[id] == q {
				m.delivered(id, q, c, r.got.ID, r.got.Seq, r.body, r.body.Ref.Len > 0)
			}
		})
		return binary.AppendUvarint(appendCommand(b, cmdGet, id), uint64(c))
	case x < 92:
		e.results = append(e.results, func(_ *round, r *result) {
			if q.plain && r.count != uint64(len(q.alive)-len(q.holder)) {
				m.fatal("queue %d: %d messages were purged, %d were ready", id, r.count, len(q.alive)-len(q.holder))
			}
			for n := range q.alive {
				if _, held := q.holder[n]; !held {
					delete(q.alive, n)
				}
			}
		})
		return appendCommand(b, cmdPurge, id)
	case x < 94:
		delete(m.queues, id)
		m.deleted = append(m.deleted, id)
		if m.rng.IntN(2) == 0 { // it is deleted unasked where metadata does not know it
			return appendCommand(b, cmdDelete, id)
		}
		e.results = append(e.results, func(_ *round, r *result) {
			if r.code != 0 {
				m.fatal("queue %d may not be deleted: %d", id, r.code)
			}
		})
		return appendCommand(append(appendCommand(b, cmdMayDelete, id), 0), cmdDelete, id)
	case x < 96:
		var seqs []queue.Range
		for d := range m.leader.m.queues[id].kept() {
			seqs = append(seqs, queue.Range{First: uint64(d.First), Last: uint64(d.Last)})
		}
		slices.SortFunc(seqs, func(a, b queue.Range) int { return int(int64(a.First) - int64(b.First)) })
		return queue.AppendRanges(appendCommand(b, cmdBuried, id), seqs)
	default:
		return appendCommand(b, cmdTick, id)
	}
}

// kept are the dead letters that wait.
func (q *replica) kept() func(func(queue.Discarded) bool) {
	if q == nil {
		return func(func(queue.Discarded) bool) {}
	}
	return q.state.KeptDiscards()
}

// drop is told that a consumer is gone, and what it held is back.
func (q *modelQueue) drop(c queue.ConsumerID) {
	if k := q.consumers[c]; k != nil {
		for _, n := range k.held {
			delete(q.holder, n)
		}
		clear(k.held)
		delete(q.consumers, c)
	}
}

// delivered checks a delivery.
func (m *slotModel) delivered(id uint64, q *modelQueue, c queue.ConsumerID, d queue.DeliveryID, seq queue.Seq, msg queue.Message, held bool) {
	m.Helper()
	var n uint64
	if held {
		n = numberOf(m.leader.pool, msg)
		m.leader.pool.Release(msg.Ref.Slab, 1)
	} else {
		var ok bool
		if n, ok = m.leader.message(id, seq); !ok {
			return // it has left in the same batch
		}
	}
	k := q.consumers[c]
	if k == nil { // it has gone in the same batch
		return
	}
	if other, held := q.holder[n]; held && q.consumers[other].ending { // it is on its way out: the answer comes later
		maps.DeleteFunc(q.consumers[other].held, func(_ queue.DeliveryID, x uint64) bool { return x == n })
	} else if held && q.plain {
		m.fatal("queue %d: message %d goes to consumer %d, and %d has it", id, n, c, other)
	}
	if !q.alive[n] {
		m.fatal("queue %d: message %d goes to consumer %d, and is gone", id, n, c)
	}
	k.held[d] = n
	q.holder[n] = c
}

// apply feeds the leader one entry that is the next batch, and checks what it asks for.
func (m *slotModel) apply(e *expectation) {
	m.Helper()
	rounds, _ := m.leader.m.ring.take(nil, nil)
	seen := false
	for _, r := range rounds {
		if seen || r.number != m.number {
			m.fatal("a round of batch %d, %d is the next", r.number, m.number)
		}
		seen = true
		m.answers[r.number] = appendAnswer(nil, &r.answer)
		if e.begins {
			for _, q := range m.queues {
				for c := range q.consumers {
					q.drop(c)
				}
			}
		}
		for _, f := range e.now {
			f()
		}
		if len(r.answer.results) != len(e.results) {
			m.fatal("%d answers, not %d", len(r.answer.results), len(e.results))
		}
		for i := range r.ops {
			x := &r.ops[i]
			switch x.kind {
			case opResult:
				e.results[r.answer.results[x.from].ordinal](r, &r.answer.results[x.from])
			case opDeliver:
				q := m.queues[x.queue.id]
				for _, d := range r.deliveries[x.from:x.to] {
					if q == nil {
						if d.held {
							m.leader.pool.Release(d.message.Ref.Slab, 1)
						}
						continue
					}
					m.delivered(x.queue.id, q, x.consumer, d.id, d.seq, d.message, d.held)
				}
			case opTimedOut:
				if q := m.queues[x.queue.id]; q != nil && q.consumers[x.consumer] != nil {
					for d := x.ids.First; d <= x.ids.Last; d++ {
						k := q.consumers[x.consumer]
						delete(q.holder, k.held[d])
						delete(k.held, d)
					}
				}
			case opContinue:
				m.goOn = append(m.goOn, x.queue.id)
			}
		}
		for _, l := range r.letters {
			if !l.cold {
				m.leader.pool.Release(l.Message.Ref.Slab, 1)
			}
		}
		m.leader.m.ring.recycle(r)
	}
	if !seen {
		m.fatal("no round of batch %d", m.number)
	}
}

// propose puts the next batch into the log, among others that must change nothing.
func (m *slotModel) propose() {
	m.Helper()
	entry, e := m.batch()
	noise := func(last uint64) {
		switch m.rng.IntN(5) {
		case 0: // again
			if len(m.sent) > 0 {
				m.log = append(m.log, m.sent[len(m.sent)-1-m.rng.IntN(min(4, len(m.sent)))])
			}
		case 1: // too early
			early := bytes.Clone(entry)
			h, _, _ := propose.ReadHeader(entry)
			h.Number = last + 2 + m.rng.Uint64N(3)
			h.Put(early)
			m.log = append(m.log, early)
		case 2: // of a start that has ended
			if m.boot > 1 {
				old := bytes.Clone(entry)
				h, _, _ := propose.ReadHeader(entry)
				h.Boot--
				h.Put(old)
				m.log = append(m.log, old)
			}
		}
	}
	if m.number > 1 || m.boot > 1 {
		noise(m.number - 1)
	}
	m.leader.feed(m.log, m.rng)
	rounds, _ := m.leader.m.ring.take(nil, nil)
	m.answersAgain(rounds)
	m.log = append(m.log, entry)
	m.leader.feed(m.log, m.rng)
	m.apply(e)
	m.sent = append(m.sent, entry)
	if noise(m.number); m.rng.IntN(2) == 0 {
		m.log = append(m.log, entry)
	}
	after := m.leader.state()
	m.leader.feed(m.log, m.rng)
	if m.leader.state() != after {
		m.fatal("a batch that is not the next one has changed something")
	}
	rounds, _ = m.leader.m.ring.take(nil, nil)
	m.answersAgain(rounds)
}

// answersAgain checks what is said of batches that were applied before: what was said then, unless their node has said that
// it knows.
func (m *slotModel) answersAgain(rounds []*round) {
	m.Helper()
	o := m.leader.m.origins.Of(1)
	for _, r := range rounds {
		if len(r.deliveries) > 0 || len(r.letters) > 0 || r.number > o.Last {
			m.fatal("batch %d has an effect again", r.number)
		}
		var want []byte
		if r.number > m.done {
			want = m.answers[r.number]
		}
		if got := appendAnswer(nil, &r.answer); want != nil && !bytes.Equal(got, want) {
			m.fatal("batch %d was answered %x, and now %x", r.number, want, got)
		}
		for i := range r.answer.results {
			if r.answer.results[i].body.Ref.Len > 0 {
				m.fatal("a body that nobody holds")
			}
		}
	}
}

// copy gives the follower what the leader had, if it is behind that, and it may lose power meanwhile.
func (m *slotModel) copy() {
	m.Helper()
	v, _ := m.view.(*view)
	if v == nil {
		return
	}
	m.view = nil
	var b bytes.Buffer
	if err := m.leader.m.SaveSnapshot(v, &b, nil); err != nil {
		m.fatal("%v", err)
	}
	if v.index <= m.follower.fed {
		return
	}
	stop := m.rng.IntN(3) == 0
	if stop {
		m.follower.fs.StopAfter(int64(m.rng.IntN(20)))
	}
	err := m.follower.m.RecoverFromSnapshot(&b, nil)
	if !stop && err != nil {
		m.fatal("%v", err)
	}
	if err == nil {
		m.copied++
		m.follower.fed = v.index
	}
	if stop || m.rng.IntN(3) == 0 {
		if m.follower.crash(m.rng.Uint64(), 1); err == nil && m.follower.fed != v.index {
			m.fatal("it starts at %d, and had %d", m.follower.fed, v.index)
		}
	}
}

// check compares both replicas with each other and with the model.
func (m *slotModel) check() {
	m.Helper()
	m.follower.feed(m.log, m.rng)
	if m.leader.state() != m.follower.state() {
		m.fatal("the replicas differ")
	}
	for id, q := range m.queues {
		if m.leader.m.queues[id] == nil {
			m.fatal("queue %d is missing", id)
		}
		a, b := m.leader.contents(id), m.follower.contents(id)
		if !slices.Equal(a, b) {
			m.fatal("queue %d: the replicas have %v and %v", id, a, b)
		}
		if !q.plain {
			q.alive = map[uint64]bool{}
			for _, n := range a {
				q.alive[n] = true
			}
			continue
		}
		slices.Sort(a)
		if want := slices.Sorted(maps.Keys(q.alive)); !slices.Equal(a, want) {
			m.fatal("queue %d has %v, and should have %v", id, a, want)
		}
	}
}

func TestSlotModel(t *testing.T) {
	seed := seeds.Of(t)
	runs, steps, copied := 12, 250, 0
	if testing.Short() {
		runs = 3
	}
	for run := range runs {
		t.Run(fmt.Sprint(run), func(t *testing.T) {
			seed := seed + uint64(run)
			m := &slotModel{TB: t, rng: rand.New(rand.NewPCG(seed, 1)), seed: seed, boot: 1, pool: queue.NewPool(16 << 20), queues: map[uint64]*modelQueue{}, answers: map[uint64][]byte{}, now: 1_000_000}
			m.leader = newRig(t, 1, storage.NewFaultFS(seed), 1)
			m.leader.dead = drop{m.leader}
			m.follower = newRig(t, 2, storage.NewFaultFS(seed+1), 1)
			for m.step = range steps {
				m.propose()
				switch m.rng.IntN(30) {
				case 0, 1:
					if _, err := m.leader.m.checkpoint(); err != nil {
						t.Fatal(err)
					}
				case 2, 3:
					m.follower.feed(m.log[:len(m.log)-m.rng.IntN(2)], m.rng)
					if _, err := m.follower.m.checkpoint(); err != nil {
						t.Fatal(err)
					}
				case 4, 5:
					m.follower.feed(m.log, m.rng)
					m.follower.crash(m.rng.Uint64(), 1)
				case 6: // in the middle of a checkpoint
					m.follower.feed(m.log, m.rng)
					m.follower.fs.StopAfter(int64(m.rng.IntN(12)))
					if _, err := m.follower.m.checkpoint(); err != nil && !errors.Is(err, storage.ErrDead) {
						t.Log(err)
					}
					m.follower.crash(m.rng.Uint64(), 1)
				case 7:
					if err := m.follower.m.compact(t.Context()); err != nil {
						t.Fatal(err)
					}
				case 16, 17: // it lags, and gets everything, as it was some time ago; the view may never be asked for
					if m.view == nil || m.rng.IntN(4) == 0 {
						var err error
						if m.view, err = m.leader.m.PrepareSnapshot(); err != nil {
							t.Fatal(err)
						}
					}
				case 18, 19, 20:
					m.copy()
				case 8: // the node that proposes starts anew, and so does its replica
					m.boot, m.number, m.sent, m.goOn = m.boot+1, 0, nil, nil
					m.done, m.answers, m.view = 0, map[uint64][]byte{}, nil
					m.leader.crash(m.rng.Uint64(), m.boot)
					for id := range m.queues {
						m.leader.know(id)
						if q := m.leader.m.queues[id]; q != nil {
							q.local = m.leader.m.locals[id]
						}
					}
					m.leader.feed(m.log, m.rng)
					if rounds, _ := m.leader.m.ring.take(nil, nil); len(rounds) > 0 {
						m.fatal("what was carried out before is carried out again")
					}
				case 12, 13, 14, 15: // while the log goes on
					behind := m.log[:max(int(m.follower.fed), len(m.log)-m.rng.IntN(20))]
					m.follower.feed(behind, m.rng)
					events, at := 0, m.rng.IntN(8)
					m.follower.fs.Observe(func(e storage.Event) {
						if e.Op != storage.OpWrite && e.Op != storage.OpSync { // what an Update does it is not interrupted by
							return
						}
						if events++; events == at {
							m.follower.feed(m.log, m.rng)
						}
					})
					if _, err := m.follower.m.checkpoint(); err != nil {
						t.Fatal(err)
					}
					m.follower.fs.Observe(nil)
					if m.follower.feed(m.log, m.rng); m.rng.IntN(2) == 0 {
						m.follower.crash(m.rng.Uint64(), 1)
					}
				case 9, 10, 11:
					m.check()
				}
			}
			m.check()
			copied += m.copied
		})
	}
	if copied == 0 && !testing.Short() {
		t.Error("nothing was copied")
	}
}

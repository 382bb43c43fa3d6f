package quorum

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	sm "github.com/lni/dragonboat/v4/statemachine"

	"encoding/binary"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/storage"
)

// rig is a machine that is fed by hand.
type rig struct {
	testing.TB
	node    uint64
	fs      *storage.FaultFS
	db      *storage.DB
	pool    *queue.Pool
	m       *machine
	fed     uint64 // index of the entry fed last
	dead    queue.DeadLetters
	reading *dispatcher
}

func newRig(t testing.TB, node uint64, fs *storage.FaultFS, boot uint64) *rig {
	r := &rig{TB: t, node: node, fs: fs}
	r.open(boot)
	return r
}

// open starts the machine on what its disk has.
func (r *rig) open(boot uint64) {
	r.Helper()
	var err error
	if r.db, err = storage.OpenDB(r.fs, "meta", storage.DBOptions{}); err != nil {
		r.Fatal(err)
	}
	r.pool = queue.NewPool(16 << 20)
	r.pool.Poison = true
	m := newMachine(3)
	m.fs, m.dir, m.db, m.pool, m.log = r.fs, "slot", r.db, r.pool, testLog()
	m.node, m.boot, m.ring = r.node, boot, newRing()
	m.due, m.full = func(queue.Time) {}, func() {}
	r.m = m
	if r.fed, err = m.Open(nil); err != nil {
		r.Fatal(err)
	}
	r.reading = newDispatcher(m, nil)
}

// know tells the machine that metadata knows a queue.
func (r *rig) know(id uint64) {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	if r.m.locals[id] == nil {
		r.m.locals[id] = &Queue{id: id, dead: r.dead, consumers: map[queue.ConsumerID]*consumer{}}
	}
}

// feed applies what of the log it has not applied, in calls of several entries.
func (r *rig) feed(log [][]byte, rng *rand.Rand) {
	r.Helper()
	for r.fed < uint64(len(log)) {
		n := uint64(1)
		if rng != nil {
			n = min(1+rng.Uint64N(4), uint64(len(log))-r.fed)
		}
		var entries []sm.Entry
		for i := range n {
			entries = append(entries, sm.Entry{Index: r.fed + 1 + i, Cmd: bytes.Clone(log[r.fed+i])})
		}
		if _, err := r.m.Update(entries); err != nil {
			r.Fatal(err)
		}
		for i := range entries { // nothing may be kept of it
			for j := range entries[i].Cmd {
				entries[i].Cmd[j] = 0xEE
			}
		}
		r.fed += n
	}
}

// crash cuts the power and starts again.
func (r *rig) crash(seed, boot uint64) {
	r.Helper()
	fs := r.fs.Crash(seed)
	_ = r.db.Close()
	r.m.shut()
	r.fs = fs
	r.open(boot)
}

// state is everything of the machine that replicas must have in common.
func (r *rig) state() string { return stateOf(r.m) }

func stateOf(m *machine) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.common(nil)
	memory := int64(0)
	for _, q := range m.queues {
		q.log.each(func(msg *queue.Message) { memory += int64(msg.Ref.Len) })
	}
	if memory != m.memory {
		panic(fmt.Sprintf("%d octets are in memory, and %d are counted", memory, m.memory))
	}
	for _, id := range slices.Sorted(maps.Keys(m.queues)) {
		b = binary.AppendUvarint(b, id)
		b = m.queues[id].record(b)
	}
	return string(b)
}

// message is the number of a message of a queue, wherever it lies.
func (r *rig) message(id uint64, seq queue.Seq) (number uint64, ok bool) {
	r.m.mu.Lock()
	log := r.m.queues[id].log.id
	m, inMemory := r.m.queues[id].log.find(seq)
	r.m.mu.Unlock()
	if inMemory {
		return numberOf(r.pool, m), true
	}
	_, _, err := r.reading.read(log, queue.SeqRange{First: seq, Last: seq}, func(_ queue.Seq, m queue.Message) bool {
		number, ok = numberOf(r.pool, m), true
		return false
	})
	if err != nil {
		r.Fatal(err)
	}
	return number, ok
}

// contents are the numbers of all messages of a queue that are alive, and whether all that should be there are.
func (r *rig) contents(id uint64) (list []uint64) {
	r.Helper()
	r.m.mu.Lock()
	q := r.m.queues[id]
	living := q.state.Living(nil)
	st := q.state.Stats()
	r.m.mu.Unlock()
	for _, l := range living {
		for seq := l.First; seq <= l.Last; seq++ {
			if n, ok := r.message(id, seq); ok {
				list = append(list, n)
			}
		}
	}
	if want := st.Ready + st.Unacked + st.Delayed + st.Kept; uint64(len(list)) != want {
		r.Fatalf("queue %d has %d messages, and counts %d: %+v", id, len(list), want, st)
	}
	return list
}

func numberOf(pool *queue.Pool, m queue.Message) uint64 {
	return binary.BigEndian.Uint64(queue.ParseStored(pool.Bytes(m.Ref)).AppendBody(nil))
}

// drop takes dead letters and forgets them.
type drop struct{ r *rig }

func (drop) Wanted() bool { return true }
func (d drop) Discard(ds []queue.DeadLetter, _ *queue.Wake, _ func()) {
	for i := range ds {
		d.r.pool.Release(ds[i].Message.Ref.Slab, 1)
	}
}

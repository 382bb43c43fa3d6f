package quorum

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/quorum/propose"
	"github.com/warrenmq/warren/storage"
)

// entryOf is a batch of a node, at a time.
func entryOf(node, boot, number uint64, at queue.Time, commands ...[]byte) []byte {
	b := make([]byte, propose.HeaderLen)
	h := propose.Header{At: int64(at), Node: node, Boot: boot, Number: number}
	h.Put(b)
	return append(b, slices.Concat(commands...)...)
}

func lead(term uint64) []byte { return binary.AppendUvarint(appendCommand(nil, cmdLead, 0), term) }

func downOf(node, boot uint64) []byte {
	return binary.AppendUvarint(binary.AppendUvarint(appendCommand(nil, cmdDown, 0), node), boot)
}

func attach(id uint64) []byte {
	b := append(appendCommand(nil, cmdAttach, id), 0)
	return append(b, 5, 0, 0) // prefetch 5, priority 0, timeout 0
}

// told is what a replica has asked for since it was last asked, by kind.
func (r *rig) told() map[opKind]int {
	rounds, _ := r.m.ring.take(nil, nil)
	kinds := map[opKind]int{}
	for _, x := range rounds {
		for _, o := range x.ops {
			kinds[o.kind]++
		}
		for i := range x.deliveries {
			if d := &x.deliveries[i]; d.held {
				r.m.pool.Release(d.message.Ref.Slab, 1)
			}
		}
		for i := range x.letters {
			if !x.letters[i].cold {
				r.m.pool.Release(x.letters[i].Message.Ref.Slab, 1)
			}
		}
	}
	return kinds
}

// publishOne is a publish of a message that expires after some time.
func (r *rig) publishOne(id uint64, ttl int64) []byte {
	body := make([]byte, 8)
	m := r.m.pool.NewMessage([]byte("x"), []byte("k"), make([]byte, 14), func(yield func([]byte) bool) { yield(body) }, len(body), 1)
	m.TTL = ttl
	b := appendPublish(nil, id, []queue.Message{m}, r.m.pool)
	r.m.pool.Release(m.Ref.Slab, 1)
	return b
}

// TestWhoLeads: what happens once is done by the one that leads; the latest term counts; only who leads takes others for
// dead or changes limits. What concerns consumers is done where they are.
func TestWhoLeads(t *testing.T) {
	r := newRig(t, 2, storage.NewFaultFS(1), 1)
	r.dead = drop{r}
	r.know(7)
	var log [][]byte
	var numbers [4]uint64
	at := queue.Time(1000)
	// do has a node command something, and returns what this one, which is node 2, is asked to do.
	do := func(node uint64, commands ...[]byte) map[opKind]int {
		t.Helper()
		at += 100
		numbers[node]++
		log = append(log, entryOf(node, 1, numbers[node], at, commands...))
		r.feed(log, nil)
		return r.told()
	}
	leads := func(node, term uint64) {
		t.Helper()
		if l := r.m.leads; l.node != node || l.term != term {
			t.Fatalf("%+v", l)
		}
	}
	tick := appendCommand(nil, cmdTick, 7)
	do(1, create(7))
	leads(1, 0) // the first one begins
	do(2, create(7))
	do(3, create(7))
	leads(1, 0)
	do(1, r.publishOne(7, 10))
	if k := do(1, tick); k[opLetters] > 0 {
		t.Fatal("another leads, and dead letters are routed")
	}
	if k := do(2, lead(5)); k[opLeads] != 1 {
		t.Fatal("it leads, and is not told")
	}
	leads(2, 5)
	do(1, r.publishOne(7, 10))
	if k := do(1, tick); k[opLetters] != 1 {
		t.Fatal("it leads, and dead letters are not routed")
	}
	do(3, lead(4)) // late
	leads(2, 5)

	if k := do(1, attach(7)); k[opResult] > 0 {
		t.Fatal("the answer to another")
	}
	if k := do(2, attach(7)); k[opResult] != 1 {
		t.Fatal("no answer")
	}
	if k := do(1, r.publishOne(7, -1)); k[opDeliver] > 0 { // to the first consumer
		t.Fatal("a delivery for another")
	}
	if k := do(1, r.publishOne(7, -1)); k[opDeliver] != 1 {
		t.Fatal("no delivery")
	}
	consumers := func(want uint64) {
		t.Helper()
		if st := r.m.queues[7].state.Stats(); st.Consumers != want {
			t.Fatalf("%+v", st)
		}
	}
	if k := do(3, downOf(2, 1)); k[opEnded] > 0 {
		t.Fatal("given up by one that does not lead")
	}
	consumers(2)
	if k := do(2, downOf(1, 1)); k[opDeliver] != 1 { // what that one held comes here
		t.Fatal("no delivery")
	}
	consumers(1)
	do(3, lead(6))
	leads(3, 6)
	if k := do(3, downOf(2, 0)); k[opEnded] > 0 {
		t.Fatal("an earlier start was given up, and this one ends")
	}
	consumers(1)
	if k := do(3, downOf(2, 1)); k[opEnded] != 1 {
		t.Fatal("given up, and not told")
	}
	consumers(0)
	if do(2, attach(7)); r.m.queues[7].state.Stats().Consumers != 1 {
		t.Fatal("it cannot come back")
	}

	limits := func(max int64) []byte {
		c := noLimits
		c.MaxLength = max
		return appendConfig(append(appendCommand(nil, cmdCreate, 7), rulesVersion), &c)
	}
	do(2, limits(3))
	if r.m.queues[7].config.MaxLength != -1 {
		t.Fatal("one that does not lead changes limits")
	}
	do(3, limits(4))
	if r.m.queues[7].config.MaxLength != 4 {
		t.Fatal("limits are not changed")
	}
	before := r.m.leads
	if _, err := r.m.checkpoint(); err != nil {
		t.Fatal(err)
	}
	if r.crash(1, 2); r.m.leads != before {
		t.Fatalf("%+v after a start", r.m.leads)
	}
	r.know(7)
	log = append(log, entryOf(3, 2, 1, at, appendCommand(nil, cmdBegin, 0)))
	r.feed(log, nil)
	if l := r.m.leads; l != (leader{3, 2, 6}) {
		t.Fatalf("who led was started anew: %+v", l)
	}
}

// TestOldCheckpoint: what was written down before there were leaders is read.
func TestOldCheckpoint(t *testing.T) {
	r := newRig(t, 1, storage.NewFaultFS(1), 1)
	r.feed([][]byte{entry(1, 1, create(7))}, nil)
	if _, err := r.m.checkpoint(); err != nil {
		t.Fatal(err)
	}
	old := binary.AppendVarint([]byte{1}, int64(r.m.now))
	old = r.m.origins.Append(binary.AppendUvarint(old, r.m.lastLog), appendAnswer)
	var batch storage.Batch
	batch.Set(r.m.key('o', 0), old)
	if err := r.db.Commit(&batch, true); err != nil {
		t.Fatal(err)
	}
	r.crash(1, 2)
	if r.m.now != 1 || r.m.lastLog != 1 || len(r.m.origins) != 1 || r.m.leads != (leader{}) {
		t.Fatalf("%+v %+v", r.m.origins, r.m.leads)
	}
	r.feed([][]byte{nil, entry(2, 1)}, nil)
	if r.m.leads != (leader{1, 2, 0}) {
		t.Fatalf("%+v", r.m.leads)
	}
}

// TestEndOfLog: as much of the end of the log stays as was asked for, to a step.
func TestEndOfLog(t *testing.T) {
	var x tail
	if x.begins() != 0 {
		t.Fatal("an empty log may go")
	}
	for i := range uint64(10000) {
		x.add(100+i, 10_000, tailOctets)
		if n := (99 + i - x.begins() + 1) * 10_000; x.begins() > 100 && (n < tailOctets || n > tailOctets+2*tailStep) {
			t.Fatalf("%d octets stay behind entry %d", n, x.begins())
		}
	}
	if x.begins() < 8000 || len(x.marks) > 20 {
		t.Fatalf("%d, %d marks", x.begins(), len(x.marks))
	}
}

package slots

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/warrenmq/warren/quorum/propose"
	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/stream"
	"github.com/warrenmq/warren/test/seeds"
)

func silent() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// rig is a machine that is fed by hand.
type rig struct {
	testing.TB
	fs   *storage.FaultFS
	db   *storage.DB
	m    *machine
	done int // entries fed
}

// open starts a machine on what a disk has.
func (r *rig) open(fs *storage.FaultFS) {
	r.Helper()
	r.fs = fs
	var err error
	if r.db, err = storage.OpenDB(fs, "data/meta", storage.DBOptions{}); err != nil {
		r.Fatal(err)
	}
	m := newMachine(1)
	m.fs, m.dir, m.db, m.log, m.node, m.boot = fs, "data/streams/slot-1", r.db, silent(), 1, 1
	m.memory, m.files, m.ring, m.pause = stream.NewMemory(0), stream.NewFiles(fs, 8), newRing(), 0
	m.full, m.grew = func() {}, func() {}
	r.m = m
	if err := m.load(); err != nil {
		r.Fatal(err)
	}
	r.done = int(m.Applied())
}

// feed applies entries up to number to. It returns false when the disk died.
func (r *rig) feed(log [][]byte, to int) bool {
	for r.done < to {
		if _, err := r.m.Apply(uint64(r.done+1), log[r.done]); err != nil {
			if errors.Is(err, storage.ErrDead) {
				return false
			}
			r.Fatalf("entry %d: %v", r.done+1, err)
		}
		r.done++
	}
	return true
}

// dead reports whether the power was cut.
func (r *rig) dead() bool {
	_, err := r.fs.Free("data")
	return errors.Is(err, storage.ErrDead)
}

func (r *rig) close() {
	_ = r.m.Close()
	_ = r.db.Close()
}

// state is everything replicated, as bytes.
func (r *rig) state() string {
	var b bytes.Buffer
	var ids []uint64
	for id := range r.m.streams {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		q := r.m.streams[id]
		fmt.Fprintf(&b, "%d %x\n", id, q.record(nil))
	}
	fmt.Fprintf(&b, "%d %d %x", r.m.now, r.m.lastDir, r.m.origins.Append(nil, appendResults))
	return b.String()
}

// history is the model: what was published to each stream.
type history struct {
	rng     *rand.Rand
	log     [][]byte
	number  uint64
	at      int64
	streams map[uint64]*told
}

// told is a stream of the model: its bodies by offset.
type told struct {
	bodies  []string
	bases   []uint64 // first offsets of chunks
	first   uint64
	commits map[string]uint64
	gens    map[string]uint64
	lastGen uint64
}

// entry makes a batch of random commands, and takes them down.
func (h *history) entry() {
	b := make([]byte, propose.HeaderLen)
	h.number++
	h.at += int64(h.rng.IntN(50))
	head := propose.Header{At: h.at, Node: 1, Boot: 1, Number: h.number, Done: h.number - 1}
	head.Put(b)
	for range 1 + h.rng.IntN(4) {
		id := uint64(1 + h.rng.IntN(4))
		s := h.streams[id]
		name := string(rune('a' + h.rng.IntN(3)))
		switch x := h.rng.IntN(100); {
		case s == nil:
			b = appendLimits(binary.AppendUvarint(appendCommand(b, cmdCreate, id), 2000), stream.Limits{})
			h.streams[id] = &told{commits: map[string]uint64{}, gens: map[string]uint64{}}
		case x < 60:
			var c stream.Builder
			c.Reset(16)
			s.bases = append(s.bases, uint64(len(s.bodies)))
			for range 1 + h.rng.IntN(5) {
				body := fmt.Sprintf("%d of %d%s", len(s.bodies), id, bytes.Repeat([]byte("x"), h.rng.IntN(400)))
				s.bodies = append(s.bodies, body)
				_ = c.Add([]byte(body), nil)
			}
			chunk := c.Finish(h.at, epoch)
			b = binary.AppendUvarint(appendCommand(b, cmdChunk, id), uint64(len(chunk)))
			b = append(b, chunk...)
		case x < 70:
			b = append(appendName(appendCommand(b, cmdAttach, id), name), startStored)
			b = append(binary.AppendUvarint(b, 0), byte(stream.ResetFirst))
			s.lastGen++
			s.gens[name] = s.lastGen
			if at, ok := s.commits[name]; !ok || at < s.first {
				s.commits[name] = s.first
			}
		case x < 85:
			next := uint64(h.rng.IntN(len(s.bodies) + 1))
			gen := s.gens[name]
			if h.rng.IntN(4) == 0 {
				gen-- // an older consumer's: it is fenced
			}
			b = binary.AppendUvarint(binary.AppendUvarint(appendName(appendCommand(b, cmdCommit, id), name), gen), next)
			if gen != 0 && gen == s.gens[name] {
				s.commits[name] = max(s.commits[name], next)
			}
		case x < 92:
			first := uint64(0)
			if len(s.bases) > 0 {
				first = s.bases[h.rng.IntN(len(s.bases))]
			}
			b = binary.AppendUvarint(appendCommand(b, cmdCut, id), first)
			s.first = max(s.first, first)
		case x < 95:
			b = binary.AppendUvarint(append(appendName(appendCommand(b, cmdSet, id), name), startFirst), 0)
			s.lastGen++
			s.gens[name], s.commits[name] = s.lastGen, s.first
		case x < 98:
			b = appendName(appendCommand(b, cmdForget, id), name)
			delete(s.gens, name)
			delete(s.commits, name)
		default:
			b = appendCommand(b, cmdDelete, id)
			delete(h.streams, id)
		}
	}
	h.log = append(h.log, b)
}

// check compares a machine with the model, which has been told the same.
func (h *history) check(r *rig) {
	r.Helper()
	if len(r.m.streams) != len(h.streams) {
		r.Fatalf("%d streams, want %d", len(r.m.streams), len(h.streams))
	}
	for id, s := range h.streams {
		q := r.m.streams[id]
		if q == nil || q.broken != nil {
			r.Fatalf("stream %d: %+v", id, q)
		}
		if q.first != s.first || q.next != uint64(len(s.bodies)) || q.log.Next() != q.next {
			r.Fatalf("stream %d has %d to %d, its log ends at %d; want %d to %d", id, q.first, q.next, q.log.Next(), s.first, len(s.bodies))
		}
		for _, name := range q.offsets.Names() {
			if c, _ := q.offsets.Get(name); c.Next != s.commits[name] || c.Generation != s.gens[name] {
				r.Fatalf("stream %d, %s: %+v, want %d of generation %d", id, name, c, s.commits[name], s.gens[name])
			}
		}
		if n := q.offsets.Len(); n != len(s.commits) {
			r.Fatalf("stream %d: %d names, want %d", id, n, len(s.commits))
		}
		reader := q.log.Read(0, stream.Filter{})
		at := q.log.First()
		if at > q.first {
			r.Fatalf("stream %d: the log begins at %d, behind %d", id, at, q.first)
		}
		var rec stream.Record
		for ; ; at++ {
			err := reader.Next(&rec)
			if errors.Is(err, stream.ErrEnd) {
				break
			}
			if err != nil || rec.Offset != at || string(rec.Body) != s.bodies[at] {
				r.Fatalf("stream %d at %d: %v, %d %.40q", id, at, err, rec.Offset, rec.Body)
			}
		}
		reader.Release()
		if at != q.next {
			r.Fatalf("stream %d can be read to %d, and has %d", id, at, q.next)
		}
	}
}

// TestMachinePowerCuts feeds a machine from a log, cuts the power at random points, starts again where the last checkpoint
// says, and compares with a model, and with a machine whose power was never cut.
func TestMachinePowerCuts(t *testing.T) {
	seed := seeds.Of(t)
	ahead := 0
	for round := range 12 {
		rng := rand.New(rand.NewPCG(seed, uint64(round)))
		h := &history{rng: rng, at: 1, streams: map[uint64]*told{}}
		cut, whole := &rig{TB: t}, &rig{TB: t}
		cut.open(storage.NewFaultFS(rng.Uint64()))
		whole.open(storage.NewFaultFS(rng.Uint64()))
		for range 12 {
			for range 1 + rng.IntN(15) {
				h.entry()
			}
			if rng.IntN(2) == 0 {
				cut.fs.StopAfter(int64(rng.IntN(120)))
			}
			alive := true
			for alive && cut.done < len(h.log) {
				alive = cut.feed(h.log, min(len(h.log), cut.done+1+rng.IntN(6)))
				if alive && rng.IntN(3) == 0 {
					if _, err := cut.m.checkpoint(); err != nil {
						if !errors.Is(err, storage.ErrDead) {
							t.Fatal(err)
						}
						alive = false
					}
				}
			}
			cut.fs.StopAfter(1 << 40)
			if !alive || cut.dead() || rng.IntN(3) == 0 {
				fs := cut.fs.Crash(rng.Uint64())
				cut.close()
				cut.open(fs)
				for _, q := range cut.m.streams {
					if q.log.Next() > q.next {
						ahead++
					}
				}
			}
			if !cut.feed(h.log, len(h.log)) {
				t.Fatal("dead")
			}
			whole.feed(h.log, len(h.log))
			h.check(cut)
			h.check(whole)
			if a, b := cut.state(), whole.state(); a != b {
				t.Fatalf("round %d: after power cuts\n%s\nwithout\n%s", round, a, b)
			}
			if err := cut.m.clean(); err != nil {
				t.Fatal(err)
			}
		}
		cut.close()
		whole.close()
	}
	if ahead == 0 {
		t.Error("no log was ever ahead of its record")
	}
}

// TestMachineTakesEachBatchOnce feeds batches twice, too early, and of a start that has ended.
func TestMachineTakesEachBatchOnce(t *testing.T) {
	r := &rig{TB: t}
	r.open(storage.NewFaultFS(1))
	defer r.close()
	batch := func(boot, number uint64) []byte {
		b := make([]byte, propose.HeaderLen)
		(&propose.Header{At: 1, Node: 1, Boot: boot, Number: number}).Put(b)
		b = appendLimits(binary.AppendUvarint(appendCommand(b, cmdCreate, 7), 0), stream.Limits{})
		var c stream.Builder
		_ = c.Add([]byte("m"), nil)
		chunk := c.Finish(1, epoch)
		return append(binary.AppendUvarint(appendCommand(b, cmdChunk, 7), uint64(len(chunk))), chunk...)
	}
	for i, x := range []struct {
		boot, number, last, next uint64
	}{
		{1, 2, 0, 0}, {1, 1, 1, 1}, {1, 1, 1, 1}, {1, 3, 1, 1}, {1, 2, 2, 2}, {1, 1, 2, 2},
		{2, 2, 0, 2}, {2, 1, 1, 3}, {1, 3, 0, 3}, {2, 2, 2, 4},
	} {
		last, err := r.m.Apply(uint64(i+1), batch(x.boot, x.number))
		next := uint64(0)
		if q := r.m.streams[7]; q != nil {
			next = q.next
		}
		if err != nil || last != x.last || next != x.next {
			t.Errorf("step %d: applied up to %d, next offset %d, %v; want %d, %d", i, last, next, err, x.last, x.next)
		}
	}
}

// TestMachineRefusesWhatItDoesNotKnow: entries of other formats end the process, on every replica alike.
func TestMachineRefusesWhatItDoesNotKnow(t *testing.T) {
	r := &rig{TB: t}
	r.open(storage.NewFaultFS(1))
	defer r.close()
	good := make([]byte, propose.HeaderLen)
	(&propose.Header{Node: 1, Boot: 1, Number: 1}).Put(good)
	other := bytes.Clone(good)
	other[0]++
	for i, entry := range [][]byte{nil, good[:10], other, append(bytes.Clone(good), 99, 1), append(bytes.Clone(good), byte(cmdChunk), 1, 200)} {
		r.m.origins = nil
		if _, err := r.m.Apply(1, entry); !errors.Is(err, errFormat) {
			t.Errorf("entry %d: %v", i, err)
		}
	}
}

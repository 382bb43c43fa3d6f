package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// runModel drives a RunSet over a disk that loses what was not synced, and knows by a map what must be in it.
type runModel struct {
	t     *testing.T
	rng   *rand.Rand
	fs    *FaultFS
	set   *RunSet
	where map[LogID]*Cursor // cursors that live as long as the set

	// What survives crashes, elsewhere.
	registered []RunID
	nextRun    RunID
	alive      map[LogID]map[uint64]Record
	nextSeq    map[LogID]map[uint8]uint64
	crashes    int
	compacted  int
}

func TestRunSetModel(t *testing.T) {
	crashes, compacted := 0, 0
	for seed := range uint64(30) {
		m := &runModel{t: t, rng: newRand(t, seed), fs: NewFaultFS(seed), alive: map[LogID]map[uint64]Record{}, nextSeq: map[LogID]map[uint8]uint64{}, nextRun: 1}
		if err := m.fs.MkdirAll("runs"); err != nil {
			t.Fatal(err)
		}
		m.open()
		for range 150 {
			if m.rng.IntN(6) == 0 {
				m.fs.StopAfter(int64(m.rng.IntN(12)))
			}
			if err := m.step(); errors.Is(err, ErrDead) {
				m.crash()
			} else if err != nil {
				t.Fatal(err)
			}
		}
		m.crash()
		m.check()
		crashes += m.crashes
		compacted += m.compacted
	}
	t.Logf("%d crashes, %d compactions", crashes, compacted)
	if crashes < 100 || compacted < 100 {
		t.Errorf("too few for a test")
	}
}

func (m *runModel) open() {
	set, report, err := OpenRunSet(m.fs, "runs", m.registered, RunSetOptions{MaxOpen: 1 + m.rng.IntN(3)})
	if err != nil || len(report.Lost) > 0 {
		m.t.Fatalf("%v, lost %v of %v", err, report.Lost, m.registered)
	}
	m.set, m.where = set, map[LogID]*Cursor{}
}

func (m *runModel) crash() {
	m.set.Close()
	if m.rng.IntN(4) == 0 {
		m.fs = m.fs.Kill()
	} else {
		m.fs = m.fs.Crash(m.rng.Uint64())
	}
	m.crashes++
	m.open()
	m.check()
}

func (m *runModel) step() error {
	switch m.rng.IntN(12) {
	case 0, 1, 2:
		return m.flush()
	case 3, 4, 5:
		m.consume()
	case 6:
		if n := m.set.Sweep(m.isAlive); m.rng.IntN(2) == 0 && m.set.Sweep(m.isAlive) != 0 {
			m.t.Fatalf("a second sweep after one of %d found more", n)
		}
	case 7:
		return m.removeDead()
	case 8, 9:
		return m.compact()
	case 10:
		log := LogID(m.rng.IntN(8))
		delete(m.alive, log)
		m.set.Drop(log, 0, math.MaxUint64)
	case 11:
		m.set.Close()
		m.open()
	}
	return m.readSome()
}

// flush writes records of some logs into a run, or into two, of which one gets records between those of the other.
func (m *runModel) flush() error {
	runs := make([][]entry, 1+m.rng.IntN(2))
	for log := range LogID(8) {
		if m.rng.IntN(2) == 0 {
			continue
		}
		if m.nextSeq[log] == nil {
			m.nextSeq[log] = map[uint8]uint64{}
		}
		for range m.rng.IntN(40) {
			level := uint8(m.rng.IntN(2))
			m.nextSeq[log][level] += 1 + uint64(m.rng.IntN(2))
			if m.rng.IntN(50) == 0 {
				m.nextSeq[log][level] += 1 << 33 // so that there is more than one page
			}
			i := m.rng.IntN(len(runs))
			runs[i] = append(runs[i], entry{log, randomRecord(m.rng, log, seqAt(level, m.nextSeq[log][level]), 200)})
		}
	}
	for _, entries := range runs {
		sortEntries(entries)
		id := m.nextRun
		m.nextRun++
		w, err := CreateRun(m.fs, "runs", id, RunOptions{SyncEvery: m.rng.IntN(2) * 1000})
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := w.Add(e.log, e.Record); err != nil {
				return err
			}
		}
		run, err := w.Finish()
		if err != nil {
			return err
		}
		m.registered = append(m.registered, id)
		m.set.Add(run)
		for _, e := range entries {
			if m.alive[e.log] == nil {
				m.alive[e.log] = map[uint64]Record{}
			}
			m.alive[e.log][e.Seq] = e.Record
		}
	}
	return nil
}

// consume makes records dead: the lowest ones, some, or all but a few; and drops what can be.
func (m *runModel) consume() {
	for log := range LogID(8) {
		records := m.alive[log]
		seqs := slices.Sorted(maps.Keys(records))
		if len(seqs) == 0 || m.rng.IntN(2) == 0 {
			continue
		}
		upTo := m.rng.IntN(len(seqs)) * m.rng.IntN(2)
		chance := 1 + m.rng.IntN(10)
		for i, seq := range seqs {
			if i < upTo || m.rng.IntN(chance) == 0 {
				delete(records, seq)
			}
		}
		if m.rng.IntN(2) == 0 {
			from := uint64(0)
			for _, seq := range slices.Sorted(maps.Keys(records)) {
				m.set.Drop(log, from, seq-1)
				from = seq + 1
			}
			m.set.Drop(log, from, math.MaxUint64)
		}
	}
}

func (m *runModel) isAlive(log LogID, first, last uint64) iter.Seq2[uint64, uint64] {
	return func(yield func(uint64, uint64) bool) {
		for _, seq := range slices.Sorted(maps.Keys(m.alive[log])) {
			if first <= seq && seq <= last && !yield(seq, seq) {
				return
			}
		}
	}
}

func (m *runModel) unregister(ids []RunID) {
	m.registered = slices.DeleteFunc(m.registered, func(id RunID) bool { return slices.Contains(ids, id) })
}

func (m *runModel) removeDead() error {
	dead := m.set.Dead()
	m.unregister(dead)
	return m.set.Remove(dead...)
}

func (m *runModel) compact() error {
	for range 5 { // it must come to an end
		victims := m.set.Victims(m.isAlive, VictimOptions{Small: 4000, Join: 3, Most: 100_000})
		if len(victims) == 0 {
			return nil
		}
		id := m.nextRun
		m.nextRun++
		run, err := m.set.Compact(context.Background(), victims, id, m.isAlive, CompactOptions{})
		if err != nil {
			return err
		}
		m.compacted++
		m.consume() // meanwhile
		if run != nil && m.rng.IntN(8) == 0 {
			if err := m.set.Discard(run); err != nil {
				return err
			}
			return nil
		}
		m.unregister(victims)
		if run != nil {
			m.registered = append(m.registered, id)
		}
		if err := m.set.Replace(run, victims); err != nil {
			return err
		}
		if err := m.readSome(); err != nil {
			return err
		}
	}
	return nil
}

// readSome reads from a place of a log, with a cursor that has read elsewhere before.
func (m *runModel) readSome() error {
	log := LogID(m.rng.IntN(8))
	c := m.where[log]
	if c == nil {
		c = m.set.Cursor(log)
		m.where[log] = c
	}
	from := uint64(0)
	if seqs := slices.Sorted(maps.Keys(m.alive[log])); len(seqs) > 0 {
		from = seqs[m.rng.IntN(len(seqs))] - uint64(m.rng.IntN(2))
	}
	return m.checkLog(c, log, from)
}

func (m *runModel) checkLog(c *Cursor, log LogID, from uint64) error {
	m.t.Helper()
	got, errs := readAll(c, from, 1+m.rng.IntN(3000))
	if len(errs) > 0 {
		return errs[0]
	}
	if !slices.IsSortedFunc(got, func(a, b Record) int { return cmp.Or(cmp.Compare(a.Seq, b.Seq), 1) }) {
		m.t.Fatalf("log %d is out of order", log)
	}
	got = slices.DeleteFunc(got, func(r Record) bool { _, ok := m.alive[log][r.Seq]; return !ok })
	var want []Record
	for _, seq := range slices.Sorted(maps.Keys(m.alive[log])) {
		if seq >= from {
			want = append(want, m.alive[log][seq])
		}
	}
	checkRecords(m.t, fmt.Sprint("log ", log), got, want)
	metas, err := c.AppendMeta(nil, from, math.MaxUint64, 1+m.rng.IntN(10))
	if err != nil {
		return err
	}
	if len(want) > 0 && (len(metas) == 0 || metas[0].Seq > want[0].Seq) {
		m.t.Fatalf("metadata of log %d from %d: %v, want %d", log, from, metas, want[0].Seq)
	}
	return nil
}

// check checks everything, the files in the directory too.
func (m *runModel) check() {
	m.t.Helper()
	for log := range LogID(8) {
		if err := m.checkLog(m.set.Cursor(log), log, 0); err != nil {
			m.t.Fatal(err)
		}
	}
	m.set.Sweep(m.isAlive)
	for log := range LogID(8) {
		if err := m.checkLog(m.set.Cursor(log), log, 0); err != nil {
			m.t.Fatal(err)
		}
	}
	if err := m.removeDead(); err != nil {
		m.t.Fatal(err)
	}
	names, err := m.fs.List("runs")
	if err != nil || len(names) != len(m.registered) {
		m.t.Fatalf("files %v for runs %v", names, m.registered)
	}
	var live, sum uint64
	for _, id := range m.registered {
		check, err := VerifyRun(m.fs, "runs", id)
		if err != nil || len(check.Damages) > 0 {
			m.t.Fatal(err, check)
		}
		sum += uint64(check.Size)
	}
	for _, log := range m.set.Logs() {
		for _, e := range m.set.Extents(log) {
			live += e.Stored
		}
	}
	if st := m.set.Stats(); st.Runs != len(names) || st.Octets != sum || st.Live != live || st.Logs != len(m.set.Logs()) {
		m.t.Fatalf("%+v, want %d runs, %d octets, %d live", st, len(names), sum, live)
	}
}

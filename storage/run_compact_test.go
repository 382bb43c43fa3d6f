package storage

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"
)

// All records alive must never be worth copying, and what is copied must not be worth copying again.
func TestRunVictimsEnd(t *testing.T) {
	rng := newRand(t, 1)
	fs := NewFaultFS(1)
	fs.MkdirAll("d")
	s := openSet(t, fs, "d")
	alive := map[LogID][]uint64{}
	isAlive := func(log LogID, first, last uint64) iter.Seq2[uint64, uint64] {
		return func(yield func(uint64, uint64) bool) {
			for _, seq := range alive[log] {
				if first <= seq && seq <= last && !yield(seq, seq) {
					return
				}
			}
		}
	}
	id := RunID(0)
	for range 50 {
		id++
		var entries []entry
		for log := range LogID(5) {
			seq := uint64(id) * 1_000_000
			for range 1 + rng.IntN(20) {
				seq += 1 + rng.Uint64N(10_000)
				entries = append(entries, entry{log, randomRecord(rng, log, seq, 100)})
				if rng.IntN(10) == 0 {
					alive[log] = append(alive[log], seq)
				}
			}
		}
		s.Add(writeRun(t, fs, "d", id, entries, RunOptions{}))
	}
	for rounds := 0; ; rounds++ {
		victims := s.Victims(isAlive, VictimOptions{Small: 1})
		if len(victims) == 0 {
			break
		}
		if rounds > 60 {
			t.Fatal("no end of copying")
		}
		id++
		run, err := s.Compact(context.Background(), victims, id, isAlive, CompactOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Replace(run, victims); err != nil {
			t.Fatal(err)
		}
	}
	var want, got uint64
	for _, seqs := range alive {
		want += uint64(len(seqs))
	}
	for log := range alive {
		n, _, err := s.Cursor(log).Count(0, math.MaxUint64)
		if err != nil {
			t.Fatal(err)
		}
		got += n
	}
	if got < want || got > 2*want {
		t.Errorf("%d records are kept for %d living ones", got, want)
	}
}

// Readers must not notice that runs are copied and deleted below them.
func TestRunReadersDuringCompaction(t *testing.T) {
	rng := newRand(t, 1)
	dir := t.TempDir()
	s, _, err := OpenRunSet(OS{}, dir, nil, RunSetOptions{MaxOpen: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const logs = 3
	want := make([][]Record, logs)
	id := RunID(0)
	for range 12 {
		id++
		var entries []entry
		for log := range LogID(logs) {
			for range 300 {
				r := randomRecord(rng, log, uint64(len(want[log])+1), 200)
				want[log] = append(want[log], r)
				entries = append(entries, entry{log, r})
			}
		}
		s.Add(writeRun(t, OS{}, dir, id, entries, RunOptions{Transient: true}))
	}
	all := func(_ LogID, first, last uint64) iter.Seq2[uint64, uint64] {
		return func(yield func(uint64, uint64) bool) { yield(first, last) }
	}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for log := range LogID(logs) {
		readers.Go(func() {
			c := s.Cursor(log)
			for {
				got, errs := readAll(c, 0, 5000)
				if len(errs) > 0 || !slices.EqualFunc(got, want[log], sameRecord) {
					t.Errorf("log %d: %v: %s", log, errs, firstDifference(got, want[log]))
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for range 100 {
		s.mu.Lock()
		victims := slices.Sorted(maps.Keys(s.runs))
		s.mu.Unlock()
		first := rng.IntN(len(victims))
		victims = victims[first:min(len(victims), first+1+rng.IntN(3))]
		id++
		run, err := s.Compact(context.Background(), victims, id, all, CompactOptions{})
		if err != nil {
			t.Error(err)
			break
		}
		if err := s.Replace(run, victims); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	readers.Wait()
	if names, _ := (OS{}).List(dir); len(names) != s.Stats().Runs {
		t.Errorf("%d files for %d runs", len(names), s.Stats().Runs)
	}
}

func everythingAlive(_ LogID, first, last uint64) iter.Seq2[uint64, uint64] {
	return func(yield func(uint64, uint64) bool) { yield(first, last) }
}

func firstDead(_ LogID, first, last uint64) iter.Seq2[uint64, uint64] {
	return func(yield func(uint64, uint64) bool) { yield(first+1, last) }
}

// What dies while it is copied must not come back with the copy.
func TestRunDropDuringCompaction(t *testing.T) {
	fsys := NewFaultFS(1)
	fsys.MkdirAll("d")
	s := openSet(t, fsys, "d")
	for id := range RunID(2) {
		var entries []entry
		for log := range LogID(4) {
			for level := range uint8(2) {
				entries = append(entries, entry{log, Record{Seq: seqAt(level, uint64(id)), Bytes: []byte("x")}})
			}
		}
		s.Add(writeRun(t, fsys, "d", id, entries, RunOptions{}))
	}
	run, err := s.Compact(context.Background(), []RunID{0, 1}, 2, everythingAlive, CompactOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.Drop(1, 0, math.MaxUint64)        // a whole log
	s.Drop(2, seqAt(1, 0), seqAt(1, 9)) // a level
	s.Drop(3, seqAt(0, 0), seqAt(0, 0)) // a record, whose extent goes on
	if err := s.Remove(0); err != nil { // a run of them, which others have found dead
		t.Fatal(err)
	}
	if err := s.Replace(run, []RunID{0, 1}); err != nil {
		t.Fatal(err)
	}
	for log, want := range []string{"[0 72057594037927936]", "[]", "[0]", "[0 72057594037927936]"} {
		var firsts []uint64
		for _, e := range s.Extents(LogID(log)) {
			if e.Run != 2 {
				t.Errorf("log %d is in run %d", log, e.Run)
			}
			firsts = append(firsts, e.First)
		}
		if fmt.Sprint(firsts) != want {
			t.Errorf("log %d: %v, want %s", log, firsts, want)
		}
	}
	if names, _ := fsys.List("d"); len(names) != 1 {
		t.Errorf("left: %v", names)
	}
}

// A run that is there twice under two names, which no one should do, shows each record once.
func TestRunRecordsTwice(t *testing.T) {
	fsys := NewFaultFS(1)
	fsys.MkdirAll("d")
	rng := newRand(t, 1)
	s := openSet(t, fsys, "d")
	var want []Record
	var runs [3][]entry
	for seq := range uint64(10_000) {
		r := randomRecord(rng, 1, seq, 30)
		want = append(want, r)
		copies := 1 + rng.IntN(7)
		for i := range runs {
			if copies>>i&1 == 1 {
				runs[i] = append(runs[i], entry{1, r})
			}
		}
	}
	for i, entries := range runs {
		s.Add(writeRun(t, fsys, "d", RunID(i), entries, RunOptions{}))
	}
	for _, most := range []int{10, 1000, 1 << 20} {
		got, errs := readAll(s.Cursor(1), 0, most)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		checkRecords(t, fmt.Sprint("max ", most), got, want)
	}
}

// Records of one log may be scattered over more runs than are read at a time.
func TestRunScattered(t *testing.T) {
	fsys := NewFaultFS(1)
	fsys.MkdirAll("d")
	rng := newRand(t, 1)
	s := openSet(t, fsys, "d")
	var want []Record
	runs := make([][]entry, 40)
	for seq := range uint64(4000) {
		r := randomRecord(rng, 1, seq, 30)
		want = append(want, r)
		i := rng.IntN(1 + int(seq)/100)
		runs[i] = append(runs[i], entry{1, r})
	}
	for i, entries := range runs {
		s.Add(writeRun(t, fsys, "d", RunID(i), entries, RunOptions{}))
	}
	c := s.Cursor(1)
	for _, most := range []int{10, 1000, 1 << 20} {
		got, errs := readAll(c, 0, most)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		checkRecords(t, fmt.Sprint("max ", most), got, want)
	}
	for range 300 {
		from := rng.Uint64N(4000)
		checkFrom(t, c, from, want[from:])
		checkCount(t, c, want, from, rng.Uint64N(4000))
	}
}

// Which runs are copied: less than half alive, or small and many; not what is dead, damaged or of the other kind.
func TestRunVictims(t *testing.T) {
	o := VictimOptions{Small: 30_000, Join: 3, Most: 120_000}
	// Each run has 100 records of about 1,000 octets: how many are alive, by run.
	for _, c := range []struct {
		alive     []int
		transient int // runs from this one on
		want      string
	}{
		{[]int{100, 100, 100}, 3, "[]"},
		{[]int{100, 52, 51}, 3, "[]"},
		{[]int{100, 40, 100, 45}, 4, "[1 3]"},
		{[]int{100, 49, 49, 49, 49}, 5, "[1 2]"},
		{[]int{100, 100, 10, 0, 20}, 5, "[2 4]"},
		{[]int{0, 0}, 2, "[]"},
		{[]int{100, 40, 100, 45, 45}, 3, "[1]"},
		{[]int{100, 100, 45, 45}, 2, "[2 3]"},
	} {
		fsys := NewFaultFS(1)
		fsys.MkdirAll("d")
		s := openSet(t, fsys, "d")
		for id := range c.alive {
			var entries []entry
			for log := range LogID(100) {
				entries = append(entries, entry{log, Record{Seq: 1 + uint64(id), Bytes: make([]byte, 1000)}})
			}
			s.Add(writeRun(t, fsys, "d", RunID(id), entries, RunOptions{Transient: id >= c.transient}))
		}
		alive := func(log LogID, first, last uint64) iter.Seq2[uint64, uint64] {
			return func(yield func(uint64, uint64) bool) {
				for id, n := range c.alive {
					if seq := 1 + uint64(id); int(log) < n && first <= seq && seq <= last && !yield(seq, seq) {
						return
					}
				}
			}
		}
		for round := range 2 { // once by what is alive alone, then with what is dead dropped
			if round == 1 || !slices.Contains(c.alive, 0) {
				if got := fmt.Sprint(s.Victims(alive, o)); got != c.want {
					t.Errorf("%v: %v, want %v", c.alive, got, c.want)
				}
			}
			s.Sweep(alive)
		}
	}
	// Small ones by themselves.
	fsys := NewFaultFS(1)
	fsys.MkdirAll("d")
	s := openSet(t, fsys, "d")
	for id := range RunID(4) {
		size := 1000
		if id == 1 {
			size = 40_000
		}
		if got := s.Victims(everythingAlive, o); len(got) > 0 {
			t.Errorf("%v of %d", got, id)
		}
		s.Add(writeRun(t, fsys, "d", id, []entry{{1, Record{Seq: uint64(id), Bytes: make([]byte, size)}}}, RunOptions{Transient: true}))
	}
	victims := s.Victims(everythingAlive, o)
	if fmt.Sprint(victims) != "[0 2 3]" {
		t.Errorf("small: %v", victims)
	}
	if run, err := s.Compact(context.Background(), victims, 9, everythingAlive, CompactOptions{}); err != nil || !run.Transient() {
		t.Errorf("a copy of transient runs is durable: %v", err)
	}
}

// A copy has what is alive and nothing else, however that is scattered.
func TestRunCompactCopiesTheLiving(t *testing.T) {
	fsys := NewFaultFS(1)
	fsys.MkdirAll("d")
	rng := newRand(t, 1)
	s := openSet(t, fsys, "d")
	id := RunID(0)
	for _, chance := range []int{1, 2, 10, 300, 5000} {
		id += 2
		var entries []entry
		var want []Record
		var ranges []seqSpan
		for seq := uint64(1); len(entries) < 20_000; seq += 1 + uint64(rng.IntN(2)) {
			r := randomRecord(rng, LogID(id), seq, 300)
			entries = append(entries, entry{LogID(id), r})
			switch {
			case len(ranges) > 0 && ranges[len(ranges)-1].last >= seq:
			case rng.IntN(chance) == 0:
				ranges = append(ranges, seqSpan{seq, seq + uint64(rng.IntN(3)*rng.IntN(30))})
			default:
				continue
			}
			want = append(want, r)
		}
		s.Add(writeRun(t, fsys, "d", id, entries, RunOptions{}))
		alive := func(_ LogID, first, last uint64) iter.Seq2[uint64, uint64] {
			return func(yield func(uint64, uint64) bool) {
				for _, x := range ranges {
					if x.last >= first && x.first <= last && !yield(x.first, x.last) {
						return
					}
				}
			}
		}
		run, err := s.Compact(context.Background(), []RunID{id}, id+1, alive, CompactOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Replace(run, []RunID{id}); err != nil {
			t.Fatal(err)
		}
		got, errs := readAll(s.Cursor(LogID(id)), 0, 1<<20)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		checkRecords(t, fmt.Sprint("1 in ", chance), got, want)
	}
}

// A run with damage stays, so that readers find out what is lost.
func TestRunDamageStopsCompaction(t *testing.T) {
	for _, what := range []string{"record", "page"} {
		fsys := NewFaultFS(1)
		fsys.MkdirAll("d")
		want := smallRun(t, fsys)
		s := openSet(t, fsys, "d", 9)
		r := s.runs[9]
		if at := r.pages[1].offset(); what == "record" {
			fsys.FlipBit(runName("d", 9), at, 0) // page 1 of log 0 starts with the bytes of a record
		} else {
			fsys.FlipBit(runName("d", 9), at-1, 0)
		}
		for _, alive := range []Alive{everythingAlive, firstDead, everythingAlive} {
			var damage *RunDamage
			if _, err := s.Compact(context.Background(), []RunID{9}, 10, alive, CompactOptions{}); !errors.As(err, &damage) {
				t.Errorf("%s: err %v", what, err)
			}
		}
		if v := s.Victims(nothingAlive, VictimOptions{}); len(v) > 0 {
			t.Errorf("%s: to be copied again", what)
		}
		if records, lost := checkSound(t, s, want, 1000); lost == 0 || records+lost != 21 {
			t.Errorf("%s: %d records, %d lost", what, records, lost)
		}
		if _, err := s.Compact(context.Background(), []RunID{9}, 10, everythingAlive, CompactOptions{}); err == nil {
			t.Errorf("%s: what is known to be damaged was copied", what)
		}
	}
}

package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// entry is a record with its log.
type entry struct {
	log LogID
	Record
}

// body is a record's bytes, which tell whose they are.
func body(log LogID, seq uint64, n int) []byte {
	b := make([]byte, n)
	x := uint64(log)<<32 ^ seq*0x9e3779b97f4a7c15
	for i := range b {
		b[i] = byte(x >> (i % 8 * 8))
	}
	return b
}

func seqAt(level uint8, place uint64) uint64 { return uint64(level)<<levelShift | place }

func sortEntries(entries []entry) {
	slices.SortFunc(entries, func(a, b entry) int {
		if a.log != b.log {
			return int(int64(a.log) - int64(b.log))
		}
		if a.Seq < b.Seq {
			return -1
		}
		return 1
	})
}

// writeRun writes entries, which are sorted, into a run of a directory.
func writeRun(t testing.TB, fs FS, dir string, id RunID, entries []entry, o RunOptions) *Run {
	t.Helper()
	w, err := CreateRun(fs, dir, id, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := w.Add(e.log, e.Record); err != nil {
			t.Fatal(err)
		}
	}
	run, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func openSet(t testing.TB, fs FS, dir string, ids ...RunID) *RunSet {
	t.Helper()
	s, report, err := OpenRunSet(fs, dir, ids, RunSetOptions{})
	if err != nil || len(report.Lost) > 0 {
		t.Fatal(err, report)
	}
	t.Cleanup(s.Close)
	return s
}

// readAll reads a log's records from a place to the end, and checks that chunk and offset say where the bytes are.
func readAll(c *Cursor, from uint64, most int) ([]Record, []error) {
	var records []Record
	var damages []error
	for {
		var chunks [][]byte
		length := 0
		n, err := c.Read(from, math.MaxUint64, most, func(n int) []byte {
			chunks = append(chunks, make([]byte, n+3))
			return chunks[len(chunks)-1]
		}, func(chunk, offset int, r Record) {
			if len(r.Bytes) > 0 && &chunks[chunk][offset] != &r.Bytes[0] {
				panic("record is not where it should be")
			}
			length += len(r.Bytes)
			records = append(records, r)
			from = r.Seq + 1
		})
		if length > most && n > 1 {
			panic(fmt.Sprint(n, " records of ", length, " octets, more than ", most))
		}
		var damage *RunDamage
		switch {
		case errors.As(err, &damage):
			damages = append(damages, err)
			if damage.First == damage.Last {
				from = max(from, damage.Last+1)
			}
			if len(damages) > 10000 {
				panic("no way past the damage")
			}
		case err != nil:
			return records, append(damages, err)
		case n == 0:
			return records, damages
		}
		if n > 0 && from == 0 {
			return records, damages // the last record had the highest number that there is
		}
	}
}

func sameRecord(a, b Record) bool {
	return a.Seq == b.Seq && a.Expiry == b.Expiry && a.Size == b.Size && a.Flags == b.Flags && a.Priority == b.Priority && bytes.Equal(a.Bytes, b.Bytes)
}

func checkRecords(t testing.TB, what string, got, want []Record) {
	t.Helper()
	if !slices.EqualFunc(got, want, sameRecord) {
		t.Fatalf("%s: %d records, want %d: %s", what, len(got), len(want), firstDifference(got, want))
	}
}

func firstDifference(got, want []Record) string {
	for i := range min(len(got), len(want)) {
		if !sameRecord(got[i], want[i]) {
			return fmt.Sprintf("at %d: %.100v, want %.100v", i, fmt.Sprint(got[i]), fmt.Sprint(want[i]))
		}
	}
	return "one is longer"
}

func randomRecord(rng *rand.Rand, log LogID, seq uint64, longest int) Record {
	n := rng.IntN(longest + 1)
	r := Record{Seq: seq, Size: rng.Uint32N(1000), Flags: uint8(rng.Uint32()), Priority: uint8(rng.Uint32()), Bytes: body(log, seq, n)}
	if rng.IntN(3) == 0 {
		r.Expiry = 1 + rng.Int64N(1<<48-1)
	}
	return r
}

func newRand(t testing.TB, seed uint64) *rand.Rand {
	t.Helper()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

func TestRunRoundTrip(t *testing.T) {
	for seed := range uint64(6) {
		rng := newRand(t, seed)
		dir := t.TempDir()
		want := map[LogID][]Record{}
		var all []entry
		for log := range LogID(1 + rng.IntN(6)) {
			for level := range uint8(1 + rng.IntN(3)) {
				place := uint64(0)
				for range rng.IntN(12000) {
					if place += 1 + uint64(rng.IntN(3)); rng.IntN(5000) == 0 {
						place += 1 << 33
					}
					r := randomRecord(rng, log, seqAt(level, place), 300)
					if rng.IntN(4000) == 0 {
						r.Bytes = body(log, r.Seq, 3<<20)
					}
					want[log] = append(want[log], r)
					all = append(all, entry{log, r})
				}
			}
		}
		written := writeRun(t, OS{}, dir, 7, all, RunOptions{})
		s := openSet(t, OS{}, dir, 7)
		run := s.runs[7].Run
		if fmt.Sprint(written) != fmt.Sprint(run) {
			t.Fatalf("the run read differs from the one written")
		}
		checkExtents(t, run, want)
		for log, records := range want {
			c := s.Cursor(log)
			for _, max := range []int{1, 1000, 64 << 10, 1 << 20} {
				if max == 1 && len(records) > 3000 {
					continue
				}
				got, damages := readAll(c, 0, max)
				if len(damages) > 0 {
					t.Fatal(damages)
				}
				checkRecords(t, fmt.Sprint("log ", log, " max ", max), got, records)
			}
			for range 100 {
				at := rng.IntN(len(records))
				from := records[at].Seq - uint64(rng.IntN(2))
				for at > 0 && records[at-1].Seq >= from {
					at--
				}
				checkFrom(t, c, from, records[at:])
				to := rng.IntN(len(records))
				checkCount(t, c, records, from, records[to].Seq)
			}
		}
	}
}

// checkFrom checks what a cursor reads at a place against records, all that there are from there on.
func checkFrom(t *testing.T, c *Cursor, from uint64, records []Record) {
	t.Helper()
	var got []Record
	if _, err := c.Read(from, math.MaxUint64, 2000, func(n int) []byte { return make([]byte, n) }, func(_, _ int, r Record) { got = append(got, r) }); err != nil {
		t.Fatal(err)
	}
	if len(got) == 0 {
		t.Fatalf("nothing at %d", from)
	}
	checkRecords(t, fmt.Sprint("from ", from), got, records[:min(len(got), len(records))])
	metas, err := c.AppendMeta(nil, from, math.MaxUint64, 20)
	if err != nil || len(metas) == 0 || len(metas) > 20 {
		t.Fatal(len(metas), err)
	}
	for i, m := range metas {
		r := records[i]
		if m != (Meta{r.Seq, r.Expiry, r.Size, uint32(len(r.Bytes)), r.Flags, r.Priority}) {
			t.Fatalf("meta %v, want that of %d", m, r.Seq)
		}
	}
}

func checkCount(t *testing.T, c *Cursor, records []Record, first, last uint64) {
	t.Helper()
	var n, octets uint64
	for _, r := range records {
		if first <= r.Seq && r.Seq <= last {
			n++
			octets += uint64(r.Size)
		}
	}
	if gn, go_, err := c.Count(first, last); gn != n || go_ != octets || err != nil {
		t.Fatalf("%d records of %d octets in %d to %d, want %d of %d: %v", gn, go_, first, last, n, octets, err)
	}
}

// checkExtents checks what a run says of itself against the records that were added.
func checkExtents(t *testing.T, run *Run, want map[LogID][]Record) {
	t.Helper()
	var got, expected []Extent
	for e := range run.Extents() {
		e.Stored = 0
		got = append(got, e)
	}
	for log := range LogID(len(want)) {
		for _, r := range want[log] {
			n := len(expected)
			if n == 0 || expected[n-1].Log != log || expected[n-1].Last>>levelShift != r.Seq>>levelShift {
				expected = append(expected, Extent{Run: run.ID(), Log: log, First: r.Seq})
				n++
			}
			e := &expected[n-1]
			e.Last = r.Seq
			e.Records++
			e.Octets += uint64(r.Size)
			if r.Expiry != 0 {
				if e.Expiring++; e.Earliest == 0 || r.Expiry < e.Earliest {
					e.Earliest = r.Expiry
				}
			}
		}
	}
	if !slices.Equal(got, expected) {
		t.Fatalf("extents %v, want %v", got, expected)
	}
}

func TestRunOrder(t *testing.T) {
	for _, second := range []entry{{5, Record{Seq: 9}}, {5, Record{Seq: 10}}, {4, Record{Seq: 99}}, {5, Record{Seq: 11, Expiry: -1}}, {5, Record{Seq: 11, Expiry: 1 << 48}}} {
		dir := t.TempDir()
		w, err := CreateRun(OS{}, dir, 1, RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Add(5, Record{Seq: 10}); err != nil {
			t.Fatal(err)
		}
		if err := w.Add(second.log, second.Record); err == nil {
			t.Errorf("%v was taken", second)
		}
		if _, err := w.Finish(); err == nil {
			t.Errorf("finished all the same")
		}
		if err := w.Abort(); err != nil {
			t.Error(err)
		}
		if names, _ := (OS{}).List(dir); len(names) > 0 {
			t.Errorf("%v are left", names)
		}
	}
}

func benchRecords() []byte {
	b := make([]byte, 150)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

func BenchmarkRunWrite(b *testing.B) {
	dir, bytes := b.TempDir(), benchRecords()
	const n = 1_000_000
	b.SetBytes(n * 150)
	b.ReportAllocs()
	for i := range b.N {
		w, err := CreateRun(OS{}, dir, RunID(i), RunOptions{Transient: true})
		if err != nil {
			b.Fatal(err)
		}
		for seq := range uint64(n) {
			binary.LittleEndian.PutUint64(bytes, seq)
			if err := w.Add(1, Record{Seq: seq, Size: 128, Bytes: bytes}); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := w.Finish(); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		w.Abort()
		b.StartTimer()
	}
}

func BenchmarkRunRead(b *testing.B) {
	dir, bytes := b.TempDir(), benchRecords()
	const n = 1_000_000
	w, err := CreateRun(OS{}, dir, 1, RunOptions{Transient: true})
	if err != nil {
		b.Fatal(err)
	}
	for seq := range uint64(n) {
		w.Add(1, Record{Seq: seq, Size: 128, Bytes: bytes})
	}
	if _, err := w.Finish(); err != nil {
		b.Fatal(err)
	}
	s := openSet(b, OS{}, dir, 1)
	for _, max := range []int{64 << 10, 256 << 10, 1 << 20} {
		b.Run(fmt.Sprint(max>>10, "KiB"), func(b *testing.B) {
			b.SetBytes(n * 150)
			b.ReportAllocs()
			slab := make([]byte, max)
			for range b.N {
				c := s.Cursor(1)
				from, seen := uint64(0), 0
				for {
					k, err := c.Read(from, math.MaxUint64, max, func(n int) []byte { return slab }, func(_, _ int, r Record) { from = r.Seq + 1 })
					if err != nil {
						b.Fatal(err)
					}
					if k == 0 {
						break
					}
					seen += k
				}
				if seen != n {
					b.Fatal(seen)
				}
			}
		})
	}
}

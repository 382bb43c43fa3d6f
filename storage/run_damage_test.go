package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math"
	"slices"
	"testing"
)

// smallRun is a run of a few logs, levels and pages, and what is in it by log.
func smallRun(t testing.TB, fsys FS) map[LogID][]Record {
	want := map[LogID][]Record{}
	var entries []entry
	for log := range LogID(3) {
		for i, seq := range []uint64{5, 6, 9, 1 << 33, 1<<33 + 2, seqAt(3, 1), seqAt(3, 2)} {
			r := Record{Seq: seq, Size: uint32(10 * i), Flags: uint8(i), Priority: uint8(log), Bytes: body(log, seq, i*5)}
			if i%2 == 1 {
				r.Expiry = int64(1000 + i)
			}
			want[log] = append(want[log], r)
			entries = append(entries, entry{log, r})
		}
	}
	writeRun(t, fsys, "d", 9, entries, RunOptions{})
	return want
}

// checkSound checks that what can be read of a run is a part of what was written, and that whatever is missing is
// reported. It returns how many records there were, and how many are reported lost.
func checkSound(t testing.TB, s *RunSet, want map[LogID][]Record, most int) (records, lost int) {
	t.Helper()
	for log, all := range want {
		got, errs := readAll(s.Cursor(log), 0, most)
		for _, r := range got {
			if !slices.ContainsFunc(all, func(w Record) bool { return sameRecord(w, r) }) {
				t.Fatalf("log %d: %v was never written", log, r)
			}
		}
		records += len(got)
		for _, err := range errs {
			var damage *RunDamage
			if !errors.As(err, &damage) {
				t.Fatal(err)
			}
			lost += damage.Records
		}
	}
	return records, lost
}

func TestRunEveryOctetFlipped(t *testing.T) {
	base := NewFaultFS(1)
	base.MkdirAll("d")
	want := smallRun(t, base)
	name := runName("d", 9)
	size := len(base.Contents(name))
	opened := 0
	for offset := range size {
		base.FlipBit(name, int64(offset), uint(offset%8))
		check, err := VerifyRun(base, "d", 9)
		if err != nil || len(check.Damages) == 0 {
			t.Fatalf("octet %d: verify finds nothing wrong: %v", offset, err)
		}
		s, report, err := OpenRunSet(base, "d", []RunID{9}, RunSetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(report.Lost) == 0 {
			opened++
			records, lost := checkSound(t, s, want, 1+offset%100)
			if records+lost != 21 || lost == 0 {
				t.Fatalf("octet %d: %d records, %d lost", offset, records, lost)
			}
			if uint64(records) != check.Records {
				t.Fatalf("octet %d: %d records are readable, %d by verify", offset, records, check.Records)
			}
			// What is passed over stays passed over, what is checked each time is found each time.
			if again, _ := checkSound(t, s, want, 50); again != records {
				t.Fatalf("octet %d: %d records, then %d", offset, records, again)
			}
			if v := s.Victims(nothingAlive, VictimOptions{}); len(v) > 0 {
				t.Fatalf("octet %d: a damaged run is to be copied", offset)
			}
		} else {
			var damage *RunDamage
			if !errors.As(report.Lost[0].Err, &damage) {
				t.Fatal(report)
			}
		}
		s.Close()
		base.FlipBit(name, int64(offset), uint(offset%8))
	}
	if opened == 0 || opened == size {
		t.Errorf("%d of %d flips did not keep the run from being opened", opened, size)
	}
}

func nothingAlive(LogID, uint64, uint64) iter.Seq2[uint64, uint64] {
	return func(func(uint64, uint64) bool) {}
}

func TestRunCutOff(t *testing.T) {
	for _, late := range []bool{false, true} {
		fsys := NewFaultFS(1)
		fsys.MkdirAll("d")
		want := smallRun(t, fsys)
		name := runName("d", 9)
		whole := slices.Clone(fsys.Contents(name))
		for size := range whole {
			s, report, err := OpenRunSet(fsys, "d", []RunID{9}, RunSetOptions{})
			if err != nil || len(report.Lost) > 0 {
				t.Fatal(err, report)
			}
			fsys.Cut(name, int64(size))
			if late { // after it was opened
				if records, lost := checkSound(t, s, want, 64); records+lost != 21 {
					t.Fatalf("cut to %d: %d records, %d lost", size, records, lost)
				}
			}
			s.Close()
			if _, err := OpenRun(fsys, "d", 9); err == nil {
				t.Fatalf("cut to %d: opened", size)
			}
			if check, err := VerifyRun(fsys, "d", 9); err != nil || len(check.Damages) != 1 {
				t.Fatalf("cut to %d: %v %v", size, check, err)
			}
			fsys.Damage(name, func([]byte) []byte { return slices.Clone(whole) })
		}
	}
}

// Of a page whose bytes are gone after its entries were read, each record is reported.
func TestRunCutOffWhileReading(t *testing.T) {
	fsys := NewFaultFS(1)
	fsys.MkdirAll("d")
	var entries []entry
	for seq := range uint64(10) {
		entries = append(entries, entry{1, Record{Seq: seq, Bytes: body(1, seq, 100)}})
	}
	writeRun(t, fsys, "d", 1, entries, RunOptions{})
	s := openSet(t, fsys, "d", 1)
	c := s.Cursor(1)
	if n, err := c.Read(0, 0, 100, func(n int) []byte { return make([]byte, n) }, func(int, int, Record) {}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	fsys.Cut(runName("d", 1), runHeaderLen+550)
	got, errs := readAll(c, 0, 400)
	if len(got) != 5 || len(errs) != 5 {
		t.Errorf("%d records, %v", len(got), errs)
	}
	for i, err := range errs {
		if d, ok := err.(*RunDamage); !ok || d.First != uint64(5+i) || d.Last != d.First || d.Records != 1 {
			t.Errorf("%v", err)
		}
	}
}

// Pages and records that are whole, but not where they belong, must be found out.
func TestRunMisplaced(t *testing.T) {
	fsys := NewFaultFS(1)
	fsys.MkdirAll("d")
	var entries []entry
	for log := range LogID(2) {
		for seq := range uint64(10) {
			entries = append(entries, entry{log, Record{Seq: seq, Bytes: body(log, seq, 20), Size: 20}})
		}
	}
	want := map[LogID][]Record{}
	for _, e := range entries {
		want[e.log] = append(want[e.log], e.Record)
	}
	run := writeRun(t, fsys, "d", 1, entries, RunOptions{})
	page := run.pages[1].offset() - run.pages[0].offset()
	fsys.Damage(runName("d", 1), func(b []byte) []byte {
		copy(b[runHeaderLen+page:], slices.Clone(b[runHeaderLen:runHeaderLen+page])) // the second log's page is the first's
		return b
	})
	s := openSet(t, fsys, "d", 1)
	if records, lost := checkSound(t, s, want, 1000); records != 10 || lost != 10 {
		t.Errorf("%d records, %d lost", records, lost)
	}

	writeRun(t, fsys, "d", 2, entries, RunOptions{})
	other := slices.Clone(fsys.Contents(runName("d", 2)))
	fsys.Damage(runName("d", 1), func([]byte) []byte { return other })
	if _, err := OpenRun(fsys, "d", 1); err == nil {
		t.Errorf("another run's file was opened")
	}
}

func TestRunSetReport(t *testing.T) {
	fsys := NewFaultFS(1)
	fsys.MkdirAll("d")
	for id := range RunID(6) {
		writeRun(t, fsys, "d", id, []entry{{1, Record{Seq: uint64(id), Bytes: []byte("x")}}}, RunOptions{})
	}
	fsys.Remove(runName("d", 1))
	fsys.Cut(runName("d", 2), 50)
	fsys.Inject(Fault{Op: OpRead, Name: runName("d", 3)})
	if f, err := fsys.Create("d/other"); err == nil {
		f.Close()
	}
	s, report, err := OpenRunSet(fsys, "d", []RunID{3, 2, 1, 0, 4, 4}, RunSetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	lost := report.Lost
	var damage *RunDamage
	if len(lost) != 3 || lost[0].Run != 1 || !errors.Is(lost[0].Err, fs.ErrNotExist) || lost[1].Run != 2 || !errors.As(lost[1].Err, &damage) ||
		lost[2].Run != 3 || errors.As(lost[2].Err, &damage) {
		t.Errorf("lost: %v", lost)
	}
	if !slices.Equal(report.Deleted, []string{"0000000000000005.run"}) {
		t.Errorf("deleted: %v", report.Deleted)
	}
	if got, _ := readAll(s.Cursor(1), 0, 100); len(got) != 2 || got[0].Seq != 0 || got[1].Seq != 4 {
		t.Errorf("kept: %v", got)
	}
	if names, _ := fsys.List("d"); len(names) != 5 {
		t.Errorf("left: %v", names)
	}
}

// A finished run survives a power cut, unless the disk lies.
func TestRunPowerCut(t *testing.T) {
	for _, sabotage := range []Sabotage{{}, {NoSync: true}, {NoSyncDir: true}, {DropWrite: true}} {
		lost := 0
		for seed := range uint64(30) {
			fsys := NewFaultFS(seed)
			fsys.SetSabotage(sabotage)
			fsys.MkdirAll("d")
			smallRun(t, fsys)
			fsys = fsys.Crash(seed)
			if check, err := VerifyRun(fsys, "d", 9); err != nil || len(check.Damages) > 0 || check.Records != 21 {
				lost++
			}
		}
		if (lost > 0) != (sabotage != Sabotage{}) {
			t.Errorf("%+v: lost %d times", sabotage, lost)
		}
	}
}

func TestRunWriteFails(t *testing.T) {
	for _, op := range []Op{OpWrite, OpSync, OpSyncDir} {
		for after := range 4 {
			fsys := NewFaultFS(1)
			fsys.MkdirAll("d")
			fsys.Inject(Fault{Op: op, After: after})
			w, err := CreateRun(fsys, "d", 1, RunOptions{SyncEvery: 1 << 19})
			if err != nil {
				t.Fatal(err)
			}
			for seq := range uint64(4000) {
				if err = w.Add(1, Record{Seq: seq, Bytes: body(1, seq, 1000)}); err != nil {
					break
				}
			}
			if _, finished := w.Finish(); (finished == nil) != (op == OpSyncDir && after > 0) || err != nil && finished == nil {
				t.Fatalf("operation %d fails after %d: %v, %v", op, after, err, finished)
			}
			fsys.Heal()
			if err := w.Abort(); err != nil {
				t.Error(err)
			}
			if names, _ := fsys.List("d"); len(names) != 0 {
				t.Errorf("left: %v", names)
			}
		}
	}
}

// Reading that failed can be tried again.
func TestRunReadFails(t *testing.T) {
	fsys := NewFaultFS(1)
	fsys.MkdirAll("d")
	want := smallRun(t, fsys)
	s := openSet(t, fsys, "d", 9)
	for _, op := range []Op{OpOpen, OpRead} {
		s.files.forget(9)
		fsys.Inject(Fault{Op: op})
		c := s.Cursor(1)
		got, errs := readAll(c, 0, 1000)
		var damage *RunDamage
		if len(got) > 0 || len(errs) != 1 || errors.As(errs[0], &damage) {
			t.Fatalf("%d records, %v", len(got), errs)
		}
		fsys.Heal()
		got, errs = readAll(c, 0, 1000)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		checkRecords(t, "again", got, want[1])
	}
}

// resum makes the checksums of a run's file match its contents, so that what they protect can be fuzzed.
func resum(b []byte) {
	le := binary.LittleEndian
	if len(b) < runHeaderLen+runTailLen {
		return
	}
	copy(b, appendRunHeader(nil, 9))
	tail := b[len(b)-runTailLen:]
	copy(tail[56:], runMagic)
	le.PutUint64(tail[8:], 9)
	le.PutUint32(tail[48:], runVersion)
	if footer := le.Uint64(tail); footer <= uint64(len(b)-runTailLen) {
		le.PutUint32(tail[44:], runChecksum(b[footer:len(b)-runTailLen]))
	}
	le.PutUint32(tail[52:], runChecksum(tail[:52]))
}

func FuzzRun(f *testing.F) {
	fsys := NewFaultFS(1)
	fsys.MkdirAll("d")
	smallRun(f, fsys)
	seed := slices.Clone(fsys.Contents(runName("d", 9)))
	f.Add(seed, 0, byte(0))
	for i := 0; i < len(seed); i += 7 {
		f.Add(seed, i, byte(1+i%255))
	}
	f.Fuzz(func(t *testing.T, b []byte, at int, x byte) {
		b = slices.Clone(b)
		if at >= 0 && at < len(b) {
			b[at] ^= x
		}
		resum(b)
		fsys := NewFaultFS(1)
		fsys.MkdirAll("d")
		file, err := fsys.Create(runName("d", 9))
		if err != nil {
			t.Fatal(err)
		}
		file.WriteAt(b, 0)
		file.Close()
		run, err := OpenRun(fsys, "d", 9)
		if err != nil {
			return
		}
		// The tables hold together; now let the pages match their checksums as well.
		for i := range run.extents {
			for p := int(run.extents[i].page); p < run.endPage(i); p++ {
				end := run.pages[p+1].offset()
				entries := b[end-int64(run.pages[p].metaLen()) : end-runPageSum]
				binary.LittleEndian.PutUint32(b[end-runPageSum:], runPageChecksum(entries, 9, run.extents[i].log, run.pages[p].first))
			}
		}
		file, _ = fsys.Open(runName("d", 9))
		file.WriteAt(b, 0)
		file.Close()
		check, err := VerifyRun(fsys, "d", 9)
		if err != nil {
			t.Fatal(err)
		}
		s, _, err := OpenRunSet(fsys, "d", []RunID{9}, RunSetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		n := uint64(0)
		for _, log := range s.Logs() {
			got, errs := readAll(s.Cursor(log), 0, 100)
			n += uint64(len(got))
			if len(errs) == 0 {
				s.Cursor(log).Count(1, math.MaxUint64-1)
			}
		}
		if n != check.Records {
			t.Fatalf("%d records by reading, %d by verify", n, check.Records)
		}
	})
}

func TestRunOpenFilesAreBounded(t *testing.T) {
	fsys := &countingFS{FS: NewFaultFS(1)}
	fsys.MkdirAll("d")
	var ids []RunID
	for id := range RunID(40) {
		var entries []entry
		for log := range LogID(20) {
			entries = append(entries, entry{log, Record{Seq: uint64(id), Bytes: []byte(fmt.Sprint(log, id))}})
		}
		writeRun(t, fsys, "d", id, entries, RunOptions{})
		ids = append(ids, id)
	}
	s, _, err := OpenRunSet(fsys, "d", ids, RunSetOptions{MaxOpen: 5})
	if err != nil {
		t.Fatal(err)
	}
	for log := range LogID(20) {
		got, errs := readAll(s.Cursor(log), 0, 10)
		if len(got) != 40 || len(errs) > 0 {
			t.Fatal(len(got), errs)
		}
		if n := fsys.open; n > 5 {
			t.Fatalf("%d files are open", n)
		}
	}
	s.Drop(3, 0, math.MaxUint64)
	s.Remove(ids[37:]...)
	if fsys.open == 0 {
		t.Errorf("no file is kept open")
	}
	s.Close()
	if fsys.open != 0 {
		t.Errorf("%d files are left open", fsys.open)
	}
}

// countingFS counts open files.
type countingFS struct {
	FS
	open int
}

type countedFile struct {
	File
	fs *countingFS
}

func (f *countingFS) Create(name string) (File, error) { return f.count(f.FS.Create(name)) }
func (f *countingFS) Open(name string) (File, error)   { return f.count(f.FS.Open(name)) }

func (f *countingFS) count(file File, err error) (File, error) {
	if err != nil {
		return nil, err
	}
	f.open++
	return countedFile{file, f}, nil
}

func (f countedFile) Close() error {
	f.fs.open--
	return f.File.Close()
}

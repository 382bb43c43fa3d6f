package storage

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

type replayed struct {
	epoch Epoch
	at    Mark
	kind  uint8
	data  string
}

// reopen opens a journal and returns what it replays.
func reopen(t testing.TB, fs FS, o JournalOptions, from Epoch) (*Journal, Report, []replayed) {
	t.Helper()
	var got []replayed
	j, report, err := OpenJournal(fs, "data/journal", o, from, func(e Epoch, at Mark, kind uint8, record []byte) error {
		got = append(got, replayed{e, at, kind, string(record)})
		return nil
	})
	if err != nil {
		t.Fatalf("open: %v\n%v", err, report)
	}
	return j, report, got
}

func TestJournalReplaysWhatWasAppended(t *testing.T) {
	fs := NewFaultFS(1)
	synced := make(chan Mark, 1000)
	j, report, got := reopen(t, fs, JournalOptions{FileSize: 64 << 10, Synced: func(m Mark, err error) {
		if err != nil {
			t.Error(err)
		}
		synced <- m
	}}, 0)
	if !report.Clean || len(got) != 0 {
		t.Fatalf("a new journal: %v", report)
	}
	var want []replayed
	for i := range 500 {
		data := bytes.Repeat([]byte{byte(i)}, i*7%2000)
		mark, epoch := j.Append(uint8(i), data[:len(data)/2], data[len(data)/2:])
		want = append(want, replayed{epoch, mark, uint8(i), string(data)})
		if i%10 == 0 {
			j.Commit(mark)
			for m := range synced {
				if m >= mark {
					break
				}
			}
		}
		if i%100 == 99 {
			j.Rotate()
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j, report, got = reopen(t, fs, JournalOptions{FileSize: 64 << 10}, 0)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("replayed %d records, want %d: %v", len(got), len(want), report)
	}
	if !report.Clean || len(report.Faults) > 0 || report.Torn > 0 {
		t.Error(report)
	}
	seen := 0
	if read, err := ReadJournal(fs, "data/journal", 0, func(Epoch, Mark, uint8, []byte) error { seen++; return nil }); err != nil || seen != len(want) {
		t.Errorf("read %d records: %v %v", seen, err, read)
	}
	from := want[250].epoch
	if err := j.Release(from); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j, report, got = reopen(t, fs, JournalOptions{FileSize: 64 << 10}, from)
	if len(got) != 300 || got[0] != want[200] || len(report.Faults) > 0 {
		t.Fatalf("replayed %d records after a release, want 300: %v", len(got), report)
	}
	j.Close()
}

// What is on the disk must stay readable: if this fails, the version is another one.
func TestJournalGolden(t *testing.T) {
	fs := NewFaultFS(1)
	salt := uint32(0xa0000000)
	j, _, _ := reopen(t, fs, JournalOptions{FileSize: 8 << 10, manual: true, salt: func() uint32 { salt++; return salt }}, 0)
	j.Append(1, []byte("hello"))
	j.Append(2, []byte("wor"), []byte("ld"))
	j.round()
	j.Rotate()
	j.Append(3)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	got := hex.Dump(bytes.TrimRight(fs.Contents("data/journal/00000001.journal"), "\x00"))
	want, err := os.ReadFile(filepath.Join("testdata", "journal.hex"))
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestJournalAppendDoesNotAllocate(t *testing.T) {
	j, _, _ := reopen(t, NewFaultFS(1), JournalOptions{manual: true}, 0)
	defer j.Close()
	record := make([]byte, 1000)
	n := 0
	// A chunk that is given back again and again: what a sync costs is not counted, as it is one for many appends.
	got := testing.AllocsPerRun(5000, func() {
		j.AppendFunc(1, len(record), func(dst []byte) []byte { return append(dst, record...) })
		j.Append(2, record[:10], record[10:100])
		if n++; n%500 == 0 {
			j.drop()
		}
	})
	if got != 0 {
		t.Errorf("%v allocations per append", got)
	}
}

func TestJournalTakesAnySize(t *testing.T) {
	fs := NewFaultFS(1)
	j, _, _ := reopen(t, fs, JournalOptions{FileSize: 64 << 10, manual: true}, 0)
	var want []replayed
	for _, size := range []int{0, 1, chunkSize - 5, chunkSize - 4, chunkSize, 3 * chunkSize, 10} {
		data := bytes.Repeat([]byte{byte(size)}, size)
		// The size announced is too small, right, or too large.
		for _, say := range []int{0, size, size + 1000} {
			at, epoch := j.AppendFunc(9, say, func(dst []byte) []byte { return append(dst, data...) })
			want = append(want, replayed{epoch, at, 9, string(data)})
		}
	}
	if !j.round() {
		t.Fatal(j.Err())
	}
	_, report, got := reopen(t, fs.Kill(), JournalOptions{FileSize: 64 << 10, manual: true}, 0)
	if len(got) != len(want) || len(report.Faults) > 0 {
		t.Fatalf("%d records of %d: %v", len(got), len(want), report)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("record %d differs", i)
		}
	}
}

func TestJournalSyncsWhatNobodyCommits(t *testing.T) {
	synced := make(chan Mark, 10)
	j, _, _ := reopen(t, NewFaultFS(1), JournalOptions{Delay: time.Millisecond, Synced: func(m Mark, _ error) { synced <- m }}, 0)
	defer j.Close()
	for range 3 {
		mark, _ := j.Append(1, []byte("x"))
		for m := range synced {
			if m >= mark {
				break
			}
		}
	}
}

// A file whose sync failed is not trusted again, whatever a second sync would say.
func TestJournalAfterAFailedSync(t *testing.T) {
	for _, op := range []Op{OpSync, OpWrite} {
		for seed := range uint64(20) {
			fs := NewFaultFS(seed)
			j, _, _ := reopen(t, fs, JournalOptions{manual: true}, 0)
			at, epoch := j.Append(1, []byte("before"))
			j.round()
			failed := j.files.current.name
			fs.Inject(Fault{Op: op, Short: Sector})
			want := []replayed{{epoch, at, 1, "before"}}
			at, epoch = j.Append(2, bytes.Repeat([]byte("x"), 3*Sector))
			want = append(want, replayed{epoch, at, 2, strings.Repeat("x", 3*Sector)})
			fs.Observe(func(e Event) {
				if j.Faults() > 0 && e.Op != OpRead && filepath.Base(e.Name) == failed {
					t.Errorf("operation %d on the file that failed", e.Op)
				}
			})
			if !j.round() || j.Err() != nil || j.Faults() != 1 || j.Synced() != at {
				t.Fatalf("not made good: %v, %d faults, synced %d of %d", j.Err(), j.Faults(), j.Synced(), at)
			}
			at, epoch = j.Append(3, []byte("after"))
			want = append(want, replayed{epoch, at, 3, "after"})
			j.round()
			_, report, got := reopen(t, fs.Crash(seed), JournalOptions{manual: true}, 0)
			if fmt.Sprint(got) != fmt.Sprint(want) || len(report.Faults) > 0 {
				t.Fatalf("seed %d: %v", seed, report)
			}
		}
	}
}

func TestJournalOnAFullDisk(t *testing.T) {
	fs := NewFaultFS(1)
	type told struct {
		mark Mark
		err  error
	}
	calls := make(chan told, 100)
	j, _, _ := reopen(t, fs, JournalOptions{Synced: func(m Mark, err error) { calls <- told{m, err} }}, 0)
	fs.SetSpace(100)
	before := j.Synced()
	mark, epoch := j.Append(1, make([]byte, 10<<10))
	j.Commit(mark)
	for range 3 {
		if c := <-calls; !errors.Is(c.err, unix.ENOSPC) || c.mark != before {
			t.Fatal(c)
		}
	}
	if !errors.Is(j.Err(), unix.ENOSPC) || j.Synced() != before || j.Backlog() != int(mark-before) {
		t.Error(j.Err(), j.Synced(), j.Backlog())
	}
	fs.Heal()
	for c := range calls {
		if c.err == nil && c.mark == mark {
			break
		}
	}
	for c := (told{err: j.Err()}); c.err != nil; c = <-calls {
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	_, report, got := reopen(t, fs.Crash(1), JournalOptions{manual: true}, 0)
	if len(got) != 1 || got[0].at != mark || got[0].epoch != epoch || !report.Clean {
		t.Error(report)
	}
}

func TestJournalCloseOnABrokenDisk(t *testing.T) {
	fs := NewFaultFS(1)
	j, _, _ := reopen(t, fs, JournalOptions{}, 0)
	fs.Inject(Fault{Op: OpSync, Times: -1})
	mark, _ := j.Append(1, []byte("x"))
	if err := j.Close(); !errors.Is(err, unix.EIO) || j.Synced() >= mark {
		t.Error(err, j.Synced())
	}
}

// Files are overwritten, not made, once there are some; and the disk does not fill.
func TestJournalRecycles(t *testing.T) {
	fs := NewFaultFS(1)
	const size = 64 << 10
	j, _, _ := reopen(t, fs, JournalOptions{FileSize: size, Spares: 2, manual: true}, 0)
	record := make([]byte, 1000)
	creates := 0
	for i := range 2000 {
		j.Append(1, record)
		if i%10 == 0 {
			j.round()
		}
		if i%50 == 0 {
			if e := j.Rotate(); e > 3 {
				if err := j.Release(e - 3); err != nil {
					t.Fatal(err)
				}
			}
		}
		if i == 500 {
			fs.Observe(func(e Event) {
				if e.Op == OpCreate || e.Op == OpRename {
					creates++
				}
			})
		}
	}
	names, _ := fs.List("data/journal")
	if creates > 0 || len(names) > 8 {
		t.Errorf("%d files made after the start, %d files", creates, len(names))
	}
	if s := j.Size(); s < 150*1000 || s > 220*1005 {
		t.Errorf("size %d", s)
	}
	j.Close()
}

func TestJournalFromManyGoroutines(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "journal")
	const writers, records = 4, 2000
	var latest atomic.Uint64
	j, _, err := OpenJournal(OS{}, dir, JournalOptions{FileSize: 256 << 10, Synced: func(m Mark, err error) {
		if err != nil || uint64(m) < latest.Load() {
			t.Errorf("synced %d after %d: %v", m, latest.Load(), err)
		}
		latest.Store(uint64(m))
	}}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var epochs [writers][records]Epoch
	for w := range writers {
		wg.Go(func() {
			for i := range records {
				mark, epoch := j.AppendFunc(uint8(w), 500, func(dst []byte) []byte {
					dst = binary.LittleEndian.AppendUint32(dst, uint32(i))
					return append(dst, bytes.Repeat([]byte{byte(i)}, i%500)...)
				})
				epochs[w][i] = epoch
				if i%16 == 0 {
					j.Commit(mark)
				}
				if i%200 == 0 {
					if e := j.Rotate(); e > 20 {
						if err := j.Release(e - 20); err != nil {
							t.Error(err)
						}
					}
				}
			}
		})
	}
	wg.Wait()
	from := j.First()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if j.Synced() != j.Appended() || latest.Load() != uint64(j.Appended()) {
		t.Error("not everything is synced")
	}
	var seen [writers][records]bool
	var last [writers]int
	j, report, err := OpenJournal(OS{}, dir, JournalOptions{FileSize: 256 << 10}, from, func(e Epoch, _ Mark, w uint8, record []byte) error {
		i := int(binary.LittleEndian.Uint32(record))
		if seen[w][i] || i < last[w] || e != epochs[w][i] || len(record) != 4+i%500 {
			t.Errorf("writer %d, record %d: epoch %d for %d, %d octets, after %d", w, i, e, epochs[w][i], len(record), last[w])
		}
		seen[w][i], last[w] = true, i
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for w := range writers {
		for i := range records {
			if seen[w][i] != (epochs[w][i] >= from) {
				t.Fatalf("writer %d, record %d of epoch %d: replayed %v from %d: %v", w, i, epochs[w][i], seen[w][i], from, report)
			}
		}
	}
}

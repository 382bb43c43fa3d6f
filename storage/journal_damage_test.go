package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// damagedJournal is a closed journal of several full files, what is in it, and the names of its files in order.
func damagedJournal(t testing.TB, seed uint64) (*FaultFS, []replayed, []string) {
	t.Helper()
	fs := NewFaultFS(seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	o := JournalOptions{FileSize: 16 << 10, manual: true, salt: rng.Uint32}
	j, _, _ := reopen(t, fs, o, 0)
	var want []replayed
	for i := range 360 {
		data := fmt.Sprintf("%d%s", i, strings.Repeat("x", rng.IntN(300)))
		at, epoch := j.Append(uint8(i), []byte(data))
		want = append(want, replayed{epoch, at, uint8(i), data})
		if i%3 == 0 && !j.round() {
			t.Fatal(j.Err())
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range j.files.live {
		names = append(names, "data/journal/"+f.name)
	}
	if len(names) < 3 {
		t.Fatalf("%d files", len(names))
	}
	return fs, want, names
}

// keepsTheRest opens a damaged journal: what is replayed was appended, in order, and what is missing is spoken of.
func keepsTheRest(t testing.TB, fs *FaultFS, want []replayed) (Report, []replayed) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 1))
	j, report, got := reopen(t, fs, JournalOptions{FileSize: 16 << 10, manual: true, salt: rng.Uint32}, 0)
	i := 0
	for _, r := range got {
		for i < len(want) && want[i] != r {
			i++
		}
		if i == len(want) {
			t.Fatalf("replayed what was not appended, or out of order: %+v\n%v", r, report)
		}
		i++
	}
	if len(got) < len(want) && len(report.Faults) == 0 && report.Torn == 0 && report.Clean {
		t.Fatalf("%d of %d records replayed and nothing said: %v", len(got), len(want), report)
	}
	// It goes on: what is appended now is there at the next start, and the damage changes nothing more.
	at, epoch := j.Append(7, []byte("after"))
	if !j.round() {
		t.Fatal(j.Err())
	}
	j, second, again := reopen(t, fs.Kill(), JournalOptions{FileSize: 16 << 10, manual: true, salt: rng.Uint32}, 0)
	if !slices.Equal(again, append(slices.Clone(got), replayed{epoch, at, 7, "after"})) {
		t.Fatalf("%d records at the first start, %d at the second\n%v\n%v", len(got), len(again), report, second)
	}
	j.Close()
	return report, got
}

func TestJournalDamage(t *testing.T) {
	missing := func(want, got []replayed) (n uint64) {
		for _, r := range want {
			if !slices.Contains(got, r) {
				n += uint64(len(r.data) + recordHead)
			}
		}
		return n
	}
	for _, c := range []struct {
		name   string
		damage func(fs *FaultFS, names []string)
		report string // part of it
		lost   bool   // something, and Lost says how much exactly
	}{
		{"none", func(*FaultFS, []string) {}, "clean", false},
		{"a bit in the first file", func(fs *FaultFS, n []string) { fs.FlipBit(n[0], 5000, 3) }, "damaged at", true},
		{"a bit in the last file", func(fs *FaultFS, n []string) { fs.FlipBit(n[len(n)-1], 500, 3) }, "damaged at", true},
		{"a bit in a header", func(fs *FaultFS, n []string) { fs.FlipBit(n[1], 30, 3) }, "the header is unreadable", false},
		{"a bit in the last header", func(fs *FaultFS, n []string) { fs.FlipBit(n[len(n)-1], 30, 3) }, "the header is unreadable", false},
		{"zeroes in the middle", func(fs *FaultFS, n []string) { fs.Zero(n[1], 4096, 4096) }, "damaged at", true},
		{"the first page of a file zeroed", func(fs *FaultFS, n []string) { fs.Zero(n[1], 0, 4096) }, "the header is unreadable", true},
		{"the first page of the last file zeroed", func(fs *FaultFS, n []string) { fs.Zero(n[len(n)-1], 0, 4096) }, "the header is unreadable", true},
		{"a file of zeroes", func(fs *FaultFS, n []string) { fs.Zero(n[1], 0, 16<<10) }, "the file before it is missing", true},
		{"a file cut in half", func(fs *FaultFS, n []string) { fs.Cut(n[1], 5555) }, "the end of the file before it is gone", true},
		{"an empty file", func(fs *FaultFS, n []string) { fs.Cut(n[1], 0) }, "the file before it is missing", true},
		{"a missing file", func(fs *FaultFS, n []string) { fs.Remove(n[1]) }, "the file before it is missing", true},
		{"the first file missing", func(fs *FaultFS, n []string) { fs.Remove(n[0]) }, "the files before it are missing", false},
		{"the last file cut in a frame", func(fs *FaultFS, n []string) { fs.Cut(n[len(n)-1], 1000) }, "torn tail dropped", false},
		{"two files under each other's names", func(fs *FaultFS, n []string) {
			fs.Rename(n[0], "x")
			fs.Rename(n[1], n[0])
			fs.Rename("x", n[1])
		}, "clean", false},
		{"a copy of a file", func(fs *FaultFS, n []string) {
			mustCreate(t, fs, "data/journal/99999999.journal")
			c := fs.Contents(n[1])
			fs.Damage("data/journal/99999999.journal", func([]byte) []byte { return c })
		}, "clean", false},
		{"a file of something else", func(fs *FaultFS, n []string) {
			mustCreate(t, fs, "data/journal/99999999.journal")
			fs.Damage("data/journal/99999999.journal", func([]byte) []byte { return []byte(strings.Repeat("rubbish", 5000)) })
		}, "left alone", false},
		{"frames exchanged", func(fs *FaultFS, n []string) {
			fs.Damage(n[1], func(data []byte) []byte {
				a, b := slices.Clone(data[4096:8192]), slices.Clone(data[8192:12288])
				copy(data[4096:], b)
				copy(data[8192:], a)
				return data
			})
		}, "damaged at", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			fs, want, names := damagedJournal(t, 1)
			c.damage(fs, names)
			report, got := keepsTheRest(t, fs, want)
			if !strings.Contains(report.String(), c.report) {
				t.Errorf("nothing about %q:\n%v", c.report, report)
			}
			lost := missing(want, got)
			if c.lost && (lost == 0 || lost != report.Lost) {
				t.Errorf("%d octets lost, %d reported:\n%v", lost, report.Lost, report)
			}
			if !c.lost && report.Lost > 0 {
				t.Errorf("%d octets reported as lost:\n%v", report.Lost, report)
			}
			t.Log(report)
		})
	}
}

func TestJournalRandomDamage(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for seed := range uint64(300) {
		fs, want, names := damagedJournal(t, seed)
		for range 1 + rng.IntN(3) {
			fs.Damage(names[rng.IntN(len(names))], func(data []byte) []byte {
				if len(data) < 100 {
					return data
				}
				at := rng.IntN(len(data) - 50)
				n := rng.IntN(min(len(data)-at, 3000))
				switch rng.IntN(4) {
				case 0:
					data[at] ^= 1 << rng.IntN(8)
				case 1:
					clear(data[at : at+n])
				case 2:
					data = data[:at]
				case 3:
					copy(data[at:at+n], data[rng.IntN(len(data)-n):])
				}
				return data
			})
		}
		keepsTheRest(t, fs, want)
	}
}

func TestJournalOfAnotherVersion(t *testing.T) {
	fs, _, names := damagedJournal(t, 1)
	before := fs.Contents(names[1])
	fs.Damage(names[1], func(data []byte) []byte {
		binary.LittleEndian.PutUint32(data[8:], journalVersion+1)
		clear(data[12:16])
		binary.LittleEndian.PutUint32(data[12:], crc32.Checksum(data[:fileHead], castagnoli))
		return data
	})
	_, _, err := OpenJournal(fs, "data/journal", JournalOptions{}, 0, nil)
	if !errors.Is(err, ErrJournalVersion) || !strings.Contains(err.Error(), names[1]) {
		t.Error(err)
	}
	if got := fs.Contents(names[1]); !slices.Equal(got[fileHead:], before[fileHead:]) {
		t.Error("the file was changed")
	}
}

// Whatever else is right about them, frames of an earlier use of a file are stale.
func TestJournalStaleFrames(t *testing.T) {
	fs, want, names := damagedJournal(t, 1)
	last := names[len(names)-1]
	fs.Damage(last, func(data []byte) []byte {
		var h frameHeader
		for off := fileHead; h.decode(data[off:]) && h.use != 0; off += frameHead + h.length {
			h.use--
			if off > fileHead+2000 {
				h.seal(data[off : off+frameHead+h.length])
			}
		}
		return data
	})
	if _, got := keepsTheRest(t, fs, want); len(got) == len(want) || len(got) < len(want)/2 {
		t.Errorf("%d of %d records replayed", len(got), len(want))
	}
}

// A disk that does not give a page costs what is in it.
func TestJournalUnreadablePage(t *testing.T) {
	fs, want, names := damagedJournal(t, 1)
	fs.Inject(Fault{Op: OpRead, Name: names[1], After: 1, Times: 3, Short: 1000})
	j, report, got := reopen(t, fs, JournalOptions{FileSize: 16 << 10, manual: true}, 0)
	j.Close()
	if !strings.Contains(report.String(), "could not be read") || len(got) == len(want) {
		t.Error(report)
	}
}

func FuzzJournalOpen(f *testing.F) {
	fs, _, names := damagedJournal(f, 1)
	for _, name := range names {
		f.Add(fs.Contents(name), uint16(0), uint16(0))
	}
	f.Add([]byte(frameMagic), uint16(3), uint16(9))
	f.Fuzz(func(t *testing.T, data []byte, a, b uint16) {
		if a&1 != 0 {
			correct(data)
		}
		fs := NewFaultFS(1)
		fs.MkdirAll("data/journal")
		mustCreate(t, fs, "data/journal/00000001.journal")
		fs.Damage("data/journal/00000001.journal", func([]byte) []byte { return data })
		// A second file with the same contents, shifted, is stale, torn or foreign.
		mustCreate(t, fs, "data/journal/00000002.journal")
		fs.Damage("data/journal/00000002.journal", func([]byte) []byte {
			second := slices.Clone(data)
			if len(second) > 0 {
				second[int(a)%len(second)] ^= byte(b)
			}
			return second
		})
		j, _, err := OpenJournal(fs, "data/journal", JournalOptions{FileSize: 16 << 10, manual: true, salt: func() uint32 { return 1 }}, 0,
			func(Epoch, Mark, uint8, []byte) error { return nil })
		if err == nil {
			j.Append(1, []byte("x"))
			j.Close()
		}
	})
}

// correct makes the checksums right, so that what they protect from is seen all the same.
func correct(data []byte) {
	le := binary.LittleEndian
	if len(data) >= fileHead {
		clear(data[12:16])
		le.PutUint32(data[12:], crc32.Checksum(data[:fileHead], castagnoli))
	}
	for off := fileHead; off+frameHead <= len(data); off++ {
		if string(data[off:off+4]) != frameMagic {
			continue
		}
		if end := off + frameHead + int(le.Uint32(data[off+8:])); end <= len(data) {
			le.PutUint32(data[off+4:], crc32.Checksum(data[off+8:end], castagnoli))
			off = end - 1
		}
	}
}

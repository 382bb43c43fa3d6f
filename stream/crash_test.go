package stream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/test/seeds"
)

// cutTo forgets what a log no longer has.
func (m *model) cutTo(t testing.TB, next uint64) {
	t.Helper()
	for len(m.chunks) > 0 && m.chunks[len(m.chunks)-1].first >= next {
		m.chunks = m.chunks[:len(m.chunks)-1]
	}
	m.next = 0
	if n := len(m.chunks); n > 0 {
		m.next = m.chunks[n-1].next()
	}
	if m.next != next {
		t.Fatalf("the log ends at %d, within a chunk that ends at %d", next, m.next)
	}
}

// TestPowerCuts cuts the power at random points of random work: what was synced is there, what is there is right, nothing is
// taken for damage, and work goes on.
func TestPowerCuts(t *testing.T) {
	seed := seeds.Of(t)
	var torn int64
	for round := range rounds(120) {
		rng := rand.New(rand.NewPCG(seed, uint64(round)))
		m := newModel(seed + uint64(round))
		fs := storage.NewFaultFS(rng.Uint64())
		o := Options{SegmentBytes: int64(500 + rng.IntN(50_000)), SegmentChunks: uint32(1 + rng.IntN(50))}
		for life := range 6 {
			o.Memory, o.Files = NewMemory(1<<20), NewFiles(fs, 3)
			if life > 0 && rng.IntN(3) == 0 { // the cut comes while the log is opened
				fs.StopAfter(int64(rng.IntN(6)))
				if _, _, err := Open(fs, "s", o); err != nil && !errors.Is(err, storage.ErrDead) {
					t.Fatal(err)
				}
				fs = fs.Crash(rng.Uint64())
				o.Files = NewFiles(fs, 3)
			}
			before := m.next
			l, report := openLog(t, fs, o)
			torn += report.Torn
			if len(report.Damage) > 0 || report.Lost {
				t.Fatalf("round %d life %d: %+v", round, life, report)
			}
			first, next := l.Range()
			if next > before {
				t.Fatalf("round %d: %d was never appended", round, next)
			}
			m.cutTo(t, next)
			m.check(t, l)
			synced, cut := work(t, m, rng, l, fs)
			if cut < first {
				cut = first
			}
			fs = fs.Crash(rng.Uint64())
			l, report = openLog(t, fs, Options{SegmentBytes: o.SegmentBytes, SegmentChunks: o.SegmentChunks})
			torn += report.Torn
			if len(report.Damage) > 0 || report.Lost {
				t.Fatalf("round %d life %d: %+v", round, life, report)
			}
			if first, next := l.Range(); next < synced && synced > 0 || first < cut {
				t.Fatalf("round %d life %d: the log has %d to %d; synced was %d to %d", round, life, first, next, cut, synced)
			}
		}
	}
	if torn == 0 {
		t.Error("no tail was ever torn")
	}
}

// work appends, syncs and cuts until the power is cut, and returns what the last sync that ended well promised.
func work(t testing.TB, m *model, rng *rand.Rand, l *Log, fs *storage.FaultFS) (synced, cut uint64) {
	t.Helper()
	fs.StopAfter(int64(rng.IntN(60)))
	for {
		var err error
		switch x := rng.IntN(10); {
		case x < 7:
			c := m.build(1+rng.IntN(10), 100+rng.IntN(10)/9*5000)
			var first uint64
			if first, err = l.Append(c.bytes); err == nil || errors.Is(err, storage.ErrDead) {
				if err != nil {
					first = m.next // it may be there
				}
				c.first = first
				m.chunks, m.next = append(m.chunks, c), c.next()
			}
		case x < 9:
			first, next := l.Range()
			if err = l.Sync(); err == nil {
				synced, cut = next, first
			}
		default:
			l.Cut(uint64(rng.IntN(int(m.next + 1))))
		}
		if errors.Is(err, storage.ErrDead) {
			return synced, cut
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestRewind rewinds to the end of every chunk, and nowhere else.
func TestRewind(t *testing.T) {
	m := newModel(seeds.Of(t))
	fs := storage.NewFaultFS(1)
	o := Options{SegmentBytes: 20_000}
	l, _ := openLog(t, fs, o)
	fill(t, m, l, 40, 3, 1000)
	m.append(t, l, m.build(3, 10)) // not synced
	for m.next > 0 {
		if err := l.Rewind(m.next - 1); err == nil {
			t.Fatal("rewound into a chunk")
		}
		if err := l.Rewind(m.next + 1); err == nil {
			t.Fatal("rewound forward")
		}
		m.cutTo(t, m.next-3)
		if err := l.Rewind(m.next); err != nil {
			t.Fatal(err)
		}
		m.check(t, l)
		fs = fs.Crash(m.rng.Uint64()) // and it stays so
		var report Report
		if l, report = openLog(t, fs, o); report.Lost || len(report.Damage) > 0 {
			t.Fatalf("%+v", report)
		}
		m.check(t, l)
		if m.rng.IntN(4) == 0 {
			fill(t, m, l, 2, 3, 100)
			m.cutTo(t, m.next-3)
			if err := l.Rewind(m.next); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(t, m, l, 10, 3, 1000)
	m.check(t, l)
}

// TestFailedWrites tries again what found no room, and gives up after a failed sync.
func TestFailedWrites(t *testing.T) {
	m := newModel(seeds.Of(t))
	fs := storage.NewFaultFS(1)
	o := Options{SegmentBytes: 5000}
	l, _ := openLog(t, fs, o)
	failed := 0
	for range 200 {
		c := m.build(1+m.rng.IntN(3), 300)
		if m.rng.IntN(2) == 0 {
			op := []storage.Op{storage.OpWrite, storage.OpCreate}[m.rng.IntN(2)]
			fs.Inject(storage.Fault{Op: op, Short: m.rng.IntN(600)})
			if op == storage.OpWrite && m.rng.IntN(2) == 0 {
				fs.Inject(storage.Fault{Op: storage.OpTruncate})
			}
		}
		for {
			first, err := l.Append(c.bytes)
			if err == nil {
				c.first = first
				m.chunks, m.next = append(m.chunks, c), c.next()
				break
			}
			failed++
			if errors.Is(err, ErrBroken) || l.Next() != m.next {
				t.Fatal(err)
			}
		}
		fs.Heal()
	}
	if failed < 50 {
		t.Errorf("only %d appends failed", failed)
	}
	m.check(t, l)
	fs.Inject(storage.Fault{Op: storage.OpWrite, Short: 3000})
	if _, err := l.Append(m.build(20, 1000).bytes); err == nil {
		t.Fatal("it was written")
	}
	m.append(t, l, m.build(1, 10)) // shorter than what is left there of the one before
	if _, report := openLog(t, storage.NewOverlay(fs), o); report.Torn > 0 {
		t.Fatalf("%+v", report)
	}
	fs.Inject(storage.Fault{Op: storage.OpSync})
	if err := l.Sync(); !errors.Is(err, ErrBroken) {
		t.Fatal(err)
	}
	if err := l.Sync(); !errors.Is(err, ErrBroken) {
		t.Fatal("a failed sync was forgotten:", err)
	}
	l, report := openLog(t, fs.Kill(), o)
	if report.Torn > 0 || len(report.Damage) > 0 {
		t.Fatalf("%+v", report)
	}
	m.check(t, l)
}

// TestVersion refuses files of a later version, and leaves them alone.
func TestVersion(t *testing.T) {
	m := newModel(seeds.Of(t))
	fs := storage.NewFaultFS(1)
	l, _ := openLog(t, fs, Options{})
	fill(t, m, l, 1, 1, 10)
	l.Close()
	later := strings.Replace(string(appendFileHeader(nil, segmentMagic, 0)), "\x00\x00\x00\x01", "\x00\x00\x00\x02", 1)
	header := []byte(later)
	fixSum(header)
	name := fileName("s", 0, segmentSuffix)
	fs.Damage(name, func(b []byte) []byte { copy(b, header); return b })
	want := string(fs.Contents(name))
	if _, _, err := Open(fs, "s", Options{}); !errors.Is(err, ErrVersion) {
		t.Fatal(err)
	}
	if string(fs.Contents(name)) != want {
		t.Error("it was changed")
	}
}

func fixSum(header []byte) {
	binary.BigEndian.PutUint32(header[28:], crc32.Checksum(header[:28], castagnoli))
}

// TestStaleTail tears a chunk that was not synced, with a whole one behind it, and appends in its place: after another power
// cut the one behind must not come back.
func TestStaleTail(t *testing.T) {
	var b Builder
	chunk := func(s string) []byte {
		b.Reset(0)
		if err := b.Add(bytes.Repeat([]byte(s), 600), nil); err != nil {
			t.Fatal(err)
		}
		return b.Finish(1, 1)
	}
	seed := seeds.Of(t)
	for round := range rounds(50) {
		fs := storage.NewFaultFS(seed + uint64(round))
		l, _ := openLog(t, fs, Options{})
		for i, s := range []string{"a", "b", "c"} {
			if _, err := l.Append(chunk(s)); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				if err := l.Sync(); err != nil {
					t.Fatal(err)
				}
			}
		}
		fs.FlipBit(fileName("s", 0, segmentSuffix), fileHeader+int64(len(chunk("a")))+100, 1)
		fs = fs.Kill()
		l, report := openLog(t, fs, Options{})
		if l.Next() != 1 || report.Torn == 0 {
			t.Fatal(l.Next(), report)
		}
		if _, err := l.Append(chunk("B")); err != nil {
			t.Fatal(err)
		}
		l, _ = openLog(t, fs.Crash(seed+uint64(round)), Options{})
		if l.Next() > 2 {
			t.Fatalf("round %d: an offset was there before it was given: %d", round, l.Next())
		}
	}
}

// TestBegin makes a replica of another's files.
func TestBegin(t *testing.T) {
	m := newModel(seeds.Of(t))
	fs := storage.NewFaultFS(1)
	o := Options{SegmentBytes: 10_000}
	l, _ := openLog(t, fs, o)
	fill(t, m, l, 50, 4, 500)
	l.Cut(100)
	first := l.First()
	if err := Begin(fs, "copy", first); err != nil {
		t.Fatal(err)
	}
	for _, s := range l.Segments() {
		f, err := fs.Create(fileName("copy", s.First, segmentSuffix))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(fs.Contents(fileName("s", s.First, segmentSuffix)), 0); err != nil {
			t.Fatal(err)
		}
	}
	replica, report, err := Open(fs, "copy", o)
	if err != nil || report.Torn > 0 || len(report.Damage) > 0 || replica.First() != first {
		t.Fatal(err, report, replica.First(), first)
	}
	m.check(t, replica)
	c := m.build(1, 1) // and both go on alike
	m.append(t, l, c)
	if at, err := replica.Append(c.bytes); err != nil || at != m.next-1 {
		t.Fatal(at, err)
	}
	m.check(t, replica)
}

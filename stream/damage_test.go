package stream

import (
	"errors"
	"testing"

	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/test/seeds"
)

// fill appends chunks and syncs.
func fill(t testing.TB, m *model, l *Log, chunks, records, size int) {
	t.Helper()
	for range chunks {
		m.append(t, l, m.build(records, size))
	}
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
}

// readThrough reads everything, skips damage, and returns the offsets that came and those that were said to be damaged.
func readThrough(t testing.TB, l *Log, m *model) (read, damaged int) {
	t.Helper()
	r := l.Read(0, Filter{})
	defer r.Release()
	var rec Record
	for next := l.First(); ; {
		err := r.Next(&rec)
		var d *DamageError
		switch {
		case errors.As(err, &d):
			if d.From != next || d.To <= d.From {
				t.Fatalf("at %d: %v", next, d)
			}
			if again := r.Next(&rec); !errors.As(again, &d) {
				t.Fatalf("it went on by itself: %v", again)
			}
			damaged += int(d.To - d.From)
			next = d.To
			r.Skip()
		case errors.Is(err, ErrEnd):
			if next != l.Next() {
				t.Fatalf("it ended at %d of %d", next, l.Next())
			}
			return read, damaged
		case err != nil:
			t.Fatal(err)
		default:
			if rec.Offset != next || string(rec.Body) != string(m.body(next)) {
				t.Fatalf("offset %d, not %d, or its body is wrong", rec.Offset, next)
			}
			read++
			next++
		}
	}
}

// TestDamage damages files at random: nobody is given anything wrong, nothing is passed over silently, and what can be read is.
func TestDamage(t *testing.T) {
	seed := seeds.Of(t)
	for round := range rounds(150) {
		m := newModel(seed + uint64(round))
		fs := storage.NewFaultFS(seed)
		o := Options{SegmentBytes: 60_000}
		l, _ := openLog(t, fs, o)
		fill(t, m, l, 100, 5, 1500)
		segs := l.Segments()
		l.Close()
		fs = fs.Kill()
		hit := segs[m.rng.IntN(len(segs)-1)] // not the last one
		name, index := fileName("s", hit.First, segmentSuffix), fileName("s", hit.First, indexSuffix)
		kind := m.rng.IntN(5)
		switch kind {
		case 0:
			fs.FlipBit(name, m.rng.Int64N(hit.Size), 3)
		case 1:
			fs.Cut(name, m.rng.Int64N(hit.Size))
		case 2:
			if err := fs.Remove(name); err != nil {
				t.Fatal(err)
			}
		case 3:
			fs.FlipBit(index, m.rng.Int64N(int64(len(fs.Contents(index)))), 3)
		case 4:
			if err := fs.Remove(index); err != nil {
				t.Fatal(err)
			}
		}
		l, report := openLog(t, fs, o)
		if l.Next() != m.next || report.Lost || report.Torn > 0 {
			t.Fatalf("round %d: ends at %d of %d, %+v", round, l.Next(), m.next, report)
		}
		read, damaged := readThrough(t, l, m)
		if uint64(read+damaged) != m.next {
			t.Fatalf("round %d: %d read and %d damaged of %d", round, read, damaged, m.next)
		}
		if (damaged > 0) != (kind < 3) || uint64(damaged) > hit.Next-hit.First {
			t.Fatalf("round %d: damage of kind %d to %s cost %d records of %d", round, kind, name, damaged, hit.Next-hit.First)
		}
		if kind == 1 && len(report.Damage) != 1 || kind == 2 && len(report.Damage) != 1 {
			t.Fatalf("round %d: %+v", round, report)
		}
		m.append(t, l, m.build(1, 10)) // it goes on
		if err := l.Sync(); err != nil {
			t.Fatal(err)
		}
		l.Cut(hit.Next)
		if len(l.Damage()) > 0 {
			t.Fatalf("damage that was removed: %v", l.Damage())
		}
		m.check(t, l)
	}
}

// TestLost opens a log whose end was synced and is missing: it takes nothing before it is told to.
func TestLost(t *testing.T) {
	for name, lose := range map[string]func(fs *storage.FaultFS, last SegmentInfo){
		"removed": func(fs *storage.FaultFS, last SegmentInfo) { _ = fs.Remove(fileName("s", last.First, segmentSuffix)) },
		"cut": func(fs *storage.FaultFS, last SegmentInfo) {
			fs.Cut(fileName("s", last.First, segmentSuffix), last.Size-1)
		},
		"header": func(fs *storage.FaultFS, last SegmentInfo) {
			fs.FlipBit(fileName("s", last.First, segmentSuffix), 9, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newModel(seeds.Of(t))
			fs := storage.NewFaultFS(1)
			o := Options{SegmentBytes: 20_000}
			l, _ := openLog(t, fs, o)
			fill(t, m, l, 37, 3, 1000)
			segs := l.Segments()
			l.Close()
			fs = fs.Kill()
			lose(fs, segs[len(segs)-1])
			l, report := openLog(t, fs, o)
			if !report.Lost || l.Next() >= m.next {
				t.Fatalf("%+v, next %d", report, l.Next())
			}
			if _, err := l.Append(m.build(1, 1).bytes); !errors.Is(err, ErrBroken) {
				t.Fatal(err)
			}
			if err := l.Sync(); !errors.Is(err, ErrBroken) {
				t.Fatal(err)
			}
			m.cutTo(t, l.Next())
			if err := l.Rewind(m.next); err != nil {
				t.Fatal(err)
			}
			fill(t, m, l, 30, 3, 1000)
			l.Close()
			l, report = openLog(t, fs.Crash(5), o)
			if report.Lost || len(report.Damage) > 0 {
				t.Fatalf("%+v", report)
			}
			m.check(t, l)
		})
	}
}

// TestGarbage opens logs whose files were damaged in any number of ways at once: whatever comes of it, nobody is given anything
// wrong.
func TestGarbage(t *testing.T) {
	seed := seeds.Of(t)
	for round := range rounds(300) {
		m := newModel(seed + uint64(round))
		fs := storage.NewFaultFS(seed)
		o := Options{SegmentBytes: 20_000}
		l, _ := openLog(t, fs, o)
		fill(t, m, l, m.rng.IntN(40), 3, 1500)
		for range m.rng.IntN(5) {
			m.append(t, l, m.build(3, 1500))
		}
		l.Close()
		fs = fs.Kill()
		names, err := fs.List("s")
		if err != nil {
			t.Fatal(err)
		}
		for range 1 + m.rng.IntN(4) {
			if len(names) == 0 {
				break
			}
			name := "s/" + names[m.rng.IntN(len(names))]
			fs.Damage(name, func(b []byte) []byte {
				if len(b) == 0 {
					return b
				}
				switch m.rng.IntN(4) {
				case 0:
					return b[:m.rng.IntN(len(b))]
				case 1:
					for i := m.rng.IntN(len(b)); i < len(b); i++ {
						b[i] = byte(m.rng.Uint32())
					}
				case 2:
					clear(b[m.rng.IntN(len(b)):])
				case 3:
					b = append(b, b[m.rng.IntN(len(b)):]...)
				}
				return b
			})
		}
		l, _, err = Open(fs, "s", o)
		if err != nil {
			if !errors.Is(err, ErrChunk) && !errors.Is(err, ErrVersion) {
				t.Fatal(err)
			}
			continue
		}
		if _, next := l.Range(); next > m.next {
			t.Fatalf("round %d: ends at %d of %d", round, next, m.next)
		}
		readThrough(t, l, m)
		for range 10 {
			at := m.rng.Uint64N(m.next + 2)
			r := l.Read(at, Filter{})
			var rec Record
			if err := r.Next(&rec); err == nil && (rec.Offset != max(at, l.First()) || string(rec.Body) != string(m.body(rec.Offset))) {
				t.Fatalf("round %d: at %d: %d", round, at, rec.Offset)
			}
			r.Release()
			if _, err := l.Resolve(Spec{Kind: Since, Since: m.clock - m.rng.Int64N(50_000)}); err != nil {
				t.Fatal(err)
			}
		}
		l.Close()
	}
}

// TestIndexIsSparse syncs after every little chunk: the index follows the octets, not the syncs.
func TestIndexIsSparse(t *testing.T) {
	m := newModel(seeds.Of(t))
	fs := storage.NewFaultFS(1)
	l, _ := openLog(t, fs, Options{})
	for i := range 2000 {
		m.append(t, l, m.build(1, 10))
		if err := l.Sync(); err != nil {
			t.Fatal(err)
		}
		if i%100 == 99 {
			l.Close()
			l, _ = openLog(t, fs, Options{})
		}
	}
	index := len(fs.Contents(fileName("s", 0, indexSuffix)))
	if most := fileHeader + (int(l.Size())/indexStep+3)*boundaryLen; index > most {
		t.Errorf("an index of %d octets for a segment of %d", index, l.Size())
	}
	m.check(t, l)
	for _, c := range m.chunks {
		if got, err := l.Resolve(Spec{Kind: Since, Since: c.time}); err != nil || got != m.since(0, c.time) {
			t.Fatal(got, err)
		}
	}
}

package stream

import (
	"errors"
	"testing"

	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/test/seeds"
)

// TestMend damages files of one of two equal logs at random, and mends them from the other while the log goes on: then it has all
// of it, also after the power was cut, and little was asked for.
func TestMend(t *testing.T) {
	seed := seeds.Of(t)
	for round := range rounds(40) {
		m, twin := newModel(seed+uint64(round)), newModel(seed+uint64(round))
		o := Options{SegmentBytes: 60_000}
		fs := storage.NewFaultFS(seed)
		l, _ := openLog(t, fs, o)
		whole, _ := openLog(t, storage.NewFaultFS(seed), o)
		fill(t, m, l, 100, 5, 1500)
		fill(t, twin, whole, 100, 5, 1500)
		segs := l.Segments()
		l.Close()
		fs = fs.Kill()
		flips := 0
		for range 1 + m.rng.IntN(3) {
			hit := segs[m.rng.IntN(len(segs)-1)]
			name := fileName("s", hit.First, segmentSuffix)
			switch m.rng.IntN(4) {
			case 0:
				if n := int64(len(fs.Contents(name))); n > 0 {
					fs.FlipBit(name, m.rng.Int64N(n), 3)
					flips++
				}
			case 1:
				fs.Cut(name, m.rng.Int64N(hit.Size))
			case 2:
				_ = fs.Remove(name)
			case 3:
				_ = fs.Remove(fileName("s", hit.First, indexSuffix))
			}
		}
		only := flips
		l, report := openLog(t, fs, o)
		if len(report.Damage) > 0 {
			only = 0
		}
		r := l.Read(0, Filter{})
		var rec Record
		for err := error(nil); !errors.Is(err, ErrEnd); err = r.Next(&rec) { // damage within chunks is noted by who reads
			if d := new(DamageError); errors.As(err, &d) {
				l.Note(d.Damage)
				r.Skip()
			}
		}
		r.Release()
		asked := 0
		var buf []byte
		octets := func(base uint64, pos int64) (_ []byte, err error) {
			m.append(t, l, m.build(1, 100)) // it goes on meanwhile
			buf, err = whole.Octets(buf[:0], base, pos)
			asked += len(buf)
			return buf, err
		}
		for _, d := range l.Damage() {
			if err := l.Mend(d, whole.Segments(), octets); err != nil {
				t.Fatalf("round %d: %+v: %v", round, d, err)
			}
		}
		if only > 0 && asked > 2*copyOctets*only {
			t.Fatalf("round %d: %d octets were asked for %d bits", round, asked, flips)
		}
		m.append(t, l, m.build(1, 100))
		m.check(t, l)
		if err := l.Sync(); err != nil {
			t.Fatal(err)
		}
		for _, s := range segs {
			a, err := l.Sum(s.First, s.Size)
			b, _ := whole.Sum(s.First, s.Size)
			if err != nil || a != b {
				t.Fatalf("round %d: segment %d: sums %x and %x, %v", round, s.First, a, b, err)
			}
		}
		l.Close()
		l, report = openLog(t, fs.Crash(seed), o)
		if report.Lost || len(report.Damage) > 0 {
			t.Fatalf("round %d: after a power cut: %+v", round, report)
		}
		m.check(t, l)
		l.Close()
		whole.Close()
	}
}

// TestMendFromWorse: another log that is damaged in the same place, or has less, changes nothing.
func TestMendFromWorse(t *testing.T) {
	m, twin := newModel(1), newModel(1)
	o := Options{SegmentBytes: 20_000}
	fs, other := storage.NewFaultFS(1), storage.NewFaultFS(1)
	l, _ := openLog(t, fs, o)
	fill(t, m, l, 30, 3, 1500)
	whole, _ := openLog(t, other, o)
	fill(t, twin, whole, 30, 3, 1500)
	hit := l.Segments()[1]
	name := fileName("s", hit.First, segmentSuffix)
	fs.FlipBit(name, 1000, 1)
	other.FlipBit(name, 1000, 2)
	d := Damage{From: hit.First, To: hit.Next}
	l.Note(d)
	octets := func(base uint64, pos int64) ([]byte, error) { return whole.Octets(nil, base, pos) }
	var damage *DamageError
	if err := l.Mend(d, whole.Segments(), octets); !errors.As(err, &damage) || damage.From != hit.First || damage.To != hit.Next {
		t.Error(err)
	}
	if err := l.Mend(d, whole.Segments()[:1], octets); !errors.Is(err, ErrBehind) {
		t.Error(err)
	}
	if err := l.Mend(d, whole.Segments()[2:], octets); !errors.Is(err, ErrBehind) {
		t.Error(err)
	}
	other.FlipBit(name, 1000, 2)
	wrong := func(base uint64, pos int64) ([]byte, error) { return whole.Octets(nil, whole.Segments()[2].First, pos) }
	if err := l.Mend(d, whole.Segments(), wrong); !errors.Is(err, ErrChunk) {
		t.Error(err)
	}
	if len(l.Damage()) != 1 {
		t.Errorf("%+v", l.Damage())
	}
	if err := l.Mend(d, whole.Segments(), octets); err != nil || len(l.Damage()) != 0 {
		t.Errorf("%v %+v", err, l.Damage())
	}
	m.check(t, l)
}

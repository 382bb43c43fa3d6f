package stream

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/test/seeds"
)

// modelChunk is a chunk as the naive model keeps it.
type modelChunk struct {
	first  uint64
	time   int64
	bodies [][]byte
	values []string
	bytes  []byte // as given to Append
}

func (c modelChunk) next() uint64 { return c.first + uint64(len(c.bodies)) }

// model is a stream as a slice.
type model struct {
	rng    *rand.Rand
	chunks []modelChunk
	next   uint64
	clock  int64
	serial uint64
	filter uint8
}

func newModel(seed uint64) *model {
	return &model{rng: rand.New(rand.NewPCG(seed, 1)), clock: 1_700_000_000_000, filter: 16}
}

// build makes a chunk that is not appended yet. Bodies say when they were made.
func (m *model) build(records, size int) modelChunk {
	var b Builder
	b.Reset(m.filter)
	m.clock += int64(m.rng.IntN(2000))
	if m.rng.IntN(20) == 0 {
		m.clock -= int64(m.rng.IntN(30_000)) // the clock is set back
	}
	c := modelChunk{time: m.clock}
	var batch []byte // of records that make a sub-batch
	batched := uint16(0)
	flush := func() {
		if batched > 0 {
			if err := b.AddBatch(0, batched, uint32(len(batch)), batch, []byte(c.values[len(c.values)-1])); err != nil {
				panic(err)
			}
			batch, batched = nil, 0
		}
	}
	for range records {
		m.serial++
		body := fmt.Appendf(nil, "%d:", m.serial)
		for n := m.rng.IntN(size + 1); len(body) < n; {
			body = append(body, byte(m.rng.Uint32()))
		}
		value := ""
		if m.rng.IntN(3) > 0 {
			value = fmt.Sprint("v", m.rng.IntN(20))
		}
		if batched == 0 && m.rng.IntN(4) == 0 || batched > 0 && m.rng.IntN(2) == 0 {
			if batched > 0 {
				value = c.values[len(c.values)-1] // a sub-batch has one for all
			}
			batch = append(append(batch, byte(len(body)>>24), byte(len(body)>>16), byte(len(body)>>8), byte(len(body))), body...)
			batched++
		} else {
			flush()
			if err := b.Add(body, []byte(value)); err != nil {
				panic(err)
			}
		}
		c.bodies = append(c.bodies, body)
		c.values = append(c.values, value)
	}
	flush()
	c.bytes = bytes.Clone(b.Finish(c.time, 3))
	return c
}

func (m *model) append(t testing.TB, l *Log, c modelChunk) {
	t.Helper()
	first, err := l.Append(c.bytes)
	if err != nil {
		t.Fatal(err)
	}
	if first != m.next {
		t.Fatalf("appended at %d, not %d", first, m.next)
	}
	c.first = first
	m.chunks = append(m.chunks, c)
	m.next = c.next()
}

// body is the record of an offset, nil if there is none.
func (m *model) body(offset uint64) []byte {
	for _, c := range m.chunks {
		if offset >= c.first && offset < c.next() {
			return c.bodies[offset-c.first]
		}
	}
	return nil
}

// since is the naive look-up of a time.
func (m *model) since(first uint64, t int64) uint64 {
	for _, c := range m.chunks {
		if c.first >= first && c.time >= t {
			return c.first
		}
	}
	return m.next
}

func (m *model) last(first uint64) uint64 {
	if n := len(m.chunks); n > 0 && m.chunks[n-1].first >= first {
		return m.chunks[n-1].first
	}
	return m.next
}

// check reads everything and compares.
func (m *model) check(t testing.TB, l *Log) {
	t.Helper()
	first, next := l.Range()
	if next != m.next {
		t.Fatalf("the log ends at %d, the model at %d", next, m.next)
	}
	r := l.Read(0, Filter{})
	defer r.Release()
	at := first
	var rec Record
	for _, c := range m.chunks {
		for i, body := range c.bodies {
			offset := c.first + uint64(i)
			if offset < first {
				continue
			}
			if err := r.Next(&rec); err != nil {
				t.Fatalf("at %d: %v", offset, err)
			}
			if rec.Offset != offset || rec.Time != c.time || !bytes.Equal(rec.Body, body) {
				t.Fatalf("read %d at %d: %q, want %d at %d: %q", rec.Offset, rec.Time, rec.Body, offset, c.time, body)
			}
			at++
		}
	}
	if err := r.Next(&rec); !errors.Is(err, ErrEnd) || at != next {
		t.Fatalf("at the end %v, after %d of %d", err, at, next)
	}
}

func openLog(t testing.TB, fs storage.FS, o Options) (*Log, Report) {
	t.Helper()
	l, report, err := Open(fs, "s", o)
	if err != nil {
		t.Fatal(err)
	}
	return l, report
}

// TestModel appends, syncs, cuts, opens anew and reads at random, and compares with the model.
func TestModel(t *testing.T) {
	seed := seeds.Of(t)
	for round := range rounds(30) {
		m := newModel(seed + uint64(round))
		fs := storage.NewFaultFS(seed)
		o := Options{SegmentBytes: int64(1000 + m.rng.IntN(200_000)), SegmentChunks: uint32(2 + m.rng.IntN(100)), TailBytes: int64(1 + m.rng.IntN(100_000)),
			Memory: NewMemory(int64(600_000 + m.rng.IntN(1_000_000))), Files: NewFiles(fs, 1+m.rng.IntN(4))}
		l, _ := openLog(t, fs, o)
		var readers []*modelReader
		for step := range 300 {
			switch x := m.rng.IntN(100); {
			case x < 40:
				size := 100
				if m.rng.IntN(10) == 0 {
					size = 30_000
				}
				m.append(t, l, m.build(1+m.rng.IntN(20), size))
			case x < 50:
				if err := l.Sync(); err != nil {
					t.Fatal(err)
				}
			case x < 53:
				segs := l.Segments()
				before := l.First()
				l.Cut(uint64(m.rng.IntN(int(m.next + 10))))
				if l.First() < before || len(segs) > 0 && l.First() > segs[len(segs)-1].First {
					t.Fatalf("cut from %d to %d of %v", before, l.First(), segs)
				}
			case x < 55:
				if err := l.Sync(); err != nil {
					t.Fatal(err)
				}
				for _, r := range readers {
					r.r.Release()
				}
				l.Close()
				fs = fs.Kill()
				o.Files = NewFiles(fs, 2)
				var report Report
				l, report = openLog(t, fs, o)
				if len(report.Removed)+len(report.Damage)+len(report.Rebuilt) > 0 || report.Torn > 0 || report.Lost || report.Scanned > 0 {
					t.Fatalf("round %d step %d: %+v", round, step, report)
				}
				readers = nil
			case x < 60:
				readers = append(readers, m.reader(l, uint64(m.rng.IntN(int(m.next+20)))))
			case x < 95:
				if len(readers) > 0 {
					i := m.rng.IntN(len(readers))
					readers[i].step(t, m, 1+m.rng.IntN(50))
				}
			default:
				first := l.First()
				at := m.clock - int64(m.rng.IntN(200_000))
				if got, err := l.Resolve(Spec{Kind: Since, Since: at}); err != nil || got != m.since(first, at) {
					t.Fatalf("since %d: %d, %v, want %d", at, got, err, m.since(first, at))
				}
				if got, err := l.Resolve(Spec{Kind: Last}); err != nil || got != m.last(first) {
					t.Fatalf("last: %d, %v, want %d", got, err, m.last(first))
				}
			}
		}
		m.check(t, l)
		for _, r := range readers {
			r.step(t, m, 1<<30)
			r.r.Release()
		}
		l.Close()
		if n := o.Memory.used; n != 0 {
			t.Fatalf("%d octets are in use after all", n)
		}
		if n := o.Files.Open(); n != 0 {
			t.Fatalf("%d files are open after all", n)
		}
	}
}

// modelReader is a reader and what it should see.
type modelReader struct {
	r      *Reader
	l      *Log
	next   uint64
	filter Filter
}

func (m *model) reader(l *Log, offset uint64) *modelReader {
	r := &modelReader{l: l, next: max(offset, l.First())}
	if m.rng.IntN(3) == 0 {
		r.filter.Unfiltered = m.rng.IntN(2) == 0
		for range 1 + m.rng.IntN(2) {
			r.filter.Values = append(r.filter.Values, fmt.Append(nil, "v", m.rng.IntN(20)))
		}
	}
	r.r = l.Read(offset, r.filter)
	return r
}

// wanted reports whether the reader must see a record, whatever the bloom filter says of the chunk.
func (r *modelReader) wanted(value string) bool {
	if len(r.filter.Values) == 0 || value == "" && r.filter.Unfiltered {
		return true
	}
	for _, v := range r.filter.Values {
		if string(v) == value {
			return true
		}
	}
	return false
}

// step reads up to n records: every one that is wanted must come, and those that come must be right.
func (r *modelReader) step(t testing.TB, m *model, n int) {
	t.Helper()
	var rec Record
	for range n {
		err := r.r.Next(&rec)
		var removed *RemovedError
		switch {
		case errors.As(err, &removed):
			if removed.To != r.l.First() || removed.From < r.next || removed.From >= removed.To {
				t.Fatalf("%v, at %d, first is %d", err, r.next, r.l.First())
			}
			r.skipped(t, m, removed.From)
			r.next = removed.To
			continue
		case errors.Is(err, ErrEnd):
			r.skipped(t, m, max(m.next, r.next))
			if r.r.Offset() < r.next {
				t.Fatalf("at the end the reader is at %d, not %d", r.r.Offset(), r.next)
			}
			r.r.Release()
			return
		case err != nil:
			t.Fatal(err)
		}
		r.skipped(t, m, rec.Offset)
		if want := m.body(rec.Offset); !bytes.Equal(want, rec.Body) || rec.Offset < r.next {
			t.Fatalf("offset %d, at %d: %q, want %q", rec.Offset, r.next, rec.Body, want)
		}
		r.next = rec.Offset + 1
	}
	r.r.Release()
	if r.r.Offset() != r.next && len(r.filter.Values) == 0 {
		t.Fatalf("the reader is at %d, not %d", r.r.Offset(), r.next)
	}
}

// skipped checks that nothing was wanted up to an offset.
func (r *modelReader) skipped(t testing.TB, m *model, to uint64) {
	t.Helper()
	for ; r.next < to; r.next++ {
		for _, c := range m.chunks {
			if r.next >= c.first && r.next < c.next() && r.wanted(c.values[r.next-c.first]) {
				t.Fatalf("offset %d was not read (%d was)", r.next, to)
			}
		}
	}
}

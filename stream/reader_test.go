package stream

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/test/seeds"
)

// TestReadersShare has a hundred readers go through a log side by side: what they read is read once, within the bound.
func TestReadersShare(t *testing.T) {
	m := newModel(seeds.Of(t))
	fs := storage.NewFaultFS(1)
	l, _ := openLog(t, fs, Options{SegmentBytes: 3 << 20})
	fill(t, m, l, 400, 20, 2000) // 8 MB
	l.Close()
	var octets atomic.Int64
	memory := NewMemory(2 << 20)
	l, _ = openLog(t, fs, Options{SegmentBytes: 3 << 20, Memory: memory})
	size := l.Size()
	fs.Observe(func(e storage.Event) {
		if e.Op == storage.OpRead {
			octets.Add(int64(e.Length))
		}
	})
	readers := make([]*Reader, 100)
	for i := range readers {
		readers[i] = l.Read(uint64(i%7), Filter{})
	}
	var rec Record
	for done := 0; done < len(readers); {
		done = 0
		for _, r := range readers {
			for range 10 {
				if err := r.Next(&rec); errors.Is(err, ErrEnd) {
					done++
					break
				} else if err != nil {
					t.Fatal(err)
				}
			}
			r.Release()
			if used := memory.Used(); used > 2<<20 {
				t.Fatalf("%d octets are used", used)
			}
		}
	}
	if n := octets.Load(); n > size*3/2 {
		t.Errorf("%d octets were read of a log of %d", n, size)
	}
	t.Logf("%d blocks and %d octets were read of %d", memory.Reads(), octets.Load(), size)
}

// TestSpentBlocks has a lone reader use the same memory again for one block after the other, and two of them share until the one
// behind has gone.
func TestSpentBlocks(t *testing.T) {
	m := newModel(seeds.Of(t))
	fs := storage.NewFaultFS(1)
	l, _ := openLog(t, fs, Options{})
	fill(t, m, l, 400, 20, 2000) // 8 MB
	l.Close()
	memory := NewMemory(4 << 20)
	l, _ = openLog(t, fs, Options{Memory: memory})
	read := func(r *Reader, n uint64) {
		t.Helper()
		var rec Record
		for range n {
			if err := r.Next(&rec); err != nil {
				t.Fatal(err)
			}
			if rec.Offset%50 == 0 {
				r.Release()
			}
		}
		r.Release()
	}
	const little = 2 * blockBuffer
	lone := l.Read(0, Filter{})
	read(lone, m.next/2)
	if used := memory.Used(); used > little {
		t.Errorf("one reader uses %d octets", used)
	}
	behind := l.Read(lone.Offset()-10, Filter{})
	read(lone, 1500)
	reads := memory.Reads()
	if memory.Used() <= little {
		t.Error("nothing is kept for the reader behind")
	}
	read(behind, 1500)
	if again := memory.Reads() - reads; again > 1 {
		t.Errorf("the reader behind has read %d blocks once more", again)
	}
	behind.Close()
	used := memory.Used()
	read(lone, 1500)
	if memory.Used() > used {
		t.Errorf("%d octets are used, %d when the reader behind went", memory.Used(), used)
	}
}

// TestTailIsMemory reads what was just appended from memory, and knows it.
func TestTailIsMemory(t *testing.T) {
	m := newModel(seeds.Of(t))
	fs := storage.NewFaultFS(1)
	l, _ := openLog(t, fs, Options{})
	r := l.Read(0, Filter{})
	var rec Record
	reads := 0
	fs.Observe(func(e storage.Event) {
		if e.Op == storage.OpRead {
			reads++
		}
	})
	for range 500 {
		m.append(t, l, m.build(3, 3000))
		if r.placed && !r.Ready() {
			t.Fatal("not ready")
		}
		for {
			err := r.Next(&rec)
			if errors.Is(err, ErrEnd) {
				break
			}
			if err != nil || string(rec.Body) != string(m.body(rec.Offset)) {
				t.Fatal(err, rec.Offset)
			}
		}
		r.Release()
	}
	if r.Offset() != m.next || reads > 2 { // finding its place
		t.Errorf("at %d of %d, %d reads", r.Offset(), m.next, reads)
	}
}

// TestFilterPassesOver reads little of a log whose chunks are large and mostly of other values.
func TestFilterPassesOver(t *testing.T) {
	fs := storage.NewFaultFS(1)
	l, _ := openLog(t, fs, Options{})
	var b Builder
	for i := range 100 {
		b.Reset(DefaultFilterSize)
		for range 10 {
			if err := b.Add(make([]byte, 10_000), fmt.Append(nil, "v", i%50)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.Append(b.Finish(int64(i), 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	l.Close()
	l, _ = openLog(t, fs, Options{})
	octets := 0
	fs.Observe(func(e storage.Event) {
		if e.Op == storage.OpRead {
			octets += e.Length
		}
	})
	r := l.Read(0, Filter{Values: [][]byte{[]byte("v7")}})
	got := 0
	var rec Record
	for r.Next(&rec) == nil {
		got++
	}
	if got < 20 || uint64(got)+r.Passed() != 1000 || octets > 3_000_000 {
		t.Errorf("%d records came, %d were passed over, %d octets read", got, r.Passed(), octets)
	}
	// A filter that lost its bits must not hide what is wanted.
	fs.Zero(fileName("s", 0, segmentSuffix), fileHeader+7*(HeaderLen+10*10_004+DefaultFilterSize+chunkSum)+HeaderLen+10*10_004, DefaultFilterSize)
	l.Close()
	l, _ = openLog(t, fs, Options{})
	r = l.Read(0, Filter{Values: [][]byte{[]byte("v7")}})
	var damage *DamageError
	if err := r.Next(&rec); !errors.As(err, &damage) || damage.From != 70 || damage.To != 80 {
		t.Errorf("read %d, %v", rec.Offset, err)
	}
}

// TestChunks reads whole chunks, from within one.
func TestChunks(t *testing.T) {
	m := newModel(seeds.Of(t))
	l, _ := openLog(t, storage.NewFaultFS(1), Options{SegmentBytes: 20_000})
	fill(t, m, l, 50, 5, 1000)
	r := l.Read(12, Filter{})
	var rec Record
	if err := r.Next(&rec); err != nil || rec.Offset != 12 {
		t.Fatal(err, rec)
	}
	for want := uint64(10); want < 250; want += 5 {
		c, err := r.Chunk()
		if err != nil || c.First != want || c.Verify() != nil {
			t.Fatal(err, c.Header)
		}
		if want%3 == 0 {
			r.Release()
		}
	}
	if _, err := r.Chunk(); !errors.Is(err, ErrEnd) {
		t.Fatal(err)
	}
	m.append(t, l, m.build(2, 10))
	if err := r.Next(&rec); err != nil || rec.Offset != 250 {
		t.Fatal(err, rec)
	}
}

// TestLargeMessages have blocks of their own, larger than the bound if need be.
func TestLargeMessages(t *testing.T) {
	m := newModel(seeds.Of(t))
	fs := storage.NewFaultFS(1)
	l, _ := openLog(t, fs, Options{SegmentBytes: 4 << 20})
	for range 12 {
		m.append(t, l, m.build(2, 1_500_000))
		m.append(t, l, m.build(2, 100))
	}
	if err := l.Sync(); err != nil {
		t.Fatal(err)
	}
	l.Close()
	o := Options{SegmentBytes: 4 << 20, Memory: NewMemory(1 << 20)}
	l, _ = openLog(t, fs, o)
	m.check(t, l)
	l.Close()
	if o.Memory.used != 0 || o.Memory.Used() > 1<<20 {
		t.Errorf("%d octets in use, %d spare", o.Memory.used, o.Memory.spare)
	}
}

// TestConcurrently appends, syncs and cuts while readers read; the race detector looks on.
func TestConcurrently(t *testing.T) {
	seed := seeds.Of(t)
	m := newModel(seed)
	fs := storage.NewFaultFS(1)
	o := Options{SegmentBytes: 200_000, TailBytes: 30_000, Memory: NewMemory(600 << 10), Files: NewFiles(fs, 3)}
	l, _ := openLog(t, fs, o)
	const total = 1500
	var chunks []modelChunk
	for range total {
		chunks = append(chunks, m.build(1+m.rng.IntN(5), 3000))
	}
	var bodies sync.Map // offset → body
	var end atomic.Uint64
	var wg sync.WaitGroup
	done := make(chan struct{})
	for i := range 6 {
		wg.Go(func() {
			r := l.Read(uint64(i*10), Filter{})
			defer r.Release()
			var rec Record
			for n := 0; ; n++ {
				want := r.Offset()
				err := r.Next(&rec)
				var removed *RemovedError
				switch {
				case errors.As(err, &removed):
					continue
				case errors.Is(err, ErrEnd):
					r.Release()
					select {
					case <-done:
						if r.Offset() >= end.Load() {
							return
						}
					default:
						if _, err := l.Resolve(Spec{Kind: Since, Since: chunks[n%total].time}); err != nil {
							t.Error(err)
							return
						}
					}
					continue
				case err != nil:
					t.Error(err)
					return
				}
				body, ok := bodies.Load(rec.Offset)
				if !ok || rec.Offset != want || string(body.([]byte)) != string(rec.Body) {
					t.Errorf("offset %d, not %d, or its body is wrong", rec.Offset, want)
					return
				}
				if n%(10+i) == 0 {
					r.Release()
				}
			}
		})
	}
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				if err := l.Sync(); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for i, c := range chunks {
		for j, body := range c.bodies {
			bodies.Store(m.next+uint64(j), body)
		}
		m.append(t, l, c)
		if i%100 == 99 {
			l.Cut(m.next - min(m.next, 800))
		}
	}
	end.Store(m.next)
	close(done)
	wg.Wait()
	l.Close()
	if o.Memory.used != 0 {
		t.Errorf("%d octets are in use after all", o.Memory.used)
	}
}

// TestFilesAreBounded uses many streams with few files.
func TestFilesAreBounded(t *testing.T) {
	fs := storage.NewFaultFS(1)
	files, memory := NewFiles(fs, 8), NewMemory(0)
	m := newModel(seeds.Of(t))
	chunk := m.build(2, 100)
	for i := range 100 {
		l, _, err := Open(fs, fmt.Sprint("s", i), Options{Files: files, Memory: memory})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := l.Append(chunk.bytes); err != nil {
				t.Fatal(err)
			}
			if err := l.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		if n := files.Open(); n > 8 {
			t.Fatalf("%d files are open", n)
		}
	}
}

// TestNoAllocation reads from memory and from disk, and allocates for blocks only.
func TestNoAllocation(t *testing.T) {
	m := newModel(seeds.Of(t))
	fs := storage.NewFaultFS(1)
	l, _ := openLog(t, fs, Options{Memory: NewMemory(1 << 20)})
	fill(t, m, l, 300, 50, 300) // 2 MB
	r := l.Read(0, Filter{})
	var rec Record
	read := func() {
		for n := 0; n < 1000; n++ {
			if err := r.Next(&rec); errors.Is(err, ErrEnd) {
				r.Seek(0)
			} else if err != nil {
				t.Fatal(err)
			}
			if n%100 == 0 {
				r.Release()
			}
		}
	}
	read()
	read()
	if n := testing.AllocsPerRun(30, read); n > 12 { // a few for each block that is read, none for a record
		t.Errorf("%v allocations for a thousand records", n)
	}
}

// rounds are n, or few where the race detector takes its time.
func rounds(n int) int {
	if testing.Short() {
		return max(n/8, 1)
	}
	return n
}

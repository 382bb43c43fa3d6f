package stream

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/warrenmq/warren/storage"
)

const benchBatch = 200 // messages a chunk

func benchLog(b *testing.B) *Log {
	b.Helper()
	l, _, err := Open(storage.OS{}, filepath.Join(b.TempDir(), "s"), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(l.Close)
	return l
}

func buildBench(b *testing.B, w *Builder, body []byte, time int64) []byte {
	w.Reset(DefaultFilterSize)
	for range benchBatch {
		if err := w.Add(body, nil); err != nil {
			b.Fatal(err)
		}
	}
	return w.Finish(time, 1)
}

// BenchmarkAppend builds and appends chunks of messages of 1 KiB; an operation is a message.
func BenchmarkAppend(b *testing.B) {
	l := benchLog(b)
	var w Builder
	body := make([]byte, 1024)
	b.SetBytes(1024)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += benchBatch {
		if _, err := l.Append(buildBench(b, &w, body, int64(i))); err != nil {
			b.Fatal(err)
		}
		if size := l.Size(); size > 400<<20 { // so that the disk does not fill
			b.StopTimer()
			if err := l.Rewind(0); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	}
}

// benchRead reads 100 MB again and again; an operation is a message.
func benchRead(b *testing.B, size, release int) {
	l := benchLog(b)
	var w Builder
	body := make([]byte, size)
	for i := 0; l.Size() < 100<<20; i++ {
		if _, err := l.Append(buildBench(b, &w, body, int64(i))); err != nil {
			b.Fatal(err)
		}
	}
	r := l.Read(0, Filter{})
	defer r.Release()
	var rec Record
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		err := r.Next(&rec)
		if errors.Is(err, ErrEnd) {
			r.Seek(0)
			continue
		}
		if err != nil {
			b.Fatal(err)
		}
		if release > 0 && i%release == 0 {
			r.Release()
		}
	}
}

func BenchmarkRead1K(b *testing.B)        { benchRead(b, 1024, 0) }
func BenchmarkRead1KRelease(b *testing.B) { benchRead(b, 1024, 100) }
func BenchmarkRead16(b *testing.B)        { benchRead(b, 16, 0) }

// BenchmarkHundredReaders has a hundred readers read side by side; an operation is a message for one of them.
func BenchmarkHundredReaders(b *testing.B) {
	l := benchLog(b)
	var w Builder
	body := make([]byte, 1024)
	for i := 0; l.Size() < 100<<20; i++ {
		if _, err := l.Append(buildBench(b, &w, body, int64(i))); err != nil {
			b.Fatal(err)
		}
	}
	readers := make([]*Reader, 100)
	for i := range readers {
		readers[i] = l.Read(0, Filter{})
	}
	var rec Record
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; {
		for _, r := range readers {
			for range 50 {
				if err := r.Next(&rec); errors.Is(err, ErrEnd) {
					r.Seek(0)
				} else if err != nil {
					b.Fatal(err)
				}
				n++
			}
			r.Release()
		}
	}
}

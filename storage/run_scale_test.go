package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"math"
	"runtime"
	"testing"
	"time"
)

// A run of 100,000 logs is one file like any other.
func TestRunOfManyLogs(t *testing.T) {
	const logs = 100_000
	dir := t.TempDir()
	w, err := CreateRun(OS{}, dir, 1, RunOptions{Transient: true})
	if err != nil {
		t.Fatal(err)
	}
	for log := range LogID(logs) {
		for seq := range uint64(3) {
			if err := w.Add(log, Record{Seq: 1 + seq, Size: 10, Bytes: body(log, 1+seq, 10)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	before := heap()
	s := openSet(t, OS{}, dir, 1)
	if n := (heap() - before) / logs; n > 250 {
		t.Errorf("%d octets of memory for each log", n)
	}
	for log := LogID(0); log < logs; log += 997 {
		if got, errs := readAll(s.Cursor(log), 0, 1000); len(got) != 3 || len(errs) > 0 {
			t.Fatal(len(got), errs)
		}
	}
	all := func(_ LogID, first, last uint64) iter.Seq2[uint64, uint64] {
		return func(yield func(uint64, uint64) bool) { yield(2, last) }
	}
	run, err := s.Compact(context.Background(), []RunID{1}, 2, all, CompactOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Replace(run, []RunID{1}); err != nil {
		t.Fatal(err)
	}
	for log := range LogID(logs) {
		s.Drop(log, 0, math.MaxUint64)
	}
	if dead := s.Dead(); len(dead) != 1 || run.Records() != 2*logs || s.Stats().Live != 0 {
		t.Errorf("dead: %v, records %d, %+v", dead, run.Records(), s.Stats())
	}
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// A compaction at a rate gives up when it is told to, and leaves nothing.
func TestRunCompactStops(t *testing.T) {
	fsys := NewFaultFS(1)
	fsys.MkdirAll("d")
	smallRun(t, fsys)
	s := openSet(t, fsys, "d", 9)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	all := func(_ LogID, first, last uint64) iter.Seq2[uint64, uint64] {
		return func(yield func(uint64, uint64) bool) { yield(first, last) }
	}
	if _, err := s.Compact(ctx, []RunID{9}, 10, all, CompactOptions{Rate: 100}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err %v", err)
	}
	if names, _ := fsys.List("d"); len(names) != 1 {
		t.Errorf("left: %v", names)
	}
	if s.runs[9].pins != 0 {
		t.Errorf("the run is still held")
	}
}

// BenchmarkRunSetOpen opens ten million records in 160 runs of 1,000 logs.
func BenchmarkRunSetOpen(b *testing.B) {
	dir, bytes := b.TempDir(), make([]byte, 16)
	var ids []RunID
	seq := uint64(0)
	for id := range RunID(160) {
		w, err := CreateRun(OS{}, dir, id, RunOptions{Transient: true})
		if err != nil {
			b.Fatal(err)
		}
		for log := range LogID(1000) {
			for i := range uint64(63) {
				binary.LittleEndian.PutUint64(bytes, seq)
				if err := w.Add(log, Record{Seq: seq + i, Size: 16, Bytes: bytes}); err != nil {
					b.Fatal(err)
				}
			}
		}
		if _, err := w.Finish(); err != nil {
			b.Fatal(err)
		}
		seq += 63
		ids = append(ids, id)
	}
	b.ResetTimer()
	for range b.N {
		s := openSet(b, OS{}, dir, ids...)
		n := uint64(0)
		for _, log := range s.Logs() {
			for _, e := range s.Extents(log) {
				n += uint64(e.Records)
			}
		}
		if n != 160*63*1000 {
			b.Fatal(n)
		}
	}
}

// BenchmarkRunReadScattered reads one record each from many logs, as a cold queue's head is.
func BenchmarkRunReadScattered(b *testing.B) {
	const logs = 10_000
	dir := b.TempDir()
	w, err := CreateRun(OS{}, dir, 1, RunOptions{Transient: true})
	if err != nil {
		b.Fatal(err)
	}
	bytes := benchRecords()
	for log := range LogID(logs) {
		for seq := range uint64(10) {
			if err := w.Add(log, Record{Seq: seq, Size: 128, Bytes: bytes}); err != nil {
				b.Fatal(err)
			}
		}
	}
	if _, err := w.Finish(); err != nil {
		b.Fatal(err)
	}
	s := openSet(b, OS{}, dir, 1)
	slab := make([]byte, 4096)
	c := s.Cursor(0)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		c.Reset(LogID(i * 7919 % logs))
		if n, err := c.Read(5, math.MaxUint64, 1000, func(int) []byte { return slab }, func(int, int, Record) {}); n != 5 || err != nil {
			b.Fatal(n, err)
		}
	}
}

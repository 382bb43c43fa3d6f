package storage

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

const benchRecord = 1 << 10

// diskDir is a directory on a disk: what is written to memory says nothing about syncs.
func diskDir(b *testing.B) string { return b.TempDir() }

// A group of 64 records of 1 KiB, synced before the next one: the journal beside the bare system calls.
func BenchmarkJournalGroup(b *testing.B) {
	const group = 64
	b.Run("journal", func(b *testing.B) {
		synced := make(chan Mark, 16)
		j := benchJournal(b, func(m Mark, _ error) { synced <- m })
		c := cutter{j: j}
		record := make([]byte, benchRecord)
		b.SetBytes(group * benchRecord)
		for b.Loop() {
			var mark Mark
			for range group {
				mark, _ = j.Append(1, record)
			}
			j.Commit(mark)
			for m := range synced {
				if m >= mark {
					break
				}
			}
			c.cut()
		}
	})
	b.Run("raw", func(b *testing.B) {
		const size = 64 << 20
		file, err := (OS{}).Create(filepath.Join(diskDir(b), "raw"))
		if err != nil {
			b.Fatal(err)
		}
		defer file.Close()
		buf := make([]byte, group*benchRecord)
		for off := int64(0); off < size; off += int64(len(buf)) {
			file.WriteAt(buf, off)
		}
		file.SyncData()
		b.SetBytes(int64(len(buf)))
		off := int64(0)
		for b.Loop() {
			file.WriteAt(buf, off)
			if err := file.SyncData(); err != nil {
				b.Fatal(err)
			}
			off = (off + int64(len(buf))) % size
		}
	})
}

// Appends of 1 KiB as fast as the journal takes them, up to 16 MiB ahead of the sync.
func BenchmarkJournalStream(b *testing.B) {
	wake := make(chan struct{}, 1)
	j := benchJournal(b, func(Mark, error) {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	c := cutter{j: j}
	record := make([]byte, benchRecord)
	b.SetBytes(benchRecord)
	for b.Loop() {
		mark, _ := j.Append(1, record)
		j.Commit(mark)
		for j.Backlog() > 16<<20 {
			<-wake
		}
		c.cut()
	}
}

// A cutter keeps a journal at about 256 MiB, as the flusher does.
type cutter struct {
	j       *Journal
	rotated Mark
}

func (c *cutter) cut() {
	if c.j.Appended()-c.rotated < 32<<20 {
		return
	}
	c.rotated = c.j.Appended()
	if e := c.j.Rotate(); e > 8 {
		c.j.Release(e - 8)
	}
}

func benchJournal(b *testing.B, synced func(Mark, error)) *Journal {
	var told atomic.Bool // the warm-up is over
	j, _, err := OpenJournal(OS{}, filepath.Join(diskDir(b), "journal"), JournalOptions{Synced: func(m Mark, err error) {
		if told.Load() {
			synced(m, err)
		}
	}}, 0, nil)
	if err != nil {
		b.Fatal(err)
	}
	// Until it writes to a file written ahead, with another one ready.
	for ready := false; !ready; {
		mark, _ := j.Append(1, make([]byte, 1<<20))
		j.Commit(mark)
		for j.Backlog() > 0 {
			time.Sleep(time.Millisecond)
		}
		j.files.mu.Lock()
		ready = j.files.current.size == j.files.fileSize && len(j.files.spares) > 0
		j.files.mu.Unlock()
	}
	told.Store(true)
	b.Cleanup(func() {
		if err := j.Close(); err != nil {
			b.Error(err)
		}
	})
	return j
}

// What an append costs under the queue's lock: a record of a whole batch, 64 messages of 1 KiB.
func BenchmarkJournalAppend(b *testing.B) {
	j, _, _ := reopen(b, NewFaultFS(1), JournalOptions{manual: true}, 0)
	message := make([]byte, benchRecord)
	b.SetBytes(64 * benchRecord)
	b.ReportAllocs()
	for b.Loop() {
		j.AppendFunc(1, 64*len(message), func(dst []byte) []byte {
			for range 64 {
				dst = append(dst, message...)
			}
			return dst
		})
		if len(j.full) > 0 {
			j.drop()
		}
	}
}

// drop forgets what was appended, as if it were synced.
func (j *Journal) drop() {
	j.take()
	j.recycle(j.group)
	clear(j.group)
	j.group = j.group[:0]
}

func BenchmarkJournalReplay(b *testing.B) {
	dir := filepath.Join(diskDir(b), "journal")
	j, _, err := OpenJournal(OS{}, dir, JournalOptions{}, 0, nil)
	if err != nil {
		b.Fatal(err)
	}
	record := make([]byte, benchRecord)
	const size = 256 << 20
	for j.Appended() < size {
		mark, _ := j.Append(1, record)
		j.Commit(mark)
		for j.Backlog() > 4<<20 {
			time.Sleep(time.Millisecond)
		}
	}
	if err := j.Close(); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	for b.Loop() {
		octets := 0
		start := time.Now()
		j, report, err := OpenJournal(OS{}, dir, JournalOptions{}, 0, func(_ Epoch, _ Mark, _ uint8, record []byte) error {
			octets += len(record)
			return nil
		})
		if err != nil || len(report.Faults) > 0 {
			b.Fatal(err, report)
		}
		b.ReportMetric(float64(time.Since(start).Milliseconds()), "ms/open")
		j.Close()
	}
}

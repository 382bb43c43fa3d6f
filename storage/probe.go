package storage

import (
	"path/filepath"
	"slices"
	"time"
)

// Latency is how long writes with their syncs took.
type Latency struct {
	P50, P99 time.Duration
}

// Probe measures the disk under a directory, which must exist: n appends of size octets to a new file, each synced. The file is
// removed again. It is what confirms are compared with.
func Probe(fs FS, dir string, size, n int) (Latency, error) {
	name := filepath.Join(dir, "probe")
	file, err := fs.Create(name)
	if err != nil {
		return Latency{}, err
	}
	defer fs.Remove(name)
	defer file.Close()
	buf := make([]byte, size)
	took := make([]time.Duration, n)
	for i := range took {
		start := time.Now()
		if _, err := file.WriteAt(buf, int64(i)*int64(size)); err != nil {
			return Latency{}, err
		}
		if err := file.SyncData(); err != nil {
			return Latency{}, err
		}
		took[i] = time.Since(start)
	}
	if n == 0 {
		return Latency{}, nil
	}
	slices.Sort(took)
	return Latency{P50: took[n/2], P99: took[n*99/100]}, nil
}

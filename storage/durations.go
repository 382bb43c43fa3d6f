package storage

import (
	"sync/atomic"
	"time"
)

// DurationBuckets are the upper bounds of the buckets of Durations.
var DurationBuckets = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond,
	5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	250 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second,
}

// Durations counts how long something took. The zero value is ready; it may be used concurrently and costs two atomic
// additions.
type Durations struct {
	counts [len(DurationBuckets) + 1]atomic.Uint64
	sum    atomic.Int64
}

// Add counts one.
func (d *Durations) Add(took time.Duration) {
	i := 0
	for i < len(DurationBuckets) && took > DurationBuckets[i] {
		i++
	}
	d.counts[i].Add(1)
	d.sum.Add(int64(took))
}

// DurationCounts are Durations at one moment.
type DurationCounts struct {
	// Counts has an entry for each of DurationBuckets, and one for what took longer than all.
	Counts [len(DurationBuckets) + 1]uint64
	Sum    time.Duration
}

// Now are the counts of now.
func (d *Durations) Now() (c DurationCounts) {
	for i := range d.counts {
		c.Counts[i] = d.counts[i].Load()
	}
	c.Sum = time.Duration(d.sum.Load())
	return c
}

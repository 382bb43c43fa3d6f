package main

import (
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	stretchMessages = 1_000_000
	// tableLines is how many of the samples the text report shows.
	tableLines = 20
)

// sample is the state of a run at one moment. Memory and disk are in octets.
type sample struct {
	At        float64 `json:"at"` // seconds since the first
	Published uint64  `json:"published"`
	Delivered uint64  `json:"delivered"`
	Anonymous uint64  `json:"anonymous,omitempty"`
	AnonLow   uint64  `json:"anonymous_low,omitempty"` // since the sample before
	AnonHigh  uint64  `json:"anonymous_high,omitempty"`
	Disk      uint64  `json:"disk,omitempty"`
}

// course is a run over time, and what follows from it. What could not be computed is 0.
type course struct {
	Samples []sample `json:"samples"`

	// The publish rate by stretches of a million messages, or of a tenth of all when that is less.
	Stretch    uint64  `json:"stretch"`
	SecondRate float64 `json:"second_stretch_rate"`
	LastRate   float64 `json:"last_stretch_rate"`
	// Anonymous memory while the last 90 % were published, and in how many samples it was read.
	AnonLow     uint64 `json:"anonymous_low"`
	AnonHigh    uint64 `json:"anonymous_high"`
	AnonSamples int    `json:"anonymous_samples"`
	// Octets of the data directory; the excess is what lies beyond twice the bodies not yet delivered.
	DiskEnd    uint64 `json:"disk_end,omitempty"`
	DiskHigh   uint64 `json:"disk_high,omitempty"`
	ExcessEnd  int64  `json:"disk_excess_end,omitempty"`
	ExcessHigh int64  `json:"disk_excess_high,omitempty"`
	LiveEnd    uint64 `json:"live_end,omitempty"`
}

// recorder takes the samples of a run. Its methods are called by one goroutine.
type recorder struct {
	every   time.Duration
	meter   *meter
	began   time.Time
	last    time.Time
	samples []sample
}

// note takes a sample when the last is old enough; now takes one in any case. A nil recorder takes none.
func (c *recorder) note(published, delivered uint64) {
	if c != nil && time.Since(c.last) >= c.every {
		c.now(published, delivered)
	}
}

func (c *recorder) now(published, delivered uint64) {
	if c == nil {
		return
	}
	at := time.Now()
	if c.samples == nil {
		c.began = at
	}
	c.last = at
	s := sample{At: at.Sub(c.began).Seconds(), Published: published, Delivered: delivered}
	if c.meter.broker != nil {
		span := c.meter.broker.takeSpan()
		s.Anonymous, s.AnonLow, s.AnonHigh = span.last, span.low, span.high
	}
	if c.meter.dataDir != "" {
		s.Disk = diskUse(c.meter.dataDir)
	}
	c.samples = append(c.samples, s)
}

// course computes what the samples tell of messages with bodies of size octets, of which held are
// in the queue besides those counted.
func (c *recorder) course(size int, held uint64) *course {
	if c == nil || len(c.samples) == 0 {
		return nil
	}
	r := &course{Samples: c.samples}
	total := c.samples[len(c.samples)-1].Published
	r.Stretch = min(stretchMessages, total/10)
	r.SecondRate = publishRate(c.samples, r.Stretch, 2*r.Stretch)
	r.LastRate = publishRate(c.samples, total-r.Stretch, total)
	var passed bool // the sample before was past the first tenth: what was read since is, too
	for _, s := range c.samples {
		if passed && s.Anonymous > 0 {
			if r.AnonSamples == 0 {
				r.AnonLow = s.AnonLow
			}
			r.AnonSamples++
			r.AnonLow, r.AnonHigh = min(r.AnonLow, s.AnonLow), max(r.AnonHigh, s.AnonHigh)
		}
		passed = s.Published >= total/10
		if s.Published == total {
			break // from here on, it only drains
		}
	}
	r.addDisk(size, held)
	return r
}

func (r *course) addDisk(size int, held uint64) {
	for i, s := range r.Samples {
		if s.Disk == 0 {
			continue
		}
		live := (s.Published - min(s.Published, s.Delivered) + held) * uint64(size)
		excess := int64(s.Disk) - 2*int64(live)
		if r.DiskHigh == 0 || excess > r.ExcessHigh {
			r.ExcessHigh = excess
		}
		r.DiskHigh = max(r.DiskHigh, s.Disk)
		if i == len(r.Samples)-1 {
			r.DiskEnd, r.ExcessEnd, r.LiveEnd = s.Disk, excess, live
		}
	}
}

// publishRate returns the messages per second between two counts of published messages, 0 if unknown.
func publishRate(samples []sample, from, to uint64) float64 {
	start, ok := timeOf(samples, from)
	end, alsoOK := timeOf(samples, to)
	if !ok || !alsoOK || end <= start {
		return 0
	}
	return float64(to-from) / (end - start)
}

// timeOf returns when that many messages had been published, between two samples in proportion.
func timeOf(samples []sample, published uint64) (at float64, ok bool) {
	for i, s := range samples {
		if s.Published < published {
			continue
		}
		if i == 0 || s.Published == published {
			return s.At, i > 0 || s.Published == published
		}
		before := samples[i-1]
		share := float64(published-before.Published) / float64(s.Published-before.Published)
		return before.At + share*(s.At-before.At), true
	}
	return 0, false
}

// diskUse returns the octets that a directory's files occupy. A ballast, which a broker keeps to free
// it when the disk is full, is not counted.
func diskUse(dir string) (octets uint64) {
	filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || strings.HasPrefix(entry.Name(), "ballast") {
			return nil // a file may go while we look
		}
		var stat syscall.Stat_t
		if syscall.Lstat(path, &stat) == nil {
			octets += uint64(stat.Blocks) * 512
		}
		return nil
	})
	return octets
}

// print writes the course as a table of at most tableLines samples, and what follows from it.
func (r *course) print(out io.Writer) {
	fmt.Fprintf(out, "  %8s %12s %10s %12s %10s %10s %10s\n", "seconds", "published", "per second", "delivered", "per second", "anon. MiB", "disk MiB")
	var before sample
	for i, s := range thin(r.Samples, tableLines) {
		seconds := s.At - before.At
		if i == 0 || seconds <= 0 {
			seconds, before = 1, s
		}
		fmt.Fprintf(out, "  %8.1f %12d %10.0f %12d %10.0f %10.1f %10.1f\n", s.At, s.Published, float64(s.Published-before.Published)/seconds,
			s.Delivered, float64(s.Delivered-before.Delivered)/seconds, mib(s.Anonymous), mib(s.Disk))
		before = s
	}
	if r.SecondRate > 0 && r.LastRate > 0 {
		fmt.Fprintf(out, "  publish rate of the last %d messages %.0f/s, of the second %.0f/s: %.2f of it\n",
			r.Stretch, r.LastRate, r.SecondRate, r.LastRate/r.SecondRate)
	}
	if r.AnonHigh > 0 {
		fmt.Fprintf(out, "  anonymous memory over the last 90 %% of publishes: %.1f to %.1f MiB, spread %.1f\n",
			mib(r.AnonLow), mib(r.AnonHigh), mib(r.AnonHigh-r.AnonLow))
	}
	if r.DiskHigh > 0 {
		const allowed = 512 << 20
		fmt.Fprintf(out, "  disk: %.1f MiB at the end, %.1f at most; beyond twice the live data %.1f at the end (live %.3f), %.1f at most; 512 are allowed: %s\n",
			mib(r.DiskEnd), mib(r.DiskHigh), float64(r.ExcessEnd)/(1<<20), mib(r.LiveEnd), float64(r.ExcessHigh)/(1<<20),
			map[bool]string{true: "kept", false: "EXCEEDED"}[r.ExcessEnd <= allowed])
	}
}

// thin returns at most n samples, the first and the last among them.
func thin(samples []sample, n int) []sample {
	if len(samples) <= n {
		return samples
	}
	thinned := make([]sample, n)
	for i := range thinned {
		thinned[i] = samples[i*(len(samples)-1)/(n-1)]
	}
	return thinned
}

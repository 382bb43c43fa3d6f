package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// publishing is a run of 20 million messages: the first ten at a million a second, the rest at half
// that rate; then they drain.
func publishing() []sample {
	const million = 1_000_000
	var samples []sample
	for half := range uint64(21) {
		samples = append(samples, sample{At: float64(half) / 2, Published: half * million / 2, Anonymous: 100 + half, AnonLow: 99 + half, AnonHigh: 101 + half})
	}
	for i := range uint64(20) {
		samples = append(samples, sample{At: 10 + float64(i+1), Published: 10*million + (i+1)*million/2, Anonymous: 150 - i, AnonLow: 149 - i, AnonHigh: 151 - i})
	}
	return append(samples, sample{At: 31, Published: 20 * million, Delivered: 9 * million, Anonymous: 900, AnonLow: 1, AnonHigh: 901})
}

func TestCourseComparesTheLastMillionWithTheSecond(t *testing.T) {
	r := (&recorder{samples: publishing()}).course(128, 0)
	if r.Stretch != 1_000_000 || r.SecondRate != 1e6 || r.LastRate != 5e5 {
		t.Errorf("stretch %d, second %v, last %v", r.Stretch, r.SecondRate, r.LastRate)
	}
	short := (&recorder{samples: []sample{{At: 0}, {At: 1, Published: 100}, {At: 3, Published: 200}}}).course(128, 0)
	if short.Stretch != 20 || short.SecondRate != 100 || math.Abs(short.LastRate-50) > 1e-9 {
		t.Errorf("stretch %d, second %v, last %v", short.Stretch, short.SecondRate, short.LastRate)
	}
}

// Neither what is used before the first tenth nor what the drain uses counts.
func TestCourseMeasuresMemoryOverTheLastNineTenths(t *testing.T) {
	samples := publishing()
	samples[4].AnonHigh = 7000 // a tenth is published when it is taken
	samples[9].AnonHigh, samples[8].AnonLow = 160, 103
	r := (&recorder{samples: samples}).course(128, 0)
	if r.AnonLow != 103 || r.AnonHigh != 160 || r.AnonSamples != 36 {
		t.Errorf("from %d to %d in %d samples", r.AnonLow, r.AnonHigh, r.AnonSamples)
	}
}

func TestSpanOfMemory(t *testing.T) {
	var s anonSpan
	for _, anon := range []uint64{50, 20, 70, 30} {
		s.add(anon)
	}
	if s != (anonSpan{last: 30, low: 20, high: 70}) {
		t.Errorf("%+v", s)
	}
	tree := &processTree{root: os.Getpid()}
	tree.span.add(1) // by the watcher
	if span := tree.takeSpan(); span.low != 1 || span.high <= 1 || span.last != span.high {
		t.Errorf("%+v", span)
	}
	if span := tree.takeSpan(); span.low == 1 {
		t.Errorf("%+v is not since the last", span)
	}
}

func TestCourseSetsDiskAgainstLiveData(t *testing.T) {
	r := (&recorder{samples: []sample{
		{At: 1, Published: 10, Delivered: 0, Disk: 5000}, // 11 live: 5000 - 2200
		{At: 2, Published: 90, Delivered: 10, Disk: 9000},
		{At: 3, Published: 100, Delivered: 100, Disk: 300}, // the held one
	}}).course(100, 1)
	if r.DiskHigh != 9000 || r.DiskEnd != 300 || r.LiveEnd != 100 || r.ExcessEnd != 100 || r.ExcessHigh != 2800 {
		t.Errorf("%+v", r)
	}
	// Always below twice the live data: the highest excess is the one least below.
	r = (&recorder{samples: []sample{{Published: 10, Disk: 500}, {At: 1, Published: 10, Disk: 900}}}).course(100, 0)
	if r.ExcessHigh != -1100 || r.ExcessEnd != -1100 {
		t.Errorf("%+v", r)
	}
}

func TestTimeOfACount(t *testing.T) {
	samples := []sample{{At: 1, Published: 10}, {At: 2, Published: 20}, {At: 4, Published: 20}, {At: 6, Published: 40}}
	for published, want := range map[uint64]float64{10: 1, 15: 1.5, 20: 2, 30: 5, 40: 6} {
		if at, ok := timeOf(samples, published); !ok || at != want {
			t.Errorf("%d at %v %v, want %v", published, at, ok, want)
		}
	}
	for _, published := range []uint64{9, 41} {
		if at, ok := timeOf(samples, published); ok {
			t.Errorf("%d at %v", published, at)
		}
	}
}

func TestCourseOfNothing(t *testing.T) {
	var none *recorder
	none.note(1, 1)
	none.now(1, 1)
	if none.course(1, 0) != nil || (&recorder{}).course(1, 0) != nil {
		t.Error("a course without samples")
	}
	r := (&recorder{samples: []sample{{}}}).course(1, 0)
	var out strings.Builder
	r.print(&out)
	if r.SecondRate != 0 || r.LastRate != 0 || strings.Contains(out.String(), "NaN") {
		t.Errorf("%+v\n%s", r, &out)
	}
}

func TestThinKeepsTheEnds(t *testing.T) {
	samples := publishing()
	got := thin(samples, 5)
	if len(got) != 5 || got[0] != samples[0] || got[4] != samples[len(samples)-1] || got[2] != samples[(len(samples)-1)/2] {
		t.Errorf("%+v", got)
	}
	if len(thin(samples, 100)) != len(samples) {
		t.Error("few samples are thinned")
	}
}

func TestDiskUseCountsWhatIsOccupied(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, octets int) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, octets), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("a", 100_000)
	write("deep/down/b", 100_000)
	write("ballast", 1_000_000)
	sparse := filepath.Join(dir, "sparse")
	write("sparse", 0)
	if err := os.Truncate(sparse, 1<<30); err != nil {
		t.Fatal(err)
	}
	if used := diskUse(dir); used < 200_000 || used > 300_000 {
		t.Errorf("%d octets", used)
	}
	if used := diskUse(filepath.Join(dir, "absent")); used != 0 {
		t.Errorf("%d octets of nothing", used)
	}
}

func TestLoadRecordsItsCourse(t *testing.T) {
	w := presets()["backlog"].workload
	w.endpoint = startFakeBroker(t, func(uint64) int { return 1 })
	w.Messages, w.Confirm, w.Sample = 50_000, 100, time.Nanosecond // some 0.3 s: there is a sample in every stretch of it
	r, err := runLoad(&w, &meter{broker: &processTree{root: os.Getpid()}, dataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	samples := r.Course.Samples
	first, last := samples[0], samples[len(samples)-1]
	if first.Published >= 25_000 || first.Delivered >= 25_000 || first.Anonymous == 0 || last.Published != 50_000 || last.Delivered != 50_000 {
		t.Errorf("from %+v to %+v", first, last)
	}
	if r.Course.LastRate == 0 || r.Course.AnonHigh == 0 {
		t.Errorf("%+v", r.Course)
	}
}

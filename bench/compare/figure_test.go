package main

import (
	"math"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{7}, 7},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 9, 2}, 3},
		{[]float64{1000, 1, 2, 3, 0}, 2},
	} {
		given := append([]float64{}, c.values...)
		if got := median(c.values); got != c.want {
			t.Errorf("median of %v: %v, want %v", c.values, got, c.want)
		}
		for i := range given {
			if given[i] != c.values[i] {
				t.Fatal("the values were reordered")
			}
		}
	}
	if !math.IsNaN(median(nil)) {
		t.Error("a median of nothing")
	}
}

func TestQuantile(t *testing.T) {
	var values []float64
	for i := 100; i >= 1; i-- {
		values = append(values, float64(i))
	}
	for q, want := range map[float64]float64{0: 1, 0.5: 50, 0.99: 99, 0.991: 100, 1: 100} {
		if got := quantile(values, q); got != want {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
	}
	if !math.IsNaN(quantile(nil, 0.5)) {
		t.Error("a quantile of nothing")
	}
}

// The ratio is the median of each round's ratio, not the ratio of the medians: what slows a whole
// round slows both.
func TestSummaryTakesRatiosPairByPair(t *testing.T) {
	o := summarise([]pair{
		{100, 10, true, true},
		{30, 2, true, true}, // 15: a slow round
		{120, 10, true, true},
	})
	if o.warren != 100 || o.peer != 10 || o.ratio != 12 || o.lowest != 10 || o.highest != 15 {
		t.Errorf("%+v", o)
	}
}

func TestSummaryWithoutASide(t *testing.T) {
	o := summarise([]pair{{warren: 3, warrenOK: true}, {warren: 5, warrenOK: true}})
	if o.warren != 4 || !math.IsNaN(o.peer) || !math.IsNaN(o.ratio) || !math.IsNaN(o.lowest) {
		t.Errorf("%+v", o)
	}
	if o := summarise([]pair{{3, 0, true, true}}); !math.IsNaN(o.ratio) {
		t.Errorf("a ratio to nothing: %v", o.ratio)
	}
}

func TestAims(t *testing.T) {
	at := func(warren, ratio float64) outcome { return outcome{warren: warren, ratio: ratio} }
	for _, c := range []struct {
		aim    aim
		o      outcome
		rabbit bool
		want   string
	}{
		{atLeast(50), at(1, 50), true, "met"},
		{atLeast(50), at(1, 49.9), true, "missed"},
		{atLeast(50), at(1, 60), false, ""}, // the factor is RabbitMQ's
		{atLeast(50), at(1, math.NaN()), true, ""},
		{atLeast(0), at(1, 60), true, ""},
		{atMost(0.15), at(0.15, math.NaN()), false, "met"},
		{atMost(0.15), at(0.151, math.NaN()), true, "missed"},
		{atMost(0.15), at(math.NaN(), math.NaN()), true, ""},
		{noLess(0.85), at(0.85, math.NaN()), false, "met"},
		{noLess(0.85), at(0.84, math.NaN()), true, "missed"},
		{noLess(0.85), at(math.NaN(), math.NaN()), true, ""},
	} {
		if got := c.aim.verdict(c.o, c.rabbit); got != c.want {
			t.Errorf("%v with %+v: %q, want %q", c.aim, c.o, got, c.want)
		}
	}
}

func TestAimsThatFollowFromTheDisk(t *testing.T) {
	var syncs []float64
	for i := 1; i <= 200; i++ {
		syncs = append(syncs, float64(i)/100) // s50 1.005, s99 1.98
	}
	rule := atMostBySyncs("s50 + 10 × s99", func(s50, s99 float64) float64 { return s50 + 10*s99 })
	a := rule.on(syncs)
	if math.Abs(a.bound-20.805) > 1e-9 || a.String() != "≤ 20.8 (s50 + 10 × s99)" {
		t.Errorf("%v: %s", a.bound, a)
	}
	if got := a.verdict(outcome{warren: 20.8}, false); got != "met" {
		t.Error(got)
	}
	if got := a.verdict(outcome{warren: 20.9}, false); got != "missed" {
		t.Error(got)
	}
	if got := rule.on(nil).verdict(outcome{warren: 1}, false); got != "" {
		t.Errorf("%q without sync times", got)
	}
	if a := atMost(3).on(syncs); a.bound != 3 || a.String() != "≤ 3" {
		t.Errorf("a fixed bound became %s", a)
	}
	if a := noLess(0.9); a.String() != "≥ 0.9" {
		t.Errorf("%s", a)
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.1512: "0.151", 0.05: "0.05", 9.999: "10", 12.649: "12.6", 598_432: "598,000", 999.6: "1,000",
		1234: "1,230", -1234567: "-1,230,000", 250: "250", math.NaN(): "–", math.Inf(1): "–",
	} {
		if got := number(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}

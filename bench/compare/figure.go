package main

import (
	"math"
	"slices"
)

// figure is one number that a run yields.
type figure struct {
	name string
	aim  aim
	read func(*loadReport) (value float64, ok bool)
}

// aim is what a figure should reach; the zero value is none.
type aim struct {
	kind  aimKind
	bound float64
	rule  string                        // how the bound follows from sync times; "" for one that is fixed
	from  func(syncs []float64) float64 // computes it, in ms
}

type aimKind int

const (
	noAim    aimKind = iota
	minRatio         // Warren's figure is at least bound times RabbitMQ's
	maxValue         // Warren's figure is at most bound
	minValue         // Warren's figure is at least bound
)

func atLeast(ratio float64) aim { return aimed(minRatio, ratio) }
func atMost(value float64) aim  { return aimed(maxValue, value) }

func aimed(kind aimKind, bound float64) aim {
	if bound == 0 {
		return aim{}
	}
	return aim{kind: kind, bound: bound}
}

// noLess is for figures in which more is better, without a peer.
func noLess(value float64) aim { return aimed(minValue, value) }

// atMostBySyncs bounds a figure by how long the disk took in the same rounds, in milliseconds.
func atMostBySyncs(rule string, from func(s50, s99 float64) float64) aim {
	return aim{kind: maxValue, rule: rule, from: func(syncs []float64) float64 {
		return from(median(syncs), quantile(syncs, 0.99))
	}}
}

// on returns the aim with its bound, given the sync times.
func (a aim) on(syncs []float64) aim {
	if a.from != nil {
		a.bound = a.from(syncs)
	}
	return a
}

// pair is a figure of one round; a side that was not measured is not ok.
type pair struct {
	warren, peer     float64
	warrenOK, peerOK bool
}

// outcome is a figure over all rounds.
type outcome struct {
	warren, peer    float64 // medians; NaN without any
	ratio           float64 // median of Warren : peer, round by round
	lowest, highest float64 // of those ratios
}

func summarise(pairs []pair) outcome {
	var warren, peer, ratios []float64
	for _, p := range pairs {
		if p.warrenOK {
			warren = append(warren, p.warren)
		}
		if p.peerOK {
			peer = append(peer, p.peer)
		}
		if p.warrenOK && p.peerOK && p.peer > 0 {
			ratios = append(ratios, p.warren/p.peer)
		}
	}
	s := outcome{warren: median(warren), peer: median(peer), ratio: median(ratios), lowest: math.NaN(), highest: math.NaN()}
	if len(ratios) > 0 {
		s.lowest, s.highest = slices.Min(ratios), slices.Max(ratios)
	}
	return s
}

// verdict tells whether an outcome reaches the aim; "" where that cannot be told.
func (a aim) verdict(o outcome, peerIsRabbitMQ bool) string {
	var met bool
	switch {
	case a.kind == minRatio && peerIsRabbitMQ && !math.IsNaN(o.ratio):
		met = o.ratio >= a.bound
	case a.kind == maxValue && !math.IsNaN(o.warren) && !math.IsNaN(a.bound):
		met = o.warren <= a.bound
	case a.kind == minValue && !math.IsNaN(o.warren):
		met = o.warren >= a.bound
	default:
		return ""
	}
	if met {
		return "met"
	}
	return "missed"
}

func (a aim) String() string {
	switch a.kind {
	case minRatio:
		return "≥ " + number(a.bound) + "×"
	case maxValue:
		if a.rule != "" {
			return "≤ " + number(a.bound) + " (" + a.rule + ")"
		}
		return "≤ " + number(a.bound)
	case minValue:
		return "≥ " + number(a.bound)
	}
	return ""
}

// median returns the middle value, the mean of the middle two, or NaN of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// quantile returns the smallest value that a share q of the values does not exceed, or NaN of none.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(rank, 0), len(sorted)-1)]
}

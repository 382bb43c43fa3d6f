package main

import (
	"math"
	"strconv"
	"strings"
)

// number writes a figure with three significant digits and commas between thousands; "–" for NaN.
func number(v float64) string {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "–"
	case v == 0:
		return "0"
	}
	scale := math.Pow(10, 2-math.Floor(math.Log10(math.Abs(v))))
	text := strconv.FormatFloat(math.Round(v*scale)/scale, 'f', -1, 64)
	whole, fraction, decimal := strings.Cut(text, ".")
	start := 0
	if whole[0] == '-' {
		start = 1
	}
	for at := len(whole) - 3; at > start; at -= 3 {
		whole = whole[:at] + "," + whole[at:]
	}
	if decimal {
		return whole + "." + fraction
	}
	return whole
}

package management

import (
	"io"
	"iter"
	"strconv"
)

// exposition writes Prometheus' text format, version 0.0.4, family by family. It keeps at most about 64 KiB before it writes.
type exposition struct {
	w    io.Writer
	buf  []byte
	name string // of the current family
	err  error
}

// family begins a family. kind is counter, gauge, histogram or untyped.
func (e *exposition) family(name, kind, help string) {
	e.name = name
	e.buf = append(append(append(append(append(e.buf, "# HELP "...), name...), ' '), help...), '\n')
	e.buf = append(append(append(append(append(e.buf, "# TYPE "...), name...), ' '), kind...), '\n')
}

// sample adds one value to the family. labels are as label and labels make them.
func (e *exposition) sample(suffix string, labels []byte, value float64) {
	e.buf = append(append(e.buf, e.name...), suffix...)
	if len(labels) > 0 {
		e.buf = append(append(append(e.buf, '{'), labels...), '}')
	}
	e.buf = append(e.buf, ' ')
	if value == float64(int64(value)) {
		e.buf = strconv.AppendInt(e.buf, int64(value), 10)
	} else {
		e.buf = strconv.AppendFloat(e.buf, value, 'g', -1, 64)
	}
	e.buf = append(e.buf, '\n')
	if len(e.buf) > 60<<10 {
		e.flush()
	}
}

// one is a family of one value.
func (e *exposition) one(name, kind, help string, value float64, pairs ...string) {
	e.family(name, kind, help)
	e.sample("", labels(pairs...), value)
}

func (e *exposition) flush() {
	if e.err == nil && len(e.buf) > 0 {
		_, e.err = e.w.Write(e.buf)
	}
	e.buf = e.buf[:0]
}

// label appends name="value" to labels.
func label(dst []byte, name, value string) []byte {
	if len(dst) > 0 {
		dst = append(dst, ',')
	}
	dst = append(append(dst, name...), '=', '"')
	for i := range len(value) {
		switch c := value[i]; c {
		case '\\', '"':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

func labels(pairs ...string) (dst []byte) {
	for i := 0; i+1 < len(pairs); i += 2 {
		dst = label(dst, pairs[i], pairs[i+1])
	}
	return dst
}

// metric is one number of a thing.
type metric[T any] struct {
	name, kind, help string
	value            func(*T) float64
}

// write asks for each thing once and writes the metrics family by family, as the format wants it. Until then it keeps, for each thing, the
// labels and one number a metric.
func write[T any](e *exposition, prefix string, things iter.Seq[*T], metrics []metric[T], name func(dst []byte, t *T) []byte) {
	if len(metrics) == 0 {
		return
	}
	var text []byte
	ends := []int{}
	var values []float64
	for t := range things {
		text = name(text, t)
		ends = append(ends, len(text))
		for i := range metrics {
			values = append(values, metrics[i].value(t))
		}
	}
	for i := range metrics {
		e.family(prefix+metrics[i].name, metrics[i].kind, metrics[i].help)
		start := 0
		for j, end := range ends {
			e.sample("", text[start:end:end], values[j*len(metrics)+i])
			start = end
		}
	}
}

// sum writes each metric once, added up over the things.
func sum[T any](e *exposition, prefix string, things iter.Seq[*T], metrics []metric[T]) {
	sums := make([]float64, len(metrics))
	for t := range things {
		for i := range metrics {
			sums[i] += metrics[i].value(t)
		}
	}
	for i := range metrics {
		e.one(prefix+metrics[i].name, metrics[i].kind, metrics[i].help, sums[i])
	}
}

package propose

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/warrenmq/warren/octet"
)

// Origins are what a machine remembers of each node whose batches it applies, ascending by node. A is what a room answers a
// batch with. They are part of the replicated state.
type Origins[A any] []*Origin[A]

// Origin is a node as of its last start.
type Origin[A any] struct {
	Node, Boot uint64
	Last       uint64        // number of its last batch that was applied
	Answers    []Answered[A] // that it may ask for again, ascending
}

// Answered is what became of a batch, where there is more to say than that all of it was done.
type Answered[A any] struct {
	Number uint64
	Answer A
}

func (os Origins[A]) search(node uint64) (int, bool) {
	return slices.BinarySearchFunc(os, node, func(o *Origin[A], node uint64) int { return cmp.Compare(o.Node, node) })
}

// Of is the origin of a node, or nil.
func (os Origins[A]) Of(node uint64) *Origin[A] {
	if i, ok := os.search(node); ok {
		return os[i]
	}
	return nil
}

// Next reports whether a batch is the next one of its start of a node, and counts it then: it is to be applied. o is what is
// known of that start; nil: it has ended, or has not begun.
func (os *Origins[A]) Next(h Header) (o *Origin[A], next bool) {
	i, known := os.search(h.Node)
	if !known || h.Boot > (*os)[i].Boot {
		if h.Number != 1 {
			return nil, false
		}
		if !known {
			*os = slices.Insert(*os, i, nil)
		}
		(*os)[i] = &Origin[A]{Node: h.Node, Boot: h.Boot}
	}
	o = (*os)[i]
	switch {
	case h.Boot < o.Boot:
		return nil, false
	case h.Number != o.Last+1:
		return o, false
	}
	o.Last++
	n := 0
	for n < len(o.Answers) && o.Answers[n].Number <= h.Done {
		n++
	}
	o.Answers = slices.Delete(o.Answers, 0, n)
	return o, true
}

// Keep keeps the answer to a batch, behind those before, until its node says that it is done with it.
func (o *Origin[A]) Keep(number uint64, a A) { o.Answers = append(o.Answers, Answered[A]{number, a}) }

// Answer is the answer to a batch that was applied before, if there is one.
func (o *Origin[A]) Answer(number uint64) (a A, ok bool) {
	i, ok := slices.BinarySearchFunc(o.Answers, number, func(a Answered[A], n uint64) int { return cmp.Compare(a.Number, n) })
	if ok {
		a = o.Answers[i].Answer
	}
	return a, ok
}

// Append appends the origins: equal ones give equal octets.
//
//	count uvarint | count × (node, boot, last uvarints | count uvarint | count × (number uvarint | answer))
func (os Origins[A]) Append(dst []byte, answer func([]byte, *A) []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(os)))
	for _, o := range os {
		for _, n := range [...]uint64{o.Node, o.Boot, o.Last, uint64(len(o.Answers))} {
			dst = binary.AppendUvarint(dst, n)
		}
		for i := range o.Answers {
			dst = binary.AppendUvarint(dst, o.Answers[i].Number)
			dst = answer(dst, &o.Answers[i].Answer)
		}
	}
	return dst
}

// ReadOrigins takes what Append has appended.
func ReadOrigins[A any](r *octet.Reader, answer func(*octet.Reader) A) (os Origins[A]) {
	for n := r.Count(); n > 0 && !r.Bad; n-- {
		o := &Origin[A]{Node: r.Uvarint(), Boot: r.Uvarint(), Last: r.Uvarint()}
		for k := r.Count(); k > 0 && !r.Bad; k-- {
			o.Answers = append(o.Answers, Answered[A]{r.Uvarint(), answer(r)})
		}
		os = append(os, o)
	}
	return os
}

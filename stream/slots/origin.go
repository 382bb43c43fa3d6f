package slots

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// origin is what a slot remembers of a node whose batches it applies: the number of its start, the number of its last batch,
// and the results that it may ask for again.
type origin struct {
	node, boot uint64
	last       uint64
	answers    []answer // of batches that had any, ascending
}

// origins are those of a slot, ascending by node.
type origins []*origin

func (os origins) find(node uint64) (int, *origin) {
	i, ok := slices.BinarySearchFunc(os, node, func(o *origin, node uint64) int { return cmp.Compare(o.node, node) })
	if !ok {
		return i, nil
	}
	return i, os[i]
}

// forget lets go of the answers to batches up to done.
func (o *origin) forget(done uint64) {
	n := 0
	for n < len(o.answers) && o.answers[n].number <= done {
		n++
	}
	o.answers = slices.Delete(o.answers, 0, n)
}

// answer is what became of a batch that was applied before.
func (o *origin) answer(number uint64) *answer {
	i, ok := slices.BinarySearchFunc(o.answers, number, func(a answer, n uint64) int { return cmp.Compare(a.number, n) })
	if !ok {
		return nil
	}
	return &o.answers[i]
}

// append appends the origins: equal ones give equal bytes.
func (os origins) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(os)))
	for _, o := range os {
		dst = binary.AppendUvarint(dst, o.node)
		dst = binary.AppendUvarint(dst, o.boot)
		dst = binary.AppendUvarint(dst, o.last)
		dst = binary.AppendUvarint(dst, uint64(len(o.answers)))
		for i := range o.answers {
			dst = o.answers[i].append(dst)
		}
	}
	return dst
}

func (r *reader) origins() (os origins) {
	for n := r.Count(); n > 0 && !r.Bad; n-- {
		o := &origin{node: r.Uvarint(), boot: r.Uvarint(), last: r.Uvarint()}
		for k := r.Count(); k > 0 && !r.Bad; k-- {
			o.answers = append(o.answers, r.answer())
		}
		os = append(os, o)
	}
	return os
}

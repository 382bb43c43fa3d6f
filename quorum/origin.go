package quorum

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/warrenmq/warren/octet"
	"github.com/warrenmq/warren/queue"
)

// origin is what a slot remembers of a node whose batches it applies: the number of its start, the number of its last
// batch, and the results that it may ask for again.
type origin struct {
	node, boot uint64
	last       uint64
	answers    []answer // of batches that had any, ascending
}

// answer is what became of a batch, where it has more to say than that all of it was done.
type answer struct {
	number  uint64
	results []result
	refused []refusal
}

// result is the answer to one command.
type result struct {
	ordinal uint32 // which of those commands of the batch that have answers
	code    code
	count   uint64         // a consumer's id, or how many messages there were
	got     queue.Delivery // of a get, if its Seq is not 0
	body    queue.Message  // of got, with a reference, if it was in memory; not kept in an origin
}

// code says how a command ended.
type code uint8

const (
	codeDone code = iota
	codeDeleted
	codeExclusive
	codeInUse
	codeNotEmpty
)

func (c code) err() error {
	return [...]error{nil, queue.ErrDeleted, queue.ErrExclusive, queue.ErrInUse, queue.ErrNotEmpty}[c]
}

func codeOf(err error) code {
	switch err {
	case nil:
		return codeDone
	case queue.ErrExclusive:
		return codeExclusive
	case queue.ErrInUse:
		return codeInUse
	case queue.ErrNotEmpty:
		return codeNotEmpty
	}
	return codeDeleted
}

// refusal names a message that a queue did not take: which publish of the batch, and which message of it.
type refusal struct{ publish, message uint32 }

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

func (a *answer) append(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, a.number)
	dst = binary.AppendUvarint(dst, uint64(len(a.results)))
	for i := range a.results {
		r := &a.results[i]
		dst = binary.AppendUvarint(dst, uint64(r.ordinal))
		dst = append(dst, byte(r.code))
		dst = binary.AppendUvarint(dst, r.count)
		dst = binary.AppendUvarint(dst, uint64(r.got.Seq))
		if d := &r.got; d.Seq != 0 {
			dst = binary.AppendUvarint(dst, d.ID)
			dst = binary.AppendUvarint(dst, uint64(d.Consumer))
			dst = append(dst, octet.Of(d.Redelivered))
			dst = binary.AppendUvarint(dst, uint64(d.Acquired))
			dst = binary.AppendUvarint(dst, uint64(d.Failed))
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(a.refused)))
	for _, f := range a.refused {
		dst = binary.AppendUvarint(dst, uint64(f.publish))
		dst = binary.AppendUvarint(dst, uint64(f.message))
	}
	return dst
}

// readOrigins is the inverse of append.
func readOrigins(b []byte) (os origins, err error) {
	r := newReader(b)
	for n := r.Count(); n > 0 && !r.Bad; n-- {
		o := &origin{node: r.Uvarint(), boot: r.Uvarint(), last: r.Uvarint()}
		for k := r.Count(); k > 0 && !r.Bad; k-- {
			o.answers = append(o.answers, r.answer())
		}
		os = append(os, o)
	}
	if r.Bad || len(r.B) > 0 {
		return nil, fmt.Errorf("%w: origins", errFormat)
	}
	return os, nil
}

func (r *reader) answer() (a answer) {
	a.number = r.Uvarint()
	for n := r.Count(); n > 0 && !r.Bad; n-- {
		x := result{ordinal: r.U32(), code: code(r.Octet()), count: r.Uvarint()}
		if x.code > codeNotEmpty {
			r.Fail()
		}
		if x.got.Seq = queue.Seq(r.Uvarint()); x.got.Seq != 0 {
			d := &x.got
			d.Direct = -1
			d.ID, d.Consumer = r.Uvarint(), queue.ConsumerID(r.U32())
			d.Redelivered = r.Octet() != 0
			d.Acquired, d.Failed = r.U32(), r.U32()
		}
		a.results = append(a.results, x)
	}
	for n := r.Count(); n > 0 && !r.Bad; n-- {
		a.refused = append(a.refused, refusal{r.U32(), r.U32()})
	}
	return a
}

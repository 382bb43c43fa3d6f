package quorum

import (
	"encoding/binary"

	"github.com/warrenmq/warren/octet"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/quorum/propose"
)

// answer is what became of a batch, where it has more to say than that all of it was done.
type answer struct {
	results []result
	refused []refusal
}

// origins are those of a slot, with the answers that they may ask for again.
type origins = propose.Origins[answer]

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

func appendAnswer(dst []byte, a *answer) []byte {
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

func readAnswer(r *octet.Reader) (a answer) {
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

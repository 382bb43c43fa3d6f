package stream

import "sort"

// Progress turns acknowledgements in any order into the offset below which everything was acknowledged. It is a value for one
// consumer; the zero value has come nowhere. Its size follows what is in flight.
type Progress struct {
	next  uint64   // behind all that was acknowledged without a hole
	seen  uint64   // behind all that was delivered or passed over
	ring  []uint64 // delivered and not below next, ascending: offset<<1 | acknowledged
	head  int
	began bool
}

// Begin says where the consumer starts.
func (p *Progress) Begin(offset uint64) {
	*p = Progress{next: offset, seen: offset, began: true, ring: p.ring[:0]}
}

// Delivered says that a record was handed out, above all before it.
func (p *Progress) Delivered(offset uint64) {
	if !p.began {
		p.Begin(offset)
	}
	if offset < p.seen {
		return
	}
	if p.head == len(p.ring) {
		p.next = max(p.next, offset)
	}
	if p.head > 0 && p.head*2 >= len(p.ring) {
		p.ring = p.ring[:copy(p.ring, p.ring[p.head:])]
		p.head = 0
	}
	p.ring = append(p.ring, offset<<1)
	p.seen = offset + 1
}

// Passed says that everything below an offset was delivered, or is not for this consumer.
func (p *Progress) Passed(to uint64) {
	p.seen = max(p.seen, to)
	p.advance()
}

// Acked says that what was delivered in [from, to] was acknowledged. It reports whether Next has risen. Offsets that were
// not delivered, or acknowledged before, change nothing.
func (p *Progress) Acked(from, to uint64) bool {
	flight := p.ring[p.head:]
	for i := sort.Search(len(flight), func(i int) bool { return flight[i]>>1 >= from }); i < len(flight) && flight[i]>>1 <= to; i++ {
		flight[i] |= 1
	}
	return p.advance()
}

func (p *Progress) advance() bool {
	for p.head < len(p.ring) && p.ring[p.head]&1 != 0 {
		p.head++
	}
	next := p.seen
	if p.head < len(p.ring) {
		next = p.ring[p.head] >> 1
	}
	if next <= p.next {
		return false
	}
	p.next = next
	return true
}

// Next is the offset to commit: the consumer resumes there.
func (p *Progress) Next() uint64 { return p.next }

// Flight is how many records are delivered and not below Next.
func (p *Progress) Flight() int { return len(p.ring) - p.head }

package exchange

import "math/bits"

// edges are the links of a topic tree by word: a hash table with linear probing, at most half full, in one array without
// pointers. It is the whole cost of a walk, and Go's map takes twice as long.
type edges struct {
	slots []edge
	n     int
	shift uint8 // 64 - log2(len(slots))
}

type edge struct {
	from uint32
	word word
	to   uint32 // 0: empty
}

// home is the slot where the search for an edge begins.
func (e *edges) home(from uint32, w word) uint32 {
	return uint32((uint64(from)<<32 | uint64(w)) * 0x9e3779b97f4a7c15 >> e.shift)
}

// find is the node that w leads to, 0 if there is none.
func (e *edges) find(from uint32, w word) uint32 {
	if e.n == 0 {
		return 0
	}
	mask := uint32(len(e.slots) - 1)
	for i := e.home(from, w) & mask; ; i = (i + 1) & mask {
		s := &e.slots[i]
		if s.to == 0 || s.from == from && s.word == w {
			return s.to
		}
	}
}

// add adds an edge that is not there.
func (e *edges) add(from uint32, w word, to uint32) {
	if 2*(e.n+1) > len(e.slots) {
		old := e.slots
		size := max(8, 2*len(old))
		e.slots = make([]edge, size)
		e.shift = uint8(64 - bits.Len(uint(size-1)))
		for _, s := range old {
			if s.to != 0 {
				e.put(s)
			}
		}
	}
	e.put(edge{from, w, to})
	e.n++
}

func (e *edges) put(s edge) {
	mask := uint32(len(e.slots) - 1)
	i := e.home(s.from, s.word) & mask
	for e.slots[i].to != 0 {
		i = (i + 1) & mask
	}
	e.slots[i] = s
}

// remove takes an edge out, and closes the gap for those behind it that began their search before it.
func (e *edges) remove(from uint32, w word) {
	mask := uint32(len(e.slots) - 1)
	gap := e.home(from, w) & mask
	for e.slots[gap].from != from || e.slots[gap].word != w {
		if e.slots[gap].to == 0 {
			return
		}
		gap = (gap + 1) & mask
	}
	for i := (gap + 1) & mask; e.slots[i].to != 0; i = (i + 1) & mask {
		home := e.home(e.slots[i].from, e.slots[i].word) & mask
		if (i-home)&mask >= (i-gap)&mask {
			e.slots[gap] = e.slots[i]
			gap = i
		}
	}
	e.slots[gap] = edge{}
	e.n--
}

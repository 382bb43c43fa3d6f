package quorum

const (
	// tailOctets is how much of the log stays behind a checkpoint, so that a member that is a little behind gets entries and
	// not everything.
	tailOctets = 16 << 20
	// tailStep is how exactly that is known.
	tailStep = 1 << 20
)

// tail knows how long the end of the log is: where it was after each so many octets.
type tail struct {
	octets uint64 // of all entries since the start
	marks  []tailMark
}

type tailMark struct{ index, octets uint64 }

// add is told of the next entry; keep is how many octets are of interest.
func (t *tail) add(index uint64, n int, keep uint64) {
	t.octets += uint64(n)
	if k := len(t.marks); k == 0 || t.octets-t.marks[k-1].octets >= tailStep {
		t.marks = append(t.marks, tailMark{index, t.octets})
		for len(t.marks) > 1 && t.octets-t.marks[1].octets >= keep {
			t.marks = append(t.marks[:0], t.marks[1:]...)
		}
	}
}

// begins is the index up to which the log may go: what lies behind it is what was to be kept, or all that came since the start.
func (t *tail) begins() uint64 {
	if len(t.marks) == 0 {
		return 0
	}
	return t.marks[0].index
}

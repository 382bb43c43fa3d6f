package queue

import "slices"

// level is one priority level: the messages behind a cursor, and the returned ones ahead of it.
type level struct {
	next     uint64   // place of the next message
	after    uint64   // the cursor: every place up to here has been passed
	stored   uint64   // ready messages behind the cursor; the Log has them
	returned []flight // with Rules.Requeue == Original: a heap, lowest Seq first
	head     Meta     // first message behind the cursor, when known
	known    bool
	cold     bool   // the Log had no head to show; ask again after Loaded
	missing  Seq    // the returned message that the Log did not have in memory; 0: none
	again    uint64 // messages below this place are redelivered when handed out: they were there before a crash
}

func seqOf(level uint8, place uint64) Seq { return Seq(level)<<56 | Seq(place) }

// place is the number in the level's sequence.
func (s Seq) place() uint64 { return uint64(s) &^ (0xff << 56) }

func (f *flight) expired(now Time) bool { return f.expiry != 0 && f.expiry <= now }

// push adds a returned message.
func (lv *level) push(f flight) {
	lv.returned = append(lv.returned, f)
	h := lv.returned
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if h[up].seq < h[i].seq {
			break
		}
		h[up], h[i] = h[i], h[up]
		i = up
	}
}

// pull takes out the first returned message.
func (lv *level) pull() {
	h := lv.returned
	n := len(h) - 1
	h[0] = h[n]
	h = h[:n]
	for i := 0; ; {
		down := 2*i + 1
		if down >= n {
			break
		}
		if down+1 < n && h[down+1].seq < h[down].seq {
			down++
		}
		if h[i].seq < h[down].seq {
			break
		}
		h[i], h[down] = h[down], h[i]
		i = down
	}
	if n == 0 && cap(h) > windowKeep {
		h = nil
	}
	lv.returned = h
}

// purge lets go of all ready messages of the level, which is number i.
func (lv *level) purge(i uint8, fx *Effects) {
	slices.SortFunc(lv.returned, func(a, b flight) int {
		if a.seq < b.seq {
			return -1
		}
		return 1
	})
	for _, f := range lv.returned {
		fx.remove(f.seq)
	}
	if lv.stored > 0 {
		fx.Removed = append(fx.Removed, SeqRange{seqOf(i, lv.after+1), seqOf(i, lv.next-1)})
	}
	*lv = level{next: lv.next, after: lv.next - 1}
}

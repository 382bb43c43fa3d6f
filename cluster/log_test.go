package cluster

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/warrenmq/warren/test/seeds"
)

// TestLogModel: the log gives the octets that a plain slice has, whatever is acknowledged and written again, and keeps no
// more chunks than it needs.
func TestLogModel(t *testing.T) {
	seed := seeds.Of(t)
	rnd := rand.New(rand.NewPCG(seed, 0))
	var pool chunks
	l := sendLog{pool: &pool}
	var all []byte     // since the last reset
	starts := []int{0} // of frames, and the end
	writing := -1      // the position up to which a write is on its way
	at := func(i int) int { return starts[i] }
	index := func(pos uint64) int {
		for i, s := range starts {
			if s == int(pos) {
				return i
			}
		}
		t.Fatalf("%d is in the middle of a frame", pos)
		return 0
	}
	octets := make([]byte, 4*chunkSize)
	for i := range octets {
		octets[i] = byte(rnd.Uint32())
	}
	for step := range 10000 {
		switch n := rnd.IntN(100); {
		case n < 40 && l.held() < 1<<20:
			size := rnd.IntN(200)
			if rnd.IntN(10) == 0 {
				size = rnd.IntN(3 * chunkSize)
			}
			body := octets[rnd.IntN(len(octets)-size):][:size]
			f := frame{typ: frameData, number: uint16(len(starts) - 1)}
			all = append(f.appendHead(all, size), body...)
			f.number = 0
			l.appendHead(&f, size)
			l.append(body[:size/2])
			l.append(body[size/2:])
			starts = append(starts, len(all))
		case n < 60 && writing < 0:
			limit := 1 + rnd.IntN(2*chunkSize)
			vec, to := l.take(nil, limit)
			if got := bytes.Join(vec, nil); !bytes.Equal(got, all[l.next:to]) {
				t.Fatalf("step %d: other octets between %d and %d", step, l.next, to)
			}
			if last := index(to); to > l.next && at(last-1)-int(l.next) >= limit || to < l.end && int(to-l.next) < limit {
				t.Fatalf("step %d: %d octets where %d were wanted", step, to-l.next, limit)
			}
			writing = int(to)
		case n < 75 && writing >= 0:
			l.wrote(uint64(writing))
			writing = -1
		case n < 95:
			// What is being written may be acknowledged before the write returns, but stays.
			to := starts[rnd.IntN(len(starts))]
			most := max(int(l.next), writing)
			if to > most {
				to = most
			}
			if ok := l.ack(uint64(to)); !ok && to >= int(l.acked) {
				t.Fatalf("step %d: ack %d of %+v", step, to, l)
			}
			if writing >= 0 {
				if vec, _ := l.take(nil, writing-int(l.next)); writing > int(l.next) && !bytes.Equal(bytes.Join(vec, nil), all[l.next:writing]) {
					t.Fatalf("step %d: what is being written was freed", step)
				}
			}
		case n < 98:
			i, j := index(l.acked), len(starts)-1
			to := at(i + rnd.IntN(j-i+1))
			if !l.rewind(uint64(to)) {
				t.Fatalf("step %d: rewind to %d of %+v", step, to, l)
			}
			writing = -1
		case n == 99 && rnd.IntN(5) == 0:
			l.reset()
			all, starts, writing = nil, []int{0}, -1
		}
		keep := int(l.end - min(l.acked, l.next))
		if len(l.chunks) > keep/chunkSize+2 || keep == 0 && len(l.chunks) > 0 {
			t.Fatalf("step %d: %d chunks for %d octets", step, len(l.chunks), keep)
		}
		if l.ack(l.acked-1) && l.acked > 0 || l.ack(l.end+1) {
			t.Fatal("an ack out of range")
		}
	}
	if len(pool.free) > sparesMax {
		t.Error(len(pool.free))
	}
}

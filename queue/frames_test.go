package queue

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
)

// cutFrames takes frames apart: type, channel and payload of each.
func cutFrames(t *testing.T, b []byte) (frames []string) {
	t.Helper()
	for len(b) > 0 {
		n := int(binary.BigEndian.Uint32(b[3:]))
		if b[7+n] != frameEnd {
			t.Fatalf("a frame of %d octets has no end", n)
		}
		frames = append(frames, fmt.Sprintf("%d/%d %q", b[0], binary.BigEndian.Uint16(b[1:]), b[7:7+n]))
		b = b[8+n:]
	}
	return frames
}

// TestFrames writes deliveries of every size into frames: they say what was asked for, and no slab is left in use.
func TestFrames(t *testing.T) {
	pool := NewPool(64 << 20)
	pool.Poison = true
	head := []byte{1, 0, 9, 0, 0, 0, 0, 0, 60, 0, 60, 3, 't', 'a', 'g'}
	w := NewFrameWriter(pool)
	for _, frameMax := range []int{0, 4096} {
		limit := frameMax
		if limit == 0 {
			limit = 128 << 10
		}
		for _, size := range []int{0, 1, 1000, limit - 8, limit - 7, 3 * limit} {
			w.Begin(head, frameMax)
			body := bytes.Repeat([]byte("0123456789"), size/10+1)[:size]
			ids := []DeliveryID{5, 6, 7, 9, 10} // 8 is no message
			for i := range 300 {
				ids = append(ids, DeliveryID(11+i))
			}
			if size > 10_000 {
				ids = ids[:10]
			}
			octets := 0
			for _, id := range ids {
				octets += w.Add(id, []byte("x"), fmt.Append(nil, "k", id), []byte("header"), [][]byte{body[:size/3], nil, body[size/3:]}, size)
			}
			tag, n := uint64(100), 0
			for _, f := range w.Frames() {
				b := pool.Bytes(f.Ref)
				octets -= len(b)
				PutTags(b, len(head), tag)
				var want []string
				for i := range f.N {
					id := f.First + uint64(i)
					if id != ids[n] {
						t.Fatalf("delivery %d is %d, not %d", n, id, ids[n])
					}
					key := fmt.Sprint("k", id)
					method := fmt.Sprintf("\x00\x3c\x00\x3c\x03tag%s\x00\x01x%c%s", binary.BigEndian.AppendUint64(nil, tag), len(key), key)
					want = append(want, fmt.Sprintf("1/9 %q", method), fmt.Sprintf("2/9 %q", "header"))
					for rest := body; len(rest) > 0; {
						k := min(len(rest), limit-8)
						want = append(want, fmt.Sprintf("3/9 %q", rest[:k]))
						rest = rest[k:]
					}
					n, tag = n+1, tag+1
				}
				if got := cutFrames(t, b); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("frame-max %d, body of %d: %d frames are not the %d that were wanted", frameMax, size, len(got), len(want))
				}
			}
			if n != len(ids) || octets != 0 {
				t.Fatalf("%d deliveries of %d, %d octets are missing", n, len(ids), octets)
			}
			w.Release()
		}
	}
	w.Close()
	if pool.InUse() != 0 {
		t.Errorf("%d octets are in use", pool.InUse())
	}
}

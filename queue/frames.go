package queue

import "encoding/binary"

// Frames are deliveries of one consumer as its peer will get them, one behind the other, but for their delivery tags: those are
// given out by whoever writes to the peer. Until then the place of a tag holds how many octets the delivery has.
type Frames struct {
	Ref   Ref        // with one reference, that of the only one who writes to these octets from now on
	First DeliveryID // of the first; the others follow without a hole
	N     int
}

// FrameOutlet is an Outlet that takes deliveries as frames.
type FrameOutlet interface {
	Outlet
	// Form says how frames are made for it: a basic.deliver frame up to the delivery tag, its size left open, and how long a frame
	// may be, 0 for no limit. It is the same for all of the outlet's life.
	Form() (head []byte, frameMax int)
	// OfferFrames is Offer for frames. The outlet is full when room octets wait in it, or as many as it takes at the most.
	OfferFrames(fs []Frames, room int, w *Wake) bool
}

const (
	// tagLen is the delivery tag, and behindTag what follows it before the names: the redelivered bit.
	tagLen    = 8
	behindTag = 1
	// maxBodyFrame is how long body frames are if nobody asks for shorter ones.
	maxBodyFrame = 128 << 10
)

// FrameWriter writes deliveries as frames into slabs of a Pool, of which it keeps the one that is not full. It belongs to one
// goroutine.
type FrameWriter struct {
	pool *Pool
	slab *Slab // with one reference; nil: none
	at   int   // what is free of it

	head  []byte
	piece int // octets of a body in one frame
	list  []Frames
	last  DeliveryID
}

// NewFrameWriter makes a FrameWriter.
func NewFrameWriter(p *Pool) *FrameWriter { return &FrameWriter{pool: p} }

// Begin begins deliveries to an outlet.
func (w *FrameWriter) Begin(head []byte, frameMax int) {
	if frameMax <= 0 || frameMax > maxBodyFrame {
		frameMax = maxBodyFrame
	}
	w.head, w.piece, w.list = head, frameMax-frameOverhead, w.list[:0]
}

// Frames is what was written since Begin. The slice is good until the next Begin; its references are whose who take it.
func (w *FrameWriter) Frames() []Frames { return w.list }

// Add writes a delivery that was not made before, and returns how many octets it takes. Exchange and key have at most 255
// octets; header is a content header payload; body are the pieces of a body of size octets. Ids ascend.
func (w *FrameWriter) Add(id DeliveryID, exchange, key, header []byte, body [][]byte, size int) int {
	method := len(w.head) + tagLen + behindTag + 1 + len(exchange) + 1 + len(key) + 1
	n := method + frameOverhead + len(header) + size + (size+w.piece-1)/w.piece*frameOverhead
	dst := w.room(id, n)
	dst = append(dst, w.head...)
	binary.BigEndian.PutUint32(dst[3:], uint32(method-frameOverhead))
	dst = binary.BigEndian.AppendUint64(dst, uint64(n))
	dst = append(dst, 0, byte(len(exchange)))
	dst = append(dst, exchange...)
	dst = append(dst, byte(len(key)))
	dst = append(dst, key...)
	dst = append(dst, frameEnd)
	dst = w.start(dst, frameHeader, len(header))
	dst = append(dst, header...)
	dst = append(dst, frameEnd)
	left, open := size, 0
	for _, b := range body {
		for len(b) > 0 {
			if open == 0 {
				open = min(left, w.piece)
				dst = w.start(dst, frameBody, open)
			}
			k := min(open, len(b))
			dst = append(dst, b[:k]...)
			b, open, left = b[k:], open-k, left-k
			if open == 0 {
				dst = append(dst, frameEnd)
			}
		}
	}
	return n
}

func (w *FrameWriter) start(dst []byte, kind byte, size int) []byte {
	return append(dst, kind, w.head[1], w.head[2], byte(size>>24), byte(size>>16), byte(size>>8), byte(size))
}

// room is where n octets are to be appended, at the end of the frames written last or as the beginning of others.
func (w *FrameWriter) room(id DeliveryID, n int) []byte {
	k := len(w.list)
	if w.slab != nil && w.at+n <= len(w.slab.Buf) {
		at := w.at
		w.at += n
		if k > 0 && w.list[k-1].Ref.Slab == w.slab.ID && w.last+1 == id {
			f := &w.list[k-1]
			f.Ref.Len += uint32(n)
			f.N++
			w.last = id
		} else {
			w.slab.refs.Add(1)
			w.began(id, Ref{Slab: w.slab.ID, Off: uint32(at), Len: uint32(n)})
		}
		return w.slab.Buf[at:at:w.at]
	}
	if n > SlabSize/2 {
		s := w.pool.GetBig(n)
		w.began(id, Ref{Slab: s.ID, Len: uint32(n)})
		return s.Buf[:0]
	}
	w.Close()
	w.slab, w.at = w.pool.Get(), 0
	return w.room(id, n)
}

func (w *FrameWriter) began(id DeliveryID, r Ref) {
	w.list = append(w.list, Frames{Ref: r, First: id, N: 1})
	w.last = id
}

// Release lets go of what was written since Begin.
func (w *FrameWriter) Release() {
	for _, f := range w.list {
		w.pool.Release(f.Ref.Slab, 1)
	}
	w.list = w.list[:0]
}

// Close lets go of the slab. The writer may be used again.
func (w *FrameWriter) Close() {
	if w.slab != nil {
		w.pool.Release(w.slab.ID, 1)
		w.slab = nil
	}
}

// PutTags gives the deliveries in b, which are Frames for a consumer whose frames begin with head octets, the delivery tags from
// first on.
func PutTags(b []byte, head int, first uint64) {
	for tag := first; len(b) > 0; tag++ {
		place := b[head : head+tagLen]
		n := binary.BigEndian.Uint64(place)
		binary.BigEndian.PutUint64(place, tag)
		b = b[n:]
	}
}

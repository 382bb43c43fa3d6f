package storage

import (
	"bytes"
	"io"
	"math"
)

const windowSize = 4 << 20

// A frameScanner finds the frames of one use in a file. It reads far ahead. What cannot be read counts as zeroes.
type frameScanner struct {
	file   File
	size   int64
	use    uint64 // 0: any
	limit  Mark   // no frame ends behind it
	buf    []byte
	start  int64 // of buf in the file
	unread int64 // octets that could not be read
}

func newFrameScanner(file File, size int64, use uint64) *frameScanner {
	return &frameScanner{file: file, size: size, use: use, limit: math.MaxUint64}
}

// at is n octets of the file from off on, fewer at its end. It is valid until the next call.
func (s *frameScanner) at(off int64, n int) []byte {
	n = int(max(0, min(int64(n), s.size-off)))
	if off < s.start || off+int64(n) > s.start+int64(len(s.buf)) {
		s.fill(off, n)
	}
	return s.buf[off-s.start:][:n]
}

func (s *frameScanner) fill(off int64, n int) {
	want := int(min(int64(max(n, windowSize)), s.size-off))
	if cap(s.buf) < want {
		s.buf = make([]byte, want)
	}
	s.buf, s.start = s.buf[:want], off
	for done := 0; done < want; {
		got, err := s.file.ReadAt(s.buf[done:], off+int64(done))
		done += got
		if err == nil || done == want {
			continue
		}
		if err == io.EOF {
			clear(s.buf[done:])
			return
		}
		// One page at a time, past what the disk does not give.
		page := min(done+pageSize, want)
		if got, err := s.file.ReadAt(s.buf[done:page], off+int64(done)); got < page-done && err != nil {
			clear(s.buf[done+got : page])
			s.unread += int64(page - done - got)
		}
		done = page
	}
}

// frame is the frame at off, whole and checked, and its header; nil if there is none of this use.
func (s *frameScanner) frame(off int64, h *frameHeader) []byte {
	if !h.decode(s.at(off, frameHead)) || s.use != 0 && h.use != s.use ||
		int64(h.length) > s.size-off-frameHead || h.end() < h.position || h.end() > s.limit {
		return nil
	}
	b := s.at(off, frameHead+h.length)
	if !checkFrame(b) {
		return nil
	}
	return b
}

// find is the offset of the first frame at or behind off whose position is at least from; -1 if there is none before end.
func (s *frameScanner) find(off, end int64, from Mark, h *frameHeader) int64 {
	end = min(end, s.size)
	for off < end {
		b := s.at(off, int(min(windowSize, end-off)))
		i := bytes.Index(b, []byte(frameMagic))
		if i < 0 {
			off += int64(max(len(b)-len(frameMagic)+1, 1))
			continue
		}
		off += int64(i)
		if s.frame(off, h) != nil && h.position >= from {
			return off
		}
		off++
	}
	return -1
}

// syncedPast reports whether the frame at off or one behind it was written when everything up to more than the position was synced.
// last is the end of the last frame looked at.
func (s *frameScanner) syncedPast(off int64, position Mark) (yes bool, last int64) {
	var h frameHeader
	for off >= 0 {
		if s.frame(off, &h) == nil {
			if off = s.find(off, s.size, position, &h); off < 0 {
				break
			}
		}
		if h.base > position {
			return true, last
		}
		off += frameHead + int64(h.length)
		last = off
	}
	return false, last
}

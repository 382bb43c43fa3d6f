package stream

import (
	"encoding/binary"
	"hash/crc32"
	"sort"

	"github.com/warrenmq/warren/storage"
)

// An index file:
//
//	header    "WarrnIdx" | version u32 | 0 u32 | first offset of the segment u64 | 0 u32 | CRC-32C of the 28 octets before u32
//	boundary  offset u64 | greatest time i64 | last time i64 | position u64 | chunks u32 | CRC-32C u32
//
// A boundary is a place between chunks: at this position of the segment a chunk begins, or the segment ends, and the next
// offset is this one; times and number are those of the chunks before. The first is the start of the segment. Boundaries are
// written only when what lies before them is synced. The last one may be written over by a later one. Their checksums cover
// the segment's first offset, too.
const (
	indexMagic   = "WarrnIdx"
	segmentMagic = "WarrnSeg"
	fileVersion  = 1
	fileHeader   = SegmentHeaderLen
	boundaryLen  = 40

	// indexStep is how far apart boundaries are at least, in octets of the segment.
	indexStep = 16 << 10
)

type boundary struct {
	offset uint64
	max    int64 // greatest time of the chunks before
	last   int64 // time of the chunk before
	pos    int64
	chunks uint32
}

// startOf is the first boundary of a segment.
func startOf(base uint64) boundary {
	return boundary{offset: base, pos: fileHeader, max: minTime, last: minTime}
}

// minTime is before all times.
const minTime = -1 << 63

// after is the boundary behind a chunk that begins at b.
func (b boundary) after(h Header) boundary {
	return boundary{offset: h.Next(), max: max(b.max, h.Time), last: h.Time, pos: b.pos + h.Size(), chunks: b.chunks + 1}
}

func (b boundary) append(dst []byte, base uint64) []byte {
	at := len(dst)
	be := binary.BigEndian
	dst = be.AppendUint64(dst, b.offset)
	dst = be.AppendUint64(dst, uint64(b.max))
	dst = be.AppendUint64(dst, uint64(b.last))
	dst = be.AppendUint64(dst, uint64(b.pos))
	dst = be.AppendUint32(dst, b.chunks)
	return be.AppendUint32(dst, boundarySum(dst[at:], base))
}

func boundarySum(b []byte, base uint64) uint32 {
	var salt [8]byte
	binary.BigEndian.PutUint64(salt[:], base)
	return crc32.Update(crc32.Update(0, castagnoli, salt[:]), castagnoli, b)
}

func parseBoundary(b []byte, base uint64) (boundary, bool) {
	be := binary.BigEndian
	if len(b) < boundaryLen || be.Uint32(b[36:]) != boundarySum(b[:36], base) {
		return boundary{}, false
	}
	return boundary{be.Uint64(b), int64(be.Uint64(b[8:])), int64(be.Uint64(b[16:])), int64(be.Uint64(b[24:])), be.Uint32(b[32:])}, true
}

// appendFileHeader appends the header of a segment or an index.
func appendFileHeader(dst []byte, magic string, base uint64) []byte {
	at := len(dst)
	dst = append(dst, magic...)
	dst = binary.BigEndian.AppendUint32(dst, fileVersion)
	dst = binary.BigEndian.AppendUint32(dst, 0)
	dst = binary.BigEndian.AppendUint64(dst, base)
	dst = binary.BigEndian.AppendUint32(dst, 0)
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[at:], castagnoli))
}

// checkFileHeader reads the header of a file. ErrVersion is of a sound one.
func checkFileHeader(f storage.File, magic string, base uint64) error {
	var b [fileHeader]byte
	if n, err := f.ReadAt(b[:], 0); n < len(b) {
		return orDamaged(err)
	}
	be := binary.BigEndian
	switch {
	case string(b[:8]) != magic || be.Uint32(b[28:]) != crc32.Checksum(b[:28], castagnoli) || be.Uint64(b[16:]) != base:
		return errHeader
	case be.Uint32(b[8:]) != fileVersion:
		return ErrVersion
	}
	return nil
}

// index is what is known of a segment's boundaries: the first n are in the file, the others follow when what is before them is
// synced.
type index struct {
	n       int
	keep    int   // boundaries in the file that stay; one more there is the end of the segment at the last sync
	last    int64 // position of the last one that stays
	pending []boundary
}

// add notes a boundary, unless it is too close to the one before.
func (x *index) add(b boundary) {
	if b.pos-x.last >= indexStep || b.pos == fileHeader {
		x.pending = append(x.pending, b)
		x.last = b.pos
	}
}

// encode are the octets that bring the file, from boundary number keep on, to a sync up to end, and how many of pending they
// have.
func (x *index) encode(dst []byte, base uint64, end boundary) ([]byte, int) {
	n := 0
	for n < len(x.pending) && x.pending[n].pos <= end.pos {
		dst = x.pending[n].append(dst, base)
		n++
	}
	if n == 0 || x.pending[n-1].pos < end.pos {
		dst = end.append(dst, base)
	}
	return dst, n
}

// written says that encode's octets, with n of pending, are in the file.
func (x *index) written(octets, n int) {
	x.n = x.keep + octets/boundaryLen
	x.keep += n
	x.pending = append([]boundary(nil), x.pending[n:]...)
}

// readIndex finds the last valid boundary of an index file, and how many there are up to it. n = 0: there is none. Only
// ErrVersion and failures to read are errors.
func readIndex(f storage.File, base uint64) (n int, last boundary, err error) {
	size, err := f.Size()
	if err != nil {
		return 0, last, err
	}
	if size < fileHeader+boundaryLen {
		return 0, last, nil
	}
	switch err := checkFileHeader(f, indexMagic, base); err {
	case nil:
	case errHeader:
		return 0, last, nil
	default:
		return 0, last, err
	}
	for n = int((size - fileHeader) / boundaryLen); n > 0; n-- {
		b, err := readBoundary(f, base, n-1)
		if err == nil {
			return n, b, nil
		}
		if err != errBoundary {
			return 0, last, err
		}
	}
	return 0, last, nil
}

func readBoundary(f storage.File, base uint64, i int) (boundary, error) {
	var raw [boundaryLen]byte
	if n, err := f.ReadAt(raw[:], fileHeader+int64(i)*boundaryLen); n < len(raw) {
		if err := orDamaged(err); err != errHeader {
			return boundary{}, err
		}
		return boundary{}, errBoundary
	}
	b, ok := parseBoundary(raw[:], base)
	if !ok {
		return b, errBoundary
	}
	return b, nil
}

// search finds the last boundary that is before something, which holds for some of the first ones and for none behind them.
// The start of the segment always counts as before. f may be nil if n is 0. A damaged boundary makes it start over from the
// start of the segment, which is slow and right.
func (x index) search(f storage.File, base uint64, before func(boundary) bool) (boundary, error) {
	if i := sort.Search(len(x.pending), func(i int) bool { return !before(x.pending[i]) }); i > 0 {
		return x.pending[i-1], nil
	}
	found := startOf(base)
	low, high := 0, x.n // before holds below low, not from high
	for low < high {
		mid := int(uint(low+high) / 2)
		b, err := readBoundary(f, base, mid)
		switch {
		case err == errBoundary:
			return startOf(base), nil
		case err != nil:
			return boundary{}, err
		case before(b):
			found, low = b, mid+1
		default:
			high = mid
		}
	}
	return found, nil
}

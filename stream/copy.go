package stream

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/warrenmq/warren/storage"
)

// copyOctets is how many octets Octets gives at once, unless one chunk has more.
const copyOctets = 256 << 10

// segmentAt is what is known of the segment that begins at an offset. It is a RemovedError if that is below First.
func (l *Log) segmentAt(base uint64) (segment, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch i := segmentOf(l.segs, base); {
	case l.closed:
		return segment{}, ErrClosed
	case base < l.first:
		return segment{}, &RemovedError{base, l.first}
	case i < 0 || l.segs[i].base != base:
		return segment{}, fmt.Errorf("%s: %w: no segment begins at offset %d", l.dir, ErrChunk, base)
	default:
		return *l.segs[i], nil
	}
}

// Octets appends whole chunks of a segment to dst, from a position where one begins, as they lie in its file; none where it ends.
// Each is checked: for one that is damaged, or missing, the error is a DamageError with the segment.
func (l *Log) Octets(dst []byte, base uint64, pos int64) ([]byte, error) {
	s, err := l.segmentAt(base)
	if err != nil {
		return dst, err
	}
	f, err := l.fs.Open(fileName(l.dir, base, segmentSuffix))
	if err == nil {
		defer f.Close()
		w := headers{f: f, limit: s.end.pos}
		for start := len(dst); err == nil && pos < s.end.pos; {
			var h Header
			if h, err = w.read(pos); err != nil || len(dst) > start && int64(len(dst)-start)+h.Size() > copyOctets {
				break
			}
			if h.Size() > copyOctets { // before memory is given for what it says
				if _, _, err = readHead(f, pos, s.end.pos, new(headBuf)); err != nil {
					break
				}
			}
			n := len(dst)
			dst = slices.Grow(dst, int(h.Size()))[:n+int(h.Size())]
			if err = readWhole(f, dst[n:], pos); err == nil {
				_, err = ParseChunk(dst[n:])
			}
			if err != nil {
				dst = dst[:n]
				break
			}
			pos += h.Size()
		}
	}
	if isDamage(err) || gone(err) {
		if s.base < l.First() {
			return dst, &RemovedError{s.base, l.First()}
		}
		err = &DamageError{Damage{s.base, s.end.offset, fileName(l.dir, base, segmentSuffix), "found when it was copied"}, err}
	}
	return dst, err
}

// readWhole fills b; what ends too early is ErrChunk.
func readWhole(f storage.File, b []byte, pos int64) error {
	n, err := f.ReadAt(b, pos)
	if n == len(b) {
		return nil
	}
	if err = orDamaged(err); err == errHeader {
		err = ErrChunk
	}
	return err
}

// Sum is a checksum of the headers of all chunks of a segment before a position, where one must end; those have the checksums of
// the entries. Equal ones mean that two logs have the same there, or had before one was damaged. Errors are those of Octets.
func (l *Log) Sum(base uint64, pos int64) (sum uint32, err error) {
	s, err := l.segmentAt(base)
	if err != nil {
		return 0, err
	}
	f, err := l.fs.Open(fileName(l.dir, base, segmentSuffix))
	var b boundary
	if err == nil {
		defer f.Close()
		w := headers{f: f, limit: s.end.pos}
		b, err = w.seek(startOf(base), func(b boundary, h Header) bool {
			if b.pos >= pos {
				return true
			}
			sum = h.sum(sum)
			return false
		})
	}
	switch {
	case isDamage(err) || gone(err):
		return 0, &DamageError{Damage{s.base, s.end.offset, fileName(l.dir, base, segmentSuffix), "found when it was compared"}, err}
	case err == nil && b.pos != pos:
		return 0, fmt.Errorf("%s: %w: no chunk of the segment at offset %d ends at position %d", l.dir, ErrChunk, base, pos)
	}
	return sum, err
}

// sum adds a header to the sum of those before it.
func (h Header) sum(sum uint32) uint32 {
	var b [40]byte
	be := binary.BigEndian
	b[0], b[1] = h.Type, h.Filter
	be.PutUint16(b[2:], h.Entries)
	be.PutUint32(b[4:], h.Records)
	be.PutUint64(b[8:], uint64(h.Time))
	be.PutUint64(b[16:], h.Epoch)
	be.PutUint64(b[24:], h.First)
	be.PutUint32(b[32:], h.CRC)
	be.PutUint32(b[36:], h.Length)
	return crc32.Update(sum, castagnoli, b[:])
}

// Reset has a log go on at an offset beyond its end, without anything that it had: what is between was removed elsewhere. It is
// called like Append.
func (l *Log) Reset(first uint64) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	closed, next, segs := l.closed, l.next, append(l.cut, l.segs...)
	l.mu.Unlock()
	if closed || first <= next {
		return ErrChunk
	}
	if err := mark(l.fs, l.dir, first); err != nil {
		return fmt.Errorf("stream: reset %s to %d: %w", l.dir, first, err)
	}
	l.mu.Lock()
	l.segs, l.cut, l.damage, l.first, l.next, l.marked, l.broken, l.refused = nil, segs, nil, first, first, first, nil, 0
	for _, t := range l.tails {
		l.o.Memory.drop(t)
	}
	l.tails, l.tailed = nil, 0
	l.mu.Unlock()
	return nil // the next Sync removes the files
}

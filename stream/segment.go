package stream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/warrenmq/warren/storage"
)

// A segment file:
//
//	header  "WarrnSeg" | version u32 | 0 u32 | first offset u64 | 0 u32 | CRC-32C of the 28 octets before u32
//	chunk, chunk, …   without gaps, each beginning with the offset at which the one before ends
//
// Its name is its first offset in 20 decimal digits.
const (
	segmentSuffix = ".seg"
	indexSuffix   = ".idx"
	firstSuffix   = ".first" // an empty file whose name says that what is below that offset was removed
)

// SegmentHeaderLen is the position of a segment's first chunk.
const SegmentHeaderLen = 32

// ErrVersion is of files that a later version wrote.
var ErrVersion = errors.New("stream: the file is of a format that this version does not know")

var (
	errHeader   = errors.New("stream: damaged header of a file")
	errBoundary = errors.New("stream: damaged index")
)

// segment is what is known of one. A log's mutex guards it.
type segment struct {
	base   uint64
	end    boundary // behind the last chunk
	synced int64    // position up to which it is synced, and boundaries may be written
	index  index
}

func fileName(dir string, base uint64, suffix string) string {
	return filepath.Join(dir, fmt.Sprintf("%020d%s", base, suffix))
}

// parseName takes a file's name apart.
func parseName(name string) (base uint64, suffix string, ok bool) {
	digits, suffix, ok := strings.Cut(name, ".")
	if !ok || len(digits) != 20 {
		return 0, "", false
	}
	base, err := strconv.ParseUint(digits, 10, 64)
	return base, "." + suffix, err == nil
}

// orDamaged is what a short read means: a file that ends too early, or a failure to read.
func orDamaged(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return errHeader
	}
	return err
}

// headers is a walk over the headers of a segment's chunks. It reads ahead, as chunks may be small.
type headers struct {
	f     storage.File
	limit int64 // where the segment ends
	buf   [4096]byte
	at    int64 // position of buf
	n     int
}

// next reads the header of the chunk at a boundary, which is not at the limit, and checks that it fits there.
func (w *headers) next(b boundary) (Header, error) {
	h, err := w.read(b.pos)
	if err == nil && h.First != b.offset {
		err = ErrChunk
	}
	return h, err
}

// read is next for a position.
func (w *headers) read(pos int64) (Header, error) {
	i := pos - w.at
	if i < 0 || i+HeaderLen > int64(w.n) {
		n := min(int64(len(w.buf)), w.limit-pos)
		if n < HeaderLen {
			return Header{}, ErrChunk
		}
		got, err := w.f.ReadAt(w.buf[:n], pos)
		if got < HeaderLen {
			if err := orDamaged(err); err != errHeader {
				return Header{}, err
			}
			return Header{}, ErrChunk
		}
		w.at, w.n, i = pos, got, 0
	}
	h, err := ParseHeader(w.buf[i:w.n])
	if err == nil && h.Size() > w.limit-pos {
		err = ErrChunk
	}
	return h, err
}

// seek walks from a boundary to the first one for which stop holds, or the one at which it cannot go on. stop is given the
// chunk behind the boundary. At the limit it ends without asking.
func (w *headers) seek(b boundary, stop func(boundary, Header) bool) (boundary, error) {
	for b.pos < w.limit {
		h, err := w.next(b)
		if err != nil || stop(b, h) {
			return b, err
		}
		b = b.after(h)
	}
	return b, nil
}

// headBuf has room for a chunk's header, filter and checksum.
type headBuf [HeaderLen + MaxFilterSize + chunkSum]byte

// readHead reads the header and the filter of the chunk at a position of a segment that ends at limit, and checks their
// checksum. The entries are not read.
func readHead(f storage.File, pos, limit int64, buf *headBuf) (h Header, bloom []byte, err error) {
	read := func(b []byte, at int64) error {
		n, err := f.ReadAt(b, at)
		if n == len(b) {
			return nil
		}
		if err = orDamaged(err); err == errHeader {
			err = ErrChunk
		}
		return err
	}
	if limit-pos < HeaderLen {
		return h, nil, ErrChunk
	}
	if err := read(buf[:HeaderLen], pos); err != nil {
		return h, nil, err
	}
	if h, err = ParseHeader(buf[:]); err != nil {
		return h, nil, err
	}
	if h.Size() > limit-pos {
		return h, nil, ErrChunk
	}
	rest := buf[HeaderLen : HeaderLen+int(h.Filter)+chunkSum]
	if err := read(rest, pos+HeaderLen+int64(h.Length)); err != nil {
		return h, nil, err
	}
	bloom = rest[:h.Filter]
	if binary.BigEndian.Uint32(rest[h.Filter:]) != headFilterSum(buf[:HeaderLen], bloom) {
		return h, nil, ErrChecksum
	}
	return h, bloom, nil
}

// isDamage tells damaged bytes from failures to read them.
func isDamage(err error) bool {
	return errors.Is(err, ErrChunk) || errors.Is(err, ErrChecksum) || errors.Is(err, errHeader) || errors.Is(err, errBoundary)
}

// scan checks whole chunks from a boundary to the end of the file, and calls found with the boundary behind each. It returns
// where the first one that is not sound begins, or the end; only a failure to read is an error.
func scan(f storage.File, from boundary, size int64, found func(boundary)) (boundary, error) {
	w := headers{f: f, limit: size}
	var buf []byte
	var head headBuf
	b := from
	for b.pos < size {
		h, err := w.next(b)
		if err == nil && int64(cap(buf)) < h.Size() {
			if _, _, err = readHead(f, b.pos, size, &head); err == nil { // before memory is given for what it says
				buf = make([]byte, h.Size())
			}
		}
		if err == nil {
			buf = buf[:h.Size()]
			var n int
			if n, err = f.ReadAt(buf, b.pos); n == len(buf) {
				_, err = ParseChunk(buf)
			} else if err = orDamaged(err); err == errHeader {
				err = ErrChunk
			}
		}
		if err != nil {
			if isDamage(err) {
				return b, nil
			}
			return b, err
		}
		b = b.after(h)
		found(b)
	}
	return b, nil
}

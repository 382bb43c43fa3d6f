package stream

import (
	"errors"
	"fmt"
	"slices"
)

// ErrEnd says that nothing more was appended yet.
var ErrEnd = errors.New("stream: at the end")

// RemovedError says that retention removed what a reader would have read next. It is said once; the reader goes on at To.
type RemovedError struct{ From, To uint64 }

func (e *RemovedError) Error() string {
	return fmt.Sprintf("stream: offsets from %d to %d were removed", e.From, e.To)
}

// DamageError says that offsets from From up to, without, To cannot be read. The reader stays where it is; Skip has it go on
// at To.
type DamageError struct {
	Damage
	Err error
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("stream: offsets from %d to %d cannot be read: %s: %v", e.From, e.To, e.File, e.Err)
}

func (e *DamageError) Unwrap() error { return e.Err }

// A Reader reads a log in order, from memory where others have brought it there. It is used by one goroutine at a time. What it
// gives are views, good until the next call of Chunk, Next, Seek or Release. While it gives views it holds up to one block of
// the log's Memory: whoever stops reading, for however short, calls Release, and one that serves several readers does so before
// it turns to the next. Who stops for good calls Close: until then what lies before the reader is worth keeping for it.
type Reader struct {
	l      *Log
	at     uint64 // below that it wants nothing any more; guarded by l.mu
	filter Filter
	from   uint64 // what is below is passed over
	next   uint64 // what comes next, where no chunk is open

	placed  bool
	aligned bool   // pos is where a block ends: the next one begins there
	base    uint64 // the segment
	pos     int64  // of the chunk that is open or comes next

	b       *block
	open    bool // a chunk is open: it holds what is left of it
	size    int64
	records Records
	data    int // octets left of the entries, where the block was released
	inner   int // and of the sub-batch
	damage  *DamageError
	passed  uint64 // records
	lost    uint64
}

// Read makes a reader that begins at an offset. Below First it begins there, without an error; beyond Next it passes over what
// comes before.
func (l *Log) Read(offset uint64, filter Filter) *Reader {
	r := &Reader{l: l, filter: filter}
	l.mu.Lock()
	r.at = max(offset, l.first)
	l.readers = append(l.readers, r)
	l.mu.Unlock()
	r.Seek(r.at)
	return r
}

// Close ends the reader.
func (r *Reader) Close() {
	r.Release()
	l := r.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.readers, r); i >= 0 {
		l.readers = slices.Delete(l.readers, i, i+1)
	}
}

// Seek has the reader go on at an offset.
func (r *Reader) Seek(offset uint64) {
	r.Release()
	r.from, r.next = offset, offset
	r.placed, r.open, r.damage = false, false, nil
}

// Offset is the offset that comes next, or a greater one that the reader waits for.
func (r *Reader) Offset() uint64 {
	if r.open {
		return max(r.records.offset, r.from)
	}
	return max(r.next, r.from)
}

// Passed is how many records the reader has passed over because of its filter.
func (r *Reader) Passed() uint64 { return r.passed }

// Lost is how many records Next has passed over because they lie in sub-batches that are compressed or malformed.
func (r *Reader) Lost() uint64 { return r.lost }

// Next fills rec with the next record. At the end it is ErrEnd, and may be called again when something was appended; other
// errors are *RemovedError, *DamageError, ErrClosed, and failures to read, after which it may be called again, too.
func (r *Reader) Next(rec *Record) error {
	for {
		if r.open {
			if r.b == nil {
				if err := r.reopen(); err != nil {
					return err
				}
				continue
			}
			for r.records.Next(rec) {
				if rec.Offset >= r.from {
					return nil
				}
			}
			r.leave()
		}
		if _, err := r.enter(); err != nil {
			return err
		}
	}
}

// Chunk is the next chunk as a whole, for the stream protocol: if the reader stands in one, that one. It begins at or before
// Offset. Errors are those of Next.
func (r *Reader) Chunk() (Chunk, error) {
	r.open = false
	for {
		c, err := r.enter()
		if err != nil {
			return c, err
		}
		r.open, r.pos, r.next = false, r.pos+r.size, c.Next()
		if c.Next() > r.from {
			return c, nil
		}
	}
}

// Release gives the reader's memory back. Its place stays, within a chunk, too.
func (r *Reader) Release() {
	if r.b == nil {
		return
	}
	if r.open {
		r.data, r.inner = len(r.records.data), len(r.records.inner)
		r.records.data, r.records.inner = nil, nil
	}
	r.l.o.Memory.release(r.b)
	r.b = nil
}

// leaveBlock gives the block back. One that it has read to its end goes at once if no reader comes after it: the next one is read
// into memory that the processor still has at hand. Called with l.mu held.
func (r *Reader) leaveBlock() {
	r.at = r.Offset()
	b := r.b
	if b == nil || b.loading == nil || r.open || r.pos < b.start+b.n.Load() || r.l.wanted(r.next, r) {
		r.Release()
		return
	}
	r.b = nil
	r.l.o.Memory.discard(b)
}

// wanted reports whether a reader besides one may still want what is below an offset. The lock is held.
func (l *Log) wanted(below uint64, besides *Reader) bool {
	for _, r := range l.readers {
		if r.at < below && r != besides {
			return true
		}
	}
	return false
}

// leave goes behind the chunk that is open.
func (r *Reader) leave() {
	r.lost += uint64(r.records.lost)
	if r.records.fault && r.records.offset < r.records.end {
		r.lost += r.records.end - r.records.offset
	}
	r.next = r.records.end
	r.pos += r.size
	r.open = false
}

// enter opens the next chunk that the filter lets through.
func (r *Reader) enter() (Chunk, error) {
	for {
		if r.damage != nil {
			return Chunk{}, r.damage
		}
		if !r.placed {
			if err := r.place(); err != nil {
				return Chunk{}, err
			}
			continue
		}
		if r.b == nil || r.b.base != r.base || r.pos >= r.b.start+r.b.n.Load() {
			moved, err := r.fetch()
			if err != nil {
				return Chunk{}, err
			}
			if moved {
				continue
			}
		}
		at := r.pos - r.b.start
		c, err := viewChunk(r.b.buf[at:r.b.n.Load()])
		if err != nil {
			return Chunk{}, err
		}
		if c.Type != UserChunk || !r.filter.Match(c.Bloom()) {
			r.passed += uint64(c.Header.Records)
			r.pos += c.Size()
			r.next = c.Next()
			continue
		}
		r.size, r.records, r.open = c.Size(), c.Records(), true
		return c, nil
	}
}

// reopen gets the chunk again in which the reader stopped. If it was removed, none is open afterwards.
func (r *Reader) reopen() error {
	if _, err := r.fetch(); err != nil || !r.open {
		return err
	}
	c, err := viewChunk(r.b.buf[r.pos-r.b.start : r.b.n.Load()])
	if err != nil {
		return err
	}
	data := c.Data()
	i := len(data) - r.data
	r.records.data = data[i:]
	r.records.inner = data[i-r.inner : i]
	return nil
}

// place finds where the offset from lies.
func (r *Reader) place() error {
	l := r.l
	l.mu.Lock()
	segs, first, next := l.segs, l.first, l.next
	var s segment
	i := segmentOf(segs, min(r.next, next))
	if i >= 0 {
		s = *segs[i]
	}
	closed := l.closed
	l.mu.Unlock()
	switch {
	case closed:
		return ErrClosed
	case r.next < first:
		if err := r.removed(first); err != nil {
			return err
		}
		return r.place()
	case i < 0 && len(segs) > 0:
		return r.damaged(Damage{r.next, segs[0].base, fileName(l.dir, r.next, segmentSuffix), "missing"}, errHeader)
	case i < 0:
		return ErrEnd
	}
	b, err := l.seekIn(s, func(b boundary) bool { return b.offset <= r.next }, func(_ boundary, h Header) bool { return h.Next() > r.next })
	if gone(err) {
		if err := r.vanished(s); err != nil {
			return err
		}
		return r.place()
	}
	if err != nil && !isDamage(err) {
		return err
	}
	r.base, r.pos, r.aligned, r.placed = s.base, b.pos, false, true
	r.next = b.offset
	return nil
}

// removed goes on at the new first offset. It is no error if the reader wanted nothing that was removed.
func (r *Reader) removed(first uint64) error {
	at := r.Offset()
	r.Seek(max(at, first))
	if at < first {
		return &RemovedError{at, first}
	}
	return nil
}

func (r *Reader) damaged(d Damage, err error) error {
	r.Release()
	d.From = r.Offset()
	r.damage = &DamageError{d, err}
	return r.damage
}

// vanished is what it means that a segment's file is not there.
func (r *Reader) vanished(s segment) error {
	if first := r.l.First(); s.base < first {
		return r.removed(first)
	}
	return r.damaged(Damage{To: s.end.offset, File: fileName(r.l.dir, s.base, segmentSuffix), Reason: "missing"}, errHeader)
}

// Skip has a reader that met damage go on behind it.
func (r *Reader) Skip() {
	if r.damage != nil {
		r.Seek(r.damage.To)
	}
}

// Retry has a reader that met damage look again: it may have been mended.
func (r *Reader) Retry() {
	if r.damage != nil {
		r.Seek(r.Offset())
	}
}

// Ready reports whether Next has something without reading from the disk.
func (r *Reader) Ready() bool {
	if r.b != nil && r.open && (len(r.records.data) > 0 || len(r.records.inner) > 0) {
		return true
	}
	l := r.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if !r.placed {
		return false
	}
	t := l.tailAt(r.base, r.pos)
	if t == nil || !l.o.Memory.hold(t) {
		return false
	}
	l.o.Memory.release(t)
	return true
}

// tailAt is the tail that has a position. The lock is held.
func (l *Log) tailAt(base uint64, pos int64) *block {
	for i := len(l.tails) - 1; i >= 0; i-- {
		if t := l.tails[i]; t.base == base && pos >= t.start {
			if pos < t.start+t.n.Load() {
				return t
			}
			return nil
		}
	}
	return nil
}

// fetch gets the block that has the reader's place, which may be the start of another segment now. moved: it has none, and the
// place is another one, as the filter does not want the chunk, or it was removed.
func (r *Reader) fetch() (moved bool, err error) {
	l := r.l
	l.mu.Lock()
	r.leaveBlock()
	if l.closed {
		l.mu.Unlock()
		return false, ErrClosed
	}
	if r.base < l.first {
		first := l.first
		l.mu.Unlock()
		return true, r.removed(first)
	}
	i := segmentOf(l.segs, r.base)
	s := *l.segs[i]
	for ; r.pos >= s.end.pos && !r.open; i++ {
		if i == len(l.segs)-1 {
			l.mu.Unlock()
			return false, ErrEnd
		}
		if to := l.segs[i+1].base; to != s.end.offset {
			l.mu.Unlock()
			r.next = s.end.offset
			return false, r.damaged(Damage{To: to, File: fileName(l.dir, s.end.offset, segmentSuffix), Reason: "missing"}, errHeader)
		}
		s = *l.segs[i+1]
		r.base, r.pos, r.aligned = s.base, fileHeader, true
	}
	if t := l.tailAt(r.base, r.pos); t != nil && l.o.Memory.hold(t) {
		r.b, r.aligned = t, false
		l.mu.Unlock()
		return false, nil
	}
	l.mu.Unlock()
	return r.read(s)
}

// read is fetch for a place that is not in memory as a tail.
func (r *Reader) read(s segment) (moved bool, err error) {
	if len(r.filter.Values) > 0 && !r.open {
		if passed, err := r.passOver(s); passed || err != nil {
			return passed, err
		}
	}
	b, err := r.l.block(s, r.pos, r.aligned)
	if gone(err) {
		return true, r.vanished(s)
	}
	if err != nil {
		return false, err
	}
	if r.pos >= b.start+b.n.Load() { // b.bad
		bad := b.bad
		r.l.o.Memory.release(b)
		return false, r.broken(s, bad)
	}
	end := b.start + b.n.Load()
	r.b, r.aligned = b, end/blockWindow > b.key.window // as far as its window went, not only as far as the segment
	return false, nil
}

// broken is damage within a segment: it reaches to the next boundary in the index.
func (r *Reader) broken(s segment, bad error) error {
	d := Damage{To: s.end.offset, File: fileName(r.l.dir, s.base, segmentSuffix), Reason: "a damaged chunk"}
	to, err := r.l.boundaryBehind(s, r.pos)
	if err != nil {
		return err
	}
	if to != 0 {
		d.To = to
	}
	return r.damaged(d, bad)
}

// worthPassing is how many octets of entries make it worth while to look at a chunk's filter before it is read.
const worthPassing = 32 << 10

// passOver passes over the chunk at the reader's place if its filter says that there is nothing in it, and it is large enough
// to ask before it is read.
func (r *Reader) passOver(s segment) (bool, error) {
	f, err := r.l.o.Files.get(fileName(r.l.dir, s.base, segmentSuffix))
	if gone(err) {
		return true, r.vanished(s)
	}
	if err != nil {
		return false, err
	}
	defer r.l.o.Files.put(f)
	var buf headBuf
	h, bloom, err := readHead(f, r.pos, s.end.pos, &buf)
	switch {
	case isDamage(err):
		return false, nil // it will be found out when the chunk is read
	case err != nil:
		return false, err
	case h.Length < worthPassing || h.First != r.next || r.filter.Match(bloom):
		return false, nil
	}
	r.passed += uint64(h.Records)
	r.pos += h.Size()
	r.next = h.Next()
	r.aligned = false
	return true, nil
}

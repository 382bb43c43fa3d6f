package stream

import (
	"errors"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/warrenmq/warren/storage"
)

// The limits of segments (x-stream-max-segment-size-bytes, and what RabbitMQ fixes).
const (
	DefaultSegmentBytes  = 500_000_000
	MaxSegmentBytes      = 3_000_000_000
	DefaultSegmentChunks = 256_000
)

// Options are how a log is kept. The zero value has the defaults. SegmentBytes and SegmentChunks must be the same on all
// replicas, and for all of the log's life.
type Options struct {
	SegmentBytes  int64  // a segment that has as many octets is followed by another; 0: DefaultSegmentBytes
	SegmentChunks uint32 // the same for chunks; 0: DefaultSegmentChunks
	TailBytes     int64  // how much of what was appended last may stay in memory; 0: 1 MiB
	Memory        *Memory
	Files         *Files // of the file system that the log is on
}

// What a log answers.
var (
	// ErrBroken is of a log that takes nothing any more: a sync failed, or what was synced is missing. It must be opened anew.
	ErrBroken = errors.New("stream: the log is broken")
	// ErrClosed is of a closed log.
	ErrClosed = errors.New("stream: the log is closed")
)

// Log is a stream's chunks on disk. Append, Cut, Rewind and Close are called by one goroutine at a time; everything else may be
// called at any time.
type Log struct {
	fs  storage.FS
	dir string
	o   Options
	id  uint64 // in o.Memory

	blockSize atomic.Int64 // octets of the block that was read last

	syncing sync.Mutex // held by Sync; taken before mu

	mu      sync.Mutex // guards what follows; not held during I/O. Order: mu, then the mutexes of Memory and Files
	segs    []*segment // ascending; a slice that readers have is never changed
	first   uint64
	next    uint64
	readers []*Reader  // that are not closed
	tails   []*block   // ascending, may be gone
	tailed  int64      // octets of tails
	cut     []*segment // their files are still there
	marked  uint64     // the first offset that is written down
	names   bool       // files were made since the directory was synced
	damage  []Damage
	broken  error
	closed  bool
	refused int64 // position in the newest segment behind which a failed write may have left something; 0: nowhere
}

// SegmentInfo tells of a segment.
type SegmentInfo struct {
	First, Next uint64 // Next is the offset behind it
	Size        int64  // octets
	LastTime    int64  // of its last chunk, milliseconds since 1970; without chunks the least int64
	MaxTime     int64  // the greatest of its chunks
}

// First is the oldest offset, and Next the one that comes next; they are equal in an empty log.
func (l *Log) First() uint64 { first, _ := l.Range(); return first }

// Next is the offset that the next record gets.
func (l *Log) Next() uint64 { _, next := l.Range(); return next }

// Range is First and Next of one moment.
func (l *Log) Range() (first, next uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first, l.next
}

// Size is the length of all segments in octets, headers included.
func (l *Log) Size() (n int64) {
	for _, s := range l.snapshot() {
		n += s.end.pos
	}
	return n
}

// Err is why the log takes nothing any more, nil if it does.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// Count is how many segments there are.
func (l *Log) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.segs)
}

// Segments tells of all segments, the oldest first.
func (l *Log) Segments() []SegmentInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	infos := make([]SegmentInfo, len(l.segs))
	for i, s := range l.segs {
		infos[i] = SegmentInfo{First: s.base, Next: s.end.offset, Size: s.end.pos, LastTime: s.end.last, MaxTime: s.end.max}
	}
	return infos
}

// LastTime is the time of the last chunk in milliseconds since 1970, false in an empty log.
func (l *Log) LastTime() (int64, bool) {
	segs := l.Segments()
	for i := len(segs) - 1; i >= 0; i-- {
		if segs[i].First < segs[i].Next {
			return segs[i].LastTime, true
		}
	}
	return 0, false
}

// snapshot is the state of all segments at one moment.
func (l *Log) snapshot() []segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	segs := make([]segment, len(l.segs))
	for i, s := range l.segs {
		segs[i] = *s
	}
	return segs
}

// segmentOf is the index of the segment that an offset belongs to: the last that begins at or before it. -1: none does.
func segmentOf(segs []*segment, offset uint64) int {
	return sort.Search(len(segs), func(i int) bool { return segs[i].base > offset }) - 1
}

// Append gives a chunk, as Builder.Finish made it, the next offsets, writes it to the page cache and makes it visible to
// readers. The bytes are copied. It returns the first offset. After an error nothing has happened, and the chunk can be tried
// again, unless the error is ErrBroken.
func (l *Log) Append(chunk []byte) (first uint64, err error) {
	c, err := viewChunk(chunk)
	if err != nil || len(c.Bytes) != len(chunk) {
		return 0, ErrChunk
	}
	seg, err := l.newest()
	if err != nil {
		return 0, err
	}
	f, err := l.o.Files.get(fileName(l.dir, seg.base, segmentSuffix))
	if err != nil {
		return 0, err
	}
	defer l.o.Files.put(f)
	if err := l.takeBack(f); err != nil {
		return 0, err
	}
	from := seg.end
	c.First = from.offset
	t := l.tailFor(seg.base, from.pos, len(chunk))
	at := from.pos - t.start
	room := t.buf[at : at+int64(len(chunk))]
	copy(room, chunk)
	place(room, c.First)
	if _, err := f.WriteAt(room, from.pos); err != nil {
		l.o.Memory.release(t)
		l.mu.Lock()
		l.refused = from.pos
		l.mu.Unlock()
		return 0, fmt.Errorf("stream: append: %w", err)
	}
	l.mu.Lock()
	t.n.Store(at + int64(len(chunk)))
	seg.end = from.after(c.Header)
	seg.index.add(seg.end)
	l.next = seg.end.offset
	l.tailed += int64(len(chunk))
	l.shortenTail()
	l.mu.Unlock()
	l.o.Memory.release(t)
	return c.First, nil
}

// newest is the segment to append to.
func (l *Log) newest() (*segment, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, ErrClosed
	case l.broken != nil:
		return nil, l.broken
	}
	if n := len(l.segs); n > 0 {
		if s := l.segs[n-1]; s.end.pos < l.o.SegmentBytes && s.end.chunks < l.o.SegmentChunks {
			return s, nil
		}
	}
	base := l.next
	l.mu.Unlock()
	err := l.create(base)
	l.mu.Lock()
	if err != nil {
		return nil, fmt.Errorf("stream: new segment: %w", err)
	}
	s := &segment{base: base, end: startOf(base)}
	s.index.add(s.end)
	l.segs = append(l.segs[:len(l.segs):len(l.segs)], s)
	l.names, l.refused = true, 0
	return s, nil
}

// create makes the file of a segment.
func (l *Log) create(base uint64) error {
	name := fileName(l.dir, base, segmentSuffix)
	f, err := l.o.Files.create(name)
	if err != nil {
		return err
	}
	defer l.o.Files.put(f)
	if _, err := f.WriteAt(appendFileHeader(nil, segmentMagic, base), 0); err != nil {
		l.o.Files.forget(name)
		return errors.Join(err, l.fs.Remove(name))
	}
	return nil
}

// takeBack removes what a failed write left in the newest segment.
func (l *Log) takeBack(f *openFile) error {
	l.mu.Lock()
	pos := l.refused
	l.mu.Unlock()
	if pos == 0 {
		return nil
	}
	err := f.Truncate(pos)
	if err == nil {
		err = f.SyncData() // or it could be taken for a chunk after a power cut
	}
	if err != nil {
		return fmt.Errorf("stream: taking a failed write back: %w", err)
	}
	l.mu.Lock()
	l.refused = 0
	l.mu.Unlock()
	return nil
}

// tailFor is a pinned block with room for size octets at a position.
func (l *Log) tailFor(base uint64, pos int64, size int) *block {
	want := size
	if n := len(l.tails); n > 0 { // nobody else changes it
		t := l.tails[n-1]
		if t.base == base && t.start+t.n.Load() == pos && l.o.Memory.hold(t) {
			if int64(len(t.buf))-t.n.Load() >= int64(size) {
				return t
			}
			want = max(size, min(2*len(t.buf), 256<<10)) // busy streams have few and large ones
			l.o.Memory.release(t)
		}
	}
	t := l.o.Memory.tail(base, pos, want)
	l.mu.Lock()
	l.tails = append(l.tails, t)
	l.mu.Unlock()
	return t
}

// shortenTail forgets the oldest tails above TailBytes. The lock is held.
func (l *Log) shortenTail() {
	n := 0
	for n < len(l.tails)-1 && l.tailed-l.tails[n].n.Load() >= l.o.TailBytes {
		l.tailed -= l.tails[n].n.Load()
		l.o.Memory.drop(l.tails[n])
		l.tails[n] = nil
		n++
	}
	if n > 0 {
		l.tails = append(l.tails[:0], l.tails[n:]...)
	}
}

// Cut removes whole segments below an offset, and never the newest: what is below the first segment that has the offset, or
// anything behind it, is gone for readers at once, and on disk with the next Sync. An offset at or below First changes nothing.
func (l *Log) Cut(first uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := segmentOf(l.segs, first)
	if n < 0 || l.closed || l.segs[n].base <= l.first {
		return
	}
	l.cut = append(l.cut, l.segs[:n]...)
	l.segs = l.segs[n:len(l.segs):len(l.segs)]
	l.first = l.segs[0].base
	var left []Damage
	for _, d := range l.damage {
		if d.To > l.first {
			left = append(left, d)
		}
	}
	l.damage = left
	for len(l.tails) > 0 && l.tails[0].base < l.first {
		l.tailed -= l.tails[0].n.Load()
		l.o.Memory.drop(l.tails[0])
		l.tails = l.tails[1:]
	}
}

// Damage is what cannot be read: offsets from From up to, without, To.
type Damage struct {
	From, To uint64
	File     string
	Reason   string
}

// Damage tells of all damage that was found when the log was opened, the oldest first, and then of what was noted. Damage within
// chunks is found by those who read them.
func (l *Log) Damage() []Damage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Damage(nil), l.damage...)
}

// Close frees what the log has in memory. It does not sync. Readers get ErrClosed.
func (l *Log) Close() {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	for _, t := range l.tails {
		l.o.Memory.drop(t)
	}
	l.tails = nil
	for _, s := range append(l.cut, l.segs...) {
		l.o.Memory.forget(l.id, s.base)
		l.o.Files.forget(fileName(l.dir, s.base, segmentSuffix))
		l.o.Files.forget(fileName(l.dir, s.base, indexSuffix))
	}
}

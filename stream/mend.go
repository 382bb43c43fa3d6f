package stream

import (
	"errors"
	"fmt"
	"slices"
)

// maxNoted is how many places of damage a log remembers; what is beyond is found again.
const maxNoted = 100

// ErrBehind says that the other log has less than is to be mended.
var ErrBehind = errors.New("stream: the other log does not have it")

// Note remembers damage that somebody found, until Mend or Cut has it go. It reports whether nothing was known of it.
func (l *Log) Note(d Damage) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := func(x Damage) bool { return x.From < d.To && d.From < x.To }
	if d.To <= l.first || len(l.damage) >= maxNoted || slices.ContainsFunc(l.damage, known) {
		return false
	}
	l.damage = append(l.damage, d)
	return true
}

// Octets gives those of the same log elsewhere, as Log.Octets does. They are good until the next call.
type Octets func(base uint64, pos int64) ([]byte, error)

// Mend makes good damage of a log that goes on, from another replica that has these segments. What is sound here stays as it is:
// each segment in which the damage lies is checked chunk by chunk, and what is not sound, or missing, is asked for and written to
// its place. It may be called while the log is appended to and read, by one goroutine at a time; readers see chunks only when they
// are whole. Without an error the damage is gone, and will be in no file after the next Sync.
func (l *Log) Mend(d Damage, segs []SegmentInfo, octets Octets) error {
	if len(segs) == 0 || segs[len(segs)-1].Next < d.To {
		return ErrBehind
	}
	if segs[0].First > max(d.From, l.First()) { // retention removed it there, and will here
		return ErrBehind
	}
	for _, s := range segs {
		if s.Next > d.From && s.First < d.To {
			if err := l.mendSegment(s, octets); err != nil {
				return fmt.Errorf("stream: mend %s: %w", fileName(l.dir, s.First, segmentSuffix), err)
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.damage = slices.DeleteFunc(l.damage, func(x Damage) bool { return d.From <= x.From && x.To <= d.To })
	return nil
}

// mendSegment makes one segment whole, up to where the log has it.
func (l *Log) mendSegment(want SegmentInfo, octets Octets) error {
	base, end, limit := want.First, want.Next, int64(0)
	l.mu.Lock()
	if n := len(l.segs); n > 0 && l.segs[n-1].base == base { // more may be appended meanwhile
		end, limit = l.segs[n-1].end.offset, l.segs[n-1].end.pos
	} else if n == 0 || base > l.segs[n-1].base {
		end = 0 // behind the end: that is no damage
	}
	closed, first := l.closed, l.first
	l.mu.Unlock()
	switch {
	case closed:
		return ErrClosed
	case base < first || end == 0:
		return nil
	case want.Next < end:
		return ErrBehind
	}
	name := fileName(l.dir, base, segmentSuffix)
	if limit == 0 {
		l.o.Files.forget(name) // it may be open, and have no name any more
	}
	made, err := l.ensure(base)
	if err != nil {
		return err
	}
	f, err := l.o.Files.get(name)
	if err != nil {
		return err
	}
	defer l.o.Files.put(f)
	index := index{}
	index.add(startOf(base))
	b := startOf(base)
	for b.offset < end {
		size := limit
		if size == 0 {
			if size, err = f.Size(); err != nil {
				return err
			}
		}
		if b, err = scan(f, b, size, index.add); err != nil {
			return err
		}
		if b.offset >= end {
			break
		}
		more, err := octets(base, b.pos)
		if err != nil {
			return err
		}
		if b, err = l.patch(f, b, end, more, index.add); err != nil {
			return err
		}
	}
	if b.offset != end {
		return fmt.Errorf("%w: it ends at offset %d, not at %d", ErrChunk, b.offset, end)
	}
	if limit == 0 {
		err = f.Truncate(b.pos) // what is behind is not of it
	}
	if err = errors.Join(err, f.SyncData()); err == nil && made {
		err = l.fs.SyncDir(l.dir)
	}
	if err != nil {
		return err
	}
	return l.mended(b, base, index)
}

// ensure sees to it that a segment has a file with a header. made: there was none.
func (l *Log) ensure(base uint64) (made bool, err error) {
	f, err := l.o.Files.get(fileName(l.dir, base, segmentSuffix))
	if gone(err) {
		return true, l.create(base)
	}
	if err != nil {
		return false, err
	}
	defer l.o.Files.put(f)
	if err = checkFileHeader(f, segmentMagic, base); err == errHeader {
		_, err = f.WriteAt(appendFileHeader(nil, segmentMagic, base), 0)
	}
	return false, err
}

// patch writes chunks to their place, those before end, and returns the boundary behind them.
func (l *Log) patch(f *openFile, b boundary, end uint64, octets []byte, found func(boundary)) (boundary, error) {
	at, n := b, 0
	for n < len(octets) && b.offset < end {
		c, err := ParseChunk(octets[n:])
		if err != nil || c.First != b.offset {
			return b, errors.Join(ErrChunk, err)
		}
		n += int(c.Size())
		b = b.after(c.Header)
		found(b)
	}
	if n == 0 {
		return b, ErrBehind
	}
	_, err := f.WriteAt(octets[:n], at.pos)
	return b, err
}

// mended has the log know a segment as its file is now.
func (l *Log) mended(end boundary, base uint64, x index) error {
	l.o.Memory.forget(l.id, base)
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	i := segmentOf(l.segs, base)
	known := i >= 0 && l.segs[i].base == base
	switch {
	case l.closed:
		return ErrClosed
	case base < l.first: // it was cut meanwhile
		name := fileName(l.dir, base, segmentSuffix)
		l.o.Files.forget(name)
		if err := l.fs.Remove(name); err != nil && !gone(err) {
			return err
		}
		return nil
	case known && (i == len(l.segs)-1 || l.segs[i].end.offset == end.offset):
		return nil
	}
	s := &segment{base: base, end: end, index: x} // the next Sync makes its index anew
	segs := slices.Clone(l.segs)
	if known {
		segs[i] = s
	} else {
		segs = slices.Insert(segs, i+1, s)
	}
	l.segs = segs
	return nil
}

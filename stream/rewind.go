package stream

import (
	"errors"
	"fmt"
	"io/fs"
)

// Rewind removes what lies behind an offset, where a chunk must end, and has the log go on there. It is for a start: what a
// log has and a slot's record does not know will be appended again. It also has a log that lost something that was synced go
// on with what it has. It syncs. There must be no readers.
func (l *Log) Rewind(next uint64) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if err := l.rewind(next); err != nil {
		return fmt.Errorf("stream: rewind %s to %d: %w", l.dir, next, err)
	}
	return nil
}

func (l *Log) rewind(next uint64) error {
	l.mu.Lock()
	segs, first, end, closed := l.segs, l.first, l.next, l.closed
	l.mu.Unlock()
	if closed {
		return ErrClosed
	}
	if next < first || next > end {
		return ErrChunk
	}
	i := segmentOf(segs, next)
	if i < 0 && len(segs) > 0 { // all is gone but what is missing
		return ErrChunk
	}
	if i >= 0 {
		b, err := l.seekIn(*segs[i], func(b boundary) bool { return b.offset <= next }, func(b boundary, h Header) bool { return h.Next() > next })
		if err != nil {
			return err
		}
		if b.offset != next {
			return ErrChunk
		}
		if err := l.shorten(segs[i], b); err != nil {
			return err
		}
	}
	for j := len(segs) - 1; j > i; j-- {
		if err := l.discard(segs[j].base); err != nil {
			return err
		}
	}
	if err := l.strayIndexes(next); err != nil {
		return err
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.tails {
		l.o.Memory.drop(t)
	}
	l.tails, l.tailed, l.refused, l.broken = nil, 0, 0, nil
	l.segs, l.next = segs[:i+1:i+1], next
	return nil
}

// shorten ends a segment at a boundary, and has its index be made anew.
func (l *Log) shorten(s *segment, end boundary) error {
	x := index{}
	x.add(startOf(s.base))
	if _, err := l.seekIn(segment{base: s.base, end: end}, func(boundary) bool { return false }, func(b boundary, h Header) bool {
		x.add(b.after(h))
		return false
	}); err != nil {
		return err
	}
	if err := l.discardFile(fileName(l.dir, s.base, indexSuffix)); err != nil { // it would vouch for what goes
		return err
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return err
	}
	f, err := l.o.Files.get(fileName(l.dir, s.base, segmentSuffix))
	if err != nil {
		return err
	}
	defer l.o.Files.put(f)
	if err := f.Truncate(end.pos); err != nil {
		return err
	}
	if err := f.SyncData(); err != nil {
		return err
	}
	l.o.Memory.forget(l.id, s.base)
	l.mu.Lock()
	defer l.mu.Unlock()
	s.end, s.synced, s.index = end, 0, x
	return nil
}

func (l *Log) discard(base uint64) error {
	l.o.Memory.forget(l.id, base)
	return errors.Join(l.discardFile(fileName(l.dir, base, indexSuffix)), l.discardFile(fileName(l.dir, base, segmentSuffix)))
}

func (l *Log) discardFile(name string) error {
	l.o.Files.forget(name)
	if err := l.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// strayIndexes removes indexes of segments that are missing at the end, and segments whose headers are damaged there.
func (l *Log) strayIndexes(next uint64) error {
	names, err := l.fs.List(l.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if base, suffix, ok := parseName(name); ok && suffix != firstSuffix && base >= next {
			if i := segmentOf(l.segs, base); i >= 0 && l.segs[i].base == base && base == next {
				continue // the segment that goes on here, empty
			}
			if err := l.discardFile(fileName(l.dir, base, suffix)); err != nil {
				return err
			}
		}
	}
	return nil
}

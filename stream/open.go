package stream

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/warrenmq/warren/storage"
)

// Report tells what Open found.
type Report struct {
	Torn    int64    // octets behind the last sync that were not whole, and were cut off
	Removed []string // files that were no part of the log: made before a power cut, or removed before
	Rebuilt []string // indexes that are made anew from their segments
	Damage  []Damage // what cannot be read
	Lost    bool     // something that was synced is missing at the end: the log takes nothing before a Rewind
	Scanned int64    // octets that were read to find the end
}

// opening is a log while it is opened.
type opening struct {
	*Log
	report Report
	bases  []uint64
	index  map[uint64]boundary // last boundaries, of those segments that have one
	counts map[uint64]int      // how many they have
	files  map[string]bool
	first  uint64 // from the marker; without one a log begins at 0
}

// Open opens the log in a directory, which is made if need be. It reads what was not synced, and the indexes' ends. What it
// cannot read in the middle it reports, keeps, and gives nobody; a tail that is not whole it cuts off. The error is a failure
// to read or write, or ErrVersion.
func Open(fsys storage.FS, dir string, o Options) (*Log, Report, error) {
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = DefaultSegmentBytes
	}
	o.SegmentBytes = min(o.SegmentBytes, MaxSegmentBytes)
	if o.SegmentChunks == 0 {
		o.SegmentChunks = DefaultSegmentChunks
	}
	if o.TailBytes <= 0 {
		o.TailBytes = 1 << 20
	}
	if o.Memory == nil {
		o.Memory = NewMemory(0)
	}
	if o.Files == nil {
		o.Files = NewFiles(fsys, 0)
	}
	p := opening{
		Log:    &Log{fs: fsys, dir: dir, o: o, id: o.Memory.logID()},
		index:  map[uint64]boundary{},
		counts: map[uint64]int{},
		files:  map[string]bool{},
	}
	if err := p.open(); err != nil {
		return nil, p.report, fmt.Errorf("stream: open %s: %w", dir, err)
	}
	p.report.Damage = p.Damage()
	return p.Log, p.report, nil
}

func (p *opening) open() error {
	if err := p.list(); err != nil {
		return err
	}
	frontier := -1 // the last segment of which something was synced
	for i, base := range p.bases {
		if err := p.readIndex(base); err != nil {
			return err
		}
		if p.counts[base] > 0 {
			frontier = i
		}
	}
	next := p.first
	for i, base := range p.bases {
		if i > frontier && base != next {
			return p.tear(i, next) // a name that outlived what should be before it
		}
		s, whole, err := p.segment(base, i >= frontier)
		if err != nil {
			return err
		}
		if s == nil {
			if i > frontier {
				return p.tear(i, next)
			}
			continue // a hole; what follows shows where it ends
		}
		if base > next {
			p.damaged(next, base, s.base, "missing, or its header is damaged")
		}
		if base < next {
			return fmt.Errorf("%s: %w: it begins before the one before ends", fileName(p.dir, base, segmentSuffix), ErrChunk)
		}
		p.segs = append(p.segs, s)
		next = s.end.offset
		if !whole && i >= frontier {
			return p.tear(i+1, next)
		}
	}
	p.finish(next)
	return nil
}

func (p *opening) finish(next uint64) {
	p.next, p.Log.first, p.Log.marked = next, p.first, p.first // what is missing at the start was not removed: readers shall see it
	for base, b := range p.index {                             // an index vouches for what was synced
		if b.offset > p.next {
			p.report.Lost = true
			p.broken = fmt.Errorf("%w: offsets from %d to %d are missing, index %s", ErrBroken, p.next, b.offset, fileName(p.dir, base, indexSuffix))
		}
	}
}

func (p *opening) damaged(from, to, base uint64, reason string) {
	p.damage = append(p.damage, Damage{From: from, To: to, File: fileName(p.dir, base, segmentSuffix), Reason: reason})
}

// list finds the files, and removes those that a marker says are gone.
func (p *opening) list() error {
	if err := p.fs.MkdirAll(p.dir); err != nil {
		return err
	}
	names, err := p.fs.List(p.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if base, suffix, ok := parseName(name); ok && suffix == firstSuffix {
			p.first = base // sorted: the last counts
		}
	}
	for _, name := range names {
		base, suffix, ok := parseName(name)
		if !ok || suffix != segmentSuffix && suffix != indexSuffix && suffix != firstSuffix {
			continue
		}
		if base < p.first {
			if err := p.remove(fileName(p.dir, base, suffix)); err != nil {
				return err
			}
			continue
		}
		p.files[fileName(p.dir, base, suffix)] = true
		if suffix == segmentSuffix {
			p.bases = append(p.bases, base)
		}
	}
	for _, name := range names { // indexes whose segments are missing say what was there
		if base, suffix, ok := parseName(name); ok && suffix == indexSuffix && base >= p.first && !slices.Contains(p.bases, base) {
			if err := p.readIndex(base); err != nil {
				return err
			}
			if p.counts[base] == 0 {
				if err := p.remove(fileName(p.dir, base, suffix)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (p *opening) remove(name string) error {
	p.report.Removed = append(p.report.Removed, name)
	if err := p.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (p *opening) readIndex(base uint64) error {
	name := fileName(p.dir, base, indexSuffix)
	if !p.files[name] {
		return nil
	}
	f, err := p.o.Files.get(name)
	if err != nil {
		return err
	}
	defer p.o.Files.put(f)
	n, last, err := readIndex(f, base)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if n > 0 {
		p.index[base], p.counts[base] = last, n
	}
	return nil
}

// segment finds out what a segment has. It is nil if its header is damaged. whole: nothing is behind the last chunk. If repair
// is true, that is cut off.
func (p *opening) segment(base uint64, repair bool) (s *segment, whole bool, err error) {
	name := fileName(p.dir, base, segmentSuffix)
	f, err := p.o.Files.get(name)
	if err != nil {
		return nil, false, err
	}
	defer p.o.Files.put(f)
	size, err := f.Size()
	if err != nil {
		return nil, false, err
	}
	switch err := checkFileHeader(f, segmentMagic, base); err {
	case nil:
	case errHeader:
		return nil, false, nil
	default:
		return nil, false, fmt.Errorf("%s: %w", name, err)
	}
	s = &segment{base: base, end: startOf(base)}
	if last, known := p.index[base]; known && last.pos <= size {
		s.end, s.synced = last, last.pos
		s.index.n = p.counts[base]
		if err := p.keep(s); err != nil {
			return nil, false, err
		}
	} else if known {
		s.index.add(s.end) // Less is there than was synced. What is there counts, and is left alone.
		repair = false
		p.report.Rebuilt = append(p.report.Rebuilt, fileName(p.dir, base, indexSuffix))
	} else {
		s.index.add(s.end)
		if p.files[fileName(p.dir, base, indexSuffix)] {
			p.report.Rebuilt = append(p.report.Rebuilt, fileName(p.dir, base, indexSuffix))
		}
	}
	from := s.end
	end, err := scan(f, from, size, s.index.add)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", name, err)
	}
	s.end = end
	p.report.Scanned += size - from.pos
	if repair && end.pos < size {
		p.report.Torn += size - end.pos
		if err := f.Truncate(end.pos); err != nil {
			return nil, false, err
		}
		if err := f.SyncData(); err != nil { // before anything is written over it
			return nil, false, err
		}
	}
	return s, end.pos == size, nil
}

// keep finds out whether the last boundary in the file stays: the end of a sync does only if it is not too close to the one
// before.
func (p *opening) keep(s *segment) error {
	s.index.keep, s.index.last = s.index.n, s.end.pos
	if s.index.n < 2 {
		return nil
	}
	f, err := p.o.Files.get(fileName(p.dir, s.base, indexSuffix))
	if err != nil {
		return err
	}
	defer p.o.Files.put(f)
	before, err := readBoundary(f, s.base, s.index.n-2)
	if err == nil && s.end.pos-before.pos < indexStep {
		s.index.keep, s.index.last = s.index.n-1, before.pos
	}
	if err == errBoundary {
		err = nil
	}
	return err
}

// tear ends the log at next, and removes segments from number i on: they were never synced, and something before them is
// missing.
func (p *opening) tear(i int, next uint64) error {
	p.finish(next)
	if i == len(p.bases) {
		return nil
	}
	for _, base := range p.bases[i:] {
		for _, suffix := range []string{segmentSuffix, indexSuffix} {
			name := fileName(p.dir, base, suffix)
			if !p.files[name] {
				continue
			}
			if f, err := p.o.Files.get(name); err == nil && suffix == segmentSuffix {
				size, err := f.Size()
				p.o.Files.put(f)
				if err != nil {
					return err
				}
				p.report.Torn += size
			} else if err == nil {
				p.o.Files.put(f)
			}
			p.o.Files.forget(name)
			if err := p.remove(name); err != nil {
				return err
			}
		}
	}
	return p.fs.SyncDir(p.dir)
}

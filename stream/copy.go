package stream

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/warrenmq/warren/storage"
)

// copyOctets is how many octets a View gives at once, unless one chunk has more.
const copyOctets = 256 << 10

// View is a log as it was at one moment: its segments stay until Release, also those that are cut meanwhile.
type View struct {
	First, Next uint64
	log         *Log
	segs        []segment
}

// View is the log as it is. Deleting its directory or a Rewind is not kept off.
func (l *Log) View() *View {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := &View{First: l.first, Next: l.next, log: l, segs: make([]segment, len(l.segs))}
	for i, s := range l.segs {
		v.segs[i] = segment{base: s.base, end: s.end}
	}
	l.views++
	return v
}

// Release lets the files go that were cut: the next Sync removes them. It is called once.
func (v *View) Release() {
	v.log.mu.Lock()
	defer v.log.mu.Unlock()
	v.log.views--
}

// Copy gives the files of the segments, the oldest first: begin with the offset at which one begins, and then its octets,
// which are good until octets returns. Every chunk is checked; one that is damaged is an error, and so is a hole.
func (v *View) Copy(begin func(base uint64) error, octets func(b []byte) error) error {
	next := v.First
	for i := range v.segs {
		s := &v.segs[i]
		if s.base != next {
			return fmt.Errorf("%s: offsets from %d to %d are missing: %w", v.log.dir, next, s.base, ErrChunk)
		}
		next = s.end.offset
		if err := begin(s.base); err != nil {
			return err
		}
		if err := v.segment(s, octets); err != nil {
			return err
		}
	}
	if next != v.Next {
		return fmt.Errorf("%s: offsets from %d to %d are missing: %w", v.log.dir, next, v.Next, ErrChunk)
	}
	return nil
}

func (v *View) segment(s *segment, octets func(b []byte) error) error {
	name := fileName(v.log.dir, s.base, segmentSuffix)
	f, err := v.log.fs.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	w := headers{f: f, limit: s.end.pos}
	buf := appendFileHeader(make([]byte, 0, copyOctets), segmentMagic, s.base)
	for b := startOf(s.base); b.pos < s.end.pos; {
		h, err := w.next(b)
		if err != nil {
			return fmt.Errorf("%s at %d: %w", name, b.pos, err)
		}
		if n := len(buf); n > 0 && int64(n)+h.Size() > copyOctets {
			if err := octets(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
		n := len(buf)
		if need := n + int(h.Size()); need > cap(buf) {
			buf = append(make([]byte, 0, need), buf...)
		}
		buf = buf[:n+int(h.Size())]
		if got, err := f.ReadAt(buf[n:], b.pos); got < len(buf)-n {
			return fmt.Errorf("%s at %d: %w", name, b.pos, errors.Join(ErrChunk, err))
		}
		if _, err := ParseChunk(buf[n:]); err != nil {
			return fmt.Errorf("%s at %d: %w", name, b.pos, err)
		}
		b = b.after(h)
	}
	return octets(buf)
}

// Copied makes the files of a log from what View.Copy gives. It is not safe for concurrent use.
type Copied struct {
	fs   storage.FS
	dir  string
	file storage.File // of the segment that is being written; nil: none is
	pos  int64
}

// NewCopied makes the directory of a log that begins at an offset. There must be no segments in it.
func NewCopied(fsys storage.FS, dir string, first uint64) (*Copied, error) {
	return &Copied{fs: fsys, dir: dir}, Begin(fsys, dir, first)
}

// Segment begins the segment of an offset.
func (c *Copied) Segment(base uint64) error {
	err := c.end()
	if err == nil {
		c.file, err = c.fs.Create(fileName(c.dir, base, segmentSuffix))
		c.pos = 0
	}
	return err
}

// Write appends to the segment.
func (c *Copied) Write(b []byte) error {
	if c.file == nil {
		return ErrChunk
	}
	n, err := c.file.WriteAt(b, c.pos)
	c.pos += int64(n)
	return err
}

func (c *Copied) end() error {
	if c.file == nil {
		return nil
	}
	err := errors.Join(c.file.SyncData(), c.file.Close())
	c.file = nil
	return err
}

// Close makes what was written durable. It is called after errors, too.
func (c *Copied) Close() error {
	return errors.Join(c.end(), c.fs.SyncDir(c.dir), c.fs.SyncDir(filepath.Dir(c.dir)))
}

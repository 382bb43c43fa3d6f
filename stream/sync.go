package stream

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/warrenmq/warren/storage"
)

// Sync makes durable what was appended and cut before it was called: the segments, the names of new ones, which is the first
// one, then the boundaries, which vouch for all that, and at last what is to be removed goes. When it fails the log is broken.
func (l *Log) Sync() error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	l.mu.Lock()
	if l.closed || l.broken != nil {
		err := l.broken
		if err == nil {
			err = ErrClosed
		}
		l.mu.Unlock()
		return err
	}
	var dirty []segment
	for _, s := range l.segs {
		if s.synced < s.end.pos {
			dirty = append(dirty, *s)
		}
	}
	names, cut, first := l.names, l.cut, l.first
	l.names = false
	l.mu.Unlock()
	err := l.sync(dirty, names, first)
	if err == nil {
		err = l.clear(cut)
	}
	if err != nil {
		l.mu.Lock()
		l.broken = fmt.Errorf("%w: %w", ErrBroken, err)
		l.mu.Unlock()
		return l.broken
	}
	return nil
}

func (l *Log) sync(dirty []segment, names bool, first uint64) error {
	for _, s := range dirty {
		if err := l.syncFile(fileName(l.dir, s.base, segmentSuffix)); err != nil {
			return err
		}
	}
	if names {
		if err := errors.Join(l.fs.SyncDir(l.dir), l.fs.SyncDir(filepath.Dir(l.dir))); err != nil {
			return err
		}
	}
	if first > l.marked { // only Sync uses it
		if err := mark(l.fs, l.dir, first); err != nil {
			return err
		}
		l.marked = first
	}
	made := false
	for _, s := range dirty {
		fresh, err := l.writeIndex(s)
		if err != nil {
			return err
		}
		made = made || fresh
	}
	if made {
		return l.fs.SyncDir(l.dir)
	}
	return nil
}

func (l *Log) syncFile(name string) error {
	f, err := l.o.Files.get(name)
	if err != nil {
		return err
	}
	defer l.o.Files.put(f)
	return f.SyncData()
}

// writeIndex brings the index of a segment, which is synced as far as s says, up to that. made: there was no file.
func (l *Log) writeIndex(s segment) (made bool, err error) {
	name := fileName(l.dir, s.base, indexSuffix)
	var f *openFile
	at := int64(fileHeader) + int64(s.index.keep)*boundaryLen
	var b []byte
	if s.index.n == 0 {
		made = true
		l.o.Files.forget(name)
		if err := l.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		if f, err = l.o.Files.create(name); err != nil {
			return false, err
		}
		at, b = 0, appendFileHeader(nil, indexMagic, s.base)
	} else if f, err = l.o.Files.get(name); err != nil {
		return false, err
	}
	defer l.o.Files.put(f)
	header := len(b)
	b, n := s.index.encode(b, s.base, s.end)
	if _, err := f.WriteAt(b, at); err != nil {
		return false, err
	}
	if err := f.SyncData(); err != nil {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := segmentOf(l.segs, s.base); i >= 0 && l.segs[i].base == s.base {
		l.segs[i].index.written(len(b)-header, n)
		l.segs[i].synced = s.end.pos
	}
	return made, nil
}

// clear removes the files of segments that were cut.
func (l *Log) clear(cut []*segment) error {
	for _, s := range cut {
		l.o.Memory.forget(l.id, s.base)
		for _, suffix := range []string{segmentSuffix, indexSuffix} {
			name := fileName(l.dir, s.base, suffix)
			l.o.Files.forget(name)
			if err := l.fs.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	l.mu.Lock()
	l.cut = l.cut[len(cut):]
	l.mu.Unlock()
	return nil
}

// mark writes down that offsets below first were removed.
func mark(fsys storage.FS, dir string, first uint64) error {
	name := fileName(dir, first, firstSuffix)
	f, err := fsys.Create(name)
	if err == nil {
		err = f.Close()
	} else if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	if err == nil {
		err = fsys.SyncDir(dir)
	}
	if err != nil {
		return err
	}
	names, err := fsys.List(dir)
	if err != nil {
		return err
	}
	for _, n := range names {
		if base, suffix, ok := parseName(n); ok && suffix == firstSuffix && base < first {
			if err := fsys.Remove(fileName(dir, base, firstSuffix)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Begin makes the directory of a log that has nothing yet and begins at an offset: for a replica that takes the files of
// another, whose oldest segment begins there. It syncs, and must not be called for a log that is open or has segments.
func Begin(fsys storage.FS, dir string, first uint64) error {
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	return errors.Join(mark(fsys, dir, first), fsys.SyncDir(filepath.Dir(dir)))
}

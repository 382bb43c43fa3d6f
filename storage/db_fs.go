package storage

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// pebbleFS is an FS as Pebble wants it, so that the DB meets the same disk as all other files: in tests one that loses
// what was not synced.
//
// Pebble ends the process when its log cannot be written. It does not hear of that: fail does, after which nothing that
// the DB commits counts, and the log goes nowhere.
type pebbleFS struct {
	fs   FS
	fail func(error)
}

// walCategory is how Pebble marks the files of its log.
const walCategory vfs.DiskWriteCategory = "pebble-wal"

// Create implements vfs.FS.
func (p pebbleFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := p.create(name)
	if category == walCategory {
		return p.newLog(name, f, err)
	}
	return newPebbleFile(name, f, err)
}

// create makes a file, in place of another if need be.
//
// A marker's name says which manifest counts. Pebble makes the new one, removes the old one, and then syncs the directory
// once, taking for granted that the changes of a directory reach the disk in their order. Not all file systems promise
// that: what is there already is made durable before the marker, and the marker before anything else.
func (p pebbleFS) create(name string) (f File, err error) {
	marker := strings.HasPrefix(filepath.Base(name), "marker.")
	if marker {
		if err := p.fs.SyncDir(filepath.Dir(name)); err != nil {
			return nil, err
		}
	}
	f, err = p.fs.Create(name)
	if errors.Is(err, fs.ErrExist) {
		if err = p.fs.Remove(name); err == nil {
			f, err = p.fs.Create(name)
		}
	}
	if err == nil && marker {
		if err = p.fs.SyncDir(filepath.Dir(name)); err != nil {
			f.Close()
			return nil, err
		}
	}
	return f, err
}

// newLog is newPebbleFile for a file of the log, which cannot fail.
func (p pebbleFS) newLog(name string, f File, err error) (vfs.File, error) {
	if err != nil {
		p.fail(err)
		f = nil
	}
	return &pebbleLogFile{pebbleFile{File: f, name: name}, p.fail, err != nil}, nil
}

// Open implements vfs.FS.
func (p pebbleFS) Open(name string, options ...vfs.OpenOption) (vfs.File, error) {
	f, err := p.fs.Open(name)
	return newPebbleFile(name, f, err, options...)
}

// OpenReadWrite implements vfs.FS.
func (p pebbleFS) OpenReadWrite(name string, _ vfs.DiskWriteCategory, options ...vfs.OpenOption) (vfs.File, error) {
	f, err := p.fs.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = p.fs.Create(name)
	}
	return newPebbleFile(name, f, err, options...)
}

// ReuseForWrite implements vfs.FS.
func (p pebbleFS) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	err := p.fs.Rename(from, to)
	var f File
	if err == nil {
		f, err = p.fs.Open(to)
	}
	if category == walCategory {
		return p.newLog(to, f, err)
	}
	return newPebbleFile(to, f, err)
}

// OpenDir implements vfs.FS.
func (p pebbleFS) OpenDir(name string) (vfs.File, error) { return &pebbleDir{p, name}, nil }

// Link implements vfs.FS. Only checkpoints and ingested tables want links, and we have neither.
func (pebbleFS) Link(from, to string) error {
	return &fs.PathError{Op: "link", Path: to, Err: errors.ErrUnsupported}
}

// Remove implements vfs.FS.
func (p pebbleFS) Remove(name string) error { return p.fs.Remove(name) }

// RemoveAll implements vfs.FS.
func (p pebbleFS) RemoveAll(name string) error {
	if names, err := p.fs.List(name); err == nil {
		for _, n := range names {
			if err := p.RemoveAll(filepath.Join(name, n)); err != nil {
				return err
			}
		}
	}
	if err := p.fs.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Rename implements vfs.FS.
func (p pebbleFS) Rename(from, to string) error { return p.fs.Rename(from, to) }

// MkdirAll implements vfs.FS.
func (p pebbleFS) MkdirAll(dir string, _ fs.FileMode) error { return p.fs.MkdirAll(dir) }

// Lock implements vfs.FS. Only files of the operating system can have other users.
func (p pebbleFS) Lock(name string) (io.Closer, error) {
	under := p.fs
	if r, ok := under.(roomyFS); ok {
		under = r.FS
	}
	if _, ok := under.(OS); ok {
		return vfs.Default.Lock(name)
	}
	return io.NopCloser(nil), nil
}

// List implements vfs.FS.
func (p pebbleFS) List(dir string) ([]string, error) { return p.fs.List(dir) }

// Stat implements vfs.FS.
func (p pebbleFS) Stat(name string) (vfs.FileInfo, error) {
	f, err := p.Open(name)
	if err != nil {
		if _, noDir := p.fs.List(name); noDir == nil {
			return pebbleInfo{name: filepath.Base(name), dir: true}, nil
		}
		return nil, err
	}
	defer f.Close()
	return f.Stat()
}

// PathBase implements vfs.FS.
func (pebbleFS) PathBase(path string) string { return filepath.Base(path) }

// PathJoin implements vfs.FS.
func (pebbleFS) PathJoin(elem ...string) string { return filepath.Join(elem...) }

// PathDir implements vfs.FS.
func (pebbleFS) PathDir(path string) string { return filepath.Dir(path) }

// GetDiskUsage implements vfs.FS.
func (p pebbleFS) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	free, err := p.fs.Free(path)
	return vfs.DiskUsage{AvailBytes: free, TotalBytes: free}, err
}

// Unwrap implements vfs.FS.
func (pebbleFS) Unwrap() vfs.FS { return nil }

// pebbleFile is a File with a place at which the next Read or Write goes on.
type pebbleFile struct {
	File
	name string
	at   int64
}

func newPebbleFile(name string, f File, err error, options ...vfs.OpenOption) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	p := &pebbleFile{File: f, name: name}
	for _, o := range options {
		o.Apply(p)
	}
	return p, nil
}

// Read implements vfs.File.
func (p *pebbleFile) Read(b []byte) (int, error) {
	n, err := p.ReadAt(b, p.at)
	p.at += int64(n)
	if n > 0 && err == io.EOF {
		err = nil
	}
	return n, err
}

// Write implements vfs.File.
func (p *pebbleFile) Write(b []byte) (int, error) {
	n, err := p.WriteAt(b, p.at)
	p.at += int64(n)
	return n, err
}

// Preallocate implements vfs.File: not at all.
func (*pebbleFile) Preallocate(int64, int64) error { return nil }

// Stat implements vfs.File.
func (p *pebbleFile) Stat() (vfs.FileInfo, error) {
	size, err := p.Size()
	if err != nil {
		return nil, err
	}
	return pebbleInfo{name: filepath.Base(p.name), size: size}, nil
}

// Sync implements vfs.File.
func (p *pebbleFile) Sync() error { return p.SyncData() }

// SyncTo implements vfs.File: it may do nothing, a Sync follows where it matters.
func (*pebbleFile) SyncTo(int64) (bool, error) { return false, nil }

// Prefetch implements vfs.File: the operating system reads ahead on its own.
func (*pebbleFile) Prefetch(int64, int64) error { return nil }

// Fd implements vfs.File.
func (*pebbleFile) Fd() uintptr { return vfs.InvalidFd }

// pebbleLogFile is a file of the log. After its first failure it keeps nothing, and says that all is well.
type pebbleLogFile struct {
	pebbleFile
	fail   func(error)
	failed bool
}

func (l *pebbleLogFile) try(do func() error) {
	if l.failed {
		return
	}
	if err := do(); err != nil {
		l.failed = true
		l.fail(err)
	}
}

// Write implements vfs.File.
func (l *pebbleLogFile) Write(b []byte) (int, error) {
	l.try(func() error {
		_, err := l.pebbleFile.Write(b)
		return err
	})
	return len(b), nil
}

// Sync implements vfs.File.
func (l *pebbleLogFile) Sync() error {
	l.try(func() error { return l.File.SyncData() })
	return nil
}

// SyncData implements vfs.File.
func (l *pebbleLogFile) SyncData() error { return l.Sync() }

// Stat implements vfs.File.
func (l *pebbleLogFile) Stat() (vfs.FileInfo, error) {
	if l.File == nil {
		return pebbleInfo{name: filepath.Base(l.name)}, nil
	}
	return l.pebbleFile.Stat()
}

// Close implements vfs.File.
func (l *pebbleLogFile) Close() error {
	if l.File != nil {
		l.File.Close()
	}
	return nil
}

// pebbleInfo describes a file. Nobody asks for more than the size.
type pebbleInfo struct {
	name string
	size int64
	dir  bool
}

func (i pebbleInfo) Name() string { return i.name }
func (i pebbleInfo) Size() int64  { return i.size }
func (i pebbleInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o750
	}
	return 0o640
}
func (pebbleInfo) ModTime() time.Time     { return time.Time{} }
func (i pebbleInfo) IsDir() bool          { return i.dir }
func (pebbleInfo) Sys() any               { return nil }
func (pebbleInfo) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }

// pebbleDir is a directory, opened to be synced.
type pebbleDir struct {
	fs   pebbleFS
	name string
}

// Sync implements vfs.File. That it failed only the DB hears, as for the log.
func (d *pebbleDir) Sync() error {
	if err := d.fs.fs.SyncDir(d.name); err != nil {
		d.fs.fail(err)
	}
	return nil
}

func (d *pebbleDir) SyncData() error { return d.Sync() }
func (*pebbleDir) Close() error      { return nil }

func (d *pebbleDir) no(op string) error {
	return &fs.PathError{Op: op, Path: d.name, Err: errors.ErrUnsupported}
}

func (d *pebbleDir) Read([]byte) (int, error)           { return 0, d.no("read") }
func (d *pebbleDir) ReadAt([]byte, int64) (int, error)  { return 0, d.no("read") }
func (d *pebbleDir) Write([]byte) (int, error)          { return 0, d.no("write") }
func (d *pebbleDir) WriteAt([]byte, int64) (int, error) { return 0, d.no("write") }
func (d *pebbleDir) Preallocate(int64, int64) error     { return nil }
func (d *pebbleDir) Stat() (vfs.FileInfo, error)        { return nil, d.no("stat") }
func (d *pebbleDir) SyncTo(int64) (bool, error)         { return false, nil }
func (d *pebbleDir) Prefetch(int64, int64) error        { return nil }
func (d *pebbleDir) Fd() uintptr                        { return vfs.InvalidFd }

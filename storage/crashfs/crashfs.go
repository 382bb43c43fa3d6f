// Package crashfs is a file system in memory for tests, which can do to a store what a power cut does to a disk: forget
// what was not synced, in part.
package crashfs

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"

	"github.com/warrenmq/warren/storage"
)

// FS implements storage.FS. Use New.
type FS struct {
	mu      sync.Mutex // guards what follows, and the files
	names   map[string]*file
	durable map[string]*file // names as the last syncs of their directories left them
	pending []rename         // changes of names since, in order
	dirs    map[string]bool
	fail    func(op, name string) error
	free    uint64
	syncs   int
}

// rename is a change of a name: to file, nil if it is gone.
type rename struct {
	name string
	file *file
}

// file is a file: what it holds, and what of it will surely be there after a power cut.
type file struct {
	data, synced []byte
	low, high    int // what may differ
}

// sector is what a disk writes as a whole.
const sector = 512

// New returns an empty file system.
func New() *FS {
	return &FS{names: map[string]*file{}, durable: map[string]*file{}, dirs: map[string]bool{}, free: 1 << 40}
}

// Fail has f asked before everything that changes the disk (create, write, truncate, rename, remove, sync, syncdir), which fails
// with the error it returns. nil: nothing fails any more.
func (d *FS) Fail(f func(op, name string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = f
}

// SetFree sets what Free returns.
func (d *FS) SetFree(n uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.free = n
}

// Syncs is how many files were synced.
func (d *FS) Syncs() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.syncs
}

// Crash returns the file system as it could be found after a power cut now: of the changes of names that were not synced
// the first few have been made, of unsynced contents some sectors. d stays as it is.
func (d *FS) Crash(r *rand.Rand) *FS {
	d.mu.Lock()
	defer d.mu.Unlock()
	after := New()
	maps.Copy(after.dirs, d.dirs)
	names := maps.Clone(d.durable)
	for _, p := range d.pending[:r.IntN(len(d.pending)+1)] {
		p.apply(names)
	}
	copies := map[*file]*file{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		f := names[name]
		if copies[f] == nil {
			copies[f] = f.crash(r)
		}
		after.names[name], after.durable[name] = copies[f], copies[f]
	}
	return after
}

func (p rename) apply(names map[string]*file) {
	if p.file == nil {
		delete(names, p.name)
	} else {
		names[p.name] = p.file
	}
}

func (f *file) crash(r *rand.Rand) *file {
	data := slices.Clone(f.synced)
	written := r.IntN(3) // 0: nothing was, 1: some, 2: all
	if written > 0 && len(f.data) != len(f.synced) {
		data = resize(data, len(f.data))
	}
	for at := f.low / sector * sector; written > 0 && at < min(f.high, len(data)); at += sector {
		if written == 2 || r.IntN(2) == 0 {
			end := min(at+sector, len(data))
			copy(data[at:end], f.data[min(at, len(f.data)):min(end, len(f.data))])
		}
	}
	return &file{data: data, synced: slices.Clone(data), low: len(data)}
}

func resize(b []byte, size int) []byte {
	if size <= len(b) {
		return b[:size]
	}
	return append(b, make([]byte, size-len(b))...)
}

// do runs a change, unless it is to fail.
func (d *FS) do(op, name string, change func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		if err := d.fail(op, name); err != nil {
			return &fs.PathError{Op: op, Path: name, Err: err}
		}
	}
	return change()
}

func (d *FS) rename(name string, f *file) {
	p := rename{name, f}
	p.apply(d.names)
	d.pending = append(d.pending, p)
}

func missing(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}

// Create implements storage.FS.
func (d *FS) Create(name string) (storage.File, error) {
	name = filepath.Clean(name)
	f := new(file)
	err := d.do("create", name, func() error {
		if d.names[name] != nil {
			return &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
		}
		d.rename(name, f)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &handle{d, name, f}, nil
}

// Open implements storage.FS.
func (d *FS) Open(name string) (storage.File, error) {
	name = filepath.Clean(name)
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.names[name]
	if f == nil {
		return nil, missing("open", name)
	}
	return &handle{d, name, f}, nil
}

// List implements storage.FS.
func (d *FS) List(dir string) ([]string, error) {
	dir = filepath.Clean(dir)
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.dirs[dir] {
		return nil, missing("list", dir)
	}
	var names []string
	for name := range d.names {
		if filepath.Dir(name) == dir {
			names = append(names, filepath.Base(name))
		}
	}
	for name := range d.dirs {
		if name != dir && filepath.Dir(name) == dir {
			names = append(names, filepath.Base(name))
		}
	}
	slices.Sort(names)
	return names, nil
}

// MkdirAll implements storage.FS. Directories are there at once and for good.
func (d *FS) MkdirAll(dir string) error {
	return d.do("mkdir", dir, func() error {
		for dir = filepath.Clean(dir); !d.dirs[dir]; dir = filepath.Dir(dir) {
			d.dirs[dir] = true
		}
		return nil
	})
}

// Rename implements storage.FS.
func (d *FS) Rename(from, to string) error {
	from, to = filepath.Clean(from), filepath.Clean(to)
	return d.do("rename", from, func() error {
		f := d.names[from]
		if f == nil {
			return missing("rename", from)
		}
		d.rename(to, f)
		d.rename(from, nil)
		return nil
	})
}

// Remove implements storage.FS.
func (d *FS) Remove(name string) error {
	name = filepath.Clean(name)
	return d.do("remove", name, func() error {
		if d.names[name] == nil {
			return missing("remove", name)
		}
		d.rename(name, nil)
		return nil
	})
}

// SyncDir implements storage.FS.
func (d *FS) SyncDir(dir string) error {
	dir = filepath.Clean(dir)
	return d.do("syncdir", dir, func() error {
		d.pending = slices.DeleteFunc(d.pending, func(p rename) bool {
			if filepath.Dir(p.name) != dir {
				return false
			}
			p.apply(d.durable)
			return true
		})
		return nil
	})
}

// Free implements storage.FS.
func (d *FS) Free(string) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.free, nil
}

type handle struct {
	fs   *FS
	name string
	f    *file
}

func (h *handle) ReadAt(b []byte, at int64) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if at < 0 {
		return 0, errors.New("crashfs: negative offset")
	}
	if at >= int64(len(h.f.data)) {
		return 0, io.EOF
	}
	n := copy(b, h.f.data[at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (h *handle) WriteAt(b []byte, at int64) (int, error) {
	err := h.fs.do("write", h.name, func() error {
		f := h.f
		if end := int(at) + len(b); end > len(f.data) {
			f.data = resize(f.data, end)
		}
		copy(f.data[at:], b)
		f.low, f.high = min(f.low, int(at)), max(f.high, int(at)+len(b))
		return nil
	})
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

func (h *handle) Close() error { return nil }

func (h *handle) Size() (int64, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	return int64(len(h.f.data)), nil
}

func (h *handle) Truncate(size int64) error {
	return h.fs.do("truncate", h.name, func() error {
		f := h.f
		f.low, f.high = min(f.low, int(size)), max(f.high, int(size), len(f.data))
		f.data = resize(f.data, int(size))
		return nil
	})
}

func (h *handle) SyncData() error {
	return h.fs.do("sync", h.name, func() error {
		f := h.f
		h.fs.syncs++
		f.synced = resize(f.synced, len(f.data))
		if end := min(f.high, len(f.data)); f.low < end {
			copy(f.synced[f.low:end], f.data[f.low:end])
		}
		f.low, f.high = len(f.data), 0
		return nil
	})
}

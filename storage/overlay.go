package storage

import (
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
)

// Overlay is an FS that shows another one and keeps all changes in memory: what is started on it sees what it would see on
// the disk, and leaves no trace there. Meant for looking at a node's directory; what is written costs memory.
type Overlay struct {
	base FS

	mu    sync.Mutex              // guards what follows, and all overlayFiles; held for reads of base
	files map[string]*overlayFile // opened, made or, if nil, removed
	dirs  map[string]bool
}

// overlayPage is the unit in which changes are kept.
const overlayPage = 64 << 10

// overlayFile is a file that was opened or made.
type overlayFile struct {
	from  string // the file of base that it began as; "": none
	under int64  // octets of that which still show
	size  int64
	pages map[int64][]byte // by number; where there is one, base does not show
}

// NewOverlay makes an Overlay over a file system, which may go on being read by others.
func NewOverlay(base FS) *Overlay {
	return &Overlay{base: base, files: map[string]*overlayFile{}, dirs: map[string]bool{}}
}

// Create implements FS.
func (o *Overlay) Create(name string) (File, error) {
	name = filepath.Clean(name)
	o.mu.Lock()
	defer o.mu.Unlock()
	if f, err := o.find(name); err == nil && f != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrExist}
	}
	o.files[name] = &overlayFile{}
	return o.open(name, o.files[name])
}

// Open implements FS.
func (o *Overlay) Open(name string) (File, error) {
	name = filepath.Clean(name)
	o.mu.Lock()
	defer o.mu.Unlock()
	f, err := o.find(name)
	if err != nil {
		return nil, err
	}
	return o.open(name, f)
}

// find is the file of a name. The lock is held.
func (o *Overlay) find(name string) (*overlayFile, error) {
	if f, known := o.files[name]; f != nil {
		return f, nil
	} else if known {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	b, err := o.base.Open(name)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	size, err := b.Size()
	if err != nil {
		return nil, err
	}
	f := &overlayFile{from: name, under: size, size: size}
	o.files[name] = f
	return f, nil
}

func (o *Overlay) open(name string, f *overlayFile) (File, error) {
	h := &overlayHandle{o: o, name: name, f: f}
	if f.from != "" {
		var err error
		if h.base, err = o.base.Open(f.from); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// List implements FS.
func (o *Overlay) List(dir string) ([]string, error) {
	dir = filepath.Clean(dir)
	o.mu.Lock()
	defer o.mu.Unlock()
	names, err := o.base.List(dir)
	if err != nil && !o.dirs[dir] {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		f, known := o.files[filepath.Join(dir, name)]
		return known && f == nil
	})
	for path, f := range o.files {
		if f != nil && filepath.Dir(path) == dir {
			names = append(names, filepath.Base(path))
		}
	}
	for path := range o.dirs {
		if path != dir && filepath.Dir(path) == dir {
			names = append(names, filepath.Base(path))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// MkdirAll implements FS.
func (o *Overlay) MkdirAll(dir string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for dir = filepath.Clean(dir); !o.dirs[dir] && filepath.Dir(dir) != dir; dir = filepath.Dir(dir) {
		o.dirs[dir] = true
	}
	return nil
}

// Rename implements FS.
func (o *Overlay) Rename(from, to string) error {
	from, to = filepath.Clean(from), filepath.Clean(to)
	o.mu.Lock()
	defer o.mu.Unlock()
	f, err := o.find(from)
	if err != nil {
		return err
	}
	o.files[from], o.files[to] = nil, f
	return nil
}

// Remove implements FS.
func (o *Overlay) Remove(name string) error {
	name = filepath.Clean(name)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.dirs[name] {
		delete(o.dirs, name)
		return nil
	}
	if _, err := o.find(name); err != nil {
		return err
	}
	o.files[name] = nil
	return nil
}

// SyncDir implements FS.
func (o *Overlay) SyncDir(string) error { return nil }

// Free implements FS.
func (o *Overlay) Free(dir string) (uint64, error) { return o.base.Free(dir) }

type overlayHandle struct {
	o    *Overlay
	name string
	f    *overlayFile
	base File // nil: the file was made here
}

func (h *overlayHandle) ReadAt(b []byte, off int64) (n int, err error) {
	h.o.mu.Lock()
	defer h.o.mu.Unlock()
	for n < len(b) {
		at := off + int64(n)
		if at >= h.f.size {
			return n, io.EOF
		}
		page, in := at/overlayPage, at%overlayPage
		part := b[n:]
		if left := min(overlayPage-in, h.f.size-at); int64(len(part)) > left {
			part = part[:left]
		}
		if changed := h.f.pages[page]; changed != nil {
			copy(part, changed[in:])
		} else if err := h.under(part, at); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// under reads what base has there; what it does not have is zero. The lock is held.
func (h *overlayHandle) under(b []byte, off int64) error {
	n := int(max(0, min(int64(len(b)), h.f.under-off)))
	clear(b[n:])
	if n == 0 || h.base == nil {
		clear(b[:n])
		return nil
	}
	got, err := h.base.ReadAt(b[:n], off)
	if got == n {
		return nil
	}
	return err
}

func (h *overlayHandle) WriteAt(b []byte, off int64) (n int, err error) {
	h.o.mu.Lock()
	defer h.o.mu.Unlock()
	for n < len(b) {
		at := off + int64(n)
		page, in := at/overlayPage, at%overlayPage
		changed := h.f.pages[page]
		if changed == nil {
			changed = make([]byte, overlayPage)
			if err := h.under(changed, page*overlayPage); err != nil {
				return n, err
			}
			if h.f.pages == nil {
				h.f.pages = map[int64][]byte{}
			}
			h.f.pages[page] = changed
		}
		n += copy(changed[in:], b[n:])
		h.f.size = max(h.f.size, off+int64(n))
	}
	return n, nil
}

// Close implements File.
func (h *overlayHandle) Close() error {
	if h.base != nil {
		return h.base.Close()
	}
	return nil
}

// Size implements File.
func (h *overlayHandle) Size() (int64, error) {
	h.o.mu.Lock()
	defer h.o.mu.Unlock()
	return h.f.size, nil
}

// Truncate implements File.
func (h *overlayHandle) Truncate(size int64) error {
	h.o.mu.Lock()
	defer h.o.mu.Unlock()
	h.f.under = min(h.f.under, size)
	for page, changed := range h.f.pages {
		switch start := page * overlayPage; {
		case start >= size:
			delete(h.f.pages, page)
		case start+overlayPage > size:
			clear(changed[size-start:])
		}
	}
	h.f.size = size
	return nil
}

// SyncData implements File.
func (h *overlayHandle) SyncData() error { return nil }

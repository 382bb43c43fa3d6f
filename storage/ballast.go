package storage

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"syscall"
)

// ballastName is the ballast's file in the data directory.
const ballastName = "ballast"

// Ballast is a file that takes up room on a disk so that there is some when there is none: it is given up for records of
// what was consumed, purged or deleted, which make room in the end. All methods may be called concurrently. The methods of
// a nil Ballast do nothing.
type Ballast struct {
	fs   FS
	dir  string
	size int64

	mu   sync.Mutex // held while the file is made or removed
	held bool
	gone bool // given up, and not made again
}

// OpenBallast finds the ballast of a data directory. A file of another size than wanted is removed; Fill makes one.
func OpenBallast(fsys FS, dir string, size int64) (*Ballast, error) {
	b := &Ballast{fs: fsys, dir: dir, size: size}
	f, err := fsys.Open(b.name())
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return nil, err
	}
	n, err := f.Size()
	f.Close()
	if b.held = err == nil && n == size && size > 0; b.held {
		return b, nil
	}
	return b, b.remove()
}

func (b *Ballast) name() string { return filepath.Join(b.dir, ballastName) }

func (b *Ballast) remove() error {
	if err := b.fs.Remove(b.name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return b.fs.SyncDir(b.dir)
}

// Size is how many octets it takes while it is there.
func (b *Ballast) Size() int64 {
	if b == nil {
		return 0
	}
	return b.size
}

// Missing is how many octets it will take again, because it was given up: they are free and not to be counted on.
func (b *Ballast) Missing() int64 {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return b.size
	}
	return 0
}

// Held reports whether there is something to give up.
func (b *Ballast) Held() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}

// GiveUp removes the file, and reports whether that made room.
func (b *Ballast) GiveUp() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.held {
		return false
	}
	b.held, b.gone = false, true
	return b.remove() == nil
}

// Fill makes the file if it is not there. Call it when there is room: it writes and syncs all of it. If that fails, nothing is
// left.
func (b *Ballast) Fill() error {
	if b == nil || b.size <= 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held {
		return nil
	}
	f, err := b.fs.Create(b.name())
	if errors.Is(err, fs.ErrExist) { // it could not be removed before
		if err = b.remove(); err == nil {
			f, err = b.fs.Create(b.name())
		}
	}
	if err != nil {
		return err
	}
	if err = b.write(f); err == nil {
		err = b.fs.SyncDir(b.dir)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		_ = b.remove() // the next attempt tries again
		return err
	}
	b.held, b.gone = true, false
	return nil
}

// write fills the file with octets that no file system makes smaller.
func (b *Ballast) write(f File) error {
	buf := make([]byte, min(b.size, 1<<20))
	source := rand.NewChaCha8([32]byte{})
	for off := int64(0); off < b.size; off += int64(len(buf)) {
		source.Read(buf) // never fails
		if _, err := f.WriteAt(buf[:min(int64(len(buf)), b.size-off)], off); err != nil {
			return err
		}
	}
	return f.SyncData()
}

// IsNoSpace reports whether an error says that the disk is full, or the user's part of it.
func IsNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// IsDiskFault reports whether an error says that the disk does not work: it cannot be read or written, whatever is on it.
func IsDiskFault(err error) bool {
	for _, fault := range []error{syscall.EIO, syscall.EROFS, syscall.ENXIO, syscall.ENODEV, syscall.ESTALE, syscall.ETIMEDOUT} {
		if errors.Is(err, fault) {
			return true
		}
	}
	return false
}

// Roomy is an FS that, where fs has no room for a file or for what is written to it, calls makeRoom and tries once more if that
// returns true. makeRoom may be called concurrently.
func Roomy(fs FS, makeRoom func() bool) FS { return roomyFS{fs, makeRoom} }

type roomyFS struct {
	FS
	makeRoom func() bool
}

func (r roomyFS) try(do func() error) error {
	err := do()
	if err != nil && IsNoSpace(err) && r.makeRoom() {
		err = do()
	}
	return err
}

// Create implements FS.
func (r roomyFS) Create(name string) (f File, err error) {
	err = r.try(func() error {
		f, err = r.FS.Create(name)
		return err
	})
	return r.file(f), err
}

// Open implements FS.
func (r roomyFS) Open(name string) (File, error) {
	f, err := r.FS.Open(name)
	return r.file(f), err
}

// Rename implements FS.
func (r roomyFS) Rename(from, to string) error {
	return r.try(func() error { return r.FS.Rename(from, to) })
}

func (r roomyFS) file(f File) File {
	if f == nil {
		return nil
	}
	return roomyFile{f, r}
}

type roomyFile struct {
	File
	fs roomyFS
}

// WriteAt implements File. What failed in the middle is written from its beginning.
func (f roomyFile) WriteAt(b []byte, off int64) (n int, err error) {
	err = f.fs.try(func() error {
		n, err = f.File.WriteAt(b, off)
		return err
	})
	return n, err
}

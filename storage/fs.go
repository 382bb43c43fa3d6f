package storage

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// FS is what this package asks of a file system. Names are paths below the node's data directory, or absolute.
// Implementations are safe for concurrent use. Durability is explicit: contents survive a power cut once the file was
// synced, a name (made, renamed or removed) once its directory was.
type FS interface {
	// Create makes a file for reading and writing; it must not exist.
	Create(name string) (File, error)
	// Open opens a file for reading and writing.
	Open(name string) (File, error)
	// List are the names in a directory, sorted, without the directory.
	List(dir string) ([]string, error)
	MkdirAll(dir string) error
	Rename(from, to string) error
	Remove(name string) error
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
	// Free is how many octets can still be written to the file system that dir is in.
	Free(dir string) (uint64, error)
}

// File is an open file. ReadAt and WriteAt may be called concurrently.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	Truncate(size int64) error
	// SyncData makes the contents durable, and the size if it has changed (fdatasync).
	SyncData() error
}

// OS is the FS of the operating system.
type OS struct{}

// Create implements FS.
func (OS) Create(name string) (File, error) {
	return openOS(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

// Open implements FS.
func (OS) Open(name string) (File, error) { return openOS(name, os.O_RDWR) }

func openOS(name string, flags int) (File, error) {
	f, err := os.OpenFile(name, flags, 0o640)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

// List implements FS.
func (OS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// MkdirAll implements FS.
func (OS) MkdirAll(dir string) error { return os.MkdirAll(dir, 0o750) }

// Rename implements FS.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements FS.
func (OS) Remove(name string) error { return os.Remove(name) }

// SyncDir implements FS.
func (OS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Free implements FS.
func (OS) Free(dir string) (uint64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, &fs.PathError{Op: "statfs", Path: filepath.Clean(dir), Err: err}
	}
	return s.Bavail * uint64(s.Bsize), nil
}

type osFile struct{ *os.File }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f osFile) SyncData() error {
	Slow()
	for {
		if err := fdatasync(f.Fd()); err != unix.EINTR {
			if err != 0 {
				return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
			}
			return nil
		}
	}
}

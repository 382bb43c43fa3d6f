package stream

import (
	"container/list"
	"errors"
	"io/fs"
	"sync"

	"github.com/warrenmq/warren/storage"
)

// Files keeps files of many streams open, and not too many: those that were not used for the longest time are closed. It is
// safe for concurrent use.
type Files struct {
	fs  storage.FS
	max int

	mu   sync.Mutex // guards what follows, and refs and stale of each openFile
	open map[string]*openFile
	used list.List // of *openFile, the one used last in front
}

// DefaultFiles is how many files Files keeps open if nothing else is said.
const DefaultFiles = 256

type openFile struct {
	storage.File
	name  string
	refs  int
	stale bool // not among those open any more
	place *list.Element
}

// NewFiles keeps up to max files open, DefaultFiles if max is 0. More are open only while more than that are in use at once.
func NewFiles(fs storage.FS, max int) *Files {
	if max <= 0 {
		max = DefaultFiles
	}
	return &Files{fs: fs, max: max, open: map[string]*openFile{}}
}

// get opens a file, or takes one that is. Each get wants a put.
func (f *Files) get(name string) (*openFile, error) {
	f.mu.Lock()
	if o := f.open[name]; o != nil {
		o.refs++
		f.used.MoveToFront(o.place)
		f.mu.Unlock()
		return o, nil
	}
	f.mu.Unlock()
	file, err := f.fs.Open(name)
	if err != nil {
		return nil, err
	}
	return f.take(name, file), nil
}

// create makes a file. What was open under its name is not any more.
func (f *Files) create(name string) (*openFile, error) {
	f.forget(name)
	file, err := f.fs.Create(name)
	if err != nil {
		return nil, err
	}
	return f.take(name, file), nil
}

func (f *Files) take(name string, file storage.File) *openFile {
	f.mu.Lock()
	if o := f.open[name]; o != nil { // somebody else was faster
		o.refs++
		f.mu.Unlock()
		_ = file.Close()
		return o
	}
	o := &openFile{File: file, name: name, refs: 1}
	f.open[name] = o
	o.place = f.used.PushFront(o)
	close := f.surplus(nil)
	f.mu.Unlock()
	closeAll(close)
	return o
}

// put gives a file back.
func (f *Files) put(o *openFile) {
	f.mu.Lock()
	o.refs--
	var close []*openFile
	if o.refs == 0 && o.stale {
		close = append(close, o)
	}
	close = f.surplus(close)
	f.mu.Unlock()
	closeAll(close)
}

// forget closes a file as soon as nobody uses it.
func (f *Files) forget(name string) {
	f.mu.Lock()
	o := f.open[name]
	if o == nil {
		f.mu.Unlock()
		return
	}
	f.drop(o)
	idle := o.refs == 0
	f.mu.Unlock()
	if idle {
		_ = o.Close()
	}
}

// surplus takes out what is open beyond max and not in use. The lock is held.
func (f *Files) surplus(close []*openFile) []*openFile {
	for e := f.used.Back(); e != nil && len(f.open) > f.max; {
		o := e.Value.(*openFile)
		e = e.Prev()
		if o.refs == 0 {
			f.drop(o)
			close = append(close, o)
		}
	}
	return close
}

func (f *Files) drop(o *openFile) {
	delete(f.open, o.name)
	f.used.Remove(o.place)
	o.stale = true
}

func closeAll(files []*openFile) {
	for _, o := range files {
		_ = o.Close() // what was written is synced through another handle
	}
}

// Open is how many files are open.
func (f *Files) Open() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.open)
}

// gone tells of a file that was removed.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// fileOf is the file in o, and nil if there is none.
func fileOf(o *openFile) storage.File {
	if o == nil {
		return nil
	}
	return o
}

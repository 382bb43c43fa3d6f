package storage

import (
	"container/list"
	"sync"
)

// runFiles keeps the least number of run files open that serves: those in use, and of the others the most recently used
// ones. It is safe for concurrent use.
type runFiles struct {
	fs  FS
	dir string
	max int

	mu   sync.Mutex // guards what follows and each openRun's users; never held across I/O
	open map[RunID]*openRun
	use  list.List // of *openRun, the most recently used first
}

// openRun is a file that is open or is about to be.
type openRun struct {
	id    RunID
	users int
	place *list.Element // nil: to be closed by its last user

	once sync.Once
	file File
	err  error
}

func newRunFiles(fs FS, dir string, max int) *runFiles {
	return &runFiles{fs: fs, dir: dir, max: max, open: map[RunID]*openRun{}}
}

// readAt fills b from a place in a run's file. The end of the file is io.ErrUnexpectedEOF.
func (f *runFiles) readAt(id RunID, b []byte, offset int64) error {
	o := f.acquire(id)
	defer f.release(o)
	o.once.Do(func() { o.file, o.err = f.fs.Open(runName(f.dir, id)) })
	if o.err != nil {
		return o.err
	}
	return readFull(o.file, b, offset)
}

func (f *runFiles) acquire(id RunID) *openRun {
	f.mu.Lock()
	o := f.open[id]
	if o == nil {
		o = &openRun{id: id}
		o.place = f.use.PushFront(o)
		f.open[id] = o
	} else {
		f.use.MoveToFront(o.place)
	}
	o.users++
	surplus := f.surplus()
	f.mu.Unlock()
	closeRuns(surplus)
	return o
}

func (f *runFiles) release(o *openRun) {
	f.mu.Lock()
	o.users--
	if o.err != nil && o.place != nil {
		f.detach(o) // the next reader tries again
	}
	var surplus []*openRun
	if o.users == 0 && o.place == nil {
		surplus = append(surplus, o)
	} else if len(f.open) > f.max {
		surplus = f.surplus()
	}
	f.mu.Unlock()
	closeRuns(surplus)
}

// surplus detaches unused files above the limit. They are the caller's to close, after mu.
func (f *runFiles) surplus() (closing []*openRun) {
	for e := f.use.Back(); e != nil && len(f.open) > f.max; {
		o := e.Value.(*openRun)
		e = e.Prev()
		if o.users == 0 {
			f.detach(o)
			closing = append(closing, o)
		}
	}
	return closing
}

func (f *runFiles) detach(o *openRun) {
	f.use.Remove(o.place)
	o.place = nil
	delete(f.open, o.id)
}

// forget closes a run's file, as soon as nobody uses it.
func (f *runFiles) forget(id RunID) {
	f.mu.Lock()
	o := f.open[id]
	if o != nil {
		f.detach(o)
		if o.users > 0 {
			o = nil
		}
	}
	f.mu.Unlock()
	if o != nil {
		closeRuns([]*openRun{o})
	}
}

// close closes all files that nobody uses; the others follow when they are no longer used.
func (f *runFiles) close() {
	f.mu.Lock()
	f.max = 0
	surplus := f.surplus()
	f.mu.Unlock()
	closeRuns(surplus)
}

func closeRuns(runs []*openRun) {
	for _, o := range runs {
		if o.file != nil {
			o.file.Close()
		}
	}
}

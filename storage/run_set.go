package storage

import (
	"errors"
	"io/fs"
	"iter"
	"slices"
	"sort"
	"sync"
)

// RunSet is the runs of a node: where each log's records lie, which of them are still of use, and the files.
//
// Which runs count is written down elsewhere, by whoever owns the set, atomically with other things: a run is registered
// there before it is added here, and no longer registered before Remove deletes its file. OpenRunSet deletes what is not
// registered.
//
// An extent is in the set until it is dropped. What is dropped is known to memory only: after a start everything is back,
// and Sweep drops it again.
//
// All methods may be called concurrently. Only reading, compacting, opening and removing do I/O.
type RunSet struct {
	fs    FS
	dir   string
	files *runFiles

	mu    sync.Mutex // guards what follows and the setRuns; never held across I/O or calls of functions passed in
	runs  map[RunID]*setRun
	slots []*setRun // by setRun.slot, nil: free
	logs  map[LogID][]extentRef
}

// setRun is a run of a set, and what changes about it.
type setRun struct {
	*Run
	slot    uint32
	listed  int      // extents that were not dropped
	live    uint64   // octets of the file that they take
	dropped []uint64 // bitmap of the extents that were
	pins    int      // readers that may use the file
	removed bool     // the last reader deletes the file

	bad     map[int]bool // pages that were found damaged, and are passed over since; guarded by the set's mu
	damaged bool         // something is damaged: not compacted, because the damage would be lost with the file
}

// extentRef names an extent of a set's run, without a pointer, because there may be millions.
type extentRef struct{ slot, extent uint32 }

// RunSetOptions say how a set is opened.
type RunSetOptions struct {
	MaxOpen int // files kept open besides those that are being read; 0: 64
}

// RunSetReport is what OpenRunSet found.
type RunSetReport struct {
	Lost    []LostRun // registered, but missing, damaged or unreadable; their files, if any, are left as they are
	Deleted []string  // names of files that were not registered, and were deleted
}

// LostRun is a run that cannot be read. Err is fs.ErrNotExist if its file is missing, a *RunDamage if it is not what was
// written, or the error of the file system.
type LostRun struct {
	Run RunID
	Err error
}

// OpenRunSet opens the registered runs of a directory, which must exist, and deletes the files of all others. The error is
// one of the directory; what is wrong with a single run is reported.
func OpenRunSet(fsys FS, dir string, registered []RunID, o RunSetOptions) (*RunSet, RunSetReport, error) {
	if o.MaxOpen <= 0 {
		o.MaxOpen = 64
	}
	s := &RunSet{fs: fsys, dir: dir, files: newRunFiles(fsys, dir, o.MaxOpen), runs: map[RunID]*setRun{}, logs: map[LogID][]extentRef{}}
	var report RunSetReport
	names, err := fsys.List(dir)
	if err != nil {
		return nil, report, err
	}
	registered = slices.Clone(registered)
	slices.Sort(registered)
	registered = slices.Compact(registered)
	found := map[RunID]bool{}
	for _, name := range names {
		id, ok := parseRunName(name)
		if !ok {
			continue
		}
		if _, ok := slices.BinarySearch(registered, id); ok {
			found[id] = true
			continue
		}
		if err := fsys.Remove(runName(dir, id)); err != nil {
			return nil, report, err
		}
		report.Deleted = append(report.Deleted, name)
	}
	for _, id := range registered {
		if !found[id] {
			report.Lost = append(report.Lost, LostRun{id, fs.ErrNotExist})
			continue
		}
		run, err := OpenRun(fsys, dir, id)
		if err != nil {
			report.Lost = append(report.Lost, LostRun{id, err})
			continue
		}
		s.Add(run)
	}
	return s, report, nil
}

// OpenRun reads what a run's file says of itself. The error is a *RunDamage if it is not what was written.
func OpenRun(fsys FS, dir string, id RunID) (*Run, error) {
	f, err := fsys.Open(runName(dir, id))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readRun(f, id)
}

// Close closes the files. Readers that are under way finish; no others may start.
func (s *RunSet) Close() { s.files.close() }

// Add adds a finished run of the set's directory. Adding one that is there already is a panic.
func (s *RunSet) Add(run *Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.add(run)
	for i := range run.extents {
		s.list(r, i)
	}
}

// add adds a run whose extents are all dropped as yet.
func (s *RunSet) add(run *Run) *setRun {
	if s.runs[run.id] != nil {
		panic("storage: run added twice")
	}
	slot := slices.Index(s.slots, nil)
	if slot < 0 {
		slot = len(s.slots)
		s.slots = append(s.slots, nil)
	}
	r := &setRun{Run: run, slot: uint32(slot), dropped: make([]uint64, (len(run.extents)+63)/64)}
	for i := range r.dropped {
		r.dropped[i] = ^uint64(0)
	}
	s.slots[slot], s.runs[run.id] = r, r
	return r
}

// list puts an extent of a run into its log's order.
func (s *RunSet) list(r *setRun, extent int) {
	e := &r.extents[extent]
	refs := s.logs[e.log]
	at := len(refs)
	if at > 0 && s.extentOf(refs[at-1]).first > e.first {
		at = sort.Search(at, func(i int) bool { return s.extentOf(refs[i]).first > e.first })
	}
	s.logs[e.log] = slices.Insert(refs, at, extentRef{r.slot, uint32(extent)})
	r.dropped[extent/64] &^= 1 << (extent % 64)
	r.listed++
	r.live += r.stored(extent)
}

// unlisted accounts for an extent that is no longer in its log's order.
func (r *setRun) unlisted(extent int) {
	r.dropped[extent/64] |= 1 << (extent % 64)
	r.listed--
	r.live -= r.stored(extent)
}

func (r *setRun) isListed(extent int) bool { return r.dropped[extent/64]&(1<<(extent%64)) == 0 }

func (s *RunSet) extentOf(ref extentRef) *runExtent {
	return &s.slots[ref.slot].extents[ref.extent]
}

// Extents are what the set has of a log, ordered by first sequence number. They may overlap.
func (s *RunSet) Extents(log LogID) []Extent {
	s.mu.Lock()
	defer s.mu.Unlock()
	refs := s.logs[log]
	if len(refs) == 0 {
		return nil
	}
	extents := make([]Extent, len(refs))
	for i, ref := range refs {
		extents[i] = s.slots[ref.slot].extent(int(ref.extent))
	}
	return extents
}

// Logs are the logs that the set has anything of, in no order.
func (s *RunSet) Logs() []LogID {
	s.mu.Lock()
	defer s.mu.Unlock()
	logs := make([]LogID, 0, len(s.logs))
	for log := range s.logs {
		logs = append(logs, log)
	}
	return logs
}

// Drop takes those extents of a log out of the set that lie within first to last, where the caller needs no record any
// more. It returns how many there were. Callers pass a range as wide as they know it to be dead, not just what has died
// last, because an extent may span what died at different times.
func (s *RunSet) Drop(log LogID, first, last uint64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drop(log, func(e *runExtent) bool { return first <= e.first && e.last <= last })
}

func (s *RunSet) drop(log LogID, dead func(*runExtent) bool) int {
	refs := s.logs[log]
	kept := refs[:0]
	for _, ref := range refs {
		if dead(s.extentOf(ref)) {
			s.slots[ref.slot].unlisted(int(ref.extent))
		} else {
			kept = append(kept, ref)
		}
	}
	n := len(refs) - len(kept)
	switch {
	case n == 0:
		return 0
	case len(kept) == 0:
		delete(s.logs, log)
	default:
		s.logs[log] = kept
	}
	return n
}

// Alive tells which records of a log are still needed: ranges of sequence numbers within first to last, ascending. It may
// say too much, never too little, and what it has once left out it never names again. It is called without a lock and may
// hold one while it yields: nothing waits in between.
type Alive func(log LogID, first, last uint64) iter.Seq2[uint64, uint64]

// Sweep drops every extent in which nothing is alive, and returns how many those were.
func (s *RunSet) Sweep(alive Alive) int {
	n := 0
	var spans []seqSpan
	for _, log := range s.Logs() {
		spans = spans[:0]
		s.mu.Lock()
		for _, ref := range s.logs[log] {
			e := s.extentOf(ref)
			spans = append(spans, seqSpan{e.first, e.last})
		}
		s.mu.Unlock()
		spans = slices.DeleteFunc(spans, func(x seqSpan) bool {
			for range alive(log, x.first, x.last) {
				return true
			}
			return false
		})
		if len(spans) == 0 {
			continue
		}
		s.mu.Lock()
		n += s.drop(log, func(e *runExtent) bool { return slices.Contains(spans, seqSpan{e.first, e.last}) })
		s.mu.Unlock()
	}
	return n
}

type seqSpan struct{ first, last uint64 }

// Dead are the runs of which no extent is left, oldest first: to be unregistered, then passed to Remove.
func (s *RunSet) Dead() []RunID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var dead []RunID
	for id, r := range s.runs {
		if r.listed == 0 {
			dead = append(dead, id)
		}
	}
	slices.Sort(dead)
	return dead
}

// Remove takes runs out of the set and deletes their files, or leaves that to their last reader, whose errors of deletion
// nobody gets to see: what is not registered goes with the next start at the latest. Unknown runs are passed over.
func (s *RunSet) Remove(ids ...RunID) error {
	var idle []RunID
	s.mu.Lock()
	for _, id := range ids {
		if s.take(id) {
			idle = append(idle, id)
		}
	}
	s.mu.Unlock()
	return s.delete(idle)
}

// take takes a run and its extents out of the set, and says whether its file has no reader.
func (s *RunSet) take(id RunID) bool {
	r := s.runs[id]
	if r == nil {
		return false
	}
	for i := range r.extents {
		if r.isListed(i) {
			s.unlist(r, i)
		}
	}
	delete(s.runs, id)
	s.slots[r.slot] = nil
	r.removed = true
	return r.pins == 0
}

func (s *RunSet) unlist(r *setRun, extent int) {
	log := r.extents[extent].log
	refs := s.logs[log]
	at := slices.Index(refs, extentRef{r.slot, uint32(extent)})
	if len(refs) == 1 {
		delete(s.logs, log)
	} else {
		s.logs[log] = slices.Delete(refs, at, at+1)
	}
	r.unlisted(extent)
}

func (s *RunSet) delete(ids []RunID) error {
	var errs []error
	for _, id := range ids {
		s.files.forget(id)
		errs = append(errs, s.fs.Remove(runName(s.dir, id)))
	}
	return errors.Join(errs...)
}

// unpin lets go of the runs of a reader.
func (s *RunSet) unpin(runs []*setRun) {
	var idle []RunID
	s.mu.Lock()
	for _, r := range runs {
		if r.pins--; r.pins == 0 && r.removed {
			idle = append(idle, r.id)
		}
	}
	s.mu.Unlock()
	s.delete(idle)
}

// RunStats are sums over the runs of a set.
type RunStats struct {
	Runs    int
	Logs    int
	Extents int
	Octets  uint64 // of the files
	Live    uint64 // of them in extents that were not dropped
}

// Stats are the sums of now.
func (s *RunSet) Stats() RunStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := RunStats{Runs: len(s.runs), Logs: len(s.logs)}
	for _, r := range s.runs {
		st.Extents += r.listed
		st.Octets += uint64(r.size)
		st.Live += r.live
	}
	return st
}

package storage

import (
	"cmp"
	"slices"
)

// RunInfo is a run of a set at one moment.
type RunInfo struct {
	ID        RunID
	Transient bool
	Records   uint64 // dead or alive
	Logs      int    // that it has extents of which were not dropped
	Extents   int    // that were not dropped
	Size      int64  // octets of the file
	Live      uint64 // of them in extents that were not dropped
}

// Runs are the runs of the set, oldest first.
func (s *RunSet) Runs() []RunInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]RunInfo, 0, len(s.runs))
	for _, r := range s.runs {
		info := RunInfo{ID: r.id, Transient: r.transient, Records: r.records, Extents: r.listed, Size: r.size, Live: r.live}
		last := LogID(0)
		for i := range r.extents {
			if log := r.extents[i].log; r.isListed(i) && (info.Logs == 0 || log != last) {
				info.Logs++
				last = log
			}
		}
		list = append(list, info)
	}
	slices.SortFunc(list, func(a, b RunInfo) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// RunFile is the name of a run's file in its directory.
func RunFile(id RunID) string { return runName("", id) }

// RunOfFile is the inverse of RunFile, false for other names.
func RunOfFile(name string) (RunID, bool) { return parseRunName(name) }

// Has reports whether all of these runs are in the set.
func (s *RunSet) Has(ids []RunID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if s.runs[id] == nil {
			return false
		}
	}
	return true
}

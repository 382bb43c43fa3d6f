package storage

import (
	"fmt"
	"iter"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// LogID names a log: whatever has a sequence of its own. It is never reused.
type LogID uint64

// RunID names a run of a node, ascending in the order in which runs were made and never reused.
type RunID uint64

// Record is one record of a log. Its sequence number's top 8 bits are a level; within a log records are ordered by Seq as
// a whole, so by level first.
type Record struct {
	Seq      uint64
	Expiry   int64  // milliseconds since 1970, 0: never; below 1<<48
	Size     uint32 // octets as counts and limits see them; not the length of Bytes
	Flags    uint8
	Priority uint8
	Bytes    []byte
}

// Meta is a Record without its bytes.
type Meta struct {
	Seq      uint64
	Expiry   int64
	Size     uint32
	Len      uint32 // octets of the record's bytes
	Flags    uint8
	Priority uint8
}

// levelShift is where in a sequence number the level begins.
const levelShift = 56

// Extent is what one run has of one level of one log.
type Extent struct {
	Run         RunID
	Log         LogID
	First, Last uint64 // sequence numbers of the first and the last record, of the same level
	Records     uint32
	Expiring    uint32 // records with an expiry
	Earliest    int64  // the earliest of their expiries, 0: none
	Octets      uint64 // sum of the records' Size
	Stored      uint64 // octets in the file, metadata included
}

// Run is an immutable file of records of many logs, sorted by log and sequence number. What is kept of it in memory, 56
// octets an extent and 24 for each 4,096 records or part of them, says which page of the file has a record.
// A Run may be used concurrently.
type Run struct {
	id        RunID
	transient bool
	size      int64
	records   uint64
	octets    uint64
	extents   []runExtent
	pages     []runPage // of all extents in order; one more at the end, placed where the last one ends
}

// runExtent is an entry of a footer's first table, as in the file.
type runExtent struct {
	log         LogID
	first, last uint64
	octets      uint64
	earliest    int64
	records     uint32
	expiring    uint32
	page        uint32 // index of its first page; in the file how many it has
	reserved    uint32
}

// runPage is an entry of a footer's second table, as in the file. It holds no pointer and is 24 octets because there may
// be millions.
type runPage struct {
	first  uint64 // sequence number of the first record
	place  uint64 // offset of its data in the lower 48 bits, number of records above
	octets uint64 // sum of the records' Size
}

func (p runPage) offset() int64 { return int64(p.place & (1<<48 - 1)) }
func (p runPage) records() int  { return int(p.place >> 48) }

// ID is the run's name.
func (r *Run) ID() RunID { return r.id }

// Transient is whether the run is not meant to outlive the process.
func (r *Run) Transient() bool { return r.transient }

// Size is the length of the file in octets.
func (r *Run) Size() int64 { return r.size }

// Records is the number of records, dead or alive.
func (r *Run) Records() uint64 { return r.records }

// Octets is the sum of the Size of all records.
func (r *Run) Octets() uint64 { return r.octets }

// Extents are all extents, sorted by log and sequence number.
func (r *Run) Extents() iter.Seq[Extent] {
	return func(yield func(Extent) bool) {
		for i := range r.extents {
			if !yield(r.extent(i)) {
				return
			}
		}
	}
}

func (r *Run) extent(i int) Extent {
	e := &r.extents[i]
	return Extent{Run: r.id, Log: e.log, First: e.first, Last: e.last, Records: e.records, Expiring: e.expiring, Earliest: e.earliest,
		Octets: e.octets, Stored: r.stored(i)}
}

// endPage is the index behind the last page of an extent.
func (r *Run) endPage(extent int) int {
	if extent+1 < len(r.extents) {
		return int(r.extents[extent+1].page)
	}
	return len(r.pages) - 1
}

// stored is how many octets of the file an extent takes.
func (r *Run) stored(extent int) uint64 {
	return uint64(r.pages[r.endPage(extent)].offset() - r.pages[r.extents[extent].page].offset())
}

// lastOf is the highest sequence number that a record of a page of an extent can have.
func (r *Run) lastOf(extent, page int) uint64 {
	if page+1 < r.endPage(extent) {
		return r.pages[page+1].first - 1
	}
	return r.extents[extent].last
}

// find is the page of an extent that has the first record at or after seq, or the page before that one.
func (r *Run) find(extent int, seq uint64) int {
	first := int(r.extents[extent].page)
	n := sort.Search(r.endPage(extent)-first, func(i int) bool { return r.pages[first+i].first > seq })
	return first + max(n, 1) - 1
}

// logExtents are the indexes of a log's extents, from the first to behind the last.
func (r *Run) logExtents(log LogID) (from, to int) {
	from = sort.Search(len(r.extents), func(i int) bool { return r.extents[i].log >= log })
	for to = from; to < len(r.extents) && r.extents[to].log == log; to++ {
	}
	return from, to
}

// RunDamage says that something in a run's file is not what was written there.
type RunDamage struct {
	Run    RunID
	Offset int64 // where in the file
	Len    int64
	What   string

	// What is lost: records of one extent with sequence numbers in First..Last. Records is 0 if it is the whole run.
	Log         LogID
	First, Last uint64
	Records     int
}

func (d *RunDamage) Error() string {
	if d.Records == 0 {
		return fmt.Sprintf("run %d: %s at offset %d", d.Run, d.What, d.Offset)
	}
	return fmt.Sprintf("run %d: %s at offset %d, %d octets: lost %d records of log %d, %d to %d", d.Run, d.What, d.Offset, d.Len, d.Records,
		d.Log, d.First, d.Last)
}

const runSuffix = ".run"

// runName is the path of a run's file.
func runName(dir string, id RunID) string {
	return filepath.Join(dir, fmt.Sprintf("%016x%s", uint64(id), runSuffix))
}

// parseRunName is the inverse of runName for a name without its directory.
func parseRunName(name string) (RunID, bool) {
	digits, ok := strings.CutSuffix(name, runSuffix)
	if !ok || len(digits) != 16 {
		return 0, false
	}
	id, err := strconv.ParseUint(digits, 16, 64)
	return RunID(id), err == nil
}

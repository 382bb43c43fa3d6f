package storage

import (
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"sync"
)

// RunOptions say how a run is written.
type RunOptions struct {
	// Transient runs are not synced: a start deletes them.
	Transient bool
	// SyncEvery is after how many octets what was written so far is synced, so that the last sync does not have the whole
	// file to write at once; 0: at the end only.
	SyncEvery int
}

// runBuffer is how much a writer collects before it writes.
const runBuffer = 1 << 20

// runBuffers are buffers of writers that have ended.
var runBuffers = sync.Pool{New: func() any { return new([runBuffer]byte) }}

// ErrRunOrder is that records were not added in ascending order of log and sequence number.
var ErrRunOrder = errors.New("records of a run out of order")

// RunWriter writes a run. It ends with Finish or Abort. After an error only Abort is of use. It is not for concurrent use.
type RunWriter struct {
	fs   FS
	dir  string
	file File
	o    RunOptions
	run  *Run
	err  error

	buf     []byte // written at offset
	offset  int64
	synced  int64
	entries []byte // of the page being filled
	any     bool   // a record was added
	last    uint64 // its sequence number
}

// CreateRun begins a run in a directory that exists. No file of that id may be there.
func CreateRun(fs FS, dir string, id RunID, o RunOptions) (*RunWriter, error) {
	f, err := fs.Create(runName(dir, id))
	if err != nil {
		return nil, err
	}
	w := &RunWriter{fs: fs, dir: dir, file: f, o: o, run: &Run{id: id, transient: o.Transient}, buf: runBuffers.Get().(*[runBuffer]byte)[:0]}
	w.buf = appendRunHeader(w.buf, id)
	return w, nil
}

// Add adds a record, whose bytes are copied. Records come in ascending order of log and Seq.
func (w *RunWriter) Add(log LogID, r Record) error {
	if w.err != nil {
		return w.err
	}
	if r.Expiry < 0 || r.Expiry>>runExpiryBits != 0 || uint64(len(r.Bytes)) > math.MaxUint32 {
		return w.fail(fmt.Errorf("record %d of log %d: expiry %d or length %d out of range", r.Seq, log, r.Expiry, len(r.Bytes)))
	}
	if !w.any || w.run.extents[len(w.run.extents)-1].log != log || w.last>>levelShift != r.Seq>>levelShift {
		if err := w.beginExtent(log, r.Seq); err != nil {
			return err
		}
	}
	e := &w.run.extents[len(w.run.extents)-1]
	p := &w.run.pages[len(w.run.pages)-1]
	switch {
	case len(w.entries) == 0:
	case r.Seq <= w.last:
		return w.fail(ErrRunOrder)
	case len(w.entries) == runPageMax*runEntryLen || r.Seq-p.first > math.MaxUint32:
		w.endPage()
		p = w.beginPage(r.Seq)
	}
	if e.records == math.MaxUint32 {
		return w.fail(fmt.Errorf("too many records of log %d in one run", log))
	}
	w.entries = appendRunEntry(w.entries, &r, p.first)
	w.write(r.Bytes)
	e.last, w.last, w.any = r.Seq, r.Seq, true
	e.records++
	e.octets += uint64(r.Size)
	p.octets += uint64(r.Size)
	p.place += 1 << 48
	w.run.records++
	w.run.octets += uint64(r.Size)
	if r.Expiry != 0 {
		if e.expiring++; e.earliest == 0 || r.Expiry < e.earliest {
			e.earliest = r.Expiry
		}
	}
	return w.err
}

// Size is how long the file is by now.
func (w *RunWriter) Size() int64 { return w.offset + int64(len(w.buf)) }

func (w *RunWriter) beginExtent(log LogID, seq uint64) error {
	if w.any {
		last := &w.run.extents[len(w.run.extents)-1]
		if log < last.log || log == last.log && seq <= w.last {
			return w.fail(ErrRunOrder)
		}
		w.endPage()
	}
	w.run.extents = append(w.run.extents, runExtent{log: log, first: seq, page: uint32(len(w.run.pages))})
	w.beginPage(seq)
	return nil
}

func (w *RunWriter) beginPage(first uint64) *runPage {
	w.run.pages = append(w.run.pages, runPage{first: first, place: uint64(w.Size())})
	return &w.run.pages[len(w.run.pages)-1]
}

func (w *RunWriter) endPage() {
	first := w.run.pages[len(w.run.pages)-1].first
	sum := runPageChecksum(w.entries, w.run.id, w.run.extents[len(w.run.extents)-1].log, first)
	w.write(w.entries)
	w.write([]byte{byte(sum), byte(sum >> 8), byte(sum >> 16), byte(sum >> 24)})
	w.entries = w.entries[:0]
}

// Finish writes the footer and makes the file durable, unless it is transient.
func (w *RunWriter) Finish() (*Run, error) {
	if w.any {
		w.endPage()
	}
	r := w.run
	footer := w.Size()
	if footer>>48 != 0 {
		return nil, w.fail(errors.New("run too long"))
	}
	r.pages = append(r.pages, runPage{place: uint64(footer)})
	w.writeFooter(footer)
	w.flush()
	if w.err == nil && !w.o.Transient {
		w.err = w.file.SyncData()
	}
	if w.err == nil && !w.o.Transient {
		w.err = w.fs.SyncDir(w.dir)
	}
	if w.err != nil {
		return nil, w.err
	}
	r.size = w.offset
	err := w.end()
	if err != nil {
		w.err = err
		return nil, err
	}
	w.err = errors.New("run is finished")
	return r, nil
}

func (w *RunWriter) writeFooter(footer int64) {
	r := w.run
	sum, b := uint32(0), make([]byte, 0, runTailLen)
	for i := range r.extents {
		b = appendRunExtent(b[:0], &r.extents[i], r.endPage(i)-int(r.extents[i].page))
		sum = crc32.Update(sum, runCRC, b)
		w.write(b)
	}
	for _, p := range r.pages[:len(r.pages)-1] {
		b = appendRunPage(b[:0], p)
		sum = crc32.Update(sum, runCRC, b)
		w.write(b)
	}
	w.write(r.appendTail(b[:0], footer, sum))
}

// Abort removes the file, finished or not.
func (w *RunWriter) Abort() error {
	if w.file != nil {
		w.end()
	}
	w.fail(errors.New("run was aborted"))
	return w.fs.Remove(runName(w.dir, w.run.id))
}

// end closes the file and lets go of all that was needed to write it.
func (w *RunWriter) end() error {
	runBuffers.Put((*[runBuffer]byte)(w.buf[:runBuffer]))
	err := w.file.Close()
	w.file, w.buf, w.entries = nil, nil, nil
	return err
}

func (w *RunWriter) fail(err error) error {
	if w.err == nil {
		w.err = err
	}
	return w.err
}

// write passes b to the file by way of the buffer, or, where b is larger, directly.
func (w *RunWriter) write(b []byte) {
	if len(b) > cap(w.buf)-len(w.buf) {
		w.flush()
		if len(b) >= cap(w.buf) {
			w.writeOut(b)
			return
		}
	}
	w.buf = append(w.buf, b...)
}

func (w *RunWriter) flush() {
	w.writeOut(w.buf)
	w.buf = w.buf[:0]
}

func (w *RunWriter) writeOut(b []byte) {
	if w.err != nil || len(b) == 0 {
		return
	}
	n, err := w.file.WriteAt(b, w.offset)
	w.offset += int64(n)
	w.err = err
	if w.o.SyncEvery > 0 {
		w.Sync(w.o.SyncEvery)
	}
}

// Sync syncs what was written if that is every octets or more since the last time. It is for those who choose when to wait
// for the disk, in place of RunOptions.SyncEvery, by which Add does.
func (w *RunWriter) Sync(every int) error {
	if w.err == nil && !w.o.Transient && w.offset-w.synced >= int64(every) {
		w.synced = w.offset
		w.err = w.file.SyncData()
	}
	return w.err
}

package storage

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"
)

// ErrJournalVersion says that a journal was written by a version of the format that this one does not know.
var ErrJournalVersion = errors.New("storage: unknown version of the journal format")

// OpenJournal opens the journal in a directory, which nobody else uses, or begins one. All records of the epoch from
// and later ones are given to replay first, in the order in which they were appended, with the Marks that they had; record is valid
// during the call only. New records go to an epoch after all that were seen, and after from.
//
// Damage is no error: the Report tells of it, and the rest is replayed. Errors are those of replay, of the file system,
// and ErrJournalVersion; then no file of the journal was changed.
func OpenJournal(fs FS, dir string, o JournalOptions, from Epoch,
	replay func(epoch Epoch, at Mark, kind uint8, record []byte) error) (*Journal, Report, error) {
	if o.FileSize <= 0 {
		o.FileSize = 64 << 20
	}
	o.FileSize = (o.FileSize + pageSize - 1) &^ (pageSize - 1)
	if o.Spares <= 0 {
		o.Spares = 4
	}
	if o.Delay <= 0 {
		o.Delay = 100 * time.Millisecond
	}
	if o.salt == nil {
		o.salt = rand.Uint32
	}
	if err := fs.MkdirAll(dir); err != nil {
		return nil, Report{}, err
	}
	if err := fs.SyncDir(filepath.Dir(dir)); err != nil {
		return nil, Report{}, err
	}
	r := &journalReplay{fs: fs, dir: dir, from: from, replay: replay, last: from}
	if err := r.run(); err != nil {
		return nil, r.report, err
	}
	j, err := r.journal(o)
	if err != nil {
		return nil, r.report, err
	}
	// The first file is made now, so that the next start finds the journal open unless it was closed.
	j.quiet = true
	j.round()
	j.quiet = false
	if !o.manual {
		j.mu.Lock()
		j.timer = time.AfterFunc(time.Hour, j.tick)
		j.timer.Stop()
		j.mu.Unlock()
		go j.sync()
	}
	return j, r.report, nil
}

// ReadJournal is what OpenJournal replays and reports, of a journal that nobody has open, and changes nothing.
func ReadJournal(fs FS, dir string, from Epoch, replay func(epoch Epoch, at Mark, kind uint8, record []byte) error) (Report, error) {
	r := &journalReplay{fs: fs, dir: dir, from: from, replay: replay, last: from}
	err := r.run()
	return r.report, err
}

// A journalReplay is one reading of a journal.
type journalReplay struct {
	fs     FS
	dir    string
	from   Epoch
	replay func(Epoch, Mark, uint8, []byte) error

	found  []*foundFile // all files, by use
	chain  []*foundFile // those to read, in order
	end    Mark         // behind the last good frame
	last   Epoch        // highest seen
	epochs []epochSize
	tail   []tailFrame // frames that may not be synced
	before Epoch       // of the last frame with records before those
	use    uint64      // highest seen
	report Report

	lent *frameScanner // the one that has the buffer
}

// scanner makes a scanner, and takes the buffer away from the one before.
func (r *journalReplay) scanner(file File, size int64, use uint64) *frameScanner {
	s := newFrameScanner(file, size, use)
	if r.lent != nil {
		s.buf, r.lent.buf = r.lent.buf[:0], nil
	}
	r.lent = s
	return s
}

type foundFile struct {
	name    string
	size    int64
	head    fileHeader // of a file whose header is unreadable, what its frames tell
	state   headState
	failed  bool // holds what was written to the next file again
	chained bool
	alone   bool // the file before it was not found
}

type headState uint8

const (
	headGood  headState = iota
	headBlank           // zeroes, or no file to speak of
	headBad             // something else
)

// A tailFrame is a frame that was written after the last sync that is known of.
type tailFrame struct {
	file   string
	off    int64
	header frameHeader
}

func (r *journalReplay) run() error {
	names, err := r.fs.List(r.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, ok := slotOf(name); ok {
			if err := r.look(name); err != nil {
				return err
			}
		}
	}
	slices.SortFunc(r.found, func(a, b *foundFile) int { return cmp.Compare(a.head.use, b.head.use) })
	if err := r.link(); err != nil {
		return err
	}
	// What could not be synced was written again to a later file, and perhaps once more: the earliest position that a later file
	// follows is the limit.
	limits := make([]Mark, len(r.chain))
	limit := Mark(math.MaxUint64)
	for i, f := range slices.Backward(r.chain) {
		limits[i] = limit
		limit = min(limit, f.head.follows)
	}
	for i, f := range r.chain {
		if i == 0 {
			r.end, r.before = f.head.follows, f.head.before
			if f.alone {
				r.fault(FaultReport{File: f.name, What: "the files before it are missing"})
			}
		}
		if f.head.start > limits[i] {
			f.failed = true
			continue
		}
		if err := r.read(f, limits[i]); err != nil {
			return err
		}
	}
	r.report.Clean = r.report.Clean || len(r.found) == 0
	r.report.End = r.end
	r.report.Last = r.last
	for _, f := range r.report.Files {
		r.report.Frames += f.Frames
		r.report.Records += f.Records
		r.report.Octets += f.Octets
		r.report.Torn += f.Torn
	}
	for _, f := range r.report.Faults {
		r.report.Lost += f.Lost
	}
	return nil
}

func (r *journalReplay) open(f *foundFile) (File, error) {
	return r.fs.Open(filepath.Join(r.dir, f.name))
}

// look reads a file's header.
func (r *journalReplay) look(name string) error {
	f := &foundFile{name: name}
	file, err := r.open(f)
	if err != nil {
		return err
	}
	defer file.Close()
	if f.size, err = file.Size(); err != nil {
		return err
	}
	r.found = append(r.found, f)
	b := make([]byte, min(fileHead, f.size))
	if _, err := file.ReadAt(b, 0); err != nil && err != io.EOF {
		clear(b)
	}
	if f.head.decode(b) {
		if f.head.version != journalVersion {
			return fmt.Errorf("%s: %w: %d", filepath.Join(r.dir, name), ErrJournalVersion, f.head.version)
		}
		return nil
	}
	f.head = fileHeader{}
	s := r.scanner(file, f.size, 0)
	if len(b) == fileHead && !zeroes(b) { // a shorter file is a first write cut short
		f.state = headBad
		if r.reread(f, s, f.size) < 0 {
			r.fault(FaultReport{File: name, Octets: f.size, What: "not a journal file, or nothing in it is readable; left alone"})
		}
		return nil
	}
	// A header of zeroes is that of a file written ahead, which is not read in whole unless something is missing; or of one whose
	// first sync did not return. It hides something only if frames show that more was synced than the first of them.
	f.state = headBlank
	at := r.reread(f, s, min(f.size, windowSize))
	r.use = max(r.use, f.head.use)
	if at >= 0 {
		s.use = f.head.use
		if synced, _ := s.syncedPast(at, f.head.start); !synced {
			f.head = fileHeader{}
		}
	}
	return nil
}

// reread takes a file's header from the first of its frames before end, and returns the offset of that; -1 if there is none.
func (r *journalReplay) reread(f *foundFile, s *frameScanner, end int64) int64 {
	var h frameHeader
	at := s.find(0, end, 0, &h)
	if at >= 0 {
		f.head = fileHeader{use: h.use, epoch: h.epoch, start: h.position, follows: h.position, before: h.epoch}
	}
	return at
}

func zeroes(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// link finds the chain of files that hold epochs from r.from on, from the last one back.
func (r *journalReplay) link() error {
	i := len(r.found) - 1
	for i >= 0 && r.found[i].head.use != 0 {
		f := r.found[i]
		f.chained = true
		r.chain = append(r.chain, f)
		if f.head.before < r.from || f.state == headGood && f.head.previous == 0 {
			break
		}
		if f.state != headGood {
			i-- // which one it followed is lost with its header
			continue
		}
		for i--; i >= 0 && r.found[i].head.use > f.head.previous; i-- {
		}
		if i >= 0 && r.found[i].head.use == f.head.previous {
			continue
		}
		hidden, err := r.hidden(f.head.previous)
		if err != nil {
			return err
		}
		if hidden != nil {
			hidden.chained = true
			r.chain = append(r.chain, hidden)
			continue
		}
		// It held nothing perhaps that was not written again: the positions tell.
		f.alone = true
	}
	slices.Reverse(r.chain)
	return nil
}

// hidden looks for a use in the files with a zero header.
func (r *journalReplay) hidden(use uint64) (*foundFile, error) {
	for _, f := range r.found {
		if f.state != headBlank || f.chained || f.head.use != 0 {
			continue
		}
		file, err := r.open(f)
		if err != nil {
			return nil, err
		}
		at := r.reread(f, r.scanner(file, f.size, use), f.size)
		file.Close()
		if at >= 0 {
			return f, nil
		}
	}
	return nil, nil
}

// read replays a file up to the limit, where the next one takes over; the last file has none.
func (r *journalReplay) read(f *foundFile, limit Mark) error {
	file, err := r.open(f)
	if err != nil {
		return err
	}
	defer file.Close()
	r.report.Files = append(r.report.Files, FileReport{Name: f.name, Size: f.size})
	rep := &r.report.Files[len(r.report.Files)-1]
	s := r.scanner(file, f.size, f.head.use)
	s.limit = limit
	last := limit == math.MaxUint64

	if f.state == headGood {
		if r.end < f.head.follows {
			what := "the end of the file before it is gone"
			if f.alone {
				what = "the file before it is missing"
			}
			r.fault(FaultReport{File: f.name, Lost: uint64(f.head.follows - r.end), What: what})
		}
		r.end = f.head.start
	} else {
		r.fault(FaultReport{File: f.name, Octets: fileHead, What: "the header is unreadable"})
	}
	off := int64(fileHead)
	var h frameHeader
	for r.end < limit {
		if b := s.frame(off, &h); b != nil && h.position == r.end {
			if err := r.frame(f, rep, off, &h, b[frameHead:]); err != nil {
				return err
			}
			off += int64(len(b))
			if h.flags&flagClosed != 0 {
				break // nothing is written to a file after that
			}
			continue
		}
		var v frameHeader
		at := s.find(off, s.size, r.end, &v)
		synced, torn := true, int64(0)
		if at >= 0 && last {
			synced, torn = s.syncedPast(at, r.end)
		}
		switch {
		case at < 0:
			// Nothing more. If another file follows, it notices what is missing.
			if last && s.tornAt(off) {
				rep.Torn = min(frameHead+int64(s.lengthAt(off)), s.size-off)
			}
		case synced:
			rep.Skipped += at - off
			r.fault(FaultReport{File: f.name, Offset: off, Octets: at - off, Lost: uint64(v.position - r.end), What: "damaged"})
		case v.position > r.end:
			rep.Torn = torn - off
			at = -1
		}
		if at < 0 {
			break
		}
		off, r.end = at, v.position
	}
	if r.end == limit && s.tornAt(off) {
		f.failed = true
	}
	if s.unread > 0 {
		r.fault(FaultReport{File: f.name, Octets: s.unread, What: "could not be read"})
	}
	return nil
}

// tornAt reports whether a frame of this use begins at off, whatever became of the rest of it.
func (s *frameScanner) tornAt(off int64) bool {
	var h frameHeader
	return h.decode(s.at(off, frameHead)) && h.use == s.use && h.flags&flagClosed == 0
}

func (s *frameScanner) lengthAt(off int64) int {
	var h frameHeader
	h.decode(s.at(off, frameHead))
	return h.length
}

// frame replays one frame.
func (r *journalReplay) frame(f *foundFile, rep *FileReport, off int64, h *frameHeader, payload []byte) error {
	r.report.Clean = h.flags&flagClosed != 0
	for len(r.tail) > 0 && r.tail[0].header.position < h.base {
		r.before = r.tail[0].header.epoch
		r.tail = r.tail[:copy(r.tail, r.tail[1:])]
	}
	if h.length > 0 {
		r.tail = append(r.tail, tailFrame{f.name, off, *h})
	}
	r.end = h.end()
	r.last = max(r.last, h.epoch)
	r.report.Newest = max(r.report.Newest, h.epoch)
	if h.epoch < r.from {
		rep.Old++
		return nil
	}
	if h.length == 0 {
		return nil
	}
	if n := len(r.epochs); n == 0 || r.epochs[n-1].epoch != h.epoch {
		r.epochs = append(r.epochs, epochSize{epoch: h.epoch, start: h.position})
	}
	r.epochs[len(r.epochs)-1].end = h.end()
	if r.report.First == 0 {
		r.report.First = h.epoch
	}
	rep.Frames++
	at := h.position
	for len(payload) > 0 {
		n := int(binary.LittleEndian.Uint32(payload)) + recordHead
		at += Mark(n)
		if err := r.replay(h.epoch, at, payload[4], payload[recordHead:n:n]); err != nil {
			return err
		}
		rep.Records++
		rep.Octets += int64(n - recordHead)
		payload = payload[n:]
	}
	return nil
}

func (r *journalReplay) fault(f FaultReport) { r.report.Faults = append(r.report.Faults, f) }

package storage

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	journalSuffix = ".journal"

	// smallFile is the size of a file that was not written ahead, because the journal is young or outran the writing: it
	// grows while it is written, which is slow, so it is short.
	smallFile = 8 << 20

	zeroStep   = 256 << 10 // octets written ahead at a time
	zeroSync   = 8 << 20   // octets written ahead between syncs, lest the disk is busy for long
	zeroPause  = time.Second
	aheadSmall = 1 << 20 // octets in a small file that show that files are worth writing ahead
)

// journalFiles are the files of a journal: the one being written, those that are still needed, and spares.
type journalFiles struct {
	fs       FS
	dir      string
	fileSize int64
	maxSpare int
	salt     func() uint32
	manual   bool

	// The syncer's own.
	off      int64 // in current, behind the last frame
	position Mark  // behind the last frame
	end      Mark  // behind the last synced frame
	epoch    Epoch // of the last synced frame that is not empty
	written  Epoch // the same of the last frame
	use      uint64

	mu      sync.Mutex // guards what follows; held for no I/O
	live    []*journalFile
	current *journalFile // the last of live; nil before the first and after a failure
	spares  []string
	slot    uint64 // the last file name's number
	ahead   bool   // a file is being written ahead
	retry   time.Time

	closing atomic.Bool
	writing sync.WaitGroup
}

// A journalFile is a file in use.
type journalFile struct {
	name   string
	file   File // nil unless current
	size   int64
	use    uint64
	last   Epoch // no frame in it that is synced and not empty has a later one
	synced bool  // something in it is
	failed bool  // never to be written again
	head   fileHeader
}

func (f *journalFiles) path(name string) string { return filepath.Join(f.dir, name) }

// fits reports whether a chunk can go to the current file, with a closing frame after it.
func (f *journalFiles) fits(c *chunk) bool {
	return f.current != nil && c.position == f.position &&
		f.off+int64(len(c.buf)-fileHead)+frameHead <= f.current.size
}

// next makes a file current that begins with a chunk. What was in the one before is synced.
func (f *journalFiles) next(c *chunk) error {
	f.mu.Lock()
	old := f.current
	f.current = nil
	name := ""
	if n := len(f.spares); n > 0 {
		name = f.spares[n-1]
		f.spares = f.spares[:n-1]
	}
	f.mu.Unlock()
	if old != nil {
		old.file.Close()
		old.file = nil
	}
	n := &journalFile{name: name, size: f.fileSize}
	var err error
	if name != "" {
		if n.file, err = f.fs.Open(f.path(name)); err != nil {
			return err
		}
	} else {
		n.size = min(smallFile, f.fileSize)
		if n.name, n.file, err = f.create(); err != nil {
			return err
		}
	}
	f.use = (f.use>>32+1)<<32 | uint64(f.salt())
	n.use, n.last = f.use, f.epoch
	n.head = fileHeader{
		version: journalVersion,
		use:     n.use,
		epoch:   c.epoch,
		start:   c.position,
		follows: f.end,
		before:  f.epoch,
	}
	f.off, f.position, f.written = 0, c.position, f.epoch
	f.mu.Lock()
	if len(f.live) > 0 {
		n.head.previous = f.live[len(f.live)-1].use
	}
	f.live = append(f.live, n)
	f.current = n
	f.mu.Unlock()
	return nil
}

// create makes an empty file with a durable name.
func (f *journalFiles) create() (string, File, error) {
	f.mu.Lock()
	f.slot++
	name := fmt.Sprintf("%08d%s", f.slot, journalSuffix)
	f.mu.Unlock()
	file, err := f.fs.Create(f.path(name))
	if err != nil {
		return "", nil, err
	}
	if err := f.fs.SyncDir(f.dir); err != nil {
		file.Close()
		f.fs.Remove(f.path(name))
		return "", nil, err
	}
	return name, file, nil
}

// slotOf is the number in a file's name.
func slotOf(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, journalSuffix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	return n, err == nil
}

// write puts a chunk behind the last one, as a frame, in one write.
func (f *journalFiles) write(c *chunk, base Mark) error {
	h := frameHeader{flags: c.flags, use: f.current.use, epoch: c.epoch, position: c.position, base: base}
	h.seal(c.buf[fileHead:])
	b := c.buf[fileHead:]
	if f.off == 0 {
		b = c.buf
		f.current.head.encode(b)
	}
	end := f.off + int64(len(b))
	if pad := int(-end & (pageSize - 1)); len(b)+pad <= cap(b) {
		clear(b[len(b) : len(b)+pad])
		b = b[:len(b)+pad]
	}
	if _, err := f.current.file.WriteAt(b, f.off); err != nil {
		return err
	}
	f.off, f.position = end, c.end()
	if len(c.buf) > chunkHead {
		f.written = c.epoch
	}
	return nil
}

// sync makes all durable that was written to the current file.
func (f *journalFiles) sync() error {
	if err := f.current.file.SyncData(); err != nil {
		return err
	}
	f.end, f.epoch = f.position, f.written
	f.mu.Lock()
	f.current.last, f.current.synced = f.epoch, true
	f.current.size = max(f.current.size, f.off)
	f.mu.Unlock()
	return nil
}

// abandon gives up the current file after a failure. What is synced in it remains; if nothing is, it goes.
func (f *journalFiles) abandon() {
	f.mu.Lock()
	c := f.current
	f.current = nil
	if c != nil {
		c.failed = true
		if !c.synced {
			f.live = f.live[:len(f.live)-1]
		}
	}
	f.mu.Unlock()
	if c == nil {
		return
	}
	c.file.Close()
	c.file = nil
	if !c.synced && f.fs.Remove(f.path(c.name)) == nil {
		f.fs.SyncDir(f.dir)
	}
}

// release frees the files that hold nothing from an epoch on.
func (f *journalFiles) release(before Epoch) error {
	var remove []string
	f.mu.Lock()
	n := 0
	for n < len(f.live) && f.live[n] != f.current && f.live[n].last < before {
		if c := f.live[n]; !c.failed && c.size == f.fileSize && len(f.spares) < f.maxSpare {
			f.spares = append(f.spares, c.name)
		} else {
			remove = append(remove, c.name)
		}
		n++
	}
	f.live = append(f.live[:0], f.live[n:]...)
	f.mu.Unlock()
	return f.remove(remove)
}

func (f *journalFiles) remove(names []string) error {
	if len(names) == 0 {
		return nil
	}
	var first error
	for _, name := range names {
		if err := f.fs.Remove(f.path(name)); err != nil && first == nil {
			first = err
		}
	}
	if err := f.fs.SyncDir(f.dir); err != nil && first == nil {
		first = err
	}
	return first
}

// provide has a file written ahead if the current one will be full before one is released.
func (f *journalFiles) provide() {
	f.mu.Lock()
	c := f.current
	start := c != nil && !f.ahead && len(f.spares) == 0 && (f.off > c.size/2 || c.size < f.fileSize && f.off > aheadSmall)
	if start && !f.retry.IsZero() {
		start = time.Now().After(f.retry)
	}
	f.ahead = f.ahead || start
	f.mu.Unlock()
	if !start {
		return
	}
	if f.manual {
		f.writeAhead()
		return
	}
	f.writing.Go(f.writeAhead)
}

var errLittleRoom = errors.New("storage: too little room to write a journal file ahead")

// writeAhead makes a spare file.
func (f *journalFiles) writeAhead() {
	var name string
	var file File
	free, err := f.fs.Free(f.dir)
	if err == nil && free < 2*uint64(f.fileSize) {
		err = errLittleRoom // what there is is for records, which do without
	}
	if err == nil {
		name, file, err = f.create()
	}
	if err == nil {
		if err = f.zero(file); err != nil {
			f.remove([]string{name})
		}
		file.Close()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead = false
	if err != nil {
		f.retry = time.Now().Add(zeroPause)
		return
	}
	f.spares = append(f.spares, name)
}

// zero writes a whole file of zeroes and syncs them.
func (f *journalFiles) zero(file File) error {
	zeroes := make([]byte, min(zeroStep, f.fileSize))
	for off := int64(0); off < f.fileSize; {
		if f.closing.Load() {
			return ErrClosed
		}
		n, err := file.WriteAt(zeroes[:min(int64(len(zeroes)), f.fileSize-off)], off)
		if err != nil {
			return err
		}
		off += int64(n)
		if off%zeroSync == 0 || off == f.fileSize {
			if err := file.SyncData(); err != nil {
				return err
			}
		}
	}
	return nil
}

// close waits for the writing ahead and closes the current file.
func (f *journalFiles) close() {
	f.closing.Store(true)
	f.writing.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.current != nil {
		f.current.file.Close()
		f.current = nil
	}
}

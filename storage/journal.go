package storage

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// An Epoch numbers a stretch of the journal, ascending. Journal space is freed by whole epochs.
type Epoch uint64

// A Mark is a position in the journal: how many octets of records were appended before it since the journal began. Marks
// ascend over restarts too, not always without gaps. The Mark of a record is the position behind it: it is synced when its
// Mark is at or below Synced.
type Mark uint64

// JournalOptions are the choices in a journal. The zero value works.
type JournalOptions struct {
	// FileSize is the size in octets of the files written ahead and recycled; 0 is 64 MiB. It is rounded up to whole pages.
	FileSize int64
	// Spares is how many unused files are kept at the most; 0 is 4.
	Spares int
	// Delay is the longest time that a record waits for its sync if nobody commits it; 0 is 100 ms.
	Delay time.Duration
	// After is the highest Mark that is stored elsewhere, for instance beside a queue's state: Marks given out from now on
	// are above it, even if what it belonged to is lost.
	After Mark
	// Synced is called by the journal's own goroutine after each sync, with the Mark up to which everything is durable and
	// nil; or, when nothing can be written, with the unchanged Mark and the error, once per failed attempt. The first call with nil
	// after that says that all is well again. It may call Append and Commit, and must not wait.
	Synced func(Mark, error)
	// NoSpace is called by the journal's own goroutine when there is no room for what is appended, before the journal tries
	// once more. nil does nothing.
	NoSpace func()

	salt   func() uint32 // the random part of a file's use
	manual bool          // no goroutines and timers: a test calls round and prewriteOne
}

const (
	chunkSize = 1 << 20 // octets of records gathered in one frame, unless one record is larger
	pause0    = 20 * time.Millisecond
	pauseMax  = 2 * time.Second
)

// Journal is the sequential record of everything durable on a node. Records go into memory, in the order of the calls, and
// one goroutine writes and syncs them in groups: at once while someone waits for a sync, else after Delay. All
// methods may be called concurrently.
//
// What cannot be written or synced stays in memory and is written to another file; a file that failed is never written
// again. While that fails too, Err says so, and the journal goes on trying, more and more slowly.
type Journal struct {
	o    JournalOptions
	wake chan struct{} // the syncer has work; one slot
	done chan struct{} // closed when the syncer has ended

	mu      sync.Mutex // guards what follows; a leaf, held for the time of a copy
	cur     *chunk     // being filled; nil or not empty
	full    []*chunk   // before cur, in order
	epoch   Epoch
	epochs  []epochSize // from the first one not released; the last is epoch
	wanted  Mark        // someone waits for a sync up to here
	parked  bool        // the syncer waits for wake
	armed   bool        // the timer runs
	closing bool
	left    bool // closing, and not to be marked as closed
	free    []*chunk
	least   int // fewest free chunks since the last tick: those were not needed
	timer   *time.Timer

	appended atomic.Uint64 // written under mu
	synced   atomic.Uint64 // written by the syncer
	err      atomic.Pointer[error]
	faults   atomic.Uint64
	syncs    Durations

	files journalFiles

	// The syncer's own.
	group    []*chunk // taken to be written, not synced yet
	pause    time.Duration
	quiet    bool // the journal is being opened: nobody is told
	closeErr error
}

// A chunk is a frame being made. Its buffer begins with room for the file's and the frame's header.
type chunk struct {
	buf      []byte
	epoch    Epoch
	position Mark
	flags    uint32
}

type epochSize struct {
	epoch      Epoch
	start, end Mark // end of the last is the journal's
}

const chunkHead = fileHead + frameHead

func newChunk(size int) *chunk {
	return &chunk{buf: make([]byte, chunkHead, chunkHead+max(size, chunkSize)+pageSize)}
}

func (c *chunk) end() Mark { return c.position + Mark(len(c.buf)-chunkHead) }

// Append adds a record made of parts and returns its Mark and the Epoch that it belongs to. It copies the parts, does not allocate in
// the steady state, and never waits for the disk. A record holds at most 1 GiB; one kind and meaning is as good as another.
func (j *Journal) Append(kind uint8, parts ...[]byte) (Mark, Epoch) {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	return j.AppendFunc(kind, size, func(dst []byte) []byte {
		for _, p := range parts {
			dst = append(dst, p...)
		}
		return dst
	})
}

// AppendFunc is Append for who can write the record straight into the journal's buffer: fill appends it to dst, which
// has room for size octets, and returns dst. fill runs under the journal's lock: it copies and does nothing else.
func (j *Journal) AppendFunc(kind uint8, size int, fill func(dst []byte) []byte) (Mark, Epoch) {
	j.mu.Lock()
	c := j.room(recordHead + size)
	at := len(c.buf)
	body := at + recordHead
	limit := cap(c.buf) - pageSize
	data := fill(c.buf[body:body:limit])
	if len(data) > limit-body {
		c.buf = append(c.buf[:body], data...) // fill was given too small a size
	} else {
		c.buf = c.buf[:body+len(data)]
	}
	if len(data) > maxRecord-recordHead {
		panic("storage: journal record above 1 GiB")
	}
	binary.LittleEndian.PutUint32(c.buf[at:], uint32(len(data)))
	c.buf[at+4] = kind
	mark, epoch := c.end(), c.epoch
	j.appended.Store(uint64(mark))
	if !j.armed {
		j.arm()
	}
	j.mu.Unlock()
	return mark, epoch
}

// room is the chunk to append size octets to. The lock is held.
func (j *Journal) room(size int) *chunk {
	if j.cur != nil {
		if len(j.cur.buf)+size <= cap(j.cur.buf)-pageSize {
			return j.cur
		}
		j.full = append(j.full, j.cur)
	}
	if n := len(j.free); n > 0 && size <= chunkSize {
		j.cur = j.free[n-1]
		j.free = j.free[:n-1]
		j.least = min(j.least, n-1)
	} else {
		j.cur = newChunk(size)
	}
	j.cur.position, j.cur.epoch = Mark(j.appended.Load()), j.epoch
	return j.cur
}

// recycle takes back chunks that are synced.
func (j *Journal) recycle(chunks []*chunk) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range chunks {
		if cap(c.buf) == chunkHead+chunkSize+pageSize {
			c.buf, c.flags = c.buf[:chunkHead], 0
			j.free = append(j.free, c)
		}
	}
}

// Commit asks for a sync of everything up to the Mark, and does not wait for it.
func (j *Journal) Commit(mark Mark) {
	if uint64(mark) <= j.synced.Load() {
		return
	}
	j.mu.Lock()
	j.want(mark)
	j.mu.Unlock()
}

func (j *Journal) want(mark Mark) {
	j.wanted = max(j.wanted, mark)
	if j.parked {
		j.parked = false
		select {
		case j.wake <- struct{}{}:
		default:
		}
	}
}

// arm starts the timer that syncs what nobody commits and trims what nobody uses. The lock is held.
func (j *Journal) arm() {
	if j.timer != nil && !j.closing {
		j.armed = true
		j.timer.Reset(j.o.Delay)
	}
}

func (j *Journal) tick() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.armed = false
	if appended := j.appended.Load(); appended > j.synced.Load() {
		j.want(Mark(appended))
	}
	// One chunk stays, for the next record.
	unused := max(min(j.least, len(j.free)-1), 0)
	for i := range unused {
		j.free[i] = nil
	}
	j.free = append(j.free[:0], j.free[unused:]...)
	j.least = len(j.free)
	if len(j.free) > 1 {
		j.arm()
	}
}

// Synced is the Mark up to which everything is durable.
func (j *Journal) Synced() Mark { return Mark(j.synced.Load()) }

// Appended is the Mark of the last record.
func (j *Journal) Appended() Mark { return Mark(j.appended.Load()) }

// Backlog is how many octets were appended and not synced. The journal takes whatever is appended: who adds records must
// stop at some backlog, and whoever waits for that is told of progress by Synced.
func (j *Journal) Backlog() int {
	synced := j.synced.Load()
	return int(j.appended.Load() - synced)
}

// Err is why nothing can be written at the moment; nil if all is well.
func (j *Journal) Err() error {
	if err := j.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Faults is how many writes and syncs failed since the start, also where another file helped at once.
func (j *Journal) Faults() uint64 { return j.faults.Load() }

// Epoch is the one that records are appended to.
func (j *Journal) Epoch() Epoch {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.epoch
}

// Rotate starts a new epoch and returns it: records appended before belong to earlier ones, records appended after to it or later ones.
func (j *Journal) Rotate() Epoch {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.cur != nil {
		j.full = append(j.full, j.cur)
		j.cur = nil
	}
	at := Mark(j.appended.Load())
	j.epochs[len(j.epochs)-1].end = at
	j.epoch++
	j.epochs = append(j.epochs, epochSize{epoch: j.epoch, start: at})
	return j.epoch
}

// Release frees the files of all epochs before the given one: some are kept to be overwritten, the others are removed. The
// epochs must not be asked for again: store before durably first, as from for the next start. What could not be removed is
// returned as an error and tried again at the next start.
func (j *Journal) Release(before Epoch) error {
	j.mu.Lock()
	before = min(before, j.epoch)
	for len(j.epochs) > 1 && j.epochs[0].epoch < before {
		j.epochs = append(j.epochs[:0], j.epochs[1:]...)
	}
	j.mu.Unlock()
	return j.files.release(before)
}

// Size is how many octets of records are in the epochs that were not released.
func (j *Journal) Size() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.epochs[len(j.epochs)-1].end = Mark(j.appended.Load())
	var size int64
	for _, e := range j.epochs {
		size += int64(e.end - e.start)
	}
	return size
}

// First is the earliest epoch that was not released.
func (j *Journal) First() Epoch {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.epochs[0].epoch
}

// Close writes and syncs everything, marks the journal as closed and ends its goroutines. If the last attempt to write fails
// it returns why, and what is above Synced is lost. Nothing may be appended afterwards.
func (j *Journal) Close() error { return j.end(false) }

// Leave is Close without the mark: the next start takes the journal for that of a process which died. It is for whoever
// could not write elsewhere what goes with the mark.
func (j *Journal) Leave() error { return j.end(true) }

func (j *Journal) end(left bool) error {
	j.mu.Lock()
	if j.closing {
		j.mu.Unlock()
		return errors.New("storage: the journal is closed")
	}
	j.closing, j.left = true, left
	if j.timer != nil {
		j.timer.Stop()
	}
	j.mu.Unlock()
	select {
	case j.wake <- struct{}{}:
	default:
	}
	if j.o.manual {
		j.finish()
	} else {
		<-j.done
	}
	return j.closeErr
}

// Syncs are how long the journal's syncs took.
func (j *Journal) Syncs() DurationCounts { return j.syncs.Now() }

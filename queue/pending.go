package queue

import (
	"sync"

	"github.com/warrenmq/warren/storage"
)

// maxUnsynced is how many octets of the journal may wait for their sync before publishers wait.
const maxUnsynced = 16 << 20

// pendingConfirms are publishes that are confirmed when the journal is synced up to their marks.
type pendingConfirms struct {
	store *Store

	mu   sync.Mutex // guards what follows; a leaf
	list []pendingConfirm
	free [][]Range
}

type pendingConfirm struct {
	mark     storage.Mark
	confirms Confirms
	ranges   []Range
}

// add makes ranges be confirmed when mark is synced, which may be at once. The slice is the caller's.
func (p *pendingConfirms) add(mark storage.Mark, confirms Confirms, ranges []Range, w *Wake) {
	j := p.store.journal
	if j.Synced() >= mark || sabotageConfirm {
		confirms.Settled(ranges, true, w)
		return
	}
	p.mu.Lock()
	var own []Range
	if n := len(p.free); n > 0 {
		own, p.free = p.free[n-1], p.free[:n-1]
	}
	p.list = append(p.list, pendingConfirm{mark, confirms, append(own[:0], ranges...)})
	p.mu.Unlock()
	j.Commit(mark)
	if synced := j.Synced(); synced >= mark { // it came before we were on the list
		p.settle(synced, w)
	}
}

// waiting is how many publishes are not confirmed yet.
func (p *pendingConfirms) waiting() (n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.list {
		for _, r := range p.list[i].ranges {
			n += r.Last - r.First + 1
		}
	}
	return n
}

// settle confirms what is synced.
func (p *pendingConfirms) settle(synced storage.Mark, w *Wake) {
	p.mu.Lock()
	var due []pendingConfirm
	wait := p.list[:0]
	for _, c := range p.list {
		if c.mark <= synced {
			due = append(due, c)
		} else {
			wait = append(wait, c)
		}
	}
	clear(p.list[len(wait):])
	p.list = wait
	p.mu.Unlock()
	for i := range due {
		due[i].confirms.Settled(due[i].ranges, true, w)
	}
	p.mu.Lock()
	for i := range due {
		if len(p.free) < 64 {
			p.free = append(p.free, due[i].ranges)
		}
	}
	p.mu.Unlock()
}

// caughtUp has publishers go on that wait for the journal, if it has caught up.
func (s *Store) caughtUp() {
	if s.journal.Backlog() < maxUnsynced/2 {
		s.pool.Block(BlockedByBacklog, false)
	}
}

// synced is the journal's report; it runs on the journal's goroutine.
func (s *Store) synced(mark storage.Mark, err error) {
	if err != nil {
		if !s.failing.Swap(true) {
			s.o.Log.Error("the journal cannot be written: publishers are blocked until it can", "error", err.Error())
			s.pool.Block(BlockedByJournal, true)
		}
		return
	}
	if s.failing.Swap(false) {
		s.o.Log.Info("the journal can be written again")
		s.pool.Block(BlockedByJournal, false)
	}
	var w Wake
	s.confirms.settle(mark, &w)
	w.Flush()
	s.caughtUp()
	if s.journal.Size() > s.o.JournalMax {
		s.wakeFlusher()
	}
}

package storage

import "time"

// sync is the syncer: the one goroutine that writes.
func (j *Journal) sync() {
	defer close(j.done)
	for j.await() {
		if !j.round() {
			j.rest()
		}
	}
	j.finish()
}

// await parks until there is something to sync. It reports false when the journal is being closed.
func (j *Journal) await() bool {
	for {
		j.mu.Lock()
		if j.closing {
			j.mu.Unlock()
			return false
		}
		if len(j.group) > 0 || j.wanted > Mark(j.synced.Load()) {
			j.mu.Unlock()
			return true
		}
		j.parked = true
		j.mu.Unlock()
		<-j.wake
	}
}

// round takes all that was appended and makes it durable. It reports false if that failed; the group is kept.
func (j *Journal) round() bool {
	j.take()
	if err := j.storeTwice(); err != nil {
		j.err.Store(&err)
		j.tell(err)
		return false
	}
	if j.err.Load() != nil {
		j.err.Store(nil)
		j.tell(nil)
	}
	j.pause = 0
	j.files.provide()
	return true
}

// take moves what was appended to the group.
func (j *Journal) take() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.group = append(j.group, j.full...)
	clear(j.full)
	j.full = j.full[:0]
	if j.cur != nil {
		j.group = append(j.group, j.cur)
		j.cur = nil
	}
}

// store writes the group to the current file and, where that ends, the next ones. What is synced leaves the group.
func (j *Journal) store() error {
	base := Mark(j.synced.Load())
	written := 0
	for written < len(j.group) {
		c := j.group[written]
		if !j.files.fits(c) {
			if err := j.syncFile(written); err != nil {
				return err
			}
			written = 0
			if err := j.files.next(c); err != nil {
				return err
			}
			base = c.position // the file begins here because all before is synced
		}
		if err := j.files.write(c, base); err != nil {
			return err
		}
		written++
	}
	return j.syncFile(written)
}

// syncFile syncs the current file, which holds the first n chunks of the group.
func (j *Journal) syncFile(n int) error {
	if n == 0 {
		return nil
	}
	begun := time.Now()
	if err := j.files.sync(); err != nil {
		return err
	}
	j.syncs.Add(time.Since(begun))
	mark := j.group[n-1].end()
	j.synced.Store(uint64(mark))
	j.recycle(j.group[:n])
	rest := copy(j.group, j.group[n:])
	clear(j.group[rest:])
	j.group = j.group[:rest]
	if j.err.Load() == nil {
		j.tell(nil)
	}
	return nil
}

func (j *Journal) tell(err error) {
	if j.o.Synced != nil && !j.quiet {
		j.o.Synced(Mark(j.synced.Load()), err)
	}
}

// rest waits after a failure, twice as long each time, or until the journal is closed.
func (j *Journal) rest() {
	j.pause = min(max(2*j.pause, pause0), pauseMax)
	until := time.NewTimer(j.pause)
	defer until.Stop()
	for {
		j.mu.Lock()
		closing := j.closing
		j.mu.Unlock()
		if closing {
			return
		}
		select {
		case <-until.C:
			return
		case <-j.wake:
		}
	}
}

// finish writes what is left, and then, unless the journal was left, the frame that says that nothing is missing before it.
func (j *Journal) finish() {
	j.take()
	j.mu.Lock()
	left := j.left
	j.mu.Unlock()
	err := j.storeTwice()
	if err == nil && !left {
		last := newChunk(0)
		last.position, last.epoch, last.flags = Mark(j.appended.Load()), j.Epoch(), flagClosed
		j.group = append(j.group, last)
		err = j.storeTwice()
	}
	if err != nil {
		j.err.Store(&err)
		j.closeErr = err
	}
	j.files.close()
}

// storeTwice stores the group, and if that fails once more, in another file.
func (j *Journal) storeTwice() error {
	err := j.store()
	for tries := 1; err != nil; tries++ {
		j.faults.Add(1)
		j.files.abandon()
		if j.o.NoSpace != nil && IsNoSpace(err) {
			j.o.NoSpace()
		}
		if tries == 2 {
			break
		}
		err = j.store()
	}
	return err
}

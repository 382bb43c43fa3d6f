package storage

import (
	"fmt"
	"path/filepath"
)

// journal makes the journal that goes on after what was read.
func (r *journalReplay) journal(o JournalOptions) (*Journal, error) {
	start := max(r.end, o.After)
	epoch := r.last + 1
	j := &Journal{
		o:      o,
		wake:   make(chan struct{}, 1),
		done:   make(chan struct{}),
		epoch:  epoch,
		epochs: append(r.epochs, epochSize{epoch: epoch, start: start, end: start}),
	}
	f := &j.files
	*f = journalFiles{
		fs: r.fs, dir: r.dir, fileSize: o.FileSize, maxSpare: o.Spares, salt: o.salt, manual: o.manual,
		end: r.end, epoch: r.before,
	}
	// What was written after the last sync that is known of is in the system's memory perhaps, and not on the disk, and a sync that failed
	// before may keep it from getting there: it is written once more.
	for _, t := range r.tail {
		c, err := r.chunk(t)
		if err != nil {
			return nil, err
		}
		j.group = append(j.group, c)
		f.end = min(f.end, c.position)
	}
	j.appended.Store(uint64(start))
	if len(j.group) == 0 {
		j.synced.Store(uint64(start))
	} else {
		j.synced.Store(uint64(f.end))
	}
	opening := newChunk(0)
	opening.position, opening.epoch = start, epoch
	j.group = append(j.group, opening)
	r.sort(f)
	return j, nil
}

// chunk reads a frame of the tail back into memory.
func (r *journalReplay) chunk(t tailFrame) (*chunk, error) {
	file, err := r.fs.Open(filepath.Join(r.dir, t.file))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	c := newChunk(t.header.length)
	c.buf = c.buf[:chunkHead+t.header.length]
	c.position, c.epoch = t.header.position, t.header.epoch
	if _, err := file.ReadAt(c.buf[fileHead:], t.off); err != nil {
		return nil, err
	}
	if !checkFrame(c.buf[fileHead:]) {
		return nil, fmt.Errorf("storage: %s changed while it was read", t.file)
	}
	return c, nil
}

// sort makes the files that were read the journal's, takes some of the others as spares, and removes the rest. What it cannot
// remove is in nobody's way and tried again at the next start.
func (r *journalReplay) sort(f *journalFiles) {
	for _, c := range r.chain {
		f.live = append(f.live, &journalFile{name: c.name, size: c.size, use: c.head.use, last: r.last, synced: true, failed: c.failed})
	}
	for i := range f.live[:max(len(f.live)-1, 0)] {
		f.live[i].last = r.chain[i+1].head.before
	}
	var remove []string
	for _, c := range r.found {
		f.use = max(f.use, c.head.use, r.use)
		slot, _ := slotOf(c.name)
		f.slot = max(f.slot, slot)
		switch {
		case c.chained || c.state == headBad:
		case c.size == f.fileSize && len(f.spares) < f.maxSpare && (len(r.chain) == 0 || c.head.use < r.chain[0].head.use):
			f.spares = append(f.spares, c.name)
		default:
			remove = append(remove, c.name)
		}
	}
	r.report.Spares = len(f.spares)
	f.remove(remove)
}

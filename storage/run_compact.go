package storage

import (
	"cmp"
	"context"
	"iter"
	"math"
	"slices"
	"time"
)

// VictimOptions say which runs are worth copying forward.
type VictimOptions struct {
	// Small is the size in octets of what is alive below which a run is joined with others; 0: 8 MiB.
	Small uint64
	// Join is how many small runs there must be before they are joined; 0: 4.
	Join int
	// Most is how many live octets are copied at once, roughly; 0: 256 MiB.
	Most uint64
}

// Victims are runs that Compact should make one of, oldest first: those less than half alive, and small ones where there
// are several. None is nothing to do. Runs without any extents left are Dead's, damaged ones stay as they are until all in them
// is dropped, and transient ones are not mixed with others.
func (s *RunSet) Victims(alive Alive, o VictimOptions) []RunID {
	if o.Small == 0 {
		o.Small = 8 << 20
	}
	if o.Join == 0 {
		o.Join = 4
	}
	if o.Most == 0 {
		o.Most = 256 << 20
	}
	for _, transient := range []bool{false, true} {
		var sparse, small []RunID
		var sparseLive, smallLive uint64
		for _, id := range s.copyable(transient) {
			live, size, ok := s.liveOctets(id, alive)
			switch {
			case !ok:
			case live < size/2:
				if len(sparse) == 0 || sparseLive+live <= o.Most {
					sparse = append(sparse, id)
					sparseLive += live
				}
			case live < o.Small:
				if smallLive+live <= o.Most {
					small = append(small, id)
					smallLive += live
				}
			}
		}
		// What is sparse is small now as well, so that the two go together.
		if len(small)+len(sparse) >= o.Join && sparseLive+smallLive <= o.Most {
			sparse = append(sparse, small...)
			slices.Sort(sparse)
		}
		if len(sparse) > 0 {
			return sparse
		}
	}
	return nil
}

// copyable are the runs of a kind that have extents and no known damage, oldest first.
func (s *RunSet) copyable(transient bool) []RunID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []RunID
	for id, r := range s.runs {
		if r.listed > 0 && !r.damaged && r.transient == transient {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// listedExtents are the indexes of a run's extents that are in the set.
func (s *RunSet) listedExtents(id RunID) (*setRun, []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[id]
	if r == nil {
		return nil, nil
	}
	extents := make([]int, 0, r.listed)
	for i := range r.extents {
		if r.isListed(i) {
			extents = append(extents, i)
		}
	}
	return r, extents
}

// liveOctets is how many octets of a run's records are alive, of how many. It goes by the tables only: see octetsAlive.
func (s *RunSet) liveOctets(id RunID, alive Alive) (live, size uint64, ok bool) {
	r, extents := s.listedExtents(id)
	if r == nil {
		return 0, 0, false
	}
	for _, i := range extents {
		e := &r.extents[i]
		live += r.octetsAlive(i, alive(e.log, e.first, e.last))
	}
	return live, uint64(r.pages[len(r.pages)-1].offset() - runHeaderLen), true
}

// octetsAlive is how many octets an extent's living records take in the file. Of a page that is alive in part it takes as
// many records for alive as there are living sequence numbers: that may be too much, but never makes a run sparse that has
// only living records, which would be copied for ever.
func (r *Run) octetsAlive(extent int, alive iter.Seq2[uint64, uint64]) (octets uint64) {
	e := &r.extents[extent]
	page, living := int(e.page), uint64(0)
	add := func() {
		p := r.pages[page]
		size, n := uint64(r.pages[page+1].offset()-p.offset()), uint64(p.records())
		octets += size * min(living, n) / n
		living = 0
	}
	for first, last := range alive {
		first, last = max(first, e.first), min(last, e.last)
		for p := r.find(extent, first); p < r.endPage(extent) && r.pages[p].first <= last; p++ {
			if p != page {
				add()
				page = p
			}
			if from, to := max(first, r.pages[p].first), min(last, r.lastOf(extent, p)); from <= to {
				living += to - from + 1
			}
		}
	}
	add()
	return octets
}

// CompactOptions say how runs are copied.
type CompactOptions struct {
	Rate  int // octets read a second; 0: as fast as it goes
	Write RunOptions
	// Step runs each of the small steps of the copying, and may rest between them; nil runs them one after another.
	Step func(func())
}

const (
	compactChunk = 64 << 10 // octets read at once while compacting: a step
	compactSync  = 2 << 20  // octets synced at a time: others' syncs wait for the disk behind them
	compactGap   = 64       // sequence numbers between two living ranges that are read in one
)

// Compact copies what is alive in some runs to a new one of the given id, transient if they are, and returns it, or nil if
// nothing was alive. The set does not change: once the new run is registered in place of the old ones, Replace puts it in
// their place; before that Discard deletes it again. The error is a *RunDamage if something in them is damaged; Victims
// does not name that run again.
func (s *RunSet) Compact(ctx context.Context, ids []RunID, id RunID, alive Alive, o CompactOptions) (*Run, error) {
	c := compaction{set: s, alive: alive, pace: pace{ctx: ctx, rate: o.Rate, start: time.Now()}, step: o.Step}
	if c.step == nil {
		c.step = func(f func()) { f() }
	}
	c.cursor.set, c.cursor.copying = s, true
	c.alloc = func(n int) []byte {
		if c.used == len(c.buffers) {
			c.buffers = append(c.buffers, nil)
		}
		b := &c.buffers[c.used]
		c.used++
		*b = slices.Grow((*b)[:0], n)[:n]
		return *b
	}
	for _, victim := range ids {
		if r := s.pinRun(victim); r != nil {
			c.pinned = append(c.pinned, r)
			o.Write.Transient = r.transient
		}
	}
	defer func() { s.unpin(c.pinned) }()
	w, err := CreateRun(s.fs, s.dir, id, o.Write)
	if err != nil {
		return nil, err
	}
	c.w = w
	if err := cmp.Or(c.copy(), c.damaged()); err != nil {
		w.Abort()
		return nil, err
	}
	if len(w.run.extents) == 0 {
		return nil, w.Abort()
	}
	run, err := w.Finish()
	if err != nil {
		w.Abort()
		return nil, err
	}
	return run, nil
}

// pinRun keeps a run's file until unpin.
func (s *RunSet) pinRun(id RunID) *setRun {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.runs[id]
	if r != nil {
		r.pins++
	}
	return r
}

// Discard deletes the file of a run that Compact has made and that is not to replace anything.
func (s *RunSet) Discard(run *Run) error { return s.fs.Remove(runName(s.dir, run.id)) }

// Replace puts a run, or nothing, in the place of those that it was made of, at once for all readers, and deletes their
// files, or leaves that to their last readers. What was dropped of them while they were copied is dropped of the new run.
// The error is one of deleting files; the set is in order all the same.
func (s *RunSet) Replace(run *Run, old []RunID) error {
	s.mu.Lock()
	var r *setRun
	var list []int
	if run != nil {
		r = s.add(run)
		for i := range run.extents {
			if s.anyListed(old, run.extents[i].log, run.extents[i].first>>levelShift) {
				list = append(list, i)
			}
		}
	}
	var idle []RunID
	for _, id := range old {
		if s.take(id) {
			idle = append(idle, id)
		}
	}
	for _, i := range list {
		s.list(r, i)
	}
	s.mu.Unlock()
	return s.delete(idle)
}

// anyListed is whether the set has an extent of some runs that is one of a level of a log.
func (s *RunSet) anyListed(ids []RunID, log LogID, level uint64) bool {
	for _, id := range ids {
		r := s.runs[id]
		if r == nil {
			continue
		}
		from, to := r.logExtents(log)
		for i := from; i < to; i++ {
			if r.extents[i].first>>levelShift == level && r.isListed(i) {
				return true
			}
		}
	}
	return false
}

// compaction is one copying of runs.
type compaction struct {
	set    *RunSet
	alive  Alive
	w      *RunWriter
	pinned []*setRun
	cursor Cursor
	pace   pace
	step   func(func())

	ranges []seqSpan // the living ones of the log

	alloc   func(int) []byte
	buffers [][]byte // memory for what is read, used again and again
	used    int      // how many of them are
}

// damaged is an error if damage is known in one of the runs, by now: readers pass over it, and a copy would not show that anything is missing.
func (c *compaction) damaged() error {
	c.set.mu.Lock()
	defer c.set.mu.Unlock()
	for _, r := range c.pinned {
		if r.damaged {
			return &RunDamage{Run: r.id, What: "known damage"}
		}
	}
	return nil
}

// victimExtent is an extent to copy.
type victimExtent struct {
	run    *setRun
	extent int
}

// copy copies the extents log by log, level by level.
func (c *compaction) copy() error {
	var extents []victimExtent
	for _, r := range c.pinned {
		_, listed := c.set.listedExtents(r.id)
		for _, i := range listed {
			extents = append(extents, victimExtent{r, i})
		}
	}
	slices.SortFunc(extents, func(a, b victimExtent) int {
		x, y := &a.run.extents[a.extent], &b.run.extents[b.extent]
		if x.log != y.log {
			return cmp.Compare(x.log, y.log)
		}
		return cmp.Compare(x.first, y.first)
	})
	for len(extents) > 0 {
		e := &extents[0].run.extents[extents[0].extent]
		n := 1
		for n < len(extents) {
			x := &extents[n].run.extents[extents[n].extent]
			if x.log != e.log || x.first>>levelShift != e.first>>levelShift {
				break
			}
			n++
		}
		if err := c.copyLevel(e.log, extents[:n]); err != nil {
			return err
		}
		extents = extents[n:]
	}
	return nil
}

// copyLevel copies what is alive in extents of one level of one log.
func (c *compaction) copyLevel(log LogID, extents []victimExtent) error {
	cur := &c.cursor
	cur.log = log
	cur.sources = cur.sources[:0]
	first, last := uint64(math.MaxUint64), uint64(0)
	for _, v := range extents {
		e := &v.run.extents[v.extent]
		first, last = min(first, e.first), max(last, e.last)
		cur.sources = append(cur.sources, runSource{run: v.run, extent: v.extent, loaded: -1, buf: cur.spare})
		cur.spare = nil
	}
	c.ranges = c.ranges[:0]
	for from, to := range c.alive(log, first, last) {
		if from, to = max(from, first), min(to, last); from <= to {
			c.ranges = append(c.ranges, seqSpan{from, to})
		}
	}
	for ranges := c.ranges; len(ranges) > 0; {
		n := 1
		for n < len(ranges) && ranges[n].first-ranges[n-1].last <= compactGap {
			n++
		}
		if err := c.copyRanges(log, ranges[:n]); err != nil {
			return err
		}
		ranges = ranges[n:]
	}
	cur.spare = cur.sources[0].buf
	return nil
}

// copyRanges reads from the first of the ranges to the last, and copies what is in any of them.
func (c *compaction) copyRanges(log LogID, ranges []seqSpan) error {
	cur, read := &c.cursor, 0
	from, to := ranges[0].first, ranges[len(ranges)-1].last
	var failed error
	into := func(_, _ int, r Record) {
		read += len(r.Bytes) + runEntryLen
		from = r.Seq + 1
		for r.Seq > ranges[0].last {
			ranges = ranges[1:]
		}
		if r.Seq >= ranges[0].first && failed == nil {
			failed = c.w.Add(log, r)
		}
	}
	for from <= to {
		var err error
		c.step(func() {
			c.used, read = 0, 0
			if err = cur.choose(from, to, compactChunk, math.MaxInt); err != nil || len(cur.picks) == 0 {
				return
			}
			if err = cur.load(c.alloc); err == nil {
				_, err = cur.deliver(into)
			}
			for i := range cur.sources {
				cur.sources[i].taken, cur.sources[i].data = 0, nil
			}
		})
		if err = cmp.Or(err, failed); err == nil && len(cur.picks) > 0 {
			err = cmp.Or(c.w.Sync(compactSync), c.pace.spend(read))
		}
		if err != nil || len(cur.picks) == 0 || from == 0 {
			return err
		}
	}
	return nil
}

// pace holds a sequence of steps to a rate.
type pace struct {
	ctx   context.Context
	rate  int // a second; 0: no limit
	start time.Time
	spent int
}

// spend waits until what was spent altogether, n more by now, is due.
func (p *pace) spend(n int) error {
	p.spent += n
	if p.rate > 0 {
		due := time.Duration(float64(p.spent) / float64(p.rate) * float64(time.Second))
		if wait := due - time.Since(p.start); wait > 10*time.Millisecond {
			t := time.NewTimer(wait)
			defer t.Stop()
			select {
			case <-t.C:
			case <-p.ctx.Done():
			}
		}
	}
	return p.ctx.Err()
}

package storage

import (
	"io"
	"math"
)

// Cursor reads one log's records from the runs of a set, in ascending order of sequence number whatever runs they lie in.
// It keeps the entries of a page, at most 96 KiB, for each run that it reads from at the moment, so that reading on costs
// no more than the bytes; Reset lets go of all but one. It holds no file between two calls, and sees the set as it is at
// each call. It is not for concurrent use; any number of cursors are.
type Cursor struct {
	set     *RunSet
	log     LogID
	sources []runSource
	before  []runSource // the sources of the call before; scratch
	picks   []runPick
	pinned  []*setRun
	spare   []byte // a buffer for a page's entries
	copying bool   // damaged pages are left for others to find
	only    RunID  // the one run to read from; 0: all
}

// fanIn is how many extents a cursor merges at a time if they do not force it to merge more.
const fanIn = 8

// runPick is a stretch of records from one source.
type runPick struct {
	source, pos, n int
	offset         int // of its bytes within what is taken from the source
}

// Cursor makes a cursor for a log.
func (s *RunSet) Cursor(log LogID) *Cursor { return &Cursor{set: s, log: log} }

// Log is the log that c reads.
func (c *Cursor) Log() LogID { return c.log }

// Reset makes c a cursor for a log, which may be another one.
func (c *Cursor) Reset(log LogID) {
	c.log = log
	for i := range c.sources {
		if buf := c.sources[i].buf; cap(buf) > cap(c.spare) {
			c.spare = buf
		}
	}
	clear(c.sources[:cap(c.sources)])
	clear(c.before[:cap(c.before)])
	c.sources, c.before = c.sources[:0], c.before[:0]
}

// Read reads records with sequence numbers in from to to, in order from the first that there is, and returns how many. It
// stops before their bytes exceed max, and may stop earlier, at the end of a page for one; 0 without an error means that
// there are no more. A first record longer than max is read alone. Of records with the same number, which should not be,
// one is read.
//
// The bytes go straight from the file into memory that alloc returns, which is called once or, where extents overlap, a
// few times in a call, before any record is passed to into; what it returns may be longer than asked for. Chunk says which
// call of alloc a record's bytes are in, counted from 0 in each Read, and offset where; Bytes is a view into it. Chunks
// belong to the caller, also those that an error left without records.
//
// A *RunDamage says what is lost; every record that was passed on before it is sound, and no damaged one ever is. Read on
// behind its Last if one record is lost, and from the same place if it is a page: it is passed over from then on, by all
// cursors of the set. Any other error is one of reading the file; asking again may help, with less to read at a time.
func (c *Cursor) Read(from, to uint64, max int, alloc func(n int) []byte, into func(chunk, offset int, r Record)) (int, error) {
	for {
		limit := c.pin(from, to)
		err := c.choose(from, limit, max, math.MaxInt)
		n := 0
		if err == nil && len(c.picks) > 0 {
			if err = c.load(alloc); err == nil {
				n, err = c.deliver(into)
			}
		}
		c.unpin()
		if n > 0 || err != nil || limit == to {
			return n, err
		}
		from = limit + 1
	}
}

// AppendMeta appends what is known of records with sequence numbers in from to to, in order from the first that there is,
// at most max of them; none without an error means that there are no more. It reads no bytes of records. Errors are those
// of Read.
func (c *Cursor) AppendMeta(dst []Meta, from, to uint64, max int) ([]Meta, error) {
	for had := len(dst); ; {
		limit := c.pin(from, to)
		err := c.choose(from, limit, math.MaxInt, max)
		for _, p := range c.picks {
			s := &c.sources[p.source]
			for i := p.pos; i < p.pos+p.n; i++ {
				dst = append(dst, s.entries().meta(i, s.first()))
			}
		}
		c.unpin()
		if len(dst) > had || err != nil || limit == to {
			return dst, err
		}
		from = limit + 1
	}
}

// AppendMetaOf is AppendMeta for the records that lie in one run, whatever others have between them.
func (c *Cursor) AppendMetaOf(run RunID, dst []Meta, from, to uint64, max int) ([]Meta, error) {
	c.only = run
	defer func() { c.only = 0 }()
	return c.AppendMeta(dst, from, to, max)
}

// Count is how many records with sequence numbers in first to last there are, and the sum of their Size. It reads at most
// two pages of an extent, and none of one that lies within the range. Errors are those of Read; pages that are passed over
// do not count where one of them is at an end of the range.
func (c *Cursor) Count(first, last uint64) (records, octets uint64, err error) {
	for {
		limit := c.pin(first, last)
		for i := range c.sources {
			n, o, e := c.sources[i].count(c.set, first, limit)
			if e != nil {
				c.unpin()
				return 0, 0, e
			}
			records += n
			octets += o
		}
		c.unpin()
		if limit == last {
			return records, octets, nil
		}
		first = limit + 1
	}
}

// pin finds the extents to read from, and keeps their files from being deleted. Records up to the limit that it returns
// are in no other extents.
func (c *Cursor) pin(from, to uint64) (limit uint64) {
	c.before, c.sources = c.sources, c.before[:0]
	limit = to
	s := c.set
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ref := range s.logs[c.log] {
		e := s.extentOf(ref)
		if e.first > to {
			break
		}
		if e.last < from || c.only != 0 && s.slots[ref.slot].id != c.only {
			continue
		}
		if len(c.sources) >= fanIn && e.first > from {
			limit = e.first - 1
			break
		}
		r := s.slots[ref.slot]
		r.pins++
		c.pinned = append(c.pinned, r)
		c.sources = append(c.sources, c.source(r, int(ref.extent)))
	}
	return limit
}

// source is the source of the call before for an extent, or a new one.
func (c *Cursor) source(r *setRun, extent int) runSource {
	for i := range c.before {
		if b := &c.before[i]; b.run == r && b.extent == extent {
			s := *b
			b.run, b.buf = nil, nil
			s.taken, s.data = 0, nil
			return s
		}
	}
	s := runSource{run: r, extent: extent, loaded: -1, buf: c.spare}
	c.spare = nil
	return s
}

func (c *Cursor) unpin() {
	c.set.unpin(c.pinned)
	clear(c.pinned)
	c.pinned = c.pinned[:0]
	for i := range c.sources {
		c.sources[i].data = nil
	}
	for i := range c.before {
		if buf := c.before[i].buf; buf != nil {
			c.spare = buf
		}
	}
	clear(c.before)
}

// choose merges what lies ahead in the sources into picks, as far as limit, octets and records allow.
func (c *Cursor) choose(from, limit uint64, octets, records int) error {
	c.picks = c.picks[:0]
	for i := range c.sources {
		if err := c.sources[i].seek(c.set, from, !c.copying); err != nil {
			return err
		}
	}
	for records > 0 {
		best, others := -1, uint64(math.MaxUint64) // the source to read from, and where the next one comes in
		for i := range c.sources {
			s := &c.sources[i]
			if s.ended() || s.next > limit {
				continue
			}
			if best < 0 || s.next < c.sources[best].next {
				if best >= 0 {
					others = c.sources[best].next
				}
				best = i
			} else {
				others = min(others, s.next)
			}
		}
		if best < 0 {
			return nil
		}
		s := &c.sources[best]
		if s.loaded != s.page {
			if s.taken > 0 {
				return nil // its entries are still needed
			}
			if err := s.load(c.set, len(c.picks) == 0 && !c.copying); err != nil {
				if len(c.picks) > 0 {
					return nil // the next call meets it again
				}
				return err
			}
			if s.loaded != s.page {
				continue // passed over
			}
		}
		if s.next < from { // a second record of the same number
			s.skip(from)
			continue
		}
		n, length := s.take(min(limit, max(others, 1)-1), octets, records, len(c.picks) == 0)
		if n == 0 {
			return nil
		}
		from = s.first() + uint64(s.entries().delta(s.pos-1)) + 1
		c.picks = append(c.picks, runPick{best, s.pos - n, n, int(s.offset-s.start) - length})
		octets, records = octets-length, records-n
		s.settle()
		if from == 0 {
			return nil
		}
	}
	return nil
}

// load reads the bytes of what was picked.
func (c *Cursor) load(alloc func(n int) []byte) error {
	chunk := 0
	for i := range c.sources {
		s := &c.sources[i]
		if s.taken == 0 {
			continue
		}
		s.chunk, s.data = chunk, alloc(s.length)[:s.length]
		chunk++
		// What lies behind the end of a file that has become shorter is found out by the checksums.
		if err := c.set.files.readAt(s.run.id, s.data, s.start); err != nil && err != io.ErrUnexpectedEOF {
			return err
		}
	}
	return nil
}

// deliver passes on what was picked, up to the first damaged record.
func (c *Cursor) deliver(into func(chunk, offset int, r Record)) (int, error) {
	n := 0
	for _, p := range c.picks {
		s := &c.sources[p.source]
		entries, first, at := s.entries(), s.first(), p.offset
		for i := p.pos; i < p.pos+p.n; i++ {
			end := at + entries.length(i)
			b := s.data[at:end:end]
			m := entries.meta(i, first)
			if runChecksum(b) != entries.sum(i) {
				c.set.mu.Lock()
				s.run.damaged = true
				c.set.mu.Unlock()
				return n, &RunDamage{Run: s.run.id, Offset: s.start + int64(at), Len: int64(len(b)), What: "record does not match its checksum",
					Log: c.log, First: m.Seq, Last: m.Seq, Records: 1}
			}
			into(s.chunk, at, Record{m.Seq, m.Expiry, m.Size, m.Flags, m.Priority, b})
			at = end
			n++
		}
	}
	return n, nil
}

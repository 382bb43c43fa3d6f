package storage

import (
	"errors"
	"io"
	"slices"
)

// runSource is an extent that is being read.
type runSource struct {
	run    *setRun
	extent int

	page   int    // where it stands; endPage: behind the last record
	next   uint64 // the sequence number there
	pos    int    // entry, and where its bytes lie in the file, if loaded is page
	offset int64

	loaded int    // page whose entries are in buf, -1: none
	buf    []byte // entries and checksum

	// What this call takes from the loaded page.
	taken  int   // records
	start  int64 // where their bytes begin
	length int
	chunk  int
	data   []byte
}

func (s *runSource) entries() runEntries { return runEntries(s.buf[:len(s.buf)-runPageSum]) }
func (s *runSource) first() uint64       { return s.run.pages[s.loaded].first }
func (s *runSource) ended() bool         { return s.page == s.run.endPage(s.extent) }

// seek stands at the first record at or behind from.
func (s *runSource) seek(set *RunSet, from uint64, mark bool) error {
	page := s.run.find(s.extent, from)
	if from <= s.run.pages[page].first || page != s.loaded {
		s.page, s.next = page, s.run.pages[page].first
		s.pos, s.offset = 0, s.run.pages[page].offset()
		if from <= s.next {
			return nil
		}
		if err := s.load(set, mark); err != nil || s.loaded != page {
			return err
		}
	} else if s.page != page || s.pos > s.entries().search(from-s.first()) {
		s.page, s.pos, s.offset = page, 0, s.run.pages[page].offset()
	}
	s.skip(from)
	return nil
}

// skip goes on to the first record at or behind from. The page where s stands is loaded.
func (s *runSource) skip(from uint64) {
	entries := s.entries()
	for to := entries.search(from - s.first()); s.pos < to; s.pos++ {
		s.offset += int64(entries.length(s.pos))
	}
	s.settle()
}

// settle brings page and next in line with pos.
func (s *runSource) settle() {
	if entries := s.entries(); s.pos < entries.len() {
		s.next = s.first() + uint64(entries.delta(s.pos))
		return
	}
	s.turn()
}

// turn goes on to the page behind.
func (s *runSource) turn() {
	s.page++
	s.next, s.pos, s.offset = s.run.pages[s.page].first, 0, s.run.pages[s.page].offset()
}

// take takes records up to a sequence number that fit into octets, at most records of them, and returns how many and how
// long they are.
func (s *runSource) take(last uint64, octets, records int, evenIfLong bool) (n, length int) {
	entries, first := s.entries(), s.first()
	if s.taken == 0 {
		s.start, s.length = s.offset, 0
	}
	for i := s.pos; i < entries.len() && n < records; i++ {
		// The first is taken whatever last says: it is the lowest of all, and would not be chosen if it were too high.
		if n > 0 && first+uint64(entries.delta(i)) > last {
			break
		}
		l := entries.length(i)
		if length+l > octets && (n > 0 || !evenIfLong) {
			break
		}
		length += l
		n++
	}
	s.pos += n
	s.offset += int64(length)
	s.taken += n
	if n > 0 {
		s.length = int(s.offset - s.start)
	}
	return n, length
}

// load reads the entries of the page where s stands. A page that was found damaged before is passed over. With mark, one
// that is found damaged now will be as well.
func (s *runSource) load(set *RunSet, mark bool) error {
	set.mu.Lock()
	bad := s.run.bad[s.page]
	set.mu.Unlock()
	if bad {
		s.turn()
		return nil
	}
	s.loaded = -1
	p := s.run.pages[s.page]
	n := p.metaLen()
	s.buf = slices.Grow(s.buf[:0], n)[:n]
	offset := s.run.pages[s.page+1].offset() - int64(n)
	err := set.files.readAt(s.run.id, s.buf, offset)
	if err == nil {
		err = s.run.checkRunPage(s.extent, s.page, s.buf)
	} else if err == io.ErrUnexpectedEOF {
		err = errors.New("page cut off")
	} else {
		return err
	}
	if err == nil {
		s.loaded, s.pos, s.offset = s.page, 0, p.offset()
		return nil
	}
	set.mu.Lock()
	s.run.damaged = true
	if mark {
		if s.run.bad == nil {
			s.run.bad = map[int]bool{}
		}
		s.run.bad[s.page] = true
	}
	set.mu.Unlock()
	return &RunDamage{Run: s.run.id, Offset: offset, Len: int64(n), What: err.Error(),
		Log: s.run.extents[s.extent].log, First: p.first, Last: s.run.lastOf(s.extent, s.page), Records: p.records()}
}

// count counts the records of the extent in first to last.
func (s *runSource) count(set *RunSet, first, last uint64) (records, octets uint64, err error) {
	e := &s.run.extents[s.extent]
	if first <= e.first && e.last <= last {
		return uint64(e.records), e.octets, nil
	}
	for page := s.run.find(s.extent, first); page < s.run.endPage(s.extent) && s.run.pages[page].first <= last; page++ {
		p := s.run.pages[page]
		if first <= p.first && s.run.lastOf(s.extent, page) <= last {
			records += uint64(p.records())
			octets += p.octets
			continue
		}
		if s.loaded != page {
			s.page = page
			if err := s.load(set, true); err != nil {
				return 0, 0, err
			}
			if s.loaded != page {
				continue
			}
		}
		entries := s.entries()
		for i := range entries.len() {
			if m := entries.meta(i, p.first); m.Seq >= first && m.Seq <= last {
				records++
				octets += uint64(m.Size)
			}
		}
	}
	return records, octets, nil
}

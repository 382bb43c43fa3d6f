package storage

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// A run file, all numbers little endian and of fixed width, all checksums CRC32C:
//
//	| header 32 | extent | extent | … | footer | tail 64 |
//
//	header   "WarrnRun" | version u32 | 0 u32 | run id u64 | 0 u32 | checksum of the 28 octets before u32
//
//	extent   page | page | …       what the run has of one level of one log, in ascending order of sequence numbers
//
//	page     the bytes of at most 4,096 records, one after the other
//	         an entry for each of them, 24 octets:
//	             0  sequence number, less that of the page's first record  u32
//	             4  length of the bytes      u32
//	             8  size                     u32
//	            12  checksum of the bytes    u32
//	            16  expiry                   u48
//	            22  flags                    u8
//	            23  priority                 u8
//	         checksum of the entries, then run id u64, log id u64, the first record's sequence number u64   u32
//
//	footer   an entry for each extent, sorted by log id and sequence number, 56 octets:
//	             0  log id                               u64
//	             8  first, last sequence number          u64, u64
//	            24  sum of the records' sizes            u64
//	            32  earliest expiry, 0 if none expires   u64
//	            40  records, of them with an expiry      u32, u32
//	            48  pages                                u32
//	            52  0                                    u32
//	         an entry for each page of all extents in order, 24 octets:
//	             0  first sequence number                u64
//	             8  offset in the file                   u48
//	            14  records                              u16
//	            16  sum of the records' sizes            u64
//
//	tail     offset of the footer u64 | run id u64 | records u64 | sum of sizes u64 | extents u32 | pages u32 |
//	         flags u32 (1: transient) | checksum of the footer u32 | version u32 | checksum of the 52 octets before u32 | "WarrnRun"
//
// Pages follow one another without a gap, so a page ends where the next begins and its entries lie before that end. A
// start reads tails and footers only; finding a record costs reading one page's entries; reading many in order reads
// bytes in large pieces, with nothing between the records, straight to where they are to stay. A page's checksum covers
// whose page it is, and the checksum of a record's bytes lies in its entry, so that sound octets in a wrong place are
// found out too. A file without a tail was never finished.

const (
	runMagic      = "WarrnRun"
	runVersion    = 1
	runHeaderLen  = 32
	runTailLen    = 64
	runExtentLen  = 56
	runPageLen    = 24
	runEntryLen   = 24
	runPageSum    = 4
	runPageMax    = 4096 // records in a page
	runTransient  = 1
	runExpiryBits = 48
)

var runCRC = crc32.MakeTable(crc32.Castagnoli)

func runChecksum(b []byte) uint32 { return crc32.Checksum(b, runCRC) }

// runPageChecksum is the checksum behind a page's entries.
func runPageChecksum(entries []byte, id RunID, log LogID, first uint64) uint32 {
	var whose [24]byte
	le := binary.LittleEndian
	le.PutUint64(whose[0:], uint64(id))
	le.PutUint64(whose[8:], uint64(log))
	le.PutUint64(whose[16:], first)
	return crc32.Update(runChecksum(entries), runCRC, whose[:])
}

func appendRunHeader(b []byte, id RunID) []byte {
	le := binary.LittleEndian
	b = append(b, runMagic...)
	b = le.AppendUint32(b, runVersion)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, uint64(id))
	b = le.AppendUint32(b, 0)
	return le.AppendUint32(b, runChecksum(b[len(b)-28:]))
}

// checkRunHeader says what is wrong with a file's first 32 octets.
func checkRunHeader(b []byte, id RunID) error {
	le := binary.LittleEndian
	switch {
	case len(b) < runHeaderLen || string(b[:8]) != runMagic:
		return errors.New("not a run")
	case le.Uint32(b[28:]) != runChecksum(b[:28]):
		return errors.New("header does not match its checksum")
	case le.Uint32(b[8:]) != runVersion:
		return errors.New("header of an unknown version")
	case RunID(le.Uint64(b[16:])) != id:
		return errors.New("header of another run")
	}
	return nil
}

func appendRunEntry(b []byte, r *Record, first uint64) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, uint32(r.Seq-first))
	b = le.AppendUint32(b, uint32(len(r.Bytes)))
	b = le.AppendUint32(b, r.Size)
	b = le.AppendUint32(b, runChecksum(r.Bytes))
	return le.AppendUint64(b, uint64(r.Expiry)|uint64(r.Flags)<<48|uint64(r.Priority)<<56)
}

// runEntries are the entries of one page, checked by checkRunPage.
type runEntries []byte

func (b runEntries) len() int           { return len(b) / runEntryLen }
func (b runEntries) delta(i int) uint32 { return binary.LittleEndian.Uint32(b[i*runEntryLen:]) }
func (b runEntries) length(i int) int   { return int(binary.LittleEndian.Uint32(b[i*runEntryLen+4:])) }
func (b runEntries) size(i int) uint32  { return binary.LittleEndian.Uint32(b[i*runEntryLen+8:]) }
func (b runEntries) sum(i int) uint32   { return binary.LittleEndian.Uint32(b[i*runEntryLen+12:]) }

// meta is entry i of a page that starts at first.
func (b runEntries) meta(i int, first uint64) Meta {
	e := b[i*runEntryLen:][:runEntryLen]
	le := binary.LittleEndian
	x := le.Uint64(e[16:])
	return Meta{Seq: first + uint64(le.Uint32(e)), Len: le.Uint32(e[4:]), Size: le.Uint32(e[8:]),
		Expiry: int64(x & (1<<runExpiryBits - 1)), Flags: uint8(x >> 48), Priority: uint8(x >> 56)}
}

// search is the first entry whose delta is at least d.
func (b runEntries) search(d uint64) int {
	lo, hi := 0, b.len()
	for lo < hi {
		if mid := (lo + hi) / 2; uint64(b.delta(mid)) < d {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// metaLen is how many octets the entries of a page and their checksum take.
func (p runPage) metaLen() int { return p.records()*runEntryLen + runPageSum }

// checkRunPage checks the last octets of a page, entries and checksum, against its checksum and against what the footer
// says of it. Everything that is read through checked entries is in bounds.
func (r *Run) checkRunPage(extent, page int, b []byte) error {
	p := r.pages[page]
	entries := runEntries(b[:len(b)-runPageSum])
	if binary.LittleEndian.Uint32(b[len(entries):]) != runPageChecksum(entries, r.id, r.extents[extent].log, p.first) {
		return errors.New("page does not match its checksum")
	}
	last, length, octets := -1, int64(0), uint64(0)
	for i := range entries.len() {
		d := int(entries.delta(i))
		if d <= last {
			return errors.New("page out of order")
		}
		last = d
		length += int64(entries.length(i))
		octets += uint64(entries.size(i))
	}
	data := r.pages[page+1].offset() - p.offset() - int64(p.metaLen())
	if entries.delta(0) != 0 || uint64(last) > r.lastOf(extent, page)-p.first || length != data || octets != p.octets {
		return errors.New("page does not match the footer")
	}
	return nil
}

func appendRunExtent(b []byte, e *runExtent, pages int) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, uint64(e.log))
	b = le.AppendUint64(b, e.first)
	b = le.AppendUint64(b, e.last)
	b = le.AppendUint64(b, e.octets)
	b = le.AppendUint64(b, uint64(e.earliest))
	b = le.AppendUint32(b, e.records)
	b = le.AppendUint32(b, e.expiring)
	b = le.AppendUint32(b, uint32(pages))
	return le.AppendUint32(b, e.reserved)
}

func appendRunPage(b []byte, p runPage) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, p.first)
	b = le.AppendUint64(b, p.place)
	return le.AppendUint64(b, p.octets)
}

func (r *Run) appendTail(b []byte, footer int64, sum uint32) []byte {
	le := binary.LittleEndian
	start := len(b)
	b = le.AppendUint64(b, uint64(footer))
	b = le.AppendUint64(b, uint64(r.id))
	b = le.AppendUint64(b, r.records)
	b = le.AppendUint64(b, r.octets)
	b = le.AppendUint32(b, uint32(len(r.extents)))
	b = le.AppendUint32(b, uint32(len(r.pages)-1))
	flags := uint32(0)
	if r.transient {
		flags = runTransient
	}
	b = le.AppendUint32(b, flags)
	b = le.AppendUint32(b, sum)
	b = le.AppendUint32(b, runVersion)
	b = le.AppendUint32(b, runChecksum(b[start:]))
	return append(b, runMagic...)
}

// readRun reads what a run's file says of itself: header, tail and footer. The error is a *RunDamage unless reading failed.
func readRun(f File, id RunID) (*Run, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	damaged := func(offset int64, what string) (*Run, error) {
		return nil, &RunDamage{Run: id, Offset: offset, Len: size - offset, What: what}
	}
	if size < runHeaderLen+runTailLen {
		return damaged(0, "file too short")
	}
	var b [runTailLen]byte
	if err := readFull(f, b[:runHeaderLen], 0); err != nil {
		return nil, err
	}
	if err := checkRunHeader(b[:runHeaderLen], id); err != nil {
		return damaged(0, err.Error())
	}
	end := size - runTailLen
	if err := readFull(f, b[:], end); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	footer, extents, pages := le.Uint64(b[0:]), le.Uint32(b[32:]), le.Uint32(b[36:])
	flags := le.Uint32(b[40:])
	switch {
	case string(b[56:]) != runMagic:
		return damaged(end, "no tail: never finished, or cut off")
	case le.Uint32(b[52:]) != runChecksum(b[:52]):
		return damaged(end, "tail does not match its checksum")
	case le.Uint32(b[48:]) != runVersion:
		return damaged(end, "tail of an unknown version")
	case RunID(le.Uint64(b[8:])) != id:
		return damaged(end, "tail of another run")
	case footer < runHeaderLen || footer > uint64(end) ||
		uint64(end)-footer != uint64(extents)*runExtentLen+uint64(pages)*runPageLen || flags&^runTransient != 0:
		return damaged(end, "tail does not match the file")
	}
	tables := make([]byte, uint64(end)-footer)
	if err := readFull(f, tables, int64(footer)); err != nil {
		return nil, err
	}
	if le.Uint32(b[44:]) != runChecksum(tables) {
		return damaged(int64(footer), "footer does not match its checksum")
	}
	r := &Run{id: id, transient: flags&runTransient != 0, size: size, records: le.Uint64(b[16:]), octets: le.Uint64(b[24:])}
	if err := r.decodeFooter(tables, int(extents), int(pages), int64(footer)); err != nil {
		return damaged(int64(footer), err.Error())
	}
	return r, nil
}

var errRunFooter = errors.New("footer contradicts itself")

// decodeFooter fills in the tables, b, which lie at offset end in the file, and checks that they fit each other, the file
// and the tail, so that whoever uses them need not.
func (r *Run) decodeFooter(b []byte, extents, pages int, end int64) error {
	le := binary.LittleEndian
	r.extents = make([]runExtent, extents)
	r.pages = make([]runPage, pages+1)
	page := 0
	var records, octets uint64
	for i := range r.extents {
		e := &r.extents[i]
		*e = runExtent{log: LogID(le.Uint64(b)), first: le.Uint64(b[8:]), last: le.Uint64(b[16:]), octets: le.Uint64(b[24:]),
			earliest: int64(le.Uint64(b[32:])), records: le.Uint32(b[40:]), expiring: le.Uint32(b[44:]), page: uint32(page)}
		n := le.Uint32(b[48:])
		if n == 0 || uint64(n) > uint64(pages-page) || le.Uint32(b[52:]) != 0 ||
			e.first > e.last || e.first>>levelShift != e.last>>levelShift || e.expiring > e.records ||
			(e.earliest != 0) != (e.expiring != 0) || uint64(e.earliest)>>runExpiryBits != 0 {
			return errRunFooter
		}
		if i > 0 {
			before := &r.extents[i-1]
			if before.log > e.log || before.log == e.log && before.first>>levelShift >= e.first>>levelShift {
				return errRunFooter
			}
		}
		page += int(n)
		records += uint64(e.records)
		octets += e.octets
		b = b[runExtentLen:]
	}
	if page != pages || records != r.records || octets != r.octets {
		return errRunFooter
	}
	for i := range pages {
		r.pages[i] = runPage{first: le.Uint64(b), place: le.Uint64(b[8:]), octets: le.Uint64(b[16:])}
		b = b[runPageLen:]
	}
	r.pages[pages] = runPage{place: uint64(end)}
	if r.pages[0].offset() != runHeaderLen {
		return errRunFooter
	}
	for i := range r.extents {
		if err := r.checkExtent(i); err != nil {
			return err
		}
	}
	return nil
}

// checkExtent checks the pages of an extent against it and against each other.
func (r *Run) checkExtent(i int) error {
	e := &r.extents[i]
	var records, octets uint64
	for p := int(e.page); p < r.endPage(i); p++ {
		page, next := r.pages[p], r.pages[p+1]
		if page.records() == 0 || page.records() > runPageMax || next.offset()-page.offset() < int64(page.metaLen()) ||
			page.first > e.last || p > int(e.page) && page.first <= r.pages[p-1].first {
			return errRunFooter
		}
		records += uint64(page.records())
		octets += page.octets
	}
	if r.pages[e.page].first != e.first || records != uint64(e.records) || octets != e.octets {
		return errRunFooter
	}
	return nil
}

// readFull fills b from offset. The end of the file is io.ErrUnexpectedEOF.
func readFull(f io.ReaderAt, b []byte, offset int64) error {
	n, err := f.ReadAt(b, offset)
	if n == len(b) {
		return nil
	}
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

package queue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/warrenmq/warren/octet"
)

// The consumption record says which places of a queue may hold a message that is not settled. With it, and with what is
// stored, a queue is built again after a restart (Restore). Whoever is in flight counts as returned in it, because no
// consumer outlives a restart. Its size grows with what is in flight or returned and not consecutive, never with the
// backlog, and equal states give equal bytes. It says nothing of sizes and expiries, which stand with the messages.
//
//	version  octet, 1
//	counts   octet, 1 if the runs have counts, else 0
//	levels   uvarint, then for each level
//	   after  uvarint: every place up to here was passed; those behind it were never handed out
//	   ahead  uvarint: next place, less after
//	   again  uvarint: 0, or by how much the places that are redelivered when handed out exceed after
//	runs     uvarint, then for each run of places at or before their level's cursor, in the order they will be served
//	   first  varint: Seq, less the last Seq of the run before
//	   more   uvarint: places, less one
//	   acquired, failed  uvarints, with counts only
//	check    4 octets, little endian: CRC-32C of all that precedes
const recordVersion = 1

// ErrRecord is what errors about consumption records wrap: it is damaged, or not one of this queue.
var ErrRecord = errors.New("queue: bad consumption record")

// maxPlace bounds the places a record or an extent may name, so that no damage makes them run out.
const maxPlace = 1 << 55

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode appends the consumption record of the state, as it is between two commands whose effects were carried out.
func (s *State) Encode(dst []byte) []byte { return s.encode(dst, nil) }

// encode is Encode; what is leaving counts as returned.
func (s *State) encode(dst []byte, leaving []SeqRange) []byte {
	start := len(dst)
	dst = append(dst, recordVersion, 0)
	if s.rules.CountReturns {
		dst[len(dst)-1] = 1
	}
	dst = binary.AppendUvarint(dst, uint64(s.highest)+1)
	for i := range int(s.highest) + 1 {
		lv := s.level(i)
		dst = binary.AppendUvarint(dst, lv.after)
		dst = binary.AppendUvarint(dst, lv.next-lv.after)
		again := uint64(0)
		if lv.again > lv.after+1 {
			again = lv.again - lv.after
		}
		dst = binary.AppendUvarint(dst, again)
	}
	dst = s.appendRuns(dst, leaving)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// appendRuns appends the exceptions, consecutive ones with equal counts as one run.
func (s *State) appendRuns(dst []byte, leaving []SeqRange) []byte {
	list := s.exceptions(nil, leaving)
	starts := func(i int) bool { // whether a run starts here
		return i == 0 || list[i].seq != list[i-1].seq+1 || list[i].acquired != list[i-1].acquired || list[i].failed != list[i-1].failed
	}
	n := 0
	for i := range list {
		if starts(i) {
			n++
		}
	}
	dst = binary.AppendUvarint(dst, uint64(n))
	last := Seq(0)
	for i := 0; i < len(list); {
		first := i
		for i++; i < len(list) && !starts(i); {
			i++
		}
		f := &list[first]
		dst = binary.AppendVarint(dst, int64(f.seq-last))
		dst = binary.AppendUvarint(dst, uint64(i-first-1))
		if s.rules.CountReturns {
			dst = binary.AppendUvarint(dst, uint64(f.acquired))
			dst = binary.AppendUvarint(dst, uint64(f.failed))
		}
		last = list[i-1].seq
	}
	return dst
}

// decode reads a consumption record.
func (r *Recovery) decode(record []byte) error {
	d := octet.Reader{B: record}
	if n := len(record) - 4; n < 0 || crc32.Checksum(record[:n], castagnoli) != binary.LittleEndian.Uint32(record[n:]) {
		return fmt.Errorf("%w: %d octets, wrong checksum", ErrRecord, len(record))
	} else {
		d.B = record[:n]
	}
	if version := d.Octet(); version != recordVersion {
		return fmt.Errorf("%w: version %d", ErrRecord, version)
	}
	if counts := d.Octet() == 1; counts != r.rules.CountReturns {
		return fmt.Errorf("%w: counts of returns: %v", ErrRecord, counts)
	}
	if n := d.Most(256); n != uint64(len(r.levels)) {
		return fmt.Errorf("%w: %d levels, not %d", ErrRecord, n, len(r.levels))
	}
	for i := range r.levels {
		lv := &r.levels[i]
		lv.after = d.Most(maxPlace)
		lv.next = lv.after + d.Most(maxPlace)
		if ahead := d.Most(maxPlace); ahead != 0 {
			lv.again = lv.after + ahead
		}
		if lv.next == lv.after || lv.next > maxPlace || lv.again > lv.next {
			return fmt.Errorf("%w: level %d: cursor %d, next place %d, redelivered below %d", ErrRecord, i, lv.after, lv.next, lv.again)
		}
	}
	last := Seq(0)
	for n := d.Most(1 << 40); n > 0 && !d.Bad; n-- {
		first := last + Seq(d.Varint())
		c := candidate{first: first.place(), turn: r.turns}
		r.turns++
		c.last = c.first + d.Most(maxPlace)
		if r.rules.CountReturns {
			c.acquired, c.failed = d.U32(), d.U32()
		}
		i := int(first.Level())
		if i >= len(r.levels) || c.first == 0 || c.last > r.levels[i].after {
			return fmt.Errorf("%w: places %d to %d of level %d", ErrRecord, c.first, c.last, i)
		}
		r.levels[i].candidates = append(r.levels[i].candidates, c)
		last = seqOf(uint8(i), c.last)
	}
	if d.Bad || len(d.B) > 0 {
		return fmt.Errorf("%w: it does not end where it should", ErrRecord)
	}
	return nil
}

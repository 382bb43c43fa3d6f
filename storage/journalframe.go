package storage

import (
	"encoding/binary"
	"hash/crc32"
)

// The format of the journal's files. All numbers are little endian.
//
//	file     header, frames, anything
//
//	header   0   magic     8 octets  "WARRENJL"
//	         8   version   4
//	        12   crc32c    4         of the header with this field zero
//	        16   use       8         which use of the file this is: ascending number << 32 | random
//	        24   epoch     8         of the first frame
//	        32   start     8         position of the first frame
//	        40   follows   8         where the journal ended before this file
//	        48   previous  8         use of the file before; 0: this is the first
//	        56   before    8         no frame with records before this file has a later epoch
//
//	frame    0   magic     4         "WJFR"
//	         4   crc32c    4         of the frame from octet 8 to its end
//	         8   length    4         of the payload
//	        12   flags     4         1: the journal was closed here
//	        16   use       8         that of the file
//	        24   epoch     8         of all records in it
//	        32   position  8         octets of payload before it since the journal began
//	        40   base      8         position up to which all was synced when this frame was written
//	        48   payload             records
//
//	record   0   length    4         of the data
//	         4   kind      1
//	         5   data
//
// A file is used again and again and never emptied: after the last frame lie zeroes, or frames of an earlier use, which the
// use in each frame gives away. No name is made or changed for it; the header, written together with the first frame, says
// what the file is now. A file whose header is zero has not been used.
//
// The files of the journal are a chain from the highest use back through previous. A file ends at the position that the
// next one follows, whatever lies behind it: that is what could not be synced, and was written to the next file again. A
// file with a use between two links of the chain was given up before anything in it was synced. If positions leave a hole,
// something is lost.
//
// Base tells a torn write from damage. If a frame is bad and a later one's base is past it, it had been synced and was
// damaged since. If there is none, its sync never returned, and what was written together with it counts for nothing.
const (
	journalVersion = 1

	fileHead   = 64
	frameHead  = 48
	recordHead = 5

	flagClosed = 1

	fileMagic  = "WARRENJL"
	frameMagic = "WJFR"

	// pageSize is the unit in which the system reads what is partly overwritten. Writes go on with zeroes to the end of their last page,
	// so that no page of a recycled file must be read first.
	pageSize = 4096

	// maxRecord bounds a record with its head; a frame of many is closed long before.
	maxRecord = 1 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A fileHeader is the start of a journal file.
type fileHeader struct {
	version  uint32
	use      uint64
	epoch    Epoch
	start    Mark
	follows  Mark
	previous uint64
	before   Epoch
}

func (h *fileHeader) encode(b []byte) {
	le := binary.LittleEndian
	copy(b, fileMagic)
	le.PutUint32(b[8:], h.version)
	le.PutUint32(b[12:], 0)
	le.PutUint64(b[16:], h.use)
	le.PutUint64(b[24:], uint64(h.epoch))
	le.PutUint64(b[32:], uint64(h.start))
	le.PutUint64(b[40:], uint64(h.follows))
	le.PutUint64(b[48:], h.previous)
	le.PutUint64(b[56:], uint64(h.before))
	le.PutUint32(b[12:], crc32.Checksum(b[:fileHead], castagnoli))
}

// decode reports whether b begins with a header that is what was written, of whatever version.
func (h *fileHeader) decode(b []byte) bool {
	if len(b) < fileHead || string(b[:8]) != fileMagic {
		return false
	}
	le := binary.LittleEndian
	var c [fileHead]byte
	copy(c[:], b)
	clear(c[12:16])
	if crc32.Checksum(c[:], castagnoli) != le.Uint32(b[12:]) {
		return false
	}
	*h = fileHeader{
		version:  le.Uint32(b[8:]),
		use:      le.Uint64(b[16:]),
		epoch:    Epoch(le.Uint64(b[24:])),
		start:    Mark(le.Uint64(b[32:])),
		follows:  Mark(le.Uint64(b[40:])),
		previous: le.Uint64(b[48:]),
		before:   Epoch(le.Uint64(b[56:])),
	}
	return true
}

// A frameHeader is the start of a frame.
type frameHeader struct {
	length   int
	flags    uint32
	use      uint64
	epoch    Epoch
	position Mark
	base     Mark
}

// seal writes the header of a frame, whose payload is in place.
func (h *frameHeader) seal(frame []byte) {
	le := binary.LittleEndian
	copy(frame, frameMagic)
	le.PutUint32(frame[8:], uint32(len(frame)-frameHead))
	le.PutUint32(frame[12:], h.flags)
	le.PutUint64(frame[16:], h.use)
	le.PutUint64(frame[24:], uint64(h.epoch))
	le.PutUint64(frame[32:], uint64(h.position))
	le.PutUint64(frame[40:], uint64(h.base))
	le.PutUint32(frame[4:], crc32.Checksum(frame[8:], castagnoli))
}

// decode reads the fields of a header and reports whether it looks like one; what it says is not checked yet.
func (h *frameHeader) decode(b []byte) bool {
	if len(b) < frameHead || string(b[:4]) != frameMagic {
		return false
	}
	le := binary.LittleEndian
	*h = frameHeader{
		length:   int(le.Uint32(b[8:])),
		flags:    le.Uint32(b[12:]),
		use:      le.Uint64(b[16:]),
		epoch:    Epoch(le.Uint64(b[24:])),
		position: Mark(le.Uint64(b[32:])),
		base:     Mark(le.Uint64(b[40:])),
	}
	return true
}

// end is the position behind the frame.
func (h *frameHeader) end() Mark { return h.position + Mark(h.length) }

// checkFrame reports whether a frame is what was written and its records fill it exactly.
func checkFrame(frame []byte) bool {
	le := binary.LittleEndian
	if len(frame) < frameHead || crc32.Checksum(frame[8:], castagnoli) != le.Uint32(frame[4:]) {
		return false
	}
	for p := frame[frameHead:]; len(p) > 0; {
		if len(p) < recordHead {
			return false
		}
		n := uint64(le.Uint32(p)) + recordHead
		if n > uint64(len(p)) {
			return false
		}
		p = p[n:]
	}
	return true
}

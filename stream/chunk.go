package stream

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// HeaderLen is the size of a chunk's header.
const HeaderLen = 48

const (
	chunkMagic = 0x50 // magic 5, version 0
	chunkSum   = 4

	// The types of chunks. Warren writes UserChunk only: it keeps neither publishers' sequences nor offsets in the log.
	UserChunk = 0

	// MaxEntries is how many entries a chunk can have.
	MaxEntries = 1<<16 - 1
	// MaxEntry is the greatest length of an entry's body.
	MaxEntry = 1<<31 - 1
)

// The faults of chunks.
var (
	ErrChunk    = errors.New("stream: malformed chunk")
	ErrChecksum = errors.New("stream: checksum of a chunk does not match")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header is a chunk's header.
type Header struct {
	Type    uint8
	Entries uint16
	Records uint32 // offsets that the chunk takes
	Time    int64  // milliseconds since 1970, of the clock of whoever built it
	Epoch   uint64
	First   uint64 // offset of the first record
	CRC     uint32 // CRC-32 (IEEE) of the entries
	Length  uint32 // octets of the entries
	Filter  uint8  // octets of the bloom filter, 0: none
}

// ParseHeader reads the header at the start of b. It checks what a header alone can tell.
func ParseHeader(b []byte) (h Header, err error) {
	if len(b) < HeaderLen || b[0] != chunkMagic {
		return h, ErrChunk
	}
	be := binary.BigEndian
	h = Header{
		Type:    b[1],
		Entries: be.Uint16(b[2:]),
		Records: be.Uint32(b[4:]),
		Time:    int64(be.Uint64(b[8:])),
		Epoch:   be.Uint64(b[16:]),
		First:   be.Uint64(b[24:]),
		CRC:     be.Uint32(b[32:]),
		Length:  be.Uint32(b[36:]),
		Filter:  b[44],
	}
	if h.Entries == 0 || h.Records < uint32(h.Entries) || h.First+uint64(h.Records) < h.First || be.Uint32(b[40:]) != 0 {
		return h, ErrChunk
	}
	return h, nil
}

// Next is the offset behind the chunk.
func (h Header) Next() uint64 { return h.First + uint64(h.Records) }

// Size is the length of the whole chunk in octets.
func (h Header) Size() int64 { return HeaderLen + int64(h.Length) + int64(h.Filter) + chunkSum }

// Chunk is a view of a chunk's bytes.
type Chunk struct {
	Header
	Bytes []byte // the whole chunk
}

// ParseChunk takes the chunk at the start of b apart, without a copy, and checks both checksums.
func ParseChunk(b []byte) (Chunk, error) {
	c, err := viewChunk(b)
	if err == nil {
		err = c.Verify()
	}
	return c, err
}

// viewChunk is ParseChunk for bytes whose checksums were checked before.
func viewChunk(b []byte) (Chunk, error) {
	h, err := ParseHeader(b)
	if err != nil {
		return Chunk{}, err
	}
	if h.Size() > int64(len(b)) {
		return Chunk{}, ErrChunk
	}
	return Chunk{h, b[:h.Size():h.Size()]}, nil
}

// Verify checks the checksums.
func (c Chunk) Verify() error {
	if crc32.ChecksumIEEE(c.Data()) != c.CRC || headSum(c.Bytes) != binary.BigEndian.Uint32(c.Bytes[len(c.Bytes)-chunkSum:]) {
		return ErrChecksum
	}
	return nil
}

// headSum is the checksum of the header and the filter of a whole chunk.
func headSum(b []byte) uint32 {
	data := binary.BigEndian.Uint32(b[36:])
	return headFilterSum(b[:HeaderLen], b[HeaderLen+int(data):len(b)-chunkSum])
}

func headFilterSum(header, bloom []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, header), castagnoli, bloom)
}

// Data are the entries.
func (c Chunk) Data() []byte { return c.Bytes[HeaderLen : HeaderLen+int(c.Length)] }

// Wire is what the stream protocol's Deliver carries: header and entries.
func (c Chunk) Wire() []byte { return c.Bytes[:HeaderLen+int(c.Length)] }

// Bloom is the bloom filter, nil if there is none.
func (c Chunk) Bloom() []byte {
	if c.Filter == 0 {
		return nil
	}
	at := HeaderLen + int(c.Length)
	return c.Bytes[at : at+int(c.Filter)]
}

// place gives a whole chunk its first offset, where it lies.
func place(b []byte, first uint64) {
	binary.BigEndian.PutUint64(b[24:], first)
	binary.BigEndian.PutUint32(b[len(b)-chunkSum:], headSum(b))
}

// Record is a message in a stream.
type Record struct {
	Offset uint64
	Time   int64  // of its chunk, milliseconds since 1970
	Body   []byte // a view
}

// Records are the records of a chunk, one after the other. The zero value has none.
type Records struct {
	data   []byte // what is left of the entries
	inner  []byte // what is left of a sub-batch, which ends where data begins
	offset uint64 // of the next record
	end    uint64 // offset behind the chunk
	after  uint64 // offset behind the sub-batch
	time   int64
	lost   uint32
	fault  bool
}

// Records are the chunk's records.
func (c Chunk) Records() Records {
	return Records{data: c.Data(), offset: c.First, end: c.Next(), time: c.Time}
}

// Next fills r with the next record, whose body is a view of the chunk. It is false at the end, or where the entries are
// malformed: Err tells which. Records of compressed sub-batches are passed over, as RabbitMQ does for AMQP 0-9-1, and so is what
// a publisher of the stream protocol made malformed within a sub-batch; Lost counts both.
func (it *Records) Next(r *Record) bool {
	for {
		if it.offset < it.after {
			body, rest, ok := simpleEntry(it.inner)
			if !ok {
				it.lost += uint32(it.after - it.offset)
				it.offset, it.inner = it.after, nil
				continue
			}
			it.inner = rest
			*r = Record{it.offset, it.time, body}
			it.offset++
			return true
		}
		if it.offset >= it.end || len(it.data) == 0 {
			it.fault = it.fault || it.offset != it.end || len(it.data) > 0
			return false
		}
		if it.data[0]&0x80 == 0 {
			body, rest, ok := simpleEntry(it.data)
			if !ok {
				return it.stop()
			}
			it.data = rest
			*r = Record{it.offset, it.time, body}
			it.offset++
			return true
		}
		if !it.subBatch() {
			return it.stop()
		}
	}
}

// Err is ErrChunk if the entries were malformed.
func (it *Records) Err() error {
	if it.fault {
		return ErrChunk
	}
	return nil
}

// Lost is how many records so far were passed over because their sub-batch is compressed or malformed.
func (it *Records) Lost() uint32 { return it.lost }

// Offset is the offset that comes next.
func (it *Records) Offset() uint64 { return it.offset }

func (it *Records) stop() bool {
	it.data, it.inner, it.fault = nil, nil, true
	it.offset = it.end
	return false
}

// subBatchLen is the size of what precedes the body of a sub-batch.
const subBatchLen = 11

// subBatch goes into the sub-batch at the start of the data, or behind it if it is compressed.
func (it *Records) subBatch() bool {
	if len(it.data) < subBatchLen {
		return false
	}
	records := binary.BigEndian.Uint16(it.data[1:])
	length := binary.BigEndian.Uint32(it.data[7:])
	compression := it.data[0] >> 4 & 7
	body := it.data[subBatchLen:]
	if uint64(length) > uint64(len(body)) || records == 0 || uint64(records) > it.end-it.offset {
		return false
	}
	it.data, body = body[length:], body[:length:length]
	it.after = it.offset + uint64(records)
	if compression != 0 {
		it.lost += uint32(records)
		it.offset = it.after
		return true
	}
	it.inner = body
	return true
}

// simpleEntry takes a simple entry off the front of b.
func simpleEntry(b []byte) (body, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := binary.BigEndian.Uint32(b)
	if uint64(n) > uint64(len(b)-4) {
		return nil, nil, false
	}
	return b[4 : 4+n : 4+n], b[4+n:], true
}

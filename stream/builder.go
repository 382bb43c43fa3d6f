package stream

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// ErrFull means that a chunk has no place for an entry: there are MaxEntries, or more than 4 GiB.
var ErrFull = errors.New("stream: the chunk is full")

// A Builder puts a chunk together. The zero value is ready, and builds chunks without filters; a Builder is used by one
// goroutine, and keeps its memory from chunk to chunk.
type Builder struct {
	buf     []byte // header and entries
	entries int
	records uint32
	open    int // where the open entry begins
	bloom   Bloom
}

// Reset begins a new chunk, whose filter has size octets: 16 to 255, or 0 for none.
func (b *Builder) Reset(size uint8) {
	if cap(b.buf) < HeaderLen {
		b.buf = make([]byte, HeaderLen, 4096)
	}
	b.buf = b.buf[:HeaderLen]
	clear(b.buf)
	b.entries, b.records = 0, 0
	b.bloom.Reset(size)
}

// Entries is how many entries there are.
func (b *Builder) Entries() int { return b.entries }

// Records is how many records there are.
func (b *Builder) Records() uint32 { return b.records }

// Len is the size of the header and the entries so far.
func (b *Builder) Len() int { return max(len(b.buf), HeaderLen) }

// Add adds a record, with the value that it is to be found by; an empty one is none.
func (b *Builder) Add(body, filter []byte) error {
	dst, err := b.Begin()
	if err != nil {
		return err
	}
	return b.End(append(dst, body...), filter)
}

// Begin is Add for a body that is written in its place: the caller appends it to what Begin returns, and gives that to End, or
// calls neither and the entry was never there.
func (b *Builder) Begin() ([]byte, error) {
	if len(b.buf) < HeaderLen {
		b.Reset(b.bloom.size)
	}
	if b.entries == MaxEntries {
		return nil, ErrFull
	}
	b.open = len(b.buf)
	return append(b.buf, 0, 0, 0, 0), nil
}

// End ends the entry that Begin began. With ErrFull the chunk is what it was before Begin.
func (b *Builder) End(dst, filter []byte) error {
	n := len(dst) - b.open - 4
	if n > MaxEntry || len(dst)-HeaderLen > 1<<32-1 {
		return ErrFull
	}
	binary.BigEndian.PutUint32(dst[b.open:], uint32(n))
	b.buf = dst
	b.entries++
	b.records++
	b.bloom.Add(filter)
	return nil
}

// AddBatch adds a sub-batch of records as a publisher of the stream protocol made it: an entry with a value for all. For
// compression 0 the body is simple entries. Without a record it is ErrChunk.
func (b *Builder) AddBatch(compression uint8, records uint16, expanded uint32, body, filter []byte) error {
	if records == 0 {
		return ErrChunk
	}
	if len(b.buf) < HeaderLen {
		b.Reset(b.bloom.size)
	}
	if b.entries == MaxEntries || len(b.buf)-HeaderLen+subBatchLen+len(body) > 1<<32-1 || b.records+uint32(records) < b.records {
		return ErrFull
	}
	b.buf = append(b.buf, 0x80|compression&7<<4)
	b.buf = binary.BigEndian.AppendUint16(b.buf, records)
	b.buf = binary.BigEndian.AppendUint32(b.buf, expanded)
	b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(len(body)))
	b.buf = append(b.buf, body...)
	b.entries++
	b.records += uint32(records)
	b.bloom.Add(filter)
	return nil
}

// Finish is the chunk, complete but for its first offset, which is 0 until Log.Append gives it one. time is in milliseconds
// since 1970. The bytes are good until the next Reset. A chunk without entries is nil.
func (b *Builder) Finish(time int64, epoch uint64) []byte {
	if b.entries == 0 {
		return nil
	}
	be, data := binary.BigEndian, b.buf[HeaderLen:]
	b.buf[0], b.buf[1] = chunkMagic, UserChunk
	be.PutUint16(b.buf[2:], uint16(b.entries))
	be.PutUint32(b.buf[4:], b.records)
	be.PutUint64(b.buf[8:], uint64(time))
	be.PutUint64(b.buf[16:], epoch)
	be.PutUint32(b.buf[32:], crc32.ChecksumIEEE(data))
	be.PutUint32(b.buf[36:], uint32(len(data)))
	filter := b.bloom.Bytes()
	b.buf[44] = uint8(len(filter))
	whole := append(b.buf, filter...)
	whole = append(whole, 0, 0, 0, 0)
	place(whole, 0)
	b.buf = whole[:len(b.buf)]
	return whole
}

package cluster

import (
	"encoding/binary"
	"sync"
)

// chunkSize is the unit in which a log takes memory.
const chunkSize = 64 << 10

type chunk [chunkSize]byte

// chunks are unused ones, for all links of a node.
type chunks struct {
	mu   sync.Mutex // guards what follows; a leaf
	free []*chunk
}

const sparesMax = 64 // 4 MiB

func (p *chunks) get() *chunk {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.free)
	if n == 0 {
		return new(chunk)
	}
	c := p.free[n-1]
	p.free[n-1] = nil
	p.free = p.free[:n-1]
	return c
}

func (p *chunks) put(c *chunk) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) < sparesMax {
		p.free = append(p.free, c)
	}
}

// sendLog is what a link has to send, and what it has sent but the other side has not acknowledged: octets by position, in
// chunks. Frames lie in it as they go over the wire. It has no lock of its own.
//
//	base ≤ freed = min(acked, next)     next ≤ end
//
// What lies before next may have been given to the system, what lies between next and writing is being written at this
// moment: it is kept even if the other side acknowledges it before the write returns.
type sendLog struct {
	pool   *chunks
	chunks []*chunk // the first one has the octet at base
	base   uint64   // a multiple of chunkSize
	acked  uint64   // the other side has all before this
	next   uint64   // the next octet to write; the start of a frame
	end    uint64
	frames uint16 // how many frames were appended, the low bits
}

// held is how many octets have not been acknowledged.
func (l *sendLog) held() int { return int(l.end - l.acked) }

func (l *sendLog) append(p []byte) {
	for len(p) > 0 {
		at := int(l.end % chunkSize)
		if int(l.end-l.base) >= len(l.chunks)*chunkSize {
			l.chunks = append(l.chunks, l.pool.get())
		}
		n := copy(l.chunks[len(l.chunks)-1][at:], p)
		p = p[n:]
		l.end += uint64(n)
	}
}

// appendHead appends the head of a frame, which it numbers, and whose body comes next.
func (l *sendLog) appendHead(f *frame, size int) {
	f.number = l.frames
	l.frames++
	var head [frameHead]byte
	l.append(f.appendHead(head[:0], size))
}

// take appends to vec the octets of whole frames from next on, at least one, and no more when there are limit octets. It
// returns the position behind them.
func (l *sendLog) take(vec [][]byte, limit int) ([][]byte, uint64) {
	to := l.next
	for to < l.end && to-l.next < uint64(limit) {
		to += frameHead + uint64(l.size(to))
	}
	for at := l.next; at < to; {
		i, from := int((at-l.base)/chunkSize), int(at%chunkSize)
		n := min(uint64(chunkSize-from), to-at)
		vec = append(vec, l.chunks[i][from:from+int(n)])
		at += n
	}
	return vec, to
}

// size reads the size in the head of the frame at a position.
func (l *sendLog) size(at uint64) uint32 {
	var b [4]byte
	for i := range b {
		p := at + uint64(i)
		b[i] = l.chunks[(p-l.base)/chunkSize][p%chunkSize]
	}
	return binary.LittleEndian.Uint32(b[:])
}

// wrote is told that all before a position has been written.
func (l *sendLog) wrote(to uint64) {
	l.next = to
	l.free()
}

// ack is told that the other side has all before a position. That is false if it cannot be.
func (l *sendLog) ack(to uint64) bool {
	if to < l.acked || to > l.end {
		return false
	}
	l.acked = to
	l.free()
	return true
}

// rewind goes on from where the other side is. Nobody may be writing.
func (l *sendLog) rewind(to uint64) bool {
	if to < l.acked || to > l.end {
		return false
	}
	l.acked, l.next = to, to
	l.free()
	return true
}

// reset forgets everything. Nobody may be writing.
func (l *sendLog) reset() {
	for _, c := range l.chunks {
		l.pool.put(c)
	}
	*l = sendLog{pool: l.pool, chunks: l.chunks[:0]}
	clear(l.chunks[:cap(l.chunks)])
}

func (l *sendLog) free() {
	freed := min(l.acked, l.next)
	n := int((freed - l.base) / chunkSize)
	if freed == l.end && freed%chunkSize != 0 && l.next == l.end {
		// Nothing is left: the chunk that is not full goes too, and the next octet starts where it would have.
		n = len(l.chunks)
	}
	if n == 0 {
		return
	}
	for _, c := range l.chunks[:n] {
		l.pool.put(c)
	}
	rest := copy(l.chunks, l.chunks[n:])
	clear(l.chunks[rest:])
	l.chunks = l.chunks[:rest]
	l.base = freed - freed%chunkSize
}

package stream

import (
	"container/list"
	"math/bits"
	"sync"
	"sync/atomic"
)

// Memory is what the readers of all streams of a node share: recent chunks, and blocks that were read from disk. It has one
// bound; what was not used for the longest time makes room. Who wants to read while all of it is in use waits until somebody
// releases some, which Reader asks of its callers. It is safe for concurrent use.
type Memory struct {
	max int64

	mu     sync.Mutex // guards what follows, and refs, gone and place of each block
	room   sync.Cond
	used   int64 // octets of buffers with blocks
	spare  int64 // octets of free buffers
	free   [maxClass + 1][][]byte
	blocks map[blockKey]*block
	recent list.List // of *block, all that are not gone, the one used last in front
	logs   uint64    // ids given to logs
	reads  atomic.Uint64
}

// DefaultMemory is the bound of a Memory if nothing else is said, in octets.
const DefaultMemory = 32 << 20

const (
	minClass = 14 // buffers are 16 KiB or more,
	maxClass = 20 // powers of two, and above 1 MiB made for one use
)

// blockKey names a block that was read: all whole chunks that begin in a window of a segment.
type blockKey struct {
	log, base uint64
	window    int64
}

// block is a run of whole chunks of a segment in memory.
type block struct {
	base  uint64       // the segment
	start int64        // position of buf there
	n     atomic.Int64 // octets of buf that readers may see; a tail grows
	buf   []byte
	bad   error // what comes behind is damaged

	loading chan struct{} // closed when it is read, or failed; nil: never was
	err     error         // set before loading is closed

	refs  int
	gone  bool // nobody can find it any more
	key   blockKey
	place *list.Element
}

// NewMemory makes a Memory of max octets, DefaultMemory if max is 0.
func NewMemory(max int64) *Memory {
	if max <= 0 {
		max = DefaultMemory
	}
	m := &Memory{max: max, blocks: map[blockKey]*block{}}
	m.room.L = &m.mu
	return m
}

// Used is how many octets buffers take, free ones included.
func (m *Memory) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used + m.spare
}

// Reads is how many blocks were read from disk.
func (m *Memory) Reads() uint64 { return m.reads.Load() }

func (m *Memory) logID() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.logs++
	return m.logs
}

func classOf(size int) int { return max(minClass, bits.Len(uint(size-1))) }

// alloc makes a buffer of at least size octets. wait: if there is no room it waits for some, as long as others hold any; what
// calls it must hold no block. Otherwise it goes over the bound. The lock is held, and released while waiting.
func (m *Memory) alloc(size int, wait bool) []byte {
	class := classOf(size)
	full := int64(size)
	if class <= maxClass {
		full = 1 << class
	}
	for {
		if class <= maxClass && len(m.free[class]) > 0 {
			list := m.free[class]
			b := list[len(list)-1]
			m.free[class] = list[:len(list)-1]
			m.spare -= full
			m.used += full
			return b
		}
		if m.used+m.spare+full <= m.max {
			break
		}
		if m.used+full <= m.max {
			m.trim(m.max - m.used - full)
			break
		}
		if m.evict() {
			continue
		}
		if m.used == 0 || !wait {
			m.trim(0)
			break
		}
		m.room.Wait()
	}
	m.used += full
	return make([]byte, full)
}

// trim gives free buffers up until no more than most octets are left.
func (m *Memory) trim(most int64) {
	for class := maxClass; class >= minClass && m.spare > max(most, 0); class-- {
		for len(m.free[class]) > 0 && m.spare > max(most, 0) {
			list := m.free[class]
			list[len(list)-1] = nil
			m.free[class] = list[:len(list)-1]
			m.spare -= 1 << class
		}
	}
}

// evict makes the block that was not used for the longest time go, if there is one that nobody holds.
func (m *Memory) evict() bool {
	for e := m.recent.Back(); e != nil; e = e.Prev() {
		if b := e.Value.(*block); b.refs == 0 {
			m.remove(b)
			return true
		}
	}
	return false
}

// remove makes a block go. Its buffer is free when nobody holds it. The lock is held.
func (m *Memory) remove(b *block) {
	if b.gone {
		return
	}
	b.gone = true
	m.recent.Remove(b.place)
	if m.blocks[b.key] == b {
		delete(m.blocks, b.key)
	}
	m.reclaim(b)
}

func (m *Memory) reclaim(b *block) {
	if !b.gone || b.refs > 0 || b.buf == nil {
		return
	}
	m.used -= int64(len(b.buf))
	m.recycle(b.buf)
	b.buf = nil
}

// recycle keeps a buffer for the next use, if there is room for it. The lock is held.
func (m *Memory) recycle(buf []byte) {
	if class := classOf(len(buf)); class <= maxClass && m.used+m.spare+int64(len(buf)) <= m.max {
		m.free[class] = append(m.free[class], buf)
		m.spare += int64(len(buf))
	}
	m.room.Broadcast()
}

// hold pins a block, unless it is gone.
func (m *Memory) hold(b *block) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b.gone {
		return false
	}
	b.refs++
	m.recent.MoveToFront(b.place)
	return true
}

// release gives a pinned block back.
func (m *Memory) release(b *block) {
	m.mu.Lock()
	b.refs--
	if b.refs == 0 {
		if b.gone {
			m.reclaim(b)
		} else {
			m.room.Broadcast() // it can be evicted now
		}
	}
	m.mu.Unlock()
}

// discard is release for a block that nobody is expected to want: if nobody holds it, it goes.
func (m *Memory) discard(b *block) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b.refs--
	if b.refs > 0 {
		return
	}
	if b.gone {
		m.reclaim(b)
	} else {
		m.remove(b)
	}
}

// drop makes a block go.
func (m *Memory) drop(b *block) {
	m.mu.Lock()
	m.remove(b)
	m.mu.Unlock()
}

// tail makes a block for chunks that are appended, of at least size octets. It does not wait. It is pinned once, by the log
// that appends to it.
func (m *Memory) tail(base uint64, start int64, size int) *block {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := &block{base: base, start: start, buf: m.alloc(size, false), refs: 1}
	b.place = m.recent.PushFront(b)
	return b
}

// load finds a block that covers a position, or has read make it: it is called without a lock by one of those who want the
// block, with alloc to make buffers. The block is pinned.
func (m *Memory) load(key blockKey, pos int64, read func(b *block) error) (*block, error) {
	m.mu.Lock()
	for {
		b := m.blocks[key]
		if b == nil {
			break
		}
		if b.loading != nil {
			select {
			case <-b.loading:
			default:
				m.mu.Unlock()
				<-b.loading
				m.mu.Lock()
				continue
			}
		}
		if end := b.start + b.n.Load(); pos >= b.start && (pos < end || pos == end && b.bad != nil) {
			b.refs++
			m.recent.MoveToFront(b.place)
			m.mu.Unlock()
			return b, nil
		}
		m.remove(b) // more was appended since it was read
	}
	b := &block{base: key.base, key: key, refs: 1, loading: make(chan struct{})}
	b.place = m.recent.PushFront(b)
	m.blocks[key] = b
	m.mu.Unlock()
	m.reads.Add(1)
	err := read(b)
	m.mu.Lock()
	defer m.mu.Unlock()
	close(b.loading)
	if err != nil {
		b.refs--
		m.remove(b)
		m.reclaim(b)
		return nil, err
	}
	return b, nil
}

// grow gives a block that is being read a buffer of at least size octets, with what it has of the first keep octets.
func (m *Memory) grow(b *block, size, keep int) {
	m.mu.Lock()
	old := b.buf
	m.used -= int64(len(old)) // for a moment no part of the bound, so that one large block does not wait for itself
	b.buf = m.alloc(size, true)
	m.mu.Unlock()
	if old == nil {
		return
	}
	copy(b.buf, old[:keep])
	m.mu.Lock()
	m.recycle(old)
	m.mu.Unlock()
}

// forget makes all blocks of a segment go that were read.
func (m *Memory) forget(log, base uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, b := range m.blocks {
		if key.log == log && key.base == base {
			m.remove(b)
		}
	}
}

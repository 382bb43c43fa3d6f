package queue

import (
	"slices"
	"sync"
	"sync/atomic"
)

// SlabSize is the size in octets of an ordinary slab, which is also that of a connection's read buffer: a buffer that is
// mostly messages becomes the slab they stay in, without a copy.
const SlabSize = 128 << 10

const (
	maxFree     = 16 << 20 / SlabSize // slabs kept for reuse at the most
	slabDirSize = 1 << 10
)

// A Slab is a block of message bytes. Who holds a reference may read it; it is written only by the one who took it from
// the Pool, before it hands out references. When the last reference is released the block is used again.
type Slab struct {
	Buf  []byte
	ID   uint32
	refs atomic.Int32
}

// Pool owns the message memory of a node: slabs are recycled, last in first out, instead of being left to the collector.
// References are counted per run of messages of one slab: Hold and Release take how many. All methods may be called
// concurrently.
//
// The bound covers slabs in use. It is soft: nothing is refused, publishers ask Full and wait for room.
type Pool struct {
	inUse    atomic.Int64 // octets of slabs with references
	messages atomic.Int64 // that queues have in memory
	bound    int64
	low      int64 // waiters are woken below this

	dirs [slabDirSize]atomic.Pointer[[slabDirSize]*Slab] // slab by ID, two levels; an entry is written before its ID is known to anyone

	waiting  atomic.Bool
	blocked  atomic.Uint32 // bits of Blocked
	passed   atomic.Uint32 // bits of Blocked that some of those who wait do not mind
	admitted atomic.Int64  // octets taken since the start
	noticeAt atomic.Int64  // admitted at which notify is called
	step     int64
	notify   func()

	mu      sync.Mutex // guards what follows; a leaf: nothing is locked under it
	free    []*Slab
	least   int      // fewest free slabs since the last Trim: those were not needed
	idle    []uint32 // IDs given back by big slabs
	next    uint32
	current *Slab // that small messages are copied into; the pool holds one reference
	filled  uint32
	waiters []waiter

	// Poison overwrites slabs when they become free, so that a missing reference is seen. For tests.
	Poison bool
}

// NewPool makes a Pool whose slabs in use should stay below bound octets.
func NewPool(bound int64) *Pool {
	return &Pool{bound: bound, low: bound - bound/8}
}

// Get takes an ordinary slab; the caller holds one reference.
func (p *Pool) Get() *Slab {
	p.admit(SlabSize)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.get()
}

func (p *Pool) get() *Slab {
	n := len(p.free) - 1
	if n < 0 {
		p.least = 0
		s := &Slab{Buf: newSlabMemory()}
		p.register(s)
		s.refs.Store(1)
		return s
	}
	s := p.free[n]
	p.free[n] = nil
	p.free = p.free[:n]
	p.least = min(p.least, n)
	s.refs.Store(1)
	return s
}

// GetBig takes a slab of exactly size octets; the caller holds one reference. Meant for messages that would waste or
// overflow an ordinary slab.
func (p *Pool) GetBig(size int) *Slab {
	p.admit(int64(size))
	s := &Slab{Buf: make([]byte, size)}
	p.mu.Lock()
	p.register(s)
	p.mu.Unlock()
	s.refs.Store(1)
	return s
}

// Adopt makes a slab of bytes that were gathered elsewhere; the caller holds refs references and must not write to b any
// more.
func (p *Pool) Adopt(b []byte, refs int) Ref {
	p.admit(int64(len(b)))
	s := &Slab{Buf: b}
	s.refs.Store(int32(refs))
	p.mu.Lock()
	p.register(s)
	p.mu.Unlock()
	return Ref{Slab: s.ID, Len: uint32(len(b))}
}

// register gives s an ID. Called with p.mu held.
func (p *Pool) register(s *Slab) {
	if n := len(p.idle); n > 0 {
		s.ID, p.idle = p.idle[n-1], p.idle[:n-1]
	} else {
		s.ID = p.next
		p.next++
	}
	dir := &p.dirs[s.ID/slabDirSize]
	if dir.Load() == nil {
		dir.Store(new([slabDirSize]*Slab))
	}
	dir.Load()[s.ID%slabDirSize] = s
}

func (p *Pool) slab(id uint32) *Slab { return p.dirs[id/slabDirSize].Load()[id%slabDirSize] }

// Bytes are the octets of a message. They may be read while a reference is held.
func (p *Pool) Bytes(r Ref) []byte { return p.slab(r.Slab).Buf[r.Off : r.Off+r.Len : r.Off+r.Len] }

// Reserve makes room for size octets of small messages in the slab that all share, with refs references for the caller.
// The caller writes to the returned bytes before it hands out a reference. size is at most SlabSize.
func (p *Pool) Reserve(size, refs int) (Ref, []byte) {
	p.mu.Lock()
	if p.current == nil || int(p.filled)+size > SlabSize {
		if old := p.current; old != nil {
			p.current = nil
			p.release(old, 1)
		}
		p.admit(SlabSize)
		p.current, p.filled = p.get(), 0
	}
	s, off := p.current, p.filled
	p.filled += uint32(size)
	s.refs.Add(int32(refs))
	p.mu.Unlock()
	return Ref{Slab: s.ID, Off: off, Len: uint32(size)}, s.Buf[off : off+uint32(size)]
}

// Hold adds n references to a slab that the caller holds one of.
func (p *Pool) Hold(slab uint32, n int) { p.slab(slab).refs.Add(int32(n)) }

// Release gives back n references. When it makes room that publishers wait for, it wakes them.
func (p *Pool) Release(slab uint32, n int) {
	s := p.slab(slab)
	if left := s.refs.Add(int32(-n)); left > 0 {
		return
	} else if left < 0 {
		panic("queue: slab released more often than held")
	}
	p.mu.Lock()
	p.recycle(s)
	p.mu.Unlock()
	if p.waiting.Load() && p.roomy(Blocked(p.passed.Load())) {
		p.wakeWaiters()
	}
}

// release is Release with p.mu held.
func (p *Pool) release(s *Slab, n int32) {
	if s.refs.Add(-n) == 0 {
		p.recycle(s)
	}
}

// recycle takes back a slab without references. Called with p.mu held.
func (p *Pool) recycle(s *Slab) {
	p.inUse.Add(-int64(len(s.Buf)))
	if p.Poison {
		for i := range s.Buf {
			s.Buf[i] = 0xDB
		}
	}
	if len(s.Buf) == SlabSize && len(p.free) < maxFree {
		p.free = append(p.free, s)
		return
	}
	p.forget(s)
}

func (p *Pool) forget(s *Slab) {
	if len(s.Buf) == SlabSize {
		freeSlabMemory(s.Buf)
	}
	p.dirs[s.ID/slabDirSize].Load()[s.ID%slabDirSize] = nil
	p.idle = append(p.idle, s.ID)
}

// Close gives the free slabs back to the system. Slabs in use stay with those who hold them, and are never free again.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.free {
		p.forget(s)
	}
	p.free, p.least = nil, 0
}

// Trim gives half of the free slabs that were not needed since the last Trim to the collector. Call it every few seconds.
func (p *Pool) Trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	drop := (p.least + 1) / 2
	for _, s := range p.free[:drop] { // those at the front have waited longest
		p.forget(s)
	}
	p.free = slices.Delete(p.free, 0, drop)
	p.least = len(p.free)
}

// waitingCost is what a message in memory that waits in a queue costs besides its bytes, in octets: twice its slot, since a
// window grows by doubling.
const waitingCost = 128

// Charge counts n octets that lie outside the slabs, but keep memory from them, towards the bound; a negative n ends that.
func (p *Pool) Charge(n int) {
	p.inUse.Add(int64(n))
	if n < 0 && p.waiting.Load() && p.roomy(Blocked(p.passed.Load())) {
		p.wakeWaiters()
	}
}

// chargeWaiting counts n messages that wait in memory, fewer if n is negative.
func (p *Pool) chargeWaiting(n int) {
	if n != 0 {
		p.messages.Add(int64(n))
		p.Charge(n * waitingCost)
	}
}

// ChargeMessages counts n messages that a queue outside this package has in memory, fewer if n is negative.
func (p *Pool) ChargeMessages(n int) { p.chargeWaiting(n) }

// Messages is how many messages queues have in memory, to be delivered or acknowledged.
func (p *Pool) Messages() int64 { return p.messages.Load() }

// InUse is how many octets count towards the bound.
func (p *Pool) InUse() int64 { return p.inUse.Load() }

// Free is how many octets of slabs wait to be used again.
func (p *Pool) Free() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int64(len(p.free)) * SlabSize
}

// Bound is the number of octets given to NewPool.
func (p *Pool) Bound() int64 { return p.bound }

// Full says that publishers should wait, for other reasons than those in but.
func (p *Pool) Full(but Blocked) bool {
	return p.inUse.Load() >= p.bound || Blocked(p.blocked.Load())&^but != 0
}

// Blocked is a reason besides memory for publishers to wait.
type Blocked uint32

const (
	BlockedByJournal Blocked = 1 << iota // it cannot be written
	BlockedByBacklog                     // it is written too slowly
	BlockedByAlarm
	BlockedBySlots // those of quorum queues: their log is written too slowly
	BlockedByLinks // too much waits for another node, or that has no room
)

// Block sets or clears a reason for publishers to wait.
func (p *Pool) Block(why Blocked, on bool) {
	for {
		old := p.blocked.Load()
		now := old &^ uint32(why)
		if on {
			now |= uint32(why)
		}
		if old == now {
			return
		}
		if p.blocked.CompareAndSwap(old, now) {
			break
		}
	}
	if !on {
		p.wakeWaiters()
	}
}

// Press is a reason for publishers to wait that many may have at the same time. The zero value with Pool and Why is ready. Each
// Set(true) belongs to one Set(false); they may come in any order.
type Press struct {
	Pool *Pool
	Why  Blocked
	n    atomic.Int64
}

// Set says that one more has the reason, or one fewer.
func (p *Press) Set(on bool) {
	if on {
		p.n.Add(1)
	} else {
		p.n.Add(-1)
	}
	for { // whoever says it last has looked after that
		now := p.n.Load() > 0
		p.Pool.Block(p.Why, now)
		if (p.n.Load() > 0) == now {
			return
		}
	}
}

// waiter waits for room, whatever the reasons in but.
type waiter struct {
	wake func()
	but  Blocked
}

// roomy says that who waits for other reasons than those in but may go on.
func (p *Pool) roomy(but Blocked) bool {
	return Blocked(p.blocked.Load())&^but == 0 && p.inUse.Load() < p.low
}

// Admitted is how many octets of slabs were taken since the start.
func (p *Pool) Admitted() int64 { return p.admitted.Load() }

// OnAdmitted has notify called each time that many octets more were taken, and when somebody begins to wait for room. Call it before the pool is used by many.
func (p *Pool) OnAdmitted(step int64, notify func()) {
	p.step, p.notify = step, notify
	p.noticeAt.Store(p.admitted.Load() + step)
}

// admit counts octets taken.
func (p *Pool) admit(n int64) {
	p.inUse.Add(n)
	if now := p.admitted.Add(n); p.notify != nil {
		if at := p.noticeAt.Load(); now >= at && p.noticeAt.CompareAndSwap(at, now+p.step) {
			p.notify()
		}
	}
}

// WaitForRoom calls wake once, from any goroutine and without locks, when there is room again, which may be at once. Reasons in but
// are not waited for.
func (p *Pool) WaitForRoom(but Blocked, wake func()) {
	p.mu.Lock()
	p.waiters = append(p.waiters, waiter{wake, but})
	p.passed.Or(uint32(but))
	p.waiting.Store(true)
	p.mu.Unlock()
	if p.notify != nil {
		p.notify() // nothing more is admitted while all wait
	}
	p.wakeWaiters() // it may have come before we were on the list
}

// wakeWaiters wakes those for whom there is room.
func (p *Pool) wakeWaiters() {
	if !p.roomy(Blocked(p.passed.Load())) {
		return
	}
	var woken []waiter
	passed := Blocked(0)
	p.mu.Lock()
	p.waiters = slices.DeleteFunc(p.waiters, func(w waiter) bool {
		if p.roomy(w.but) {
			woken = append(woken, w)
			return true
		}
		passed |= w.but
		return false
	})
	p.passed.Store(uint32(passed))
	p.waiting.Store(len(p.waiters) > 0)
	p.mu.Unlock()
	for _, w := range woken {
		w.wake()
	}
}

// Releaser gives back references to slabs, counting runs of the same slab, so that a thousand messages of one slab cost
// one atomic operation. Flush it at the end. It belongs to one goroutine.
type Releaser struct {
	Pool *Pool
	slab uint32
	n    int
}

// Add releases one reference, now or at Flush.
func (r *Releaser) Add(slab uint32) {
	if slab != r.slab || r.n == 0 {
		r.Flush()
		r.slab = slab
	}
	r.n++
}

// Flush releases what was added.
func (r *Releaser) Flush() {
	if r.n > 0 {
		r.Pool.Release(r.slab, r.n)
		r.n = 0
	}
}

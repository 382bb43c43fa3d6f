package remote

import (
	"encoding/binary"

	"github.com/warrenmq/warren/octet"
	"github.com/warrenmq/warren/queue"
)

// served is a consumer of the peer, or a getter: the Outlet of a queue here.
type served struct {
	session *session
	handle  uint32
	queue   queue.Queue
	noAck   bool
	window  int

	// Guarded by home.mu.
	local     queue.ConsumerID // what the queue knows it by; 0: not attached
	waiting   fifo[queue.Offered]
	octets    int  // of those
	sent      int  // deliveries that the peer's outlet has not taken
	away      int  // octets of those
	queued    bool // in the pipe
	unbounded bool // what waits goes in any case: nothing more will come
	cancelled bool
	gone      bool
	held      int // deliveries not settled
}

// windowOctets is what may be on its way to a consumer, or wait there for its outlet.
const windowOctets = 512 << 10

// windowOf is how many deliveries may be on their way to a consumer with this window: twice as many, so that some come while
// those before are taken.
func windowOf(window int) int {
	if window == 0 {
		window = queue.DefaultWindow
	}
	return 2 * window
}

// Offer implements queue.Outlet.
func (k *served) Offer(ds []queue.Offered, w *queue.Wake) bool {
	h := k.session.home
	h.mu.Lock()
	if k.gone {
		h.mu.Unlock()
		release := queue.Releaser{Pool: h.pool}
		for i := range ds {
			release.Add(ds[i].Message.Ref.Slab)
		}
		release.Flush()
		return true
	}
	defer h.mu.Unlock()
	if !k.noAck {
		k.held += len(ds)
	}
	k.waiting.add(ds...)
	for i := range ds {
		k.octets += int(ds[i].Message.Ref.Len)
	}
	if k.enqueue() {
		h.wake(w)
	}
	return !k.full()
}

// full says that too much is on its way.
func (k *served) full() bool {
	return k.sent+k.waiting.len() >= k.window || k.away+k.octets >= windowOctets
}

// open says that deliveries may be sent.
func (k *served) open() bool {
	return k.unbounded || k.sent < k.window && k.away < windowOctets
}

// enqueue puts the consumer into the pipe if it has something to send. Called with home.mu.
func (k *served) enqueue() bool {
	if k.queued || k.waiting.len() == 0 || !k.open() {
		return false
	}
	k.queued = true
	k.session.home.items.add(item{kind: itemDeliver, served: k})
	return true
}

// finish has everything that waits be sent: nothing more comes. Called with home.mu.
func (k *served) finish() {
	k.unbounded = true
	k.enqueue()
}

// took is told what the peer's outlet has taken. It returns true when the queue may offer more.
func (k *served) took(passed, octets int) bool {
	h := k.session.home
	h.mu.Lock()
	defer h.mu.Unlock()
	k.sent, k.away = max(0, k.sent-passed), max(0, k.away-octets)
	if k.enqueue() {
		h.later()
	}
	return !k.full()
}

// take plans deliveries of about so many octets, at least one if any may be sent, and says whether more could be.
func (k *served) take(b *plan, octets int) (n int, more bool) {
	ds, size := k.waiting.waiting(), 0
	for n < len(ds) && (n == 0 || size+int(ds[n].Message.Ref.Len) <= octets) &&
		(k.unbounded || k.sent+n < k.window && k.away+size < windowOctets) {
		size += int(ds[n].Message.Ref.Len)
		n++
	}
	if n == 0 {
		return 0, false
	}
	b.head = binary.AppendUvarint(appendReport(b.head, repDeliver, uint64(k.handle)), uint64(n))
	last := uint64(0)
	for i := range ds[:n] {
		b.head = appendOffered(b.head, &ds[i], last)
		last = ds[i].ID
	}
	for i := range ds[:n] {
		b.cut(ds[i].Message.Ref)
	}
	return n, n < len(ds) && (k.unbounded || k.sent+n < k.window && k.away+size < windowOctets)
}

// delivered takes out what was sent, and appends the slabs to gone.
func (k *served) delivered(n int, more bool, gone []uint32) []uint32 {
	for i := range n {
		m := &k.waiting.at(i).Message
		k.octets -= int(m.Ref.Len)
		k.away += int(m.Ref.Len)
		gone = append(gone, m.Ref.Slab)
	}
	k.sent += n
	k.waiting.drop(n)
	k.queued = more
	return gone
}

// settled notes that deliveries are settled. A consumer that was cancelled is forgotten with the last one.
func (k *served) settled(ids []queue.Range) {
	h := k.session.home
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range ids {
		if n := r.Last - r.First; n < uint64(k.held) {
			k.held -= int(n) + 1
		} else {
			k.held = 0
		}
	}
	if k.cancelled && k.held <= 0 {
		delete(k.session.consumers, k.handle)
	}
}

// note adds a report about the consumer.
func (k *served) note(r report, rest ...byte) {
	k.session.put(func(dst []byte) []byte { return append(appendReport(dst, r, uint64(k.handle)), rest...) })
}

// Cancelled implements queue.Outlet.
func (k *served) Cancelled(*queue.Wake) {
	h := k.session.home
	h.mu.Lock()
	defer h.mu.Unlock()
	k.finish()
	k.note(repCancelled)
	delete(k.session.consumers, k.handle)
}

// TimedOut implements queue.Outlet.
func (k *served) TimedOut(*queue.Wake) {
	k.session.home.mu.Lock()
	defer k.session.home.mu.Unlock()
	k.note(repTimedOut)
}

// Activity implements queue.Outlet.
func (k *served) Activity(active bool) {
	k.session.home.mu.Lock()
	defer k.session.home.mu.Unlock()
	k.note(repActivity, octet.Of(active))
}

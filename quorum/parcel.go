package quorum

import (
	"sync"
	"time"

	"github.com/warrenmq/warren/queue"
)

// retryLetters is after how long dead letters that must arrive (at-least-once), and have not, are sent again: there was no
// exchange or no queue for them, or one of their queues did not take them.
const retryLetters = 30 * time.Second

// parcel is dead letters that were sent together, and stay in their queue until each has arrived in all queues it goes to.
type parcel struct {
	queue *Queue

	mu    sync.Mutex // guards what follows; a leaf
	left  map[queue.Seq]struct{}
	again *time.Timer // sends once more what is left; nil: not set yet
}

// sendKept hands on dead letters that must arrive, each by itself: one that cannot does not hold up the others.
func (d *dispatcher) sendKept(q *Queue, ls []letter) {
	p := &parcel{queue: q, left: map[queue.Seq]struct{}{}}
	send := func(l *letter, seq queue.Seq, m queue.Message) {
		m.Flags = m.Flags.WithFailures(l.failures)
		p.mu.Lock()
		p.left[seq] = struct{}{}
		p.mu.Unlock()
		if q.dead == nil {
			d.release.Add(m.Ref.Slab)
			p.arrived(seq)
			return
		}
		d.letters = append(d.letters[:0], queue.DeadLetter{Message: d.outward(m), Reason: l.Reason, Failed: l.Failed})
		q.dead.Discard(d.letters, &d.wake, func() { p.arrived(seq) })
	}
	for i := range ls {
		l := &ls[i]
		if !l.cold {
			send(l, l.seqs.First, l.Message)
			continue
		}
		if !d.readLetters(q, l, func(seq queue.Seq, m queue.Message) { send(l, seq, m) }) {
			p.mu.Lock()
			for seq := l.seqs.First; seq <= l.seqs.Last; seq++ {
				p.left[seq] = struct{}{}
			}
			p.mu.Unlock()
		}
	}
	p.mu.Lock()
	if len(p.left) > 0 {
		p.again = time.AfterFunc(d.machine.retry, func() { d.machine.sendAgain(p) })
	}
	p.mu.Unlock()
}

// arrived says that a letter is where it goes.
func (p *parcel) arrived(seq queue.Seq) {
	p.mu.Lock()
	delete(p.left, seq)
	if len(p.left) == 0 && p.again != nil {
		p.again.Stop() // and the parcel need not be kept
	}
	p.mu.Unlock()
	q := p.queue
	q.slot.proposer.Add(&q.lane, func(b *batch) {
		b.Buf = queue.AppendRanges(appendCommand(b.Buf, cmdBuried, q.id), []queue.Range{{First: uint64(seq), Last: uint64(seq)}})
	})
}

// waits reports whether a letter has not arrived.
func (p *parcel) waits(seq queue.Seq) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, left := p.left[seq]
	return left
}

// sendAgain has what has not arrived of a parcel sent once more.
func (m *machine) sendAgain(p *parcel) {
	p.mu.Lock()
	n := len(p.left)
	p.mu.Unlock()
	if n == 0 || p.queue.slot.proposer.Closed() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.queues[p.queue.id]
	if q == nil || q.local != p.queue || !m.leading() {
		return
	}
	var left []queue.Discarded
	for d := range q.state.KeptDiscards() {
		if p.waits(d.First) {
			left = append(left, d)
		}
	}
	if len(left) > 0 {
		r := m.ring.get()
		m.letters(r, q, left)
		m.ring.put(r)
	}
}

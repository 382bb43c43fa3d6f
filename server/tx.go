package server

import (
	"slices"
	"sync"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/broker"
	"github.com/warrenmq/warren/queue"
)

// transaction holds what a transactional channel has published and settled since the last commit. Publishes were checked
// and routed when they came. Each message has one reference.
type transaction struct {
	publishes []txPublish
	settles   []txSettle
	octets    int // of publishes
}

type txPublish struct {
	message   queue.Message
	queues    []*broker.Queue
	reply     requester
	mandatory bool // and unroutable: to be returned
}

type txSettle struct {
	tag     uint64
	u       unacked
	outcome queue.Outcome
}

// publish adds a routed message, whose reference passes to the transaction. A direct reply has reply, or is swallowed.
func (tx *transaction) publish(m queue.Message, r *route, mandatory bool) {
	tx.publishes = append(tx.publishes, txPublish{
		message: m, queues: slices.Clone(r.queues), reply: r.reply,
		mandatory: mandatory && len(r.queues) == 0 && !r.swallowed,
	})
}

// rollback forgets the publishes; what was settled is for the caller to restore.
func (tx *transaction) rollback(s *Server) {
	s.uncommitted.Add(int64(-tx.octets))
	tx.octets = 0
	release := queue.Releaser{Pool: s.pool}
	for i := range tx.publishes {
		release.Add(tx.publishes[i].message.Ref.Slab)
	}
	release.Flush()
	tx.publishes, tx.settles = nil, nil
}

// commitment waits for the queues of a committed transaction.
type commitment struct {
	ch *channel

	mu      sync.Mutex // guards what follows; a leaf
	left    int
	refused bool
}

// Settled implements queue.Confirms; publish numbers are those within the transaction.
func (t *commitment) Settled(ranges []queue.Range, ok bool, w *queue.Wake) {
	n := 0
	for _, r := range ranges {
		n += int(r.Last - r.First + 1)
	}
	t.done(n, ok)
}

func (t *commitment) done(n int, ok bool) {
	t.mu.Lock()
	t.left -= n
	t.refused = t.refused || !ok
	last, refused := t.left == 0, t.refused
	t.mu.Unlock()
	if last {
		t.ch.conn.post(func() { t.ch.committed(refused) })
	}
}

// commit carries the transaction out: publishes in their order, then settles. The channel waits for the answer.
func (ch *channel) commit() {
	c, tx := ch.conn, ch.tx
	ch.mu.Lock()
	ch.tx = &transaction{}
	ch.uncommitted, ch.unsettled = 0, 0
	ch.mu.Unlock()
	t := &commitment{ch: ch, left: 1}
	for i := range tx.publishes {
		t.left += len(tx.publishes[i].queues)
	}
	ch.waiting++
	ch.committing = true
	for i := range tx.publishes {
		p := &tx.publishes[i]
		switch {
		case len(p.queues) > 0:
			c.server.pool.Hold(p.message.Ref.Slab, len(p.queues))
		case p.reply != nil:
			c.server.pool.Hold(p.message.Ref.Slab, 1)
			p.reply.answer(p.message, &c.wake)
		case p.mandatory:
			c.giveBack(ch, c.server.pool.Bytes(p.message.Ref))
		}
		for _, q := range p.queues {
			b := queue.Batch{Messages: []queue.Message{p.message}, Numbers: []uint64{uint64(i)}, Confirms: t}
			q.Publish(&b, &c.wake)
			c.published.refused += uint64(b.Refused)
		}
	}
	permits := 0
	ch.mu.Lock()
	for _, s := range tx.settles {
		permits += ch.settled(s.u, s.outcome)
	}
	ch.mu.Unlock()
	ch.release(permits)
	tx.rollback(c.server)
	c.acks.flush(&c.wake)
	t.done(1, true)
}

// committed answers tx.commit.
func (ch *channel) committed(refused bool) {
	ch.committing = false
	defer ch.resume()
	switch {
	case ch.state != channelOpen:
	case refused:
		ch.conn.raise(ch, amqp.Errorf(amqp.PreconditionFailed, "partial tx completion").In(amqp.TxCommitID))
	default:
		ch.send(&amqp.TxCommitOk{})
	}
}

// undo drops the publishes of the transaction and makes its settled deliveries unacknowledged again.
func (ch *channel) undo() {
	tx := ch.tx
	ch.mu.Lock()
	ch.uncommitted, ch.unsettled = 0, 0
	if len(tx.settles) > 0 {
		ch.restore(tx.settles)
	}
	ch.mu.Unlock()
	tx.rollback(ch.conn.server)
}

package quorum

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/client"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/quorum/propose"
)

// metaEngine is what a metaProposer asks of the Raft engine.
type metaEngine interface {
	Propose(session *client.Session, cmd []byte, timeout time.Duration) (*dragonboat.RequestState, error)
	GetLeaderID(shard uint64) (leader, term uint64, ok bool, err error)
}

// metaBatch is commands on their way.
type metaBatch struct {
	number  uint64
	buf     []byte
	waiters []*metaWaiter // one for each command
}

// proposal is a batch that was handed to the Raft engine.
type proposal struct {
	state  *dragonboat.RequestState
	number uint64
}

// metaWaiter is who waits for the outcome of a command.
type metaWaiter struct {
	until time.Time
	done  func(any, *amqp.Error) // nil: has been answered. Guarded by metaProposer.mu
}

// metaProposer gathers commands into batches and proposes them until they are applied. As with slots (propose.Proposer), a batch whose outcome is
// not known is proposed again, with those behind it.
type metaProposer struct {
	engine         metaEngine
	session        *client.Session
	node, boot     uint64
	leaderPatience time.Duration
	answerPatience time.Duration
	log            *slog.Logger  // nil: nobody is told
	kick           chan struct{} // one slot
	quit, ended    chan struct{}

	mu      sync.Mutex // guards what follows; a leaf
	open    *metaBatch // nil: nothing has gathered
	full    []*metaBatch
	flight  []*metaBatch // ascending numbers
	sent    int          // how many of flight are with the Raft engine
	last    uint64       // number given out last
	waiting []*metaWaiter
	answers []func() // to be called by run
	leader  uint64
	seen    time.Time // when somebody led last
	lost    bool      // nobody has for too long
	closed  bool
}

func newMetaProposer(host *dragonboat.NodeHost, o MetaOptions) *metaProposer {
	return &metaProposer{
		engine: host, session: host.GetNoOPSession(metaShard), node: o.Node, boot: o.Boot,
		leaderPatience: cmp.Or(o.LeaderPatience, 5*time.Second), answerPatience: cmp.Or(o.AnswerPatience, 15*time.Second),
		log: o.Log, kick: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{}), seen: time.Now(),
	}
}

// The beginnings of errors that pass.
const (
	textNoMajority = "metadata has no majority"
	textUnknown    = "metadata was changed while this node could not follow"
)

// Passes reports whether what a command of metadata failed with is no fault of the command, and passes when a majority of the
// nodes is there and in touch.
func Passes(err *amqp.Error) bool {
	return strings.Contains(err.Text, textNoMajority) || strings.Contains(err.Text, textUnknown)
}

// noMajority is the error for a command that cannot be agreed on.
func noMajority(format string, args ...any) *amqp.Error {
	return amqp.Errorf(amqp.InternalError, textNoMajority+": %s. Start the nodes that are down, or mend the network between them", fmt.Sprintf(format, args...))
}

// refusal is the error for a command that is asked for now. p.mu is held.
func (p *metaProposer) refusal(now time.Time) *amqp.Error {
	switch {
	case p.closed:
		return amqp.Errorf(amqp.InternalError, "metadata cannot be changed: the node is stopping")
	case now.Sub(p.seen) >= p.leaderPatience:
		return noMajority("no node has led for %s, and nothing was changed", now.Sub(p.seen).Round(time.Second))
	}
	return nil
}

func (p *metaProposer) add(command []byte, keep bool, done func(any, *amqp.Error)) {
	now := time.Now()
	w := &metaWaiter{until: now.Add(p.answerPatience), done: done}
	p.mu.Lock()
	defer p.wake()
	defer p.mu.Unlock()
	if err := p.refusal(now); err != nil {
		if w.done = nil; p.closed {
			go done(nil, err) // run is no more
			return
		}
		p.answers = append(p.answers, func() { done(nil, err) })
		if !keep {
			return
		}
	}
	b := p.open
	if b == nil {
		b = &metaBatch{buf: make([]byte, metaHeaderLen, 1<<10)}
		p.open = b
	}
	b.buf = append(binary.AppendUvarint(b.buf, uint64(len(command))), command...)
	b.waiters = append(b.waiters, w)
	if p.waiting = append(p.waiting, w); len(b.buf) >= maxBatch {
		p.full = append(p.full, b)
		p.open = nil
	}
}

func (p *metaProposer) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// next is the batch to be proposed next, with its header, or nil.
func (p *metaProposer) next() *metaBatch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sent == len(p.flight) {
		var b *metaBatch
		switch {
		case len(p.flight) >= metaFlight:
		case len(p.full) > 0:
			b = p.full[0]
			p.full = slices.Delete(p.full, 0, 1)
		default:
			b, p.open = p.open, nil
		}
		if b == nil {
			return nil
		}
		p.last++
		b.number = p.last
		metaHeader{p.node, p.boot, b.number}.append(b.buf[:0])
		p.flight = append(p.flight, b)
	}
	p.sent++
	return p.flight[p.sent-1]
}

// applied hears that batches up to a number are applied, and the results of that one; none are known if a snapshot told so.
func (p *metaProposer) applied(number uint64, results []any) {
	p.mu.Lock()
	n := 0
	var calls []func()
	for n < len(p.flight) && p.flight[n].number <= number {
		b := p.flight[n]
		for i, w := range b.waiters {
			done := w.done
			if w.done = nil; done == nil {
				continue
			}
			if b.number == number && i < len(results) {
				calls = append(calls, func() { done(results[i], nil) })
			} else {
				calls = append(calls, func() {
					done(nil, amqp.Errorf(amqp.InternalError, textUnknown+", and the result is not known: look what there is now"))
				})
			}
		}
		n++
	}
	p.flight = slices.Delete(p.flight, 0, n)
	p.sent = max(0, p.sent-n)
	p.mu.Unlock()
	for _, call := range calls {
		call()
	}
	p.wake()
}

// look finds out who leads. It reports whether that has changed, which loses what was on its way to the one before.
func (p *metaProposer) look(now time.Time) (changed bool) {
	leader, _, ok, err := p.engine.GetLeaderID(metaShard)
	p.mu.Lock()
	if ok && err == nil {
		changed = p.leader != leader
		p.leader, p.seen = leader, now
	}
	lost := now.Sub(p.seen) >= p.leaderPatience
	told := lost == p.lost
	p.lost = lost
	p.mu.Unlock()
	switch {
	case told || p.log == nil:
	case lost:
		p.log.Warn("no node leads metadata: what would change it is refused until a majority of the nodes is there and in touch")
	default:
		p.log.Info("metadata has a leader again", "member", leader)
	}
	return changed
}

// answer calls those who are refused, and those who have waited for too long.
func (p *metaProposer) answer(now time.Time, closing bool) {
	p.mu.Lock()
	calls := p.answers
	p.answers = nil
	n := 0
	for n < len(p.waiting) && (closing || p.waiting[n].done == nil || !now.Before(p.waiting[n].until)) {
		if done := p.waiting[n].done; done != nil {
			p.waiting[n].done = nil
			err := noMajority("nothing has come of a change within %s, and may still", p.answerPatience)
			if closing {
				err = amqp.Errorf(amqp.InternalError, "the node is stopping, and what becomes of a change to metadata is not known")
			}
			calls = append(calls, func() { done(nil, err) })
		}
		n++
	}
	p.waiting = slices.Delete(p.waiting, 0, n)
	p.mu.Unlock()
	for _, call := range calls {
		call()
	}
}

// run proposes until stop.
func (p *metaProposer) run() {
	defer close(p.ended)
	ticker := time.NewTicker(metaLook)
	defer ticker.Stop()
	var sent []proposal
	var rest <-chan time.Time // not nil: nothing is proposed until then
	rewind := func() {        // what is on its way may come or not: the machine tells
		p.mu.Lock()
		p.sent = 0
		p.mu.Unlock()
		sent = nil
		rest = time.After(propose.Pause)
	}
	for {
		for rest == nil {
			b := p.next()
			if b == nil {
				break
			}
			state, err := p.engine.Propose(p.session, b.buf, metaOnce)
			if err != nil {
				rewind()
				break
			}
			sent = append(sent, proposal{state, b.number})
		}
		var result <-chan dragonboat.RequestResult
		if len(sent) > 0 {
			result = sent[0].state.ResultC()
		}
		select {
		case r := <-result:
			ok := r.Completed() && r.GetResult().Value >= sent[0].number
			sent[0].state.Release()
			if sent = sent[1:]; !ok {
				rewind()
			}
		case <-rest:
			rest = nil
		case now := <-ticker.C:
			if p.look(now) {
				rewind()
			}
			p.answer(now, false)
		case <-p.kick:
			p.answer(time.Now(), false)
		case <-p.quit:
			return
		}
	}
}

// stop ends run, and the hopes of those who wait.
func (p *metaProposer) stop() {
	p.mu.Lock()
	before := p.closed
	p.closed = true
	p.mu.Unlock()
	if !before {
		close(p.quit)
	}
	<-p.ended
	p.answer(time.Now(), true)
}

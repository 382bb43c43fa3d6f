package cluster

import (
	"errors"
	"time"
)

// MaxCall is how many octets a question or an answer has at the most.
const MaxCall = maxFrame

// Why a call has no answer.
var (
	ErrDown     = errors.New("cluster: the node is not there")                              // nothing was asked
	ErrBusy     = errors.New("cluster: too many questions, streams, connections or octets") // nothing was done
	ErrTooLarge = errors.New("cluster: question or answer too large")
	ErrTimeout  = errors.New("cluster: no answer in time")                 // it may still be asked, or answered
	ErrReset    = errors.New("cluster: the node was started anew or lost") // it may have been answered, or not
)

// Outcomes in the kind of a reply.
const (
	replyAnswer   = 0
	replyBusy     = 1
	replyTooLarge = 2
)

// calls are a link's questions, in both directions. They are guarded by link.mu.
type calls struct {
	last  uint32
	open  map[uint32]*call    // asked here
	asked map[uint32]struct{} // asked by the other side, and not answered yet
}

type call struct {
	answer func([]byte, error)
	timer  *time.Timer
}

// restart forgets all calls, and returns what those wait with who asked here.
func (c *calls) restart() []func([]byte, error) {
	var lost []func([]byte, error)
	for _, q := range c.open {
		q.timer.Stop()
		lost = append(lost, q.answer)
	}
	clear(c.open)
	clear(c.asked)
	return lost
}

// Call asks a peer a question of a kind that is the caller's to choose, on the control connection. The question is copied. If
// it returns an error, nothing was asked. Else answer is called once: with the answer, which is valid during the call, or with
// why there is none, from any goroutine, with no lock held, and does not wait.
func (n *Node) Call(peer NodeID, kind uint8, question []byte, deadline time.Duration, answer func([]byte, error)) error {
	if len(question) > MaxCall {
		return ErrTooLarge
	}
	l := n.link(peer, Control)
	if l == nil {
		return ErrUnknown
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return ErrClosed
	case !l.begun || l.holding || l.left || l.conn == nil && n.now()-time.Duration(l.heard.Load()) > n.o.Silence:
		return ErrDown
	case len(l.calls.open) >= n.o.Calls || l.out.held()+len(question) > n.o.Backlog:
		return ErrBusy
	}
	if l.calls.open == nil {
		l.calls.open = make(map[uint32]*call)
	}
	l.calls.last++
	id := l.calls.last
	q := &call{answer: answer}
	l.calls.open[id] = q
	q.timer = time.AfterFunc(deadline, func() {
		if l.answered(id, q) {
			answer(nil, ErrTimeout)
		}
	})
	f := frame{typ: frameCall, kind: kind, stream: id}
	l.out.appendHead(&f, len(question))
	l.out.append(question)
	l.rouse()
	return nil
}

// answered forgets a call. It is false for who comes too late.
func (l *link) answered(id uint32, q *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q == nil || l.calls.open[id] != q {
		return false
	}
	delete(l.calls.open, id)
	q.timer.Stop()
	return true
}

func (l *link) gotReply(f *frame) {
	l.mu.Lock()
	q := l.calls.open[f.stream]
	l.mu.Unlock()
	if !l.answered(f.stream, q) {
		return
	}
	switch f.kind {
	case replyAnswer:
		q.answer(f.body, nil)
	case replyTooLarge:
		q.answer(nil, ErrTooLarge)
	default:
		q.answer(nil, ErrBusy)
	}
}

// A Question is one that a peer has asked.
type Question struct {
	Peer NodeID
	Boot uint64 // of the peer
	Kind uint8
	Body []byte // valid during the call

	link *link
	life uint64
	id   uint32
}

func (l *link) gotCall(f *frame) {
	l.mu.Lock()
	_, twice := l.calls.asked[f.stream]
	busy := twice || len(l.calls.asked) >= l.node.o.Calls
	if l.calls.asked == nil {
		l.calls.asked = make(map[uint32]struct{})
	}
	q := Question{Peer: l.peer, Boot: l.boot, Kind: f.kind, Body: f.body, link: l, life: l.life, id: f.stream}
	if busy {
		l.reply(f.stream, replyBusy, nil)
	} else {
		l.calls.asked[f.stream] = struct{}{}
	}
	l.mu.Unlock()
	if answer := l.node.o.Answer; answer != nil && !busy {
		answer(q)
	}
}

// Answer answers the question, once, from any goroutine, during the call or afterwards. The answer is copied. It does not wait;
// the answer is not sent if the peer has been started anew since, and is replaced by ErrBusy if too much waits for it.
func (q *Question) Answer(answer []byte) {
	l := q.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, open := l.calls.asked[q.id]; !open || q.life != l.life || l.closed {
		return
	}
	delete(l.calls.asked, q.id)
	switch {
	case len(answer) > MaxCall:
		l.reply(q.id, replyTooLarge, nil)
	case l.out.held()+len(answer) > l.node.o.Backlog:
		l.reply(q.id, replyBusy, nil)
	default:
		l.reply(q.id, replyAnswer, answer)
	}
}

// reply sends a reply. The caller holds mu.
func (l *link) reply(id uint32, outcome uint8, body []byte) {
	f := frame{typ: frameReply, kind: outcome, stream: id}
	l.out.appendHead(&f, len(body))
	l.out.append(body)
	l.rouse()
}

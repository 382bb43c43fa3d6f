package quorum

import (
	"sync"
	"time"

	"github.com/lni/dragonboat/v4/raftpb"
)

const (
	// pulseTime is how long a sign of life waits for those of other shards.
	pulseTime = 2 * time.Millisecond
	// maxPulse is how many wait at most. More come only while nothing can be written, and may be lost.
	maxPulse = 1 << 10
)

// pulse gathers the signs of life of all shards, and the answers to them, for one member. The engine sends them by the shard, on
// several connections, at about the same time; here they become one frame, which is one write, one read and one wake-up at
// the other end. Nothing that anybody waits for is among them.
type pulse struct {
	mu      sync.Mutex // guards what follows; a leaf
	timer   *time.Timer
	due     bool    // the timer runs, or what it found is being written
	via     *sender // of who came first
	waiting raftpb.MessageBatch
	spare   []raftpb.Message
}

// lives reports whether messages say no more than that a replica lives: a hint is of somebody who waits for the answer.
func lives(messages []raftpb.Message) bool {
	for i := range messages {
		m := &messages[i]
		if m.Type != raftpb.Heartbeat && m.Type != raftpb.HeartbeatResp || m.Hint != 0 || m.HintHigh != 0 {
			return false
		}
	}
	return true
}

// add takes what a connection was to send.
func (p *pulse) add(s *sender, b raftpb.MessageBatch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.via == nil {
		p.via = s
		all := p.spare[:0]
		p.spare = nil
		p.waiting = b
		p.waiting.Requests = all
	}
	if len(p.waiting.Requests) < maxPulse {
		p.waiting.Requests = append(p.waiting.Requests, b.Requests...)
	}
	if !p.due {
		p.wait()
	}
}

// wait has beat be called soon. Called with mu held.
func (p *pulse) wait() {
	p.due = true
	if p.timer == nil {
		p.timer = time.AfterFunc(pulseTime, p.beat)
	} else {
		p.timer.Reset(pulseTime)
	}
}

// beat sends what has gathered.
func (p *pulse) beat() {
	p.mu.Lock()
	s, b := p.via, p.waiting
	p.via, p.waiting = nil, raftpb.MessageBatch{}
	p.mu.Unlock()
	if s.send(b) != nil {
		s.c.Close() // who sends there again hears of it
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spare = b.Requests
	if p.due = false; p.via != nil {
		p.wait()
	}
}

package cluster

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"
)

// seat is a node under test: what it was told, in order, and what it does with batches.
type seat struct {
	t    testing.TB
	node *Node
	addr string

	mu      sync.Mutex // guards what follows
	changed *sync.Cond
	events  []string
	refused []*Refusal
	receive func(Batch)
	answer  func(Question)
	batches int
}

var secret = []byte("the secret of the cluster")

// patient is a Silence that no slow machine takes for one.
const patient = 5 * time.Second

func testIdentity(id NodeID, boot uint64) Identity {
	return Identity{Node: id, Boot: boot, Cluster: ClusterID{1}, Name: fmt.Sprint("node-", uint64(id))}
}

// sit opens a node that listens. change may alter the options.
func sit(t testing.TB, id NodeID, boot uint64, change func(*Options)) *seat {
	t.Helper()
	s := &seat{t: t}
	s.changed = sync.NewCond(&s.mu)
	o := Options{Identity: testIdentity(id, boot), Secret: secret, Silence: patient, Patience: 50 * time.Millisecond,
		Up:    func(p NodeID, boot uint64) { s.event("up %d/%d", p, boot) },
		Down:  func(p NodeID, boot uint64) { s.event("down %d/%d", p, boot) },
		Reset: func(st *Stream) { s.event("reset %v %d of %d", st.Class(), st.ID(), st.Peer()) },
		Receive: func(b Batch) {
			s.mu.Lock()
			f := s.receive
			s.batches++
			s.mu.Unlock()
			if f != nil {
				f(b)
			} else {
				s.event("%v %d: %d %s", b.Stream.Class(), b.Stream.ID(), b.Kind, b.Body)
				b.Credit.Return()
			}
		},
		Answer: func(q Question) {
			s.mu.Lock()
			f := s.answer
			s.mu.Unlock()
			if f != nil {
				f(q)
			}
		},
		Refused: func(r *Refusal) {
			s.mu.Lock()
			s.refused = append(s.refused, r)
			s.changed.Broadcast()
			s.mu.Unlock()
		},
	}
	if change != nil {
		change(&o)
	}
	n, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	s.node = n
	t.Cleanup(func() { n.Close() })
	a, err := n.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = a.String()
	return s
}

func (s *seat) event(format string, args ...any) {
	s.mu.Lock()
	s.events = append(s.events, fmt.Sprintf(format, args...))
	s.changed.Broadcast()
	s.mu.Unlock()
}

// until waits for what must come true.
func (s *seat) until(what string, done func() bool) {
	s.t.Helper()
	late := false
	timer := time.AfterFunc(20*time.Second, func() {
		s.mu.Lock()
		late = true
		s.changed.Broadcast()
		s.mu.Unlock()
	})
	defer timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !done() {
		if late {
			s.t.Fatalf("waited for %s; events %q, refusals %v", what, s.events, s.refused)
		}
		s.changed.Wait()
	}
}

// saw waits for an event and forgets those up to it, which it returns.
func (s *seat) saw(event string) (before []string) {
	s.t.Helper()
	s.until("event "+event, func() bool {
		for i, e := range s.events {
			if e == event {
				before = s.events[:i:i]
				s.events = s.events[i+1:]
				return true
			}
		}
		return false
	})
	return before
}

func (s *seat) peer() Peer { return Peer{ID: s.node.o.Identity.Node, Address: s.addr} }

func (s *seat) stream(peer NodeID, class Class, id uint32) *Stream {
	s.t.Helper()
	st, err := s.node.Stream(peer, class, id)
	if err != nil {
		s.t.Fatal(err)
	}
	return st
}

// meet makes all of them members of one cluster.
func meet(seats ...*seat) {
	var b Book
	for _, s := range seats {
		b = b.With(s.peer())
	}
	for _, s := range seats {
		if err := s.node.SetPeers(b); err != nil {
			s.t.Fatal(err)
		}
	}
}

// send sends when there is room.
func send(s *Stream, kind uint8, parts ...[]byte) {
	room := make(chan struct{}, 1)
	s.Room(func() { room <- struct{}{} })
	for !s.Send(kind, parts...) {
		soon(room)
	}
}

// soon receives what must come.
func soon[T any](c chan T) T {
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		panic("waited too long")
	}
}

func TestTwoNodes(t *testing.T) {
	a, b := sit(t, 1, 1, nil), sit(t, 2, 7, nil)
	meet(a, b)
	a.saw("up 2/7")
	b.saw("up 1/1")
	send(a.stream(2, Data, 5), 9, []byte("from "), []byte("one"))
	send(b.stream(1, Control, 6), 8, []byte("from two"))
	b.saw("data 5: 9 from one")
	a.saw("control 6: 8 from two")
	if got := a.node.Peers(); len(got) != 1 || got[0].Boot != 7 || got[0].Versions != Spoken {
		t.Error(got)
	}
	a.node.Close()
	b.saw("down 1/1")
	if _, err := a.node.Listen("127.0.0.1:0"); err != ErrClosed {
		t.Error(err)
	}
}

func TestRestartedPeer(t *testing.T) {
	a, b := sit(t, 1, 1, nil), sit(t, 2, 7, nil)
	meet(a, b)
	a.saw("up 2/7")
	s := a.stream(2, Data, 5)
	send(s, 1, []byte("x"))
	b.saw("data 5: 1 x")
	b.node.Close()
	if before := a.saw("down 2/7"); len(before) != 0 {
		t.Error(before)
	}
	b = sit(t, 2, 8, nil)
	meet(a, b)
	a.until("up and reset", func() bool { return len(a.events) == 2 })
	if !(a.events[0] == "up 2/8" || a.events[1] == "up 2/8") {
		t.Error(a.events)
	}
	a.saw("reset data 5 of 2")
	send(s, 1, []byte("y"))
	b.saw("data 5: 1 y")
}

func TestLargeBatches(t *testing.T) {
	a, b := sit(t, 1, 1, nil), sit(t, 2, 1, nil)
	var want [][]byte
	for i, size := range []int{0, 1, maxFrame - 1, maxFrame, maxFrame + 1, 3*maxFrame + 5, 0, 5 * maxFrame} {
		body := make([]byte, size)
		for j := range body {
			body[j] = byte(j>>8 + j + i)
		}
		want = append(want, body)
	}
	got := 0
	b.receive = func(x Batch) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !bytes.Equal(x.Body, want[got]) || int(x.Kind) != got {
			t.Errorf("batch %d: kind %d, %d octets, not %d", got, x.Kind, len(x.Body), len(want[got]))
		}
		got++
		x.Credit.Return()
		b.changed.Broadcast()
	}
	meet(a, b)
	s := a.stream(2, Data, 1)
	for i, body := range want {
		half := len(body) / 3
		send(s, uint8(i), body[:half], nil, body[half:])
	}
	b.until("all", func() bool { return got == len(want) })
}

func TestCalls(t *testing.T) {
	a, b := sit(t, 1, 1, func(o *Options) { o.Calls = 4 }), sit(t, 2, 1, func(o *Options) { o.Calls = 3 })
	hold := make(chan Question, 10)
	b.answer = func(q Question) {
		if q.Kind == 1 {
			q.Answer(append([]byte("re: "), q.Body...))
			q.Answer([]byte("twice"))
			return
		}
		hold <- q
	}
	if err := a.node.Call(2, 1, nil, time.Second, nil); err != ErrUnknown {
		t.Error(err)
	}
	meet(a, b)
	a.saw("up 2/1")
	type result struct {
		body string
		err  error
	}
	results := make(chan result, 10)
	call := func(kind uint8, deadline time.Duration) error {
		return a.node.Call(2, kind, []byte("q"), deadline, func(b []byte, err error) { results <- result{string(b), err} })
	}
	expect := func(want result) {
		t.Helper()
		if got := soon(results); got != want {
			t.Errorf("%+v, not %+v", got, want)
		}
	}
	call(1, time.Minute)
	expect(result{"re: q", nil})
	call(2, 10*time.Millisecond)
	expect(result{"", ErrTimeout})
	for range 2 {
		call(2, time.Minute)
	}
	call(2, time.Minute)
	expect(result{"", ErrBusy}) // of b, for which the one that timed out is still open
	for range 2 {
		if err := call(3, time.Hour); err != nil {
			t.Error(err)
		}
		expect(result{"", ErrBusy})
	}
	q := soon(hold)
	q.Answer([]byte("too late"))
	q = soon(hold)
	q.Answer(make([]byte, MaxCall+1))
	expect(result{"", ErrTooLarge})
	if err := a.node.Call(2, 1, make([]byte, MaxCall+1), time.Second, nil); err != ErrTooLarge {
		t.Error(err)
	}
	b.node.Close()
	b = sit(t, 2, 2, nil)
	meet(a, b)
	expect(result{"", ErrReset})
}

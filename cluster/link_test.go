package cluster

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"
)

// alone is a node whose only peer is played by a script.
func alone(t testing.TB, id, peer NodeID, change func(*Options)) *seat {
	t.Helper()
	s := sit(t, id, 1, change)
	if err := s.node.SetPeers(Book{{ID: peer}}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *script) expectData(stream uint32, number uint16, body string) {
	s.t.Helper()
	if f := s.next(); f.typ != frameData || f.stream != stream || f.number != number || string(f.body) != body {
		s.t.Fatalf("%+v %q", f, f.body)
	}
}

// seen is the events so far.
func (s *seat) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

// The higher id resumes what the lower one says it has, and says what it has itself.
func TestResumeOfHigher(t *testing.T) {
	n := alone(t, 9, 1, nil)
	p := play(t, n, 1, 1)
	if got := p.take(take{session: 1, next: 100}); got != (taken{}) {
		t.Fatal(got)
	}
	s := n.stream(1, Data, 5)
	send(s, 1, []byte("a"))
	send(s, 1, []byte("b"))
	send(s, 1, []byte("c"))
	p.expectData(5, 0, "a")
	p.write(frame{typ: frameData, stream: 6, kind: 2, body: []byte("xyz")})
	n.saw("data 6: 2 xyz")
	p.c.Close()

	// The lower id did not hear the answer: it begins with the same tie, and has nothing.
	p = play(t, n, 1, 1)
	if got := p.take(take{session: 2, tie: 100, next: 200, received: 17}); got != (taken{true, 19}) {
		t.Fatal(got)
	}
	p.expectData(5, 1, "b")
	p.ack(34)
	send(s, 1, []byte("d"))
	p.expectData(5, 2, "c")
	p.expectData(5, 3, "d")

	// An earlier one that was late does not replace it.
	q := play(t, n, 1, 1)
	if err := say(q.c, sayTake, (&take{session: 1, tie: 100, next: 200}).append(nil)); err != nil {
		t.Fatal(err)
	}
	q.over()
	send(s, 1, []byte("e"))
	p.expectData(5, 4, "e")

	// A later one does.
	q = play(t, n, 1, 1)
	if got := q.take(take{session: 3, tie: 100, next: 200, received: 34}); got != (taken{true, 19}) {
		t.Fatal(got)
	}
	p.over()
	q.expectData(5, 2, "c")
	q.c.Close()

	// Who has forgotten the tie begins anew.
	q = play(t, n, 1, 1)
	if got := q.take(take{session: 4, tie: 55, next: 300, received: 34}); got != (taken{}) {
		t.Fatal(got)
	}
	n.saw("reset data 5 of 1")
	n.saw("reset data 6 of 1")
	send(s, 1, []byte("f"))
	q.expectData(5, 0, "f")
}

// The lower id proposes a tie until it hears that the higher one has begun with it.
func TestAnswerLost(t *testing.T) {
	n := alone(t, 9, 1, nil)
	p := play(t, n, 1, 1)
	p.take(take{session: 1, next: 100})
	send(n.stream(1, Data, 5), 1, []byte("a"))
	p.expectData(5, 0, "a")
	p.c.Close()
	p = play(t, n, 1, 1)
	if got := p.take(take{session: 2, next: 100}); got != (taken{}) {
		t.Fatal(got)
	}
	p.expectData(5, 0, "a")
	if e := n.seen(); len(e) != 0 {
		t.Error(e)
	}

	n = alone(t, 1, 9, nil)
	var next uint64
	for boot := range 3 { // the script never says that it has taken it
		p := play(t, n, 9, 1)
		b, err := listen(p.c, sayTake, takeSize)
		if err != nil {
			t.Fatal(err)
		}
		var k take
		k.decode(b)
		if k.tie != 0 || k.next == 0 || boot > 0 && k.next != next {
			t.Fatalf("%+v, %d before", k, next)
		}
		next = k.next
		p.c.Close()
	}
	p = play(t, n, 9, 1)
	p.taken(taken{})
	send(n.stream(9, Data, 5), 1, []byte("a"))
	p.expectData(5, 0, "a")
	p.c.Close()
	p = play(t, n, 9, 1)
	if k := p.taken(taken{true, 17}); k.tie != next || k.next == next || k.received != 0 {
		t.Fatalf("%+v, not %d", k, next)
	}
	send(n.stream(9, Data, 5), 1, []byte("b"))
	p.expectData(5, 1, "b")
	p.c.Close()
	p = play(t, n, 9, 1)
	p.taken(taken{false, 0})
	n.saw("reset data 5 of 9")
}

// What breaks the protocol is never passed over: the streams begin anew, and both sides are told.
func TestBrokenProtocol(t *testing.T) {
	data := func(number uint16, size int) frame {
		return frame{typ: frameData, stream: 5, number: number, body: make([]byte, size)}
	}
	credit := func(stream uint32, n uint64) frame {
		return frame{typ: frameCredit, stream: stream, body: binary.LittleEndian.AppendUint64(nil, n)}
	}
	for i, frames := range [][]frame{
		{{typ: 77}},
		{{typ: frameAck, body: make([]byte, 7)}},
		{data(1, 3)},                       // a number is missing
		{data(0, 3), data(0, 3)},           // twice
		{data(0, 60_000), data(1, 40_000)}, // more than the window, which is not half open
		{{typ: frameAck, body: []byte{1, 0, 0, 0, 0, 0, 0, 0}}}, // of what was not sent
		{credit(5, 1)}, // never spent
		{credit(6, 0)}, // no such stream
		{{typ: frameData, stream: 5, left: 5, body: make([]byte, 3)}},                    // a piece that is no full frame
		{{typ: frameData, stream: 5, left: 5, body: make([]byte, maxFrame)}, data(1, 6)}, // the rest is more
		{{typ: frameData, stream: 5, left: MaxBatch, body: make([]byte, maxFrame)}},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			n := alone(t, 9, 1, func(o *Options) { o.Window = minWindow; o.Receive = func(Batch) {} })
			n.stream(1, Data, 5)
			p := play(t, n, 1, 1)
			p.take(take{session: 1, next: 100})
			for _, f := range frames {
				_ = p.try(f) // it may be over by then
			}
			p.over()
			p = play(t, n, 1, 1)
			if got := p.take(take{session: 2, tie: 100, next: 200}); got.resumed {
				t.Error("resumed")
			}
			n.saw("reset data 5 of 1")
		})
	}
	// The same where the other side says that it has received what was never sent, or no longer what it acknowledged.
	for _, received := range []uint64{18, 0} {
		n := alone(t, 9, 1, nil)
		p := play(t, n, 1, 1)
		p.take(take{session: 1, next: 100})
		s := n.stream(1, Data, 5)
		send(s, 1, []byte("a"))
		p.expectData(5, 0, "a")
		p.ack(17)
		p.write(data(0, 0))
		n.saw("data 5: 0 ")
		p.c.Close()
		p = play(t, n, 1, 1)
		p.take(take{session: 2, tie: 100, next: 200, received: received})
		p.over()
		p = play(t, n, 1, 1)
		p.take(take{session: 3, tie: 100, next: 200})
		n.saw("reset data 5 of 1")
	}
}

// Credit is given back when a quarter of the window has been disposed of; that of a batch from before a reset is void.
func TestCredit(t *testing.T) {
	var owed []Credit
	n := alone(t, 9, 1, func(o *Options) { o.Window = minWindow })
	n.receive = func(b Batch) {
		owed = append(owed, b.Credit)
		n.event("got")
	}
	p := play(t, n, 1, 1)
	p.take(take{session: 1, next: 100})
	const size = minWindow/8 - frameHead
	for i := range 4 {
		p.write(frame{typ: frameData, stream: 5, number: uint16(i), body: make([]byte, size)})
		n.saw("got")
	}
	owed[2].Return()
	owed[0].Return()
	if f := p.next(); f.typ != frameCredit || f.stream != 5 || binary.LittleEndian.Uint64(f.body) != minWindow/4 {
		t.Fatalf("%+v", f)
	}
	p.c.Close()
	p = play(t, n, 1, 1)
	p.take(take{session: 2, next: 200})
	n.saw("reset data 5 of 1")
	owed[1].Return()
	owed[3].Return()
	p.write(frame{typ: frameData, stream: 5, body: make([]byte, size)})
	n.saw("got")
	send(n.stream(1, Data, 5), 1, []byte("a"))
	p.expectData(5, 0, "a") // no credit comes before it
	owed[4].Return()
	defer func() {
		if recover() == nil {
			t.Error("credit could be returned twice")
		}
	}()
	owed[4].Return()
}

// A peer that does not read, or does not return credit, costs no more than the bounds say; when it goes on, so does the
// sender.
func TestStalledPeer(t *testing.T) {
	const window, backlog = 2 * minWindow, 6 * minWindow
	n := alone(t, 9, 1, func(o *Options) { o.Backlog, o.Silence = backlog, time.Minute })
	p, err := scripted(t, n, 1, 1, func(o *opening) { o.own.window = window })
	if err != nil {
		t.Fatal(err)
	}
	s := n.stream(1, Data, 0)
	if s.Send(1, nil) {
		t.Error("sent to who was never there")
	}
	p.take(take{session: 1, next: 100})
	body := make([]byte, 1000)
	octets := 0
	room := make(chan uint32, 100)
	for id := range uint32(6) { // three of them do not find room in the backlog
		s := n.stream(1, Data, id)
		sent := 0
		if id == 0 {
			send(s, 1, nil)
			sent = frameHead
		}
		s.Room(func() { room <- id })
		for s.Send(1, body) {
			sent += frameHead + len(body)
		}
		if sent > window {
			t.Errorf("stream %d: %d octets in a window of %d", id, sent, window)
		}
		octets += sent
	}
	if octets > backlog || octets < backlog-2000 {
		t.Errorf("%d octets in a backlog of %d", octets, backlog)
	}
	l := s.link
	l.mu.Lock()
	if held, chunks := l.out.held(), len(l.out.chunks); held != octets || chunks > backlog/chunkSize+1 {
		t.Errorf("%d octets held in %d chunks", held, chunks)
	}
	l.mu.Unlock()
	// Acks make room in the backlog, for those streams that have credit.
	got, last := 0, uint64(0)
	for got < octets {
		f := p.next()
		got += f.octets()
		last += uint64(f.octets())
	}
	p.ack(last)
	for i := 0; i < 3; i++ {
		if id := soon(room); id < 3 {
			t.Errorf("stream %d has room without credit", id)
		}
	}
	if s.Send(1, body) {
		t.Error("sent without credit")
	}
	p.write(frame{typ: frameCredit, stream: 0, body: binary.LittleEndian.AppendUint64(nil, window/2)})
	if id := soon(room); id != 0 {
		t.Errorf("room for stream %d", id)
	}
	if !s.Send(1, body) {
		t.Error("no room after Room")
	}
}

// One batch may be larger than the window and the backlog, when half of both is free.
func TestOversizedBatch(t *testing.T) {
	n := alone(t, 9, 1, func(o *Options) { o.Backlog = 2 * minWindow })
	p := play(t, n, 1, 1)
	p.take(take{session: 1, next: 100})
	s := n.stream(1, Data, 0)
	send(s, 1, make([]byte, 3*maxFrame/2))
	if s.Send(1, nil) {
		t.Error("sent behind it")
	}
	if f := p.next(); f.left != maxFrame/2 || len(f.body) != maxFrame {
		t.Errorf("%+v", f)
	}
	if f := p.next(); f.left != 0 || len(f.body) != maxFrame/2 {
		t.Errorf("%+v", f)
	}
}

// A peer from which nothing comes is down after the time that was set, and not before; its connection is given up.
func TestSilence(t *testing.T) {
	t.Parallel()
	const silence = 2 * time.Second
	n := sit(t, 9, 1, func(o *Options) { o.Silence = silence })
	if err := n.node.SetPeers(Book{{ID: 1}}); err != nil {
		t.Fatal(err)
	}
	p, err := scripted(t, n, 1, 4, func(o *opening) { o.own.class = Control })
	if err != nil {
		t.Fatal(err)
	}
	p.take(take{session: 1, next: 100})
	n.saw("up 1/4")
	begin, last := time.Now(), time.Now()
	for time.Since(begin) < silence+silence/4 {
		time.Sleep(silence / 8)
		last = time.Now()
		p.ack(0)
	}
	n.saw("down 1/4")
	if d := time.Since(last); d < silence {
		t.Errorf("down after %v", d)
	}
	p.over()
	// It is up again when it comes back, and down at once when it says goodbye.
	p, err = scripted(t, n, 1, 4, func(o *opening) { o.own.class = Control })
	if err != nil {
		t.Fatal(err)
	}
	p.take(take{session: 2, tie: 100, next: 200})
	n.saw("up 1/4")
	p.write(frame{typ: frameGoodbye})
	n.saw("down 1/4")
	if e := n.seen(); len(e) != 0 {
		t.Error(e)
	}
}

// A short absence is none.
func TestReconnectUnnoticed(t *testing.T) {
	t.Parallel()
	forbearing := func(o *Options) { o.Silence = 20 * time.Second }
	a, b := sit(t, 1, 1, forbearing), sit(t, 2, 1, forbearing)
	meet(a, b)
	a.saw("up 2/1")
	b.saw("up 1/1")
	s := a.stream(2, Control, 1)
	for i := range 20 {
		l := s.link
		l.mu.Lock()
		if l.conn != nil {
			l.conn.nc.Close()
		}
		l.mu.Unlock()
		send(s, 1, fmt.Append(nil, i))
		if before := b.saw(fmt.Sprintf("control 1: 1 %d", i)); len(before) != 0 {
			t.Error(before)
		}
	}
	if e := a.seen(); len(e) != 0 {
		t.Error(e)
	}
}

// Close sends what was sent before.
func TestGoodbyeComesLast(t *testing.T) {
	a, b := sit(t, 1, 1, nil), sit(t, 2, 1, func(o *Options) { o.Window = 16 << 20 })
	a.node.farewell = 20 * time.Second
	meet(a, b)
	b.saw("up 1/1")
	s := a.stream(2, Data, 1)
	send(s, 1, nil)
	n := 1
	for n < 2000 && s.Send(1, make([]byte, 1000)) {
		n++
	}
	a.node.Close()
	if s.Send(1, nil) {
		t.Error("sent after Close")
	}
	b.until("all batches", func() bool { return b.batches == n })
}

// A member that is removed is gone at once, with its streams.
func TestRemovedPeer(t *testing.T) {
	a, b := sit(t, 1, 1, nil), sit(t, 2, 1, nil)
	meet(a, b)
	a.saw("up 2/1")
	b.saw("up 1/1")
	s := a.stream(2, Data, 1)
	send(s, 1, []byte("x"))
	b.saw("data 1: 1 x")
	if err := a.node.SetPeers(nil); err != nil {
		t.Fatal(err)
	}
	a.saw("down 2/1")
	b.saw("down 1/1")
	if s.Send(1, nil) {
		t.Error("sent to who is no member")
	}
	if _, err := a.node.Stream(2, Data, 1); err != ErrUnknown {
		t.Error(err)
	}
	meet(a, b)
	b.until("up and reset", func() bool { return len(b.events) == 2 })
	b.saw("reset data 1 of 1")
	send(a.stream(2, Data, 1), 1, []byte("y"))
	b.saw("data 1: 1 y")
}

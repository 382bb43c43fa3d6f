package propose

import (
	"bytes"
	"testing"
	"time"

	"github.com/warrenmq/warren/queue"
)

const testBatch = 64 << 10

// idle is a proposer that does not run: what it would propose is taken out by hand.
func idle(t *testing.T) *Proposer[*numbered, uint64] {
	pool := queue.NewPool(1 << 30)
	t.Cleanup(pool.Close)
	return New(Options[*numbered, uint64]{Node: 1, Boot: 1, Pool: pool, MaxBatch: testBatch, Now: func() int64 { return 1 }, New: func() *numbered { return new(numbered) },
		Propose: func([]byte, time.Duration) (Proposal[uint64], error) { panic("it does not run") },
		Applied: func(n uint64) (uint64, bool) { return n, true },
		Block:   func(bool) { t.Error("all publishers rest, or go on") }})
}

// add adds so many octets of a value to a lane.
func add(p *Proposer[*numbered, uint64], l *Lane[*numbered], value byte, octets int) {
	p.Add(l, func(b *numbered) { b.Buf = append(b.Buf, bytes.Repeat([]byte{value}, octets)...) })
}

// propose is what the next batch has, which is applied at once, or nil.
func propose(p *Proposer[*numbered, uint64]) []byte {
	b, number := p.next()
	if b == nil {
		return nil
	}
	commands := bytes.Clone(b[HeaderLen:])
	p.Finish(p.Claim(number))
	p.retire()
	return commands
}

// shares are how many octets of each value there are.
func shares(b []byte) map[byte]int {
	of := map[byte]int{}
	for _, v := range b {
		of[v]++
	}
	return of
}

// TestQuietGoesFirst: what comes to a lane that was empty is proposed next, however much of another lane waits, and what is of no queue
// before it.
func TestQuietGoesFirst(t *testing.T) {
	p := idle(t)
	var flood, quiet Lane[*numbered]
	for range 40 {
		add(p, &flood, 'f', testBatch)
	}
	for range 3 {
		for range 3 { // the flood has its turns
			if got := shares(propose(p)); got['f'] != testBatch || len(got) != 1 {
				t.Fatal(got)
			}
		}
		add(p, &quiet, 'q', 10)
		add(p, nil, 'u', 10)
		if got := propose(p); string(got) != "uuuuuuuuuuqqqqqqqqqq" {
			t.Fatalf("%v, %.20q", shares(got), got)
		}
	}
}

// TestTurnsByOctets: lanes that always have something get the same of the log, whatever the size of what is in them, and one that has
// just had a turn does not get another one before them by having been empty.
func TestTurnsByOctets(t *testing.T) {
	p := idle(t)
	lanes := map[byte]*Lane[*numbered]{'a': {}, 'b': {}, 'c': {}}
	size := map[byte]int{'a': testBatch, 'b': 4 * testBatch, 'c': testBatch / 10}
	had := map[byte]int{}
	for range 300 {
		for v, l := range lanes {
			for l.octets == 0 || v == 'a' && l.octets < 3*testBatch {
				add(p, l, v, size[v])
			}
		}
		for v, n := range shares(propose(p)) {
			had[v] += n
		}
	}
	// c has less than a turn's worth each time that it is asked.
	if a, b, c := had['a'], had['b'], had['c']; a < 20*testBatch || b < a-8*testBatch || b > a+8*testBatch || c == 0 || c > a/2 {
		t.Errorf("%d, %d, %d", a, b, c)
	}
}

// TestManyQuiet: what little waits in many lanes goes together.
func TestManyQuiet(t *testing.T) {
	p := idle(t)
	var flood Lane[*numbered]
	for range 10 {
		add(p, &flood, 'f', testBatch)
	}
	quiet := make([]Lane[*numbered], 100)
	for i := range quiet {
		add(p, &quiet[i], byte(i), 100)
	}
	got := propose(p)
	if len(got) == testBatch { // the flood was first here
		got = propose(p)
	}
	if len(got) != 100*100 || len(shares(got)) != 100 {
		t.Fatalf("%d octets, of %d lanes", len(got), len(shares(got)))
	}
}

// TestOnlyTheFullRest: publishers to a lane rest when too much of it waits, and go on when little does; others never do.
func TestOnlyTheFullRest(t *testing.T) {
	p := idle(t)
	floods, quiet := make([]Lane[*numbered], 5), new(Lane[*numbered])
	waiting := 0
	for i := range floods {
		for l, n := &floods[i], 0; !l.Full(); n++ {
			if add(p, l, byte(i), testBatch); n*testBatch > maxWaiting {
				t.Fatal("a lane is never full")
			}
		}
		waiting += floods[i].octets
		add(p, quiet, 'q', 10<<10)
		if quiet.Full() {
			t.Fatalf("a quiet lane is full beside %d others", i+1)
		}
	}
	if floods[0].octets < maxLane || waiting > maxWaiting {
		t.Errorf("%d in the first lane, %d in all", floods[0].octets, waiting)
	}
	roomy := 0
	for i := range floods {
		p.WaitForRoom(&floods[i], func() { roomy++ })
	}
	p.WaitForRoom(quiet, func() { roomy += 100 })
	if roomy != 100 {
		t.Fatal("a quiet lane has no room, or one that is full has")
	}
	propose(p)
	if roomy != 100 {
		t.Fatal("publishers go on too early")
	}
	for propose(p) != nil {
	}
	if roomy != 105 || floods[0].Full() {
		t.Fatalf("%d go on", roomy-100)
	}
}

// TestAddBehind: what asks to be behind all is, and what comes later is behind it where it is of the same lane.
func TestAddBehind(t *testing.T) {
	p := idle(t)
	lanes := make([]Lane[*numbered], 3)
	for i := range lanes {
		for range 3 {
			add(p, &lanes[i], 'w', testBatch/2)
		}
	}
	p.AddBehind(func(b *numbered) { b.Buf = append(b.Buf, '!') })
	for i := range lanes {
		add(p, &lanes[i], 'l', testBatch)
	}
	var all []byte
	for b := propose(p); b != nil; b = propose(p) {
		all = append(all, b...)
	}
	want := string(bytes.Repeat([]byte("w"), 9*testBatch/2)) + "!" + string(bytes.Repeat([]byte("l"), 3*testBatch))
	if string(all) != want {
		t.Error("not in order")
	}
}

// TestNothingIsAllocated: a message costs no allocation, whether its lane is flooded or not.
func TestNothingIsAllocated(t *testing.T) {
	p := idle(t)
	var flood Lane[*numbered]
	quiet := make([]Lane[*numbered], 20)
	body := make([]byte, 1<<10)
	encode := func(b *numbered) { b.Buf = append(b.Buf, body...) }
	step := func() {
		for range 100 {
			p.Add(&flood, encode)
		}
		for i := range quiet {
			p.Add(&quiet[i], encode)
		}
		for {
			b, number := p.next()
			if b == nil {
				return
			}
			p.Finish(p.Claim(number))
			p.retire()
		}
	}
	for range 20 {
		step()
	}
	if n := testing.AllocsPerRun(100, step); n > 1 {
		t.Errorf("%.1f allocations for 120 messages", n)
	}
}

// TestFlight: no more is on its way, for others to wait for, than keeps the log busy, unless there have been no others for long.
func TestFlight(t *testing.T) {
	p := idle(t)
	var flood, quiet Lane[*numbered]
	add(p, nil, 'u', 1)
	propose(p) // the first one goes alone
	most := func() (flying int) {
		for range 2 * maxFlightAlone / testBatch / MaxFlight {
			add(p, &flood, 'f', MaxFlight*testBatch/4) // a batch is as long as what comes at once
		}
		var numbers []uint64
		for b, number := p.next(); b != nil; b, number = p.next() {
			numbers = append(numbers, number)
		}
		flying = p.flying
		for _, number := range numbers {
			p.Finish(p.Claim(number))
		}
		p.retire()
		return flying
	}
	for range 4 {
		if n := most(); n < maxFlightOctets || n > maxFlightOctets+MaxFlight*testBatch/4 {
			t.Fatalf("%d octets in flight", n)
		}
	}
	for n := 0; n <= aloneOctets; n += 1 << 20 {
		add(p, &flood, 'f', 1<<20)
		propose(p)
	}
	for propose(p) != nil {
	}
	if n := most(); n < 2*maxFlightOctets {
		t.Fatalf("%d octets in flight, of a lane that is alone", n)
	}
	for propose(p) != nil {
	}
	add(p, &quiet, 'q', 1)
	propose(p)
	if n := most(); n > maxFlightOctets+MaxFlight*testBatch/4 {
		t.Fatalf("%d octets in flight, of a lane that is not alone any more", n)
	}
}

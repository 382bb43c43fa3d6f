package queue

import (
	"runtime"
	"testing"
)

// fullLog has every place up to the last one put, all messages of size 1: a backlog of any length in no memory.
type fullLog struct{ last, asked uint64 }

func (l *fullLog) Put(seq Seq, _ Time, _ *Message) { l.last = seq.place() }

func (l *fullLog) Next(after Seq) (Meta, bool) {
	l.asked++
	return Meta{Seq: after + 1, Size: 1}, after.place() < l.last
}

func (l *fullLog) Resident(Seq) bool { return true }

func backlog(t *testing.T, n int) (*State, *fullLog) {
	log := &fullLog{}
	s := New(Rules{Levels: 1, DropBefore: true}, unlimited, log)
	var fx Effects
	batch := benchBatch(1000)
	for i := range batch {
		batch[i].Size = 1
	}
	for range n / 1000 {
		s.Publish(1, batch, &fx)
	}
	if s.Stats().Ready != uint64(n) || len(fx.Deliver)+len(fx.Removed)+len(fx.Discards) > 0 {
		t.Fatalf("%d ready, effects %+v", s.Stats().Ready, fx)
	}
	return s, log
}

func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Ready messages that were never handed out cost the machine nothing, nor does purging them.
func TestBacklogCostsNothing(t *testing.T) {
	before := heapInUse()
	s, log := backlog(t, 2_000_000)
	if after := heapInUse(); after > before+256<<10 {
		t.Errorf("two million ready messages take %d octets", after-before)
	}
	var fx Effects
	log.asked = 0
	if n := s.Purge(1, &fx); n != 2_000_000 || len(fx.Removed) != 1 || log.asked != 0 {
		t.Errorf("purged %d with %d ranges, looking at %d", n, len(fx.Removed), log.asked)
	}
}

// A limit that falls far below what is ready is reached step by step, and runs are one range.
func TestDropIsBounded(t *testing.T) {
	s, log := backlog(t, 100_000)
	config := unlimited
	config.MaxLength = 10
	var fx Effects
	s.Configure(1, config, &fx)
	for next, steps := Seq(1), 1; ; steps++ {
		if len(fx.Discards) != 1 || fx.Discards[0].First != next {
			t.Fatalf("step %d: %+v, want one range from %d", steps, fx.Discards, next)
		}
		next = fx.Discards[0].Last + 1
		if !fx.More {
			if s.Stats().Ready != 10 || steps != (100_000+MaxEffects-1)/MaxEffects {
				t.Fatalf("%d ready after %d steps", s.Stats().Ready, steps)
			}
			break
		}
		fx.Reset()
		log.asked = 0
		s.Continue(1, &fx)
		if log.asked > MaxEffects+1 {
			t.Fatalf("a step looked at %d messages", log.asked)
		}
	}
}

// A channel that ends with very many messages gives them all back, and the next one gets them in order.
func TestReturnMany(t *testing.T) {
	const n = 200_000
	s, _ := backlog(t, n)
	var fx Effects
	drain := func(id ConsumerID) {
		for next := Seq(1); ; {
			for _, d := range fx.Deliver {
				if d.Seq != next || d.Consumer != id || d.ID != uint64(next) {
					t.Fatalf("%+v, want %d", d, next)
				}
				next++
			}
			if !fx.More {
				if next != n+1 {
					t.Fatalf("stopped at %d", next)
				}
				return
			}
			if len(fx.Deliver) != MaxEffects {
				t.Fatalf("%d deliveries in a step", len(fx.Deliver))
			}
			fx.Reset()
			s.Continue(1, &fx)
		}
	}
	a, _ := s.Attach(1, ConsumerSpec{Window: n}, &fx)
	drain(a)
	fx.Reset()
	s.Detach(1, a, Remove, &fx)
	if s.Stats().Ready != n {
		t.Fatalf("%d came back", s.Stats().Ready)
	}
	b, _ := s.Attach(1, ConsumerSpec{Window: n}, &fx)
	drain(b)
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

package propose

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/test/seeds"
)

// numbered is a batch of octets that count up.
type numbered struct {
	Batch
	sealed int
}

func (b *numbered) Seal()             { b.sealed++ }
func (b *numbered) Merge(o *numbered) { b.Buf = append(b.Buf, o.Buf[HeaderLen:]...) }
func (b *numbered) Reset() bool       { b.sealed = 0; return true }

// outcome is a proposal whose outcome is known.
type outcome chan uint64

func (o outcome) ResultC() chan uint64 { return o }
func (o outcome) Release()             {}

// TestOnceAndInOrder: an engine refuses batches, loses them, takes them twice and says nothing of them. What was added is applied
// once and that of each lane in order, is claimed once, and leaves nothing behind.
func TestOnceAndInOrder(t *testing.T) {
	seed := seeds.Of(t)
	rng, rng2 := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2)) // the engine's, and the publisher's
	pool := queue.NewPool(1 << 20)
	defer pool.Close()
	var p *Proposer[*numbered, uint64]
	var origins Origins[struct{}]
	var applied []byte
	busy := errors.New("busy")
	apply := func(b []byte) uint64 {
		h, commands, err := ReadHeader(b)
		if err != nil || h.Node != 3 || h.Boot != 4 || h.Done >= h.Number {
			t.Errorf("%+v, %v", h, err)
		}
		o, next := origins.Next(h)
		if next {
			applied = append(applied, commands...)
		}
		if b := p.Claim(h.Number); b != nil && o != nil && h.Number <= o.Last { // also if it was applied before
			if b.sealed != 1 {
				t.Errorf("batch %d was sealed %d times", h.Number, b.sealed)
			}
			p.Finish(b)
			if p.Claim(h.Number) != nil {
				t.Errorf("batch %d twice", h.Number)
			}
		}
		if o == nil {
			return 0
		}
		return o.Last
	}
	p = New(Options[*numbered, uint64]{Node: 3, Boot: 4, Pool: pool, MaxBatch: HeaderLen + 8, Now: func() int64 { return 1 }, New: func() *numbered { return new(numbered) },
		Propose: func(b []byte, _ time.Duration) (Proposal[uint64], error) {
			last := make(outcome, 1)
			switch rng.IntN(6) {
			case 0:
				return nil, busy
			case 1:
				apply(b)
				return nil, busy
			case 2: // it is lost, and nobody knows
				last <- 0
				return last, nil
			case 3:
				apply(b)
			}
			last <- apply(b)
			return last, nil
		},
		Applied: func(n uint64) (uint64, bool) { return n, n > 0 }, Block: func(bool) {}})
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() { p.Run(quit); close(ended) }()
	var lanes [4]*Lane[*numbered] // the first is what is of no queue
	for i := range lanes[1:] {
		lanes[i+1] = new(Lane[*numbered])
	}
	var want [len(lanes)][]byte
	for i := range 500 {
		l := rng2.IntN(len(lanes))
		want[l] = append(want[l], byte(l), byte(i))
		if !p.Add(lanes[l], func(b *numbered) { b.Buf = append(b.Buf, byte(l), byte(i)) }) {
			t.Fatal("refused")
		}
		if i%50 == 0 {
			p.NewLeader()
		}
	}
	if !p.Drain(time.Minute) {
		t.Fatal("not all was applied:", p)
	}
	if p.Add(nil, func(*numbered) { t.Error("closed, and called") }) {
		t.Error("closed, and not refused")
	}
	close(quit)
	<-ended
	var got [len(lanes)][]byte
	for ; len(applied) >= 2; applied = applied[2:] {
		got[applied[0]] = append(got[applied[0]], applied[:2]...)
	}
	for l := range lanes {
		if !bytes.Equal(got[l], want[l]) {
			t.Errorf("lane %d: applied %x, want %x", l, got[l], want[l])
		}
	}
	if n := pool.InUse(); n != 0 {
		t.Errorf("%d octets are charged for nothing", n)
	}
}

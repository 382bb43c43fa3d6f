package slots

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/warrenmq/warren/quorum/propose"
	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/test/seeds"
)

// frame is a part of a copy.
type frame struct {
	kind    byte
	payload []byte
}

// save takes a copy down.
func (r *rig) save(view any) (frames []frame, err error) {
	err = r.m.Save(view, func(kind byte, payload []byte) error {
		frames = append(frames, frame{kind, bytes.Clone(payload)})
		return nil
	})
	return frames, err
}

// take has a machine take a copy. Where it ends early there is an error.
func (r *rig) take(frames []frame) error {
	err := r.m.Restore(func() (byte, []byte, error) {
		if len(frames) == 0 {
			return 0, nil, io.ErrUnexpectedEOF
		}
		x := frames[0]
		frames = frames[1:]
		return x.kind, x.payload, nil
	})
	if err == nil {
		r.done = int(r.m.Applied())
	}
	return err
}

// copyTo has another machine take the state, and then what its logs lack.
func (r *rig) copyTo(other *rig) error {
	r.Helper()
	frames, err := r.save(r.m.View())
	if err != nil {
		r.Fatal(err)
	}
	if err := other.take(frames); err != nil {
		return err
	}
	return other.mendFrom(&given{m: r.m})
}

// mendFrom has a machine mend all that is broken or damaged.
func (r *rig) mendFrom(src source) error {
	for _, q := range r.m.wants(func(q *replica) bool { return q.broken != nil }) {
		if err := r.m.catchUp(context.Background(), q, src); err != nil {
			return err
		}
	}
	for _, q := range r.m.streams {
		for _, d := range q.log.Damage() {
			if err := r.m.repair(q, d, src); err != nil {
				return err
			}
		}
	}
	return nil
}

// counted is a source that counts what it gives.
type counted struct {
	source
	n int
}

func (c *counted) octets(id, dir, base uint64, pos int64) ([]byte, error) {
	b, err := c.source.octets(id, dir, base, pos)
	c.n += len(b)
	return b, err
}

// TestCopies: a replica that was away takes copies of another, whose power is cut now and then, and so is its own; while a copy
// is written the other goes on and removes segments. After each, both have what the model has.
func TestCopies(t *testing.T) {
	seed := seeds.Of(t)
	interrupted := 0
	for round := range 8 {
		rng := rand.New(rand.NewPCG(seed, uint64(round)))
		h := &history{rng: rng, at: 1, streams: map[uint64]*told{}}
		from, to := &rig{TB: t}, &rig{TB: t}
		from.open(storage.NewFaultFS(rng.Uint64()))
		to.open(storage.NewFaultFS(rng.Uint64()))
		for range 8 {
			for range 5 + rng.IntN(20) {
				h.entry()
			}
			from.feed(h.log, len(h.log))
			if rng.IntN(2) == 0 {
				to.feed(h.log, to.done+rng.IntN(len(h.log)-to.done))
			}
			if rng.IntN(2) == 0 {
				if _, err := to.m.checkpoint(); err != nil {
					t.Fatal(err)
				}
			}
			to.fs.StopAfter(int64(rng.IntN(200)))
			if err := from.copyTo(to); errors.Is(err, storage.ErrDead) {
				interrupted++
				fs := to.fs.Crash(rng.Uint64())
				to.close()
				to.open(fs)
				if err := to.m.clean(); err != nil {
					t.Fatal(err)
				}
				if err := from.copyTo(to); err != nil {
					t.Fatal(err)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			to.fs.StopAfter(1 << 40)
			if rng.IntN(2) == 0 {
				fs := to.fs.Crash(rng.Uint64())
				to.close()
				to.open(fs)
				if err := to.mendFrom(&given{m: from.m}); err != nil { // nobody has synced it
					t.Fatal(err)
				}
			}
			for range rng.IntN(5) {
				h.entry()
			}
			from.feed(h.log, len(h.log))
			if !to.feed(h.log, len(h.log)) || to.dead() { // the power went when the copy was in place
				fs := to.fs.Crash(rng.Uint64())
				to.close()
				to.open(fs)
				to.feed(h.log, len(h.log))
				if err := to.mendFrom(&given{m: from.m}); err != nil {
					t.Fatal(err)
				}
			}
			h.check(from)
			h.check(to)
			if a, b := from.state(), to.state(); a != b {
				t.Fatalf("round %d:\n%s\nthe copy\n%s", round, a, b)
			}
		}
		from.close()
		to.close()
	}
	if interrupted == 0 {
		t.Error("no copy was ever interrupted")
	}
}

// TestCopyThatEndsEarly: what is not whole is not taken, and a copy that is not wanted any more ends.
func TestCopyThatEndsEarly(t *testing.T) {
	h := &history{rng: rand.New(rand.NewPCG(seeds.Of(t), 1)), at: 1, streams: map[uint64]*told{}}
	from, to := &rig{TB: t}, &rig{TB: t}
	from.open(storage.NewFaultFS(1))
	to.open(storage.NewFaultFS(2))
	defer from.close()
	defer to.close()
	for range 20 {
		h.entry()
	}
	from.feed(h.log, len(h.log))
	to.feed(h.log, 5)
	before := to.state()
	frames, err := from.save(from.m.View())
	if err != nil {
		t.Fatal(err)
	}
	for n := range frames {
		if err := to.take(frames[:n]); err == nil {
			t.Errorf("%d of %d frames were taken", n, len(frames))
		}
		if err := to.take(append(append([]frame{}, frames[:n]...), frames[n+1:]...)); err == nil {
			t.Errorf("it was taken without frame %d of %d, of kind %d", n, len(frames), frames[n].kind)
		}
	}
	if to.state() != before {
		t.Error("it was changed all the same")
	}
	if err := to.take(frames); err != nil {
		t.Fatal(err)
	}
	if err := to.mendFrom(&given{m: from.m}); err != nil {
		t.Fatal(err)
	}
	h.check(to)
}

// TestCopyAnswers: a node whose batches are in a copy that it takes hears what became of them.
func TestCopyAnswers(t *testing.T) {
	from, to := &rig{TB: t}, &rig{TB: t}
	from.open(storage.NewFaultFS(1))
	to.open(storage.NewFaultFS(2))
	defer from.close()
	defer to.close()
	b := make([]byte, propose.HeaderLen)
	(&propose.Header{At: 1, Node: 1, Boot: 1, Number: 1}).Put(b)
	b = append(b, bytes.Clone(appendCommand(nil, cmdAsk, 9))...)
	if _, err := from.m.Apply(1, b); err != nil {
		t.Fatal(err)
	}
	if err := from.copyTo(to); err != nil {
		t.Fatal(err)
	}
	var answers []result
	for _, r := range to.m.ring.take(nil) {
		if r.mine && r.number == 1 {
			answers = append(answers, r.results...)
		}
	}
	if len(answers) != 1 || answers[0].code != codeDeleted {
		t.Errorf("%+v", answers)
	}
}

package slots

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/test/seeds"
)

// copyTo has another machine take a copy.
func (r *rig) copyTo(other *rig) error {
	r.Helper()
	prepared := r.m.Prepare()
	var b bytes.Buffer
	if err := r.m.Save(prepared, &b, nil); err != nil {
		r.Fatal(err)
	}
	err := other.m.Recover(&b, nil)
	if err == nil {
		other.done = int(other.m.Applied())
	}
	return err
}

// plain is a state without what belongs to one replica only: where its files came from.
func (r *rig) plain() string {
	kept := map[uint64]uint64{}
	for id, q := range r.m.streams {
		kept[id], q.taken = q.taken, 0
	}
	defer func() {
		for id, q := range r.m.streams {
			q.taken = kept[id]
		}
	}()
	return r.state()
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
			}
			h.check(from)
			h.check(to)
			if a, b := from.plain(), to.plain(); a != b {
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

// TestCopyOfWhatIsRemovedMeanwhile: retention goes on while a copy is written, and what is copied is what was there.
func TestCopyOfWhatIsRemovedMeanwhile(t *testing.T) {
	h := &history{rng: rand.New(rand.NewPCG(seeds.Of(t), 1)), at: 1, streams: map[uint64]*told{}}
	from, to := &rig{TB: t}, &rig{TB: t}
	from.open(storage.NewFaultFS(1))
	to.open(storage.NewFaultFS(2))
	defer from.close()
	defer to.close()
	for range 60 {
		h.entry()
	}
	from.feed(h.log, len(h.log))
	prepared := from.m.Prepare()
	for _, q := range from.m.streams {
		q.log.Cut(q.next)
		if err := q.log.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if err := from.m.Save(prepared, &b, nil); err != nil {
		t.Fatal(err)
	}
	if err := to.m.Recover(&b, nil); err != nil {
		t.Fatal(err)
	}
	h.check(to)
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
	var b bytes.Buffer
	if err := from.m.Save(from.m.Prepare(), &b, nil); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, 10, b.Len() / 2, b.Len() - 1} {
		if err := to.m.Recover(bytes.NewReader(b.Bytes()[:n]), nil); err == nil {
			t.Errorf("%d of %d octets were taken", n, b.Len())
		}
	}
	stop := make(chan struct{})
	close(stop)
	if err := from.m.Save(from.m.Prepare(), io.Discard, stop); !errors.Is(err, errStoppedCopy) {
		t.Error(err)
	}
	if to.state() != before {
		t.Error("it was changed all the same")
	}
	for _, q := range from.m.streams {
		q.broken = errBroken
	}
	if err := from.m.Save(from.m.Prepare(), io.Discard, nil); err == nil || !strings.Contains(err.Error(), "cannot be copied") {
		t.Error(err)
	}
}

// TestCopyAnswers: a node whose batches are in a copy that it takes hears what became of them.
func TestCopyAnswers(t *testing.T) {
	from, to := &rig{TB: t}, &rig{TB: t}
	from.open(storage.NewFaultFS(1))
	to.open(storage.NewFaultFS(2))
	defer from.close()
	defer to.close()
	b := make([]byte, headerLen)
	(&header{at: 1, node: 1, boot: 1, number: 1}).put(b)
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

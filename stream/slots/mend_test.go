package slots

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/warrenmq/warren/queue"
)

// segmentsOf are the files of a stream's segments on a node, the oldest first.
func (c *members) segmentsOf(i uint64) []string {
	c.Helper()
	names, err := filepath.Glob(filepath.Join(c.dirs[i], "streams", "slot-0", "1", "*.seg"))
	if err != nil || len(names) < 4 {
		c.Fatalf("%v %v", names, err)
	}
	return names
}

// flip changes a bit in the middle of a file.
func (c *members) flip(name string) {
	c.Helper()
	b, err := os.ReadFile(name)
	if err == nil {
		b[len(b)/2] ^= 4
		err = os.WriteFile(name, b, 0o600)
	}
	if err != nil {
		c.Fatal(err)
	}
}

func (c *members) restart(i uint64) *Queue {
	c.start(i)
	return c.nodes[i].host.NewQueue(3, Config{Name: "s", Limits: noLimits, SegmentBytes: 2000})
}

// whole waits until a node's replica lacks nothing.
func whole(t testing.TB, q *Queue) {
	t.Helper()
	until(t, "a whole replica", func() bool {
		s := q.Status()
		return s.Broken == "" && len(s.Damage) == 0 && s.Mending == ""
	})
}

// TestMendAtStart: a node whose segments were damaged, cut and removed while it was down has all of them again from the others,
// the end of the stream among them, while clients go on; they read what was published, and nothing else.
func TestMendAtStart(t *testing.T) {
	t.Parallel()
	c := newMembers(t)
	qs := c.declare(3)
	first, got := sequence(0, 300)
	c.nodes[1].spread(qs[1], first...)
	for _, n := range c.nodes {
		n.cut(0)
	}
	c.stop(3)
	files := c.segmentsOf(3)
	last := len(files) - 1
	c.flip(files[1])
	for _, err := range []error{os.Remove(files[0]), os.Truncate(files[2], 700), os.Truncate(files[4], 10), os.Remove(files[last])} {
		if err != nil {
			t.Fatal(err)
		}
	}
	qs[3] = c.restart(3)
	stop := make(chan struct{})
	more := make(chan int)
	go func() {
		n := 300
		for ; ; n++ {
			select {
			case <-stop:
				more <- n
				return
			default:
				c.nodes[1].publish(qs[1], fmt.Sprintf("message %d", n))
			}
		}
	}()
	r := c.nodes[3].mustConsume(qs[3], 10_000, map[string]any{"x-stream-offset": "first"})
	r.wants(got...)
	until(t, "nothing is missing at the end", func() bool { return qs[3].Status().Broken == "" })
	close(stop)
	n := <-more
	_, then := sequence(300, n)
	r.wants(then...)
	whole(t, qs[3])
	c.agree(0)
	if x := &c.nodes[3].host.Counters; x.Mended.Load() == 0 || x.Copied.Load() == 0 {
		t.Errorf("%d mended, %d octets", x.Mended.Load(), x.Copied.Load())
	}
	c.stop(3)
	qs[3] = c.restart(3)
	_, all := sequence(0, n)
	c.nodes[3].mustConsume(qs[3], 10_000, map[string]any{"x-stream-offset": "first"}).wants(all...)
	if n := c.nodes[3].host.Counters.Copied.Load(); n != 0 {
		t.Errorf("%d octets were copied once more", n)
	}
}

// TestMendWhenRead: a consumer that comes to damage waits while nobody can be reached who has what is missing, and then goes on. So
// does one that comes while the end of the replica is missing.
func TestMendWhenRead(t *testing.T) {
	t.Parallel()
	c := newMembers(t)
	qs := c.declare(3)
	first, got := sequence(0, 100)
	c.nodes[1].spread(qs[1], first...)
	c.agree(0)
	c.stop(3) // so that nothing is in memory
	c.flip(c.segmentsOf(3)[1])
	qs[3] = c.restart(3)
	c.agree(0)
	m := c.nodes[3].host.slots[0].machine
	until(t, "the replica knows its clients' side", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.streams[3].local != nil
	})
	c.wire.unplug(3, true)
	r := &listener{n: c.nodes[3], q: qs[3], got: make(chan string, 1000)}
	log := m.streams[3].log
	consumer := &consumer{queue: qs[3], out: r, prefetch: 1000, log: log, head: listenerHead}
	consumer.start(0, func(id queue.ConsumerID, err error) { r.id = id }) // nobody leads, to attach it
	damaged := 0
	for i, want := range got {
		select {
		case x := <-r.got:
			if x != want {
				t.Fatalf("got %q, want %q", x, want)
			}
			continue
		case <-time.After(300 * time.Millisecond):
		}
		damaged = i
		break
	}
	if s := qs[3].Status(); damaged == 0 || len(s.Damage) != 1 || s.Mending == "" {
		t.Fatalf("stopped at %d: %+v", damaged, s)
	}
	c.wire.unplug(3, false)
	r.wants(got[damaged:]...)
	whole(t, qs[3])
}

// TestNoGoodCopy: what is damaged in the same place everywhere is reported, consumers that come to it are cancelled, and it is
// passed over only when somebody says so. Other damage is mended all the same, also that of a node from which was copied.
func TestNoGoodCopy(t *testing.T) {
	t.Parallel()
	c := newMembers(t)
	qs := c.declare(3)
	first, got := sequence(0, 200)
	c.nodes[1].spread(qs[1], first...)
	for i := range uint64(3) {
		c.nodes[i+1].cut(0)
	}
	for i := range uint64(3) {
		c.stop(i + 1)
		c.flip(c.segmentsOf(i + 1)[1])
	}
	c.flip(c.segmentsOf(1)[3])
	for i := range uint64(3) {
		qs[i+1] = c.restart(i + 1)
	}
	for i := range uint64(3) {
		r := c.nodes[i+1].mustConsume(qs[i+1], 1000, map[string]any{"x-stream-offset": "first"})
		at := 0
		for x := range r.got {
			if x == "cancelled" {
				break
			}
			if x != got[at] {
				t.Fatalf("got %q, want %q", x, got[at])
			}
			at++
		}
		if at == 0 || at > 60 {
			t.Fatalf("cancelled after %d", at)
		}
	}
	if err := qs[1].SkipTo(100); err != nil {
		t.Fatal(err)
	}
	r := c.nodes[1].mustConsume(qs[1], 1000, map[string]any{"x-stream-offset": "first"})
	var last string
	for n := 0; last != got[199]; n++ {
		last = <-r.got
		if last == "cancelled" {
			t.Fatalf("after %d", n)
		}
	}
	if s := qs[1].Status(); len(s.Damage) != 1 {
		t.Fatalf("%+v", s)
	}
}

// TestEndLostEverywhere: a stream whose end no member has any more goes on without it when somebody says so, on all of them.
func TestEndLostEverywhere(t *testing.T) {
	t.Parallel()
	c := newMembers(t)
	qs := c.declare(3)
	first, got := sequence(0, 200)
	c.nodes[1].spread(qs[1], first...)
	for i := range uint64(3) {
		c.nodes[i+1].cut(0)
	}
	for i := range uint64(3) {
		c.stop(i + 1)
		files := c.segmentsOf(i + 1)
		for _, name := range files[len(files)-1-int(i%2):] { // the second one has lost more
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range uint64(3) {
		qs[i+1] = c.restart(i + 1)
	}
	if _, err := qs[1].GoOn(); !errors.Is(err, ErrOthers) { // nobody has been asked
		t.Fatal(err)
	}
	var next uint64
	until(t, "it may go on", func() (ok bool) {
		n, err := qs[1].GoOn()
		next = n
		return err == nil
	})
	if next == 0 || next >= 200 {
		t.Fatalf("it goes on at %d", next)
	}
	if n := c.nodes[3].publish(qs[3], "new"); n != 1 {
		t.Fatal("it is not confirmed")
	}
	for i := range uint64(3) {
		whole(t, qs[i+1])
	}
	c.agree(0)
	r := c.nodes[2].mustConsume(qs[2], 1000, map[string]any{"x-stream-offset": "first"})
	r.wants(got[:next]...)
	r.wants(fmt.Sprintf("%d new", next))
}

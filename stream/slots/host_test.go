package slots

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/stream"
)

const patience = 20 * time.Second

// TestStartOver publishes to streams, starts again, and finds everything: messages under their offsets, committed offsets,
// and nothing of what was deleted.
func TestStartOver(t *testing.T) {
	dir := t.TempDir()
	n := open(t, dir)
	var qs []*Queue
	for id := range uint64(5) {
		qs = append(qs, n.host.NewQueue(id+1, Config{Name: "s", Limits: noLimits, SegmentBytes: 2000}))
	}
	for _, q := range qs {
		if got := n.spread(q, bodies(0, 100)...); got != 100 {
			t.Fatalf("%d confirmed", got)
		}
	}
	r := n.mustConsume(qs[0], 10, map[string]any{"x-stream-consumer-name": "n", "x-stream-offset": "first"})
	r.wants(numbered(0, 10)...)
	r.ack(0, 4)
	r.ack(6, 6) // 5 is not acknowledged
	r.wants(numbered(10, 16)...)
	qs[4].Forget(nil)
	n.close()

	n = open(t, dir)
	for id := range uint64(3) {
		qs[id] = n.host.NewQueue(id+1, Config{Name: "s", Limits: noLimits, SegmentBytes: 9999})
	}
	if report := n.recover(); report.Streams != 3 || report.Records != 300 || report.Unknown != 1 { // metadata has lost the fourth
		t.Fatalf("%+v", report)
	}
	n.publish(qs[0], bodies(100, 105)...)
	r = n.mustConsume(qs[0], 1000, map[string]any{"x-stream-consumer-name": "n"})
	r.wants(numbered(5, 105)...)
	n.mustConsume(qs[1], 1000, map[string]any{"x-stream-offset": int64(90)}).wants(numbered(90, 100)...)
	if s := qs[0].Status(); s.First != 0 || s.Next != 105 || s.Segments < 3 || s.Names != 1 || s.Readers != 1 {
		t.Errorf("%+v", s)
	}
	deadline := time.Now().Add(patience)
	for n.host.slots[1].machine.streams[4] != nil || time.Now().After(deadline) {
		time.Sleep(time.Millisecond)
	}
	n.close()
	n = open(t, dir)
	if report := n.recover(); report.Unknown != 3 {
		t.Fatalf("%+v", report)
	}
	n.close()
	for i := range 3 {
		names, err := os.ReadDir(filepath.Join(dir, "streams", fmt.Sprintf("slot-%d", i)))
		if err != nil || len(names) > 0 {
			t.Errorf("slot %d still has %v, %v", i, names, err)
		}
	}
}

// TestRetention gives a stream limits while it runs, and takes them away again.
func TestRetention(t *testing.T) {
	n := open(t, t.TempDir())
	defer n.close()
	q := n.host.NewQueue(1, Config{Name: "s", Limits: noLimits, SegmentBytes: 1000})
	n.spread(q, bodies(0, 200)...)
	slow := n.mustConsume(q, 2, map[string]any{"x-stream-offset": "first"})
	slow.wants(numbered(0, 2)...)
	limited := noLimits
	limited.MaxBytes = 3000
	q.Configure(limited, nil)
	wait(t, func() bool { s := q.Status(); return s.First > 0 && s.Segments <= 4 })
	first := q.Status().First
	slow.ack(0, 1)
	slow.wants(numbered(int(first), int(first)+2)...)
	if jumped := n.host.Counters.Jumped.Load(); jumped != first-2 {
		t.Errorf("%d records were jumped over, want %d", jumped, first-2)
	}
	q.Configure(noLimits, nil)
	n.spread(q, bodies(200, 300)...)
	if s := q.Status(); s.First != first || s.Next != 300 {
		t.Errorf("%+v", s)
	}
	if s := q.Stats(); s.Ready != 300-first {
		t.Errorf("%d messages, want %d", s.Ready, 300-first)
	}
}

// TestMaxAge has segments go when time has passed.
func TestMaxAge(t *testing.T) {
	dir := t.TempDir()
	n := open(t, dir)
	now := time.Now().UnixMilli()
	var mu sync.Mutex
	n.host.o.Now = func() int64 { mu.Lock(); defer mu.Unlock(); return now }
	limits := noLimits
	limits.TTL = 10_000
	q := n.host.NewQueue(1, Config{Name: "s", Limits: limits, SegmentBytes: 500})
	n.spread(q, bodies(0, 50)...)
	if s := q.Status(); s.First != 0 || s.Segments < 3 {
		t.Fatalf("%+v", s)
	}
	mu.Lock()
	now += 60_000
	mu.Unlock()
	n.spread(q, bodies(50, 80)...) // begins segments
	wait(t, func() bool { return q.Status().First > 0 })
	if s := q.Status(); s.First > 50 {
		t.Errorf("%+v", s)
	}
	n.close()
}

func wait(t testing.TB, for_ func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !for_(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not happen")
		}
	}
}

// TestNames: a name is for one consumer, operators move it, and what retention has removed is told.
func TestNames(t *testing.T) {
	n := open(t, t.TempDir())
	defer n.close()
	q := n.host.NewQueue(1, Config{Name: "s", Limits: noLimits, SegmentBytes: 500})
	n.spread(q, bodies(0, 60)...)
	named := map[string]any{"x-stream-consumer-name": "n", "x-stream-offset-reset": "first"}
	a := n.mustConsume(q, 5, named)
	a.wants(numbered(0, 5)...)
	b := n.mustConsume(q, 5, named)
	a.wants("cancelled")
	a.ack(0, 4) // too late
	b.wants(numbered(0, 5)...)
	b.ack(0, 2)
	b.wants(numbered(5, 8)...)
	wait(t, func() bool {
		o := q.Offsets(true)
		return len(o) == 1 && o[0].Next == 3 && o[0].Lag == 57 && o[0].LagTime >= 0 && o[0].Online
	})
	if at, err := q.SetOffset("n", stream.Spec{Kind: stream.At, N: 50}); at != 50 || err != nil {
		t.Fatal(at, err)
	}
	b.wants("cancelled")
	c := n.mustConsume(q, 5, map[string]any{"x-stream-consumer-name": "n"})
	c.wants(numbered(50, 55)...)
	c.leave()
	if _, err := q.SetOffset("n", stream.Spec{Kind: stream.At, N: 61}); !errors.Is(err, ErrOutside) {
		t.Error(err)
	}
	if _, err := q.SetOffset("n", stream.Spec{Kind: stream.First}); err != nil {
		t.Error(err)
	}
	limited := noLimits
	limited.MaxBytes = 1
	q.Configure(limited, nil)
	wait(t, func() bool { return q.Status().Segments == 1 })
	first := int(q.Status().First)
	var refused *queue.RefusedError
	if _, err := n.consume(q, 5, map[string]any{"x-stream-consumer-name": "n"}); !errors.As(err, &refused) || !strings.Contains(refused.Why, fmt.Sprint(first)) {
		t.Fatal(err)
	}
	n.mustConsume(q, 5, named).wants(numbered(first, min(first+5, 60))...)
	if err := q.ForgetOffset("n"); err != nil {
		t.Error(err)
	}
	if err := q.ForgetOffset("n"); !errors.Is(err, ErrUnknownName) {
		t.Error(err)
	}
}

// TestFilteredConsumerCommitsWhatItPassedOver: it does not lag behind what is not for it.
func TestFilteredConsumerCommitsWhatItPassedOver(t *testing.T) {
	n := open(t, t.TempDir())
	defer n.close()
	q := n.host.NewQueue(1, Config{Name: "s", Limits: noLimits})
	n.publish(q, bodies(0, 30)...)
	n.mustConsume(q, 5, map[string]any{"x-stream-consumer-name": "n", "x-stream-offset": "first", "x-stream-filter": "nothing"})
	wait(t, func() bool { o := q.Offsets(false); return len(o) == 1 && o[0].Next == 30 })
}

// TestOutletsWithoutRoom: a consumer whose outlet is full gets nothing until that says it is ready.
func TestOutletsWithoutRoom(t *testing.T) {
	n := open(t, t.TempDir())
	defer n.close()
	q := n.host.NewQueue(1, Config{Name: "s", Limits: noLimits})
	n.publish(q, bodies(0, 1000)...)
	r := n.mustConsume(q, 10_000, map[string]any{"x-stream-offset": "next"})
	r.small = true
	n.publish(q, bodies(1000, 1001)...)
	r.wants("1000 m1000")
	n.publish(q, bodies(1001, 1003)...)
	select {
	case got := <-r.got:
		t.Fatal(got)
	case <-time.After(50 * time.Millisecond):
	}
	var w queue.Wake
	q.Ready(r.id, &w)
	w.Flush()
	r.wants("1001 m1001", "1002 m1002")
}

// TestDamage damages a segment: it is reported, readers stop there, and pass over it when they are told to.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	n := open(t, dir)
	q := n.host.NewQueue(1, Config{Name: "s", Limits: noLimits, SegmentBytes: 1000})
	n.spread(q, bodies(0, 100)...)
	n.close()
	segments, err := filepath.Glob(filepath.Join(dir, "streams", "slot-1", "*", "*.seg"))
	if err != nil || len(segments) < 5 {
		t.Fatal(segments, err)
	}
	damage(t, segments[2])
	if err := os.Remove(segments[4]); err != nil {
		t.Fatal(err)
	}
	n = open(t, dir)
	q = n.host.NewQueue(1, Config{Name: "s", Limits: noLimits})
	n.recover()
	missing := q.Status().Damage
	if len(missing) != 1 || missing[0].From != baseOf(segments[4]) || missing[0].To != baseOf(segments[5]) {
		t.Fatalf("%+v", missing)
	}
	r := n.mustConsume(q, 1000, map[string]any{"x-stream-offset": "first"})
	r.wants(numbered(0, int(baseOf(segments[2])))...)
	r.wants("cancelled")
	found := q.Status().Damage
	if len(found) != 2 {
		t.Fatalf("%+v", found)
	}
	if err := q.SkipTo(baseOf(segments[4])); err != nil { // the first, but not the second
		t.Fatal(err)
	}
	for _, again := range []bool{false, true} {
		r = n.mustConsume(q, 1000, map[string]any{"x-stream-offset": "first"})
		r.wants(numbered(0, int(baseOf(segments[2])))...)
		r.wants(numbered(int(found[1].To), int(baseOf(segments[4])))...)
		r.wants("cancelled")
		if !again { // and after a start, too
			n.close()
			n = open(t, dir)
			q = n.host.NewQueue(1, Config{Name: "s", Limits: noLimits})
			n.recover()
		}
	}
	if err := q.SkipTo(1000); err != nil {
		t.Fatal(err)
	}
	r = n.mustConsume(q, 1000, map[string]any{"x-stream-offset": int64(baseOf(segments[4]))})
	r.wants(numbered(int(baseOf(segments[5])), 100)...)
	n.publish(q, "m100")
	r.wants("100 m100")
	n.close()
}

// damage changes an octet of the first chunk of a segment.
func damage(t testing.TB, file string) {
	b, err := os.ReadFile(file)
	if err == nil {
		b[32+60] ^= 1
		err = os.WriteFile(file, b, 0o640)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func baseOf(file string) uint64 {
	n, err := strconv.ParseUint(strings.TrimSuffix(filepath.Base(file), ".seg"), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// TestLostEnd takes the newest segment away: the stream takes nothing and gives nothing until it is told to go on without.
func TestLostEnd(t *testing.T) {
	dir := t.TempDir()
	n := open(t, dir)
	q := n.host.NewQueue(1, Config{Name: "s", Limits: noLimits, SegmentBytes: 1000})
	other := n.host.NewQueue(4, Config{Name: "other", Limits: noLimits})
	n.spread(q, bodies(0, 100)...)
	if _, err := q.SetOffset("n", stream.Spec{Kind: stream.Next}); err != nil {
		t.Fatal(err)
	}
	if _, err := q.GoOn(); !errors.Is(err, ErrWhole) {
		t.Error(err)
	}
	n.close()
	segments, _ := filepath.Glob(filepath.Join(dir, "streams", "slot-1", "1", "*.seg"))
	last := segments[len(segments)-1]
	if err := os.Remove(last); err != nil {
		t.Fatal(err)
	}
	n = open(t, dir)
	q = n.host.NewQueue(1, Config{Name: "s", Limits: noLimits})
	other = n.host.NewQueue(4, Config{Name: "other", Limits: noLimits})
	n.recover()
	if s := q.Status(); s.Broken == "" || s.Next != 100 {
		t.Fatalf("%+v", s)
	}
	if got := n.publish(q, "x"); got != 0 {
		t.Error("it was confirmed")
	}
	if _, err := n.consume(q, 1, nil); err == nil {
		t.Error("a consumer was taken")
	}
	if got := n.publish(other, "x"); got != 1 {
		t.Error("another stream suffers")
	}
	next, err := q.GoOn()
	if err != nil || next != baseOf(last) {
		t.Fatal(next, err)
	}
	if o := q.Offsets(false); len(o) != 1 || o[0].Next != next {
		t.Errorf("%+v", o)
	}
	for range 2 {
		n.publish(q, "m"+strconv.Itoa(int(q.Status().Next)))
		n.mustConsume(q, 1000, map[string]any{"x-stream-offset": "first"}).wants(numbered(0, int(q.Status().Next))...)
		n.close()
		n = open(t, dir)
		q = n.host.NewQueue(1, Config{Name: "s", Limits: noLimits})
		n.host.NewQueue(4, Config{Name: "other", Limits: noLimits})
		n.recover()
	}
	n.close()
}

// TestManyReaders: a hundred consumers read everything with a bounded number of goroutines and of octets.
func TestManyReaders(t *testing.T) {
	n := open(t, t.TempDir())
	defer n.close()
	n.host.memory = stream.NewMemory(4 << 20)
	q := n.host.NewQueue(1, Config{Name: "s", Limits: noLimits})
	body := strings.Repeat("x", 10_000)
	var list []string
	for range 100 {
		list = append(list, body)
	}
	n.publish(q, list...)
	before := runtime.NumGoroutine()
	var all []*listener
	for range 100 {
		all = append(all, n.mustConsume(q, 100_000, map[string]any{"x-stream-offset": "first"}))
	}
	for i := range 100 {
		for _, r := range all {
			r.wants(fmt.Sprintf("%d %s", i, body))
		}
		if used, _ := n.host.Totals(); used > 4<<20 {
			t.Fatalf("readers use %d octets", used)
		}
	}
	if grown := runtime.NumGoroutine() - before; grown > maxWorkers {
		t.Errorf("%d goroutines more", grown)
	}
	if _, reads := n.host.Totals(); reads > 50 {
		t.Errorf("%d blocks were read", reads)
	}
	n.publish(q, "end")
	for _, r := range all {
		r.wants("100 end")
	}
}

// TestDelete ends consumers, and a stream of the same id begins anew.
func TestDelete(t *testing.T) {
	n := open(t, t.TempDir())
	defer n.close()
	q := n.host.NewQueue(1, Config{Name: "s", Limits: noLimits})
	n.publish(q, bodies(0, 10)...)
	r := n.mustConsume(q, 5, map[string]any{"x-stream-offset": "first"})
	r.wants(numbered(0, 5)...)
	q.Forget(nil)
	r.wants("cancelled")
	if _, err := n.consume(q, 5, nil); !errors.Is(err, queue.ErrDeleted) {
		t.Error(err)
	}
	if got := n.publish(q, "x"); got != 1 { // it is gone, and that counts as taken care of
		t.Error("refused")
	}
	q = n.host.NewQueue(1, Config{Name: "s", Limits: noLimits})
	n.publish(q, "m0")
	n.mustConsume(q, 5, map[string]any{"x-stream-offset": "first"}).wants("0 m0")
}

// TestLogIsCut: what is durable in segments leaves the Raft log, and is there after a start.
func TestLogIsCut(t *testing.T) {
	dir := t.TempDir()
	n := open(t, dir)
	q := n.host.NewQueue(1, Config{Name: "s", Limits: noLimits})
	for i := range 30 {
		n.publish(q, bodies(i*10, i*10+10)...)
		if i%10 == 9 {
			index, err := q.slot.machine.checkpoint()
			if err != nil {
				t.Fatal(err)
			}
			if err := q.slot.shard.CutLog(index, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	n.close()
	n = open(t, dir)
	q = n.host.NewQueue(1, Config{Name: "s", Limits: noLimits})
	n.recover()
	n.mustConsume(q, 1000, map[string]any{"x-stream-offset": "first"}).wants(numbered(0, 300)...)
	n.close()
}

// TestHolesAreBounded: a consumer that goes on for ever without a message that it has not acknowledged is ended.
func TestHolesAreBounded(t *testing.T) {
	c := &consumer{queue: &Queue{}, spec: stream.Consumer{Name: "n"}}
	c.progress.Begin(0)
	for i := range uint64(maxHeld + 2) {
		c.progress.Delivered(i)
	}
	c.inFlight = maxHeld + 2
	if _, stuck := c.settled([]queue.Range{{First: 0, Last: 0}}, queue.Return); stuck {
		t.Error("ended because of what it holds")
	}
	if _, stuck := c.settled([]queue.Range{{First: 1, Last: maxHeld - 1}}, queue.Ack); stuck {
		t.Error("ended too early")
	}
	if _, stuck := c.settled([]queue.Range{{First: maxHeld, Last: maxHeld}}, queue.Ack); !stuck {
		t.Error("not ended")
	}
}

// TestStatusBeforeTheStart: who looks at a stream while the first of a node is being made sees an empty one.
func TestStatusBeforeTheStart(t *testing.T) {
	n := open(t, t.TempDir())
	defer n.close()
	q := n.host.NewQueue(1, Config{Name: "s", Limits: noLimits})
	wait(t, func() bool {
		s := q.Status()
		return q.Stats().Ready == 0 && q.Offsets(true) == nil && s.Leader == 1
	})
}

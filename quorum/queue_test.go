package quorum

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lni/dragonboat/v4/raftpb"

	"github.com/warrenmq/warren/queue"
)

// cold has everything of a queue's slot written to disk and out of memory.
func (n *node) cold(q *Queue) {
	n.Helper()
	n.settled(q)
	if _, err := q.slot.machine.checkpoint(); err != nil {
		n.Fatal(err)
	}
	m := q.slot.machine
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.queues[q.id].log.len(); k > 0 {
		n.Fatalf("%d messages in memory", k)
	}
}

// TestFromDisk: messages that are in no memory any more come in order, and those that come back as well.
func TestFromDisk(t *testing.T) {
	dir := t.TempDir()
	n := open(t, dir)
	q := n.host.NewQueue(1, noLimits, nil)
	p := n.publisher()
	const total = 10_000
	for i := range 10 {
		p.publish(q, total/10, 200)
		if i%3 == 0 {
			n.cold(q)
		}
	}
	p.wait()
	n.cold(q)
	k := n.consume(q, queue.ConsumerSpec{Prefetch: 100})
	got, ds := k.wait(100)
	k.settle(queue.Return, ds[:50]...) // they come again, before all others
	want := append(numbers(1, 100), numbers(1, 50)...)
	k.settle(queue.Ack, ds[50:]...)
	all := got
	for len(all) < total+50 {
		got, ds := k.wait(1)
		all = append(all, got...)
		k.settle(queue.Ack, ds...)
	}
	want = append(want, numbers(101, total)...)
	if !slices.Equal(all, want) {
		t.Fatal("not in order")
	}
	n.settled(q)
	if st := q.Stats(); st.Ready+st.Unacked > 0 || st.Acked != total {
		t.Fatalf("%+v", st)
	}
	if _, err := q.slot.machine.checkpoint(); err != nil {
		t.Fatal(err)
	}
	if st := q.slot.machine.disk.runs.Stats(); st.Runs > 0 {
		t.Errorf("runs of messages that are gone: %+v", st)
	}
	n.close()
}

// TestWithoutAcknowledgement: the queue settles what is taken.
func TestWithoutAcknowledgement(t *testing.T) {
	n := open(t, t.TempDir())
	defer n.close()
	q := n.host.NewQueue(1, noLimits, nil)
	p := n.publisher()
	p.publish(q, 5000, 20)
	p.wait()
	k := n.consume(q, queue.ConsumerSpec{NoAck: true})
	got, _ := k.wait(5000)
	if !slices.Equal(got, numbers(1, 5000)) {
		t.Fatal("not in order")
	}
	n.settled(q) // what was offered
	n.settled(q) // what the queue said of it
	if st := q.Stats(); st.Ready+st.Unacked+st.Acked+st.Delivered > 0 || st.DeliveredNoAck != 5000 {
		t.Fatalf("%+v", st)
	}
}

// TestFullOutlet: what has no room waits, without its message, and comes when there is room.
func TestFullOutlet(t *testing.T) {
	n := open(t, t.TempDir())
	defer n.close()
	q := n.host.NewQueue(1, noLimits, nil)
	p := n.publisher()
	k := &taker{n: n, q: q, room: 1}
	k.more.L = &k.mu
	k.attach(queue.ConsumerSpec{})
	for range 50 {
		p.publish(q, 10, 100)
		p.wait()
	}
	n.settled(q)
	if st := q.Stats(); st.Unacked != 500 {
		t.Fatalf("%+v", st)
	}
	k.mu.Lock()
	got := len(k.got)
	k.mu.Unlock()
	if got != 10 { // what is offered together is accepted in any case
		t.Fatalf("%d messages", got)
	}
	if _, err := q.slot.machine.checkpoint(); err != nil { // they are in flight, and leave memory
		t.Fatal(err)
	}
	k.mu.Lock()
	k.room = 0
	k.mu.Unlock()
	var w queue.Wake
	q.Ready(k.id, &w)
	if got, _ := k.wait(500); !slices.Equal(got, numbers(1, 500)) {
		t.Fatal(got)
	}
}

// TestCancelReturnsWhatWaits: what the machine has handed out, and the consumer has never seen, goes to others when it is
// cancelled; what it has seen does not.
func TestCancelReturnsWhatWaits(t *testing.T) {
	n := open(t, t.TempDir())
	defer n.close()
	q := n.host.NewQueue(1, noLimits, nil)
	k := &taker{n: n, q: q, room: 1}
	k.more.L = &k.mu
	k.attach(queue.ConsumerSpec{})
	p := n.publisher()
	p.publish(q, 10, 100)
	p.wait()
	p.publish(q, 10, 100)
	p.wait()
	n.settled(q)
	done := make(chan struct{})
	var w queue.Wake
	q.Detach(k.id, queue.Cancel, &w, func() { close(done) })
	<-done
	other := n.consume(q, queue.ConsumerSpec{})
	if got, _ := other.wait(10); !slices.Equal(got, numbers(11, 20)) {
		t.Fatal(got)
	}
	_, ds := k.wait(10)
	k.settle(queue.Ack, ds...)
	n.settled(q)
	if st := q.Stats(); st.Unacked != 10 || st.Acked != 10 || st.Consumers != 1 {
		t.Fatalf("%+v", st)
	}
	q.Detach(other.id, queue.Remove, &w, func() {})
	n.settled(q)
	if st := q.Stats(); st.Unacked != 0 || st.Ready != 10 {
		t.Fatalf("%+v", st)
	}
	if q.consumers != nil {
		t.Error("a queue that nobody uses keeps room for consumers")
	}
}

// TestGetPurgeDelete are the commands that have an answer.
func TestGetPurgeDelete(t *testing.T) {
	n := open(t, t.TempDir())
	defer n.close()
	q := n.host.NewQueue(1, noLimits, nil)
	p := n.publisher()
	p.publish(q, 10, 100)
	p.wait()
	g := n.consume(q, queue.ConsumerSpec{Getter: true})
	var w queue.Wake
	get := func(noAck bool) (number uint64, left uint64, ok bool) {
		done := make(chan struct{})
		q.Get(g.id, noAck, &w, func(o queue.Offered, ready uint64, k bool) {
			if left, ok = ready, k; ok {
				number = n.number(o.Message)
				n.pool.Release(o.Message.Ref.Slab, 1)
			}
			close(done)
		})
		<-done
		return
	}
	if number, left, ok := get(false); number != 1 || left != 9 || !ok {
		t.Fatal(number, left, ok)
	}
	n.cold(q)
	if number, left, ok := get(true); number != 2 || left != 8 || !ok {
		t.Fatal(number, left, ok)
	}
	n.settled(q)
	if st := q.Stats(); st.GotNoAck != 1 || st.Got != 1 || st.Unacked != 1 || st.Acked != 0 {
		t.Fatalf("%+v", st)
	}
	deletion := func(ifUnused, ifEmpty bool) (count uint64, err error) {
		done := make(chan struct{})
		q.Delete(ifUnused, ifEmpty, &w, func(k uint64, e error) { count, err = k, e; close(done) })
		<-done
		return
	}
	if _, err := deletion(false, true); err != queue.ErrNotEmpty {
		t.Fatal(err)
	}
	k := n.consume(q, queue.ConsumerSpec{Prefetch: 1})
	k.wait(1)
	if _, err := deletion(true, false); err != queue.ErrInUse {
		t.Fatal(err)
	}
	done := make(chan uint64, 1)
	q.Purge(&w, func(k uint64) { done <- k })
	if k := <-done; k != 7 {
		t.Fatal(k)
	}
	if _, _, ok := get(true); ok {
		t.Fatal("a message of an empty queue")
	}
	p.publish(q, 3, 100)
	if count, err := deletion(false, false); count != 3 || err != nil {
		t.Fatal(count, err)
	}
	p.wait()
	n.settled(q)
	if st := q.Stats(); st.Ready != 3 {
		t.Fatal("gone before it was forgotten:", st)
	}
	q.Forget(&w)
	p.publish(q, 3, 100) // to a queue that is gone: taken care of
	p.wait()
	if p.refused > 0 {
		t.Fatal(p.refused)
	}
	n.settled(q)
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.cancelled {
		t.Error("its consumer was not told")
	}
	failed := make(chan error, 1)
	q.Attach(queue.ConsumerSpec{}, k, &w, func(_ queue.ConsumerID, err error) { failed <- err })
	if err := <-failed; err != queue.ErrDeleted {
		t.Error(err)
	}
}

// letters are dead letters as they come.
type letters struct {
	n    *node
	mu   sync.Mutex
	more sync.Cond
	got  []uint64
	keep bool // they do not arrive
}

func (*letters) Wanted() bool { return true }

func (l *letters) Discard(ds []queue.DeadLetter, _ *queue.Wake, arrived func()) {
	l.mu.Lock()
	for i := range ds {
		l.got = append(l.got, l.n.number(ds[i].Message))
		l.n.pool.Release(ds[i].Message.Ref.Slab, 1)
	}
	l.more.Broadcast()
	keep := l.keep
	l.mu.Unlock()
	if arrived != nil && !keep {
		arrived()
	}
}

func (l *letters) wait(n int) []uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.got) < n {
		l.more.Wait()
	}
	got := l.got
	l.got = nil
	return got
}

func TestDeadLetters(t *testing.T) {
	dir := t.TempDir()
	n := open(t, dir)
	l := &letters{n: n}
	l.more.L = &l.mu
	config := noLimits
	config.TTL = 30
	q := n.host.NewQueue(1, config, l)
	p := n.publisher()
	p.publish(q, 3000, 100) // more than one command expires
	if got := l.wait(3000); !slices.Equal(got, numbers(1, 3000)) {
		t.Fatal(got)
	}
	config.TTL = -1
	var w queue.Wake
	q.Configure(config, &w)
	p.publish(q, 10, 100)
	p.wait()
	n.cold(q)
	k := n.consume(q, queue.ConsumerSpec{})
	_, ds := k.wait(10)
	k.settle(queue.Discard, ds[:5]...) // they are read from disk
	if got := l.wait(5); !slices.Equal(got, numbers(3001, 3005)) {
		t.Fatal(got)
	}
	n.settled(q)
	n.close()

	n = open(t, dir) // at most once: what was dead before is not buried again
	l = &letters{n: n, keep: true}
	l.more.L = &l.mu
	config.KeepDiscards = true
	q = n.host.NewQueue(1, config, l)
	if r := n.recover(); r.Messages != 5 {
		t.Fatalf("%+v", r)
	}
	k = n.consume(q, queue.ConsumerSpec{})
	_, ds = k.wait(5)
	k.settle(queue.Discard, ds...)
	if got := l.wait(5); !slices.Equal(got, numbers(3006, 3010)) {
		t.Fatal(got)
	}
	n.settled(q)
	if st := q.Stats(); st.Kept != 5 {
		t.Fatalf("%+v", st)
	}
	if got := l.wait(5); !slices.Equal(got, numbers(3006, 3010)) { // and again, until they arrive
		t.Fatal(got)
	}
	n.close()

	n = open(t, dir) // at least once: they come again, and leave when they have arrived
	l = &letters{n: n}
	l.more.L = &l.mu
	q = n.host.NewQueue(1, config, l)
	n.recover()
	if got := l.wait(5); !slices.Equal(got, numbers(3006, 3010)) {
		t.Fatal(got)
	}
	n.settled(q)
	n.settled(q)
	if st := q.Stats(); st.Kept != 0 {
		t.Fatalf("%+v", st)
	}
	n.close()
}

// TestOtherHost: the directory may go to a host of another name, and to another place.
func TestOtherHost(t *testing.T) {
	dir := t.TempDir()
	n := open(t, dir)
	q := n.host.NewQueue(1, noLimits, nil)
	p := n.publisher()
	p.publish(q, 100, 100)
	p.wait()
	n.close()

	log := filepath.Join(dir, "raft", "log")
	name, _ := os.Hostname()
	if err := os.Rename(filepath.Join(log, name), filepath.Join(log, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(log, "dragonboat.ds")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var status raftpb.RaftDataStatus
	if err := status.Unmarshal(b[8:]); err != nil {
		t.Fatal(err)
	}
	status.Hostname = "elsewhere"
	b, _ = status.Marshal()
	if err := os.WriteFile(file, append(statusSum(b), b...), 0o600); err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	n = open(t, moved)
	q = n.host.NewQueue(1, noLimits, nil)
	if r := n.recover(); r.Messages != 100 {
		t.Fatalf("%+v", r)
	}
	n.close()
}

// TestWithoutItsLog: a node does not start without the log of slots that have promised something.
func TestWithoutItsLog(t *testing.T) {
	dir := t.TempDir()
	n := open(t, dir)
	p := n.publisher()
	p.publish(n.host.NewQueue(1, noLimits, nil), 1, 100)
	p.wait()
	n.close()
	if err := os.RemoveAll(filepath.Join(dir, "raft", "log")); err != nil {
		t.Fatal(err)
	}
	n = &node{TB: t, dir: dir, pool: queue.NewPool(1 << 20), clock: queue.NewClock()}
	defer n.clock.Close()
	n.openDB()
	defer n.db.Close()
	if _, err := Open(n.options()); err == nil {
		t.Fatal("it starts")
	}
}

// TestIDAgain: a queue that was made shortly before a crash may be unknown to metadata, which then gives out its id again.
// The next one has nothing of it.
func TestIDAgain(t *testing.T) {
	dir := t.TempDir()
	for round := range 4 {
		n := open(t, dir)
		if round%2 == 1 {
			if r := n.recover(); r.Unknown != 1 {
				t.Fatalf("round %d: %+v", round, r)
			}
		}
		q := n.host.NewQueue(5, noLimits, nil)
		k := n.consume(q, queue.ConsumerSpec{})
		p := n.publisher()
		p.publish(q, 10, 100)
		p.wait()
		if got, _ := k.wait(10); !slices.Equal(got, numbers(1, 10)) {
			t.Fatal(got)
		}
		if st := q.Stats(); round%2 == 1 && st.Published != 10 || st.Unacked != 10 {
			t.Fatalf("round %d: %+v", round, st)
		}
		if round == 1 {
			n.clock.Close()
			done := make(chan struct{})
			var w queue.Wake
			q.Delete(false, false, &w, func(uint64, error) { close(done) })
			<-done
			q.Forget(&w)
			n.settled(q)
			q = n.host.NewQueue(5, noLimits, nil)
			n.settled(q)
		}
		n.close()
	}
}

// TestRunLost: a node says so, and does not start, when messages of a quorum queue are gone from its disk.
func TestRunLost(t *testing.T) {
	dir := t.TempDir()
	n := open(t, dir)
	p := n.publisher()
	p.publish(n.host.NewQueue(1, noLimits, nil), 10, 100)
	p.wait()
	n.close()
	runs, err := filepath.Glob(filepath.Join(dir, "raft", "slot-*", "*.run"))
	if err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	if err := os.Remove(runs[0]); err != nil {
		t.Fatal(err)
	}
	n = &node{TB: t, dir: dir, pool: queue.NewPool(1 << 20), clock: queue.NewClock()}
	defer n.clock.Close()
	n.openDB()
	defer n.db.Close()
	if _, err := Open(n.options()); err == nil || !strings.Contains(err.Error(), "run 1") {
		t.Fatal(err)
	}
}

// TestLargeMessages: a message may be larger than a batch.
func TestLargeMessages(t *testing.T) {
	n := open(t, t.TempDir())
	defer n.close()
	q := n.host.NewQueue(1, noLimits, nil)
	p := n.publisher()
	for range 3 {
		p.publish(q, 1, 20<<20)
		p.publish(q, 2, 100)
	}
	p.wait()
	n.cold(q)
	k := n.consume(q, queue.ConsumerSpec{Prefetch: 2})
	for number := range uint64(9) {
		got, ds := k.wait(1)
		if got[0] != number+1 {
			t.Fatal(got)
		}
		k.settle(queue.Ack, ds...)
	}
}

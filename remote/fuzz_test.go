package remote

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/warrenmq/warren/queue"
)

// sink takes everything, and settles nothing.
type sink struct{ pool *queue.Pool }

func (s sink) Offer(ds []queue.Offered, _ *queue.Wake) bool {
	for i := range ds {
		s.pool.Release(ds[i].Message.Ref.Slab, 1)
	}
	return true
}
func (sink) Cancelled(*queue.Wake)                    {}
func (sink) TimedOut(*queue.Wake)                     {}
func (sink) Activity(bool)                            {}
func (sink) Settled([]queue.Range, bool, *queue.Wake) {}

// lonely is a host without a link, with a queue of number 1.
func lonely(pool *queue.Pool, clock *queue.Clock) (*Host, *peer, queue.Queue) {
	local := queue.NewClassic(queue.ClassicRules(0), noLimits, pool, clock, nil)
	h := Open(Options{Pool: pool, Clock: clock, Find: func(id ID) queue.Queue {
		if id.Number == 1 {
			return local
		}
		return nil
	}})
	return h, h.peer(2), local
}

// commandSeeds are batches of each command.
func commandSeeds() (all [][]byte) {
	id := ID{0, 1}
	u := binary.AppendUvarint
	meta := queue.Message{Size: 3, TTL: -1}
	meta.Ref.Len = 30
	limits := noLimits
	for _, b := range [][]byte{
		append(appendMeta(u(u(appendCommand(nil, cmdPublish, id), 1), 1), &meta), make([]byte, 30)...),
		u(append(u(append(append(u(u(appendCommand(nil, cmdAttach, id), 5), 0), 10), 0), 0), 0), 1),
		append(u(u(appendCommand(nil, cmdDetach, id), 9), 5), 1),
		u(u(u(appendCommand(nil, cmdReady, id), 5), 1), 100),
		queue.AppendRanges(append(u(appendCommand(nil, cmdSettle, id), 5), byte(queue.Return)), []queue.Range{{First: 1, Last: 1}}),
		append(u(u(appendCommand(nil, cmdGet, id), 9), 5), 1),
		u(appendCommand(nil, cmdPurge, id), 9),
		queue.AppendConfig(appendCommand(nil, cmdConfigure, id), &limits),
		append(u(appendCommand(nil, cmdDelete, id), 9), 2),
		appendCommand(nil, cmdForget, id),
		u(appendCommand(nil, cmdStats, id), 9),
		appendCommand(nil, cmdWatch, id),
	} {
		all = append(all, append([]byte{1}, b...))
	}
	return all
}

// FuzzCommands: whatever comes to a home, it goes on.
func FuzzCommands(f *testing.F) {
	all := commandSeeds()
	for _, b := range all {
		f.Add(b)
	}
	var together []byte
	for _, b := range all[1:5] {
		together = append(together, b[1:]...)
	}
	f.Add(append(append(slices.Clone(all[0]), together...), all[0][1:]...))
	clock := queue.NewClock()
	f.Fuzz(func(t *testing.T, b []byte) {
		pool := queue.NewPool(1 << 30)
		defer pool.Close()
		h, p, local := lonely(pool, clock)
		home := p.homes[1]
		home.receive(1, b)
		home.end(false)
		if n := home.items.len() + home.pipe.messages.len(); n > 0 {
			t.Fatal("something is left of a session that has ended")
		}
		h.Close()
		var w queue.Wake
		local.Forget(&w)
		w.Flush()
		for range 1000 { // a goroutine may be about to
			if pool.InUse() <= queue.SlabSize {
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Fatal(pool.InUse(), "octets are held")
	})
}

// FuzzReports: whatever comes to a lane, it goes on.
func FuzzReports(f *testing.F) {
	u := binary.AppendUvarint
	o := queue.Offered{ID: 1, Redelivered: true, Acquired: 2, Message: queue.Message{Size: 3, TTL: -1}}
	o.Message.Ref.Len = 30
	for _, b := range [][]byte{
		queue.AppendRanges([]byte{byte(repSettled), 1}, []queue.Range{{First: 1, Last: 2}}),
		append(appendReport(nil, repAttached, 1), 0),
		append(appendReport(nil, repAttached, 2), 1),
		appendReport(nil, repDetached, 1),
		append(append(appendReport(nil, repAttached, 1), 0), append(appendOffered(u(appendReport(nil, repDeliver, 1), 1), &o, 0), make([]byte, 30)...)...),
		append(appendOffered(append(u(appendReport(nil, repGot, 2), 0), 1), &o, 0), make([]byte, 30)...),
		u(appendReport(nil, repPurged, 3), 1),
		append(u(appendReport(nil, repDeleted, 4), 1), 2),
		appendStats(append(appendID(appendReport(nil, repStats, 5), ID{0, 1}), 0), &queue.Stats{Ready: 3}, 1),
		append(append(appendReport(nil, repAttached, 1), 0), appendReport(nil, repCancelled, 1)...),
		appendReport(nil, repTimedOut, 1),
		append(appendReport(nil, repActivity, 1), 1),
		appendID([]byte{byte(repPressed)}, ID{0, 1}),
		{byte(repFull), 1},
	} {
		f.Add(append([]byte{1}, b...))
	}
	clock := queue.NewClock()
	f.Fuzz(func(t *testing.T, b []byte) {
		pool := queue.NewPool(1 << 30)
		defer pool.Close()
		h, _, _ := lonely(pool, clock)
		q := h.NewQueue(2, ID{0, 1})
		l := q.lane
		l.up, l.peerUp = true, true
		out := sink{pool}
		var w queue.Wake
		answers := 0
		q.Publish(&queue.Batch{Messages: []queue.Message{message(pool), message(pool)}, Numbers: []uint64{1, 2}, Confirms: out}, &w)
		for range 2 {
			q.Attach(queue.ConsumerSpec{NoAck: true}, out, &w, func(queue.ConsumerID, error) { answers++ })
		}
		q.Detach(1, queue.Cancel, &w, func() { answers++ })
		q.Get(1, true, &w, func(o queue.Offered, _ uint64, ok bool) {
			answers++
			if ok {
				pool.Release(o.Message.Ref.Slab, 1)
			}
		})
		q.Purge(&w, func(uint64) { answers++ })
		q.Delete(false, false, &w, func(uint64, error) { answers++ })
		q.Ask(&w, func(queue.Stats, error) { answers++ })
		l.receive(b)
		l.end(true)
		if answers != 7 || l.open.len() > 0 || l.weight > 0 {
			t.Fatalf("%d answers, %d publishes and %d octets wait", answers, l.open.len(), l.weight)
		}
	})
}

func message(pool *queue.Pool) queue.Message {
	return pool.NewMessage([]byte("x"), []byte("k"), make([]byte, 14), func(func([]byte) bool) {}, 0, 1)
}

// FuzzSoft: whatever a peer tells of itself.
func FuzzSoft(f *testing.F) {
	c, d := set("key", "value"), drop("key")
	f.Add([]byte{0, byte(softBegin), byte(softEnd)})
	f.Add(append(appendChange(appendChange([]byte{0, byte(softBegin)}, &c), &d), byte(softEnd)))
	f.Add(appendChange(appendChange([]byte{0, byte(softBegin), byte(softEnd)}, &c), &d))
	f.Fuzz(func(t *testing.T, b []byte) {
		h := Open(Options{})
		s := h.peer(2).soft
		s.up = true
		s.receive(batchSoft, b)
		s.closed()
		if len(s.known) > 0 {
			t.Fatal("something is known of a peer that is down")
		}
	})
}

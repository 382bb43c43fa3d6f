package queue

import (
	"fmt"
	"slices"
	"testing"

	"github.com/warrenmq/warren/storage"
)

// flush moves everything to runs and cuts the journal.
func (d *disk) flush() {
	d.t.Helper()
	if _, err := d.store.flush(d.store.journal.Rotate() - 1); err != nil {
		d.t.Fatal(err)
	}
}

// TestUnfinishedDeletion: what happens between the deletion of a queue and the moment when metadata forgets it is as durable
// as ever. A crash then brings the queue back with all that it had, got and gave away.
func TestUnfinishedDeletion(t *testing.T) {
	for _, power := range []bool{false, true} {
		t.Run(fmt.Sprintf("power cut %v", power), func(t *testing.T) {
			fs := storage.NewFaultFS(1)
			d := &disk{t: t, fs: fs}
			d.open()
			var w Wake
			getter := d.getter()
			d.publish(0, 300, 500)
			d.flush() // some of it is in a run, some in the journal
			d.publish(300, 100, 500)
			var held []DeliveryID
			for i := range 20 {
				n, o := d.get(getter, false)
				if held = append(held, o.ID); n != i {
					t.Fatalf("got %d, want %d", n, i)
				}
			}
			deleted := make(chan uint64, 1)
			d.queue.Delete(false, false, &w, func(n uint64, err error) {
				if err != nil {
					t.Error(err)
				}
				deleted <- n
			})
			w.Flush()
			if n := <-deleted; n != 380 {
				t.Errorf("%d messages were ready", n)
			}
			d.queue.Attach(ConsumerSpec{Getter: true}, nowhereOutlet{}, &w, func(_ ConsumerID, err error) {
				if err != ErrDeleted {
					t.Errorf("attached: %v", err)
				}
			})
			d.queue.Delete(false, false, &w, func(_ uint64, err error) {
				if err != ErrDeleted {
					t.Errorf("deleted again: %v", err)
				}
			})
			d.publish(400, 5, 500) // by those who had found the queue before
			d.settle(getter, Ack, held[0], held[9])
			d.flush() // which cuts the journal
			if err := d.store.sweep(); err != nil {
				t.Fatal(err)
			}
			d.store.compact(t.Context())

			after := fs.Kill()
			if power {
				after = after.Crash(2)
			}
			d.clock.Close()
			d.store.Close() // on a dead disk
			d.db.Close()
			d.fs = after
			d.open()
			getter = d.getter()
			var got []int
			for {
				n, _ := d.get(getter, true)
				if n < 0 {
					break
				}
				got = append(got, n)
			}
			var want []int
			for i := 10; i < 405; i++ {
				want = append(want, i)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d messages came back, want %d: %v", len(got), len(want), got)
			}

			d.queue.Delete(false, false, &w, func(uint64, error) { deleted <- 0 })
			w.Flush()
			<-deleted
			d.queue.Forget(&w)
			d.flush()
			if v, err := d.db.Get(queueKey(7)); v != nil || err != nil {
				t.Errorf("a forgotten queue has a record: %v, %v", v, err)
			}
			if n := d.store.Stats().Runs.Runs; n != 0 {
				t.Errorf("%d runs are left", n)
			}
			d.close()
		})
	}
}

// lateLetters takes dead letters and does not hand them on before it is told.
type lateLetters struct{ arrived []func() }

func (l *lateLetters) Wanted() bool { return true }
func (l *lateLetters) Discard(ds []DeadLetter, _ *Wake, arrived func()) {
	l.arrived = append(l.arrived, arrived)
}

// TestDeletionWaitsForLetters: a queue is not deleted while what it has sent elsewhere has not arrived: it would be nowhere.
func TestDeletionWaitsForLetters(t *testing.T) {
	for _, end := range []string{"arrival", "forget"} {
		fs := storage.NewFaultFS(1)
		d := &disk{t: t, fs: fs}
		d.open()
		letters := &lateLetters{}
		d.queue = d.store.NewClassic(8, true, ClassicRules(0), noLimits, letters)
		var w Wake
		getter := d.getter()
		d.publish(0, 10, 100)
		for range 3 {
			_, o := d.get(getter, false)
			d.settle(getter, Discard, o.ID, o.ID)
		}
		deleted := make(chan uint64, 1)
		d.queue.Delete(false, false, &w, func(n uint64, _ error) { deleted <- n })
		w.Flush()
		settled := func() {
			if err := d.store.settleJournal(); err != nil {
				t.Fatal(err)
			}
		}
		for i, arrived := range letters.arrived {
			settled()
			select {
			case <-deleted:
				t.Fatalf("deleted with %d of 3 letters arrived", i)
			default:
			}
			if end == "forget" { // its virtual host is deleted meanwhile
				d.queue.Forget(&w)
				break
			}
			arrived()
		}
		if n := <-deleted; n != 7 {
			t.Errorf("%d messages were ready", n)
		}
		d.queue.Forget(&w)
		d.close()
	}
}

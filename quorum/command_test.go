package quorum

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/warrenmq/warren/octet"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/quorum/propose"
)

func TestConfigThere(t *testing.T) {
	for _, c := range []queue.Config{
		noLimits,
		{TTL: 1, MaxLength: 2, MaxBytes: 3, Overflow: queue.RejectPublishDLX, DeliveryLimit: 4, SingleActive: true, DelayType: queue.DelayReturned,
			DelayMin: 5, DelayMax: 6, ConsumerTimeout: 7, KeepDiscards: true},
		{TTL: 1<<63 - 1, MaxLength: 1<<63 - 1, MaxBytes: 1<<63 - 1, DeliveryLimit: -1 << 63, DelayMin: 1<<63 - 1, DelayMax: 1<<63 - 1, ConsumerTimeout: 1<<63 - 1},
	} {
		r := newReader(appendConfig(nil, &c))
		if got := r.config(); got != c || r.Bad || len(r.B) > 0 {
			t.Errorf("%+v became %+v", c, got)
		}
	}
	if n := reflect.TypeFor[queue.Config]().NumField(); n != 11 {
		t.Errorf("limits have %d fields: appendConfig and reader.config know 11", n)
	}
}

// FuzzEntry: no octets make the machine panic, and what it takes it takes the same way twice.
func FuzzEntry(f *testing.F) {
	pool := queue.NewPool(1 << 20)
	n := &node{TB: f, pool: pool}
	f.Add(entry(1, 1, create(7), appendPublish(nil, 7, []queue.Message{n.message(1, 100), n.message(2, 100)}, pool),
		append(appendCommand(nil, cmdAttach, 7), 0, 10, 0, 0), appendSettle(nil, 7, 1, queue.Ack, []queue.Range{{First: 1, Last: 2}})))
	f.Add(entry(1, 1, create(7), append(appendCommand(nil, cmdAttach, 7), 1, 10, 0, 0), append(appendCommand(nil, cmdGet, 7), 1),
		append(appendCommand(nil, cmdDetach, 7), 1, 1), appendCommand(nil, cmdPurge, 7), append(appendCommand(nil, cmdMayDelete, 7), 3), appendCommand(nil, cmdDelete, 7),
		appendCommand(nil, cmdTick, 7), appendCommand(nil, cmdContinue, 7), queue.AppendRanges(appendCommand(nil, cmdBuried, 7), []queue.Range{{First: 5, Last: 6}})))
	f.Fuzz(func(t *testing.T, b []byte) {
		var states [2]string
		var failed [2]bool
		for i := range states {
			m := newMachine(0)
			m.pool, m.log, m.node, m.boot, m.ring = queue.NewPool(1<<20), testLog(), uint64(i), 1, newRing()
			m.due, m.full, m.release.Pool = func(queue.Time) {}, func() {}, m.pool
			m.locals[7] = &Queue{id: 7, consumers: map[queue.ConsumerID]*consumer{}}
			_, err := m.Update(entries(bytes.Clone(b)))
			failed[i] = err != nil
			states[i] = (&rig{m: m}).state()
		}
		if states[0] != states[1] || failed[0] != failed[1] {
			t.Fatal("two machines differ")
		}
	})
}

// FuzzOrigins: what is read is written again as it was.
func FuzzOrigins(f *testing.F) {
	f.Add(someOrigins().Append(nil, appendAnswer))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := octet.Reader{B: b}
		os := propose.ReadOrigins(&r, readAnswer)
		if r.Bad {
			return
		}
		r = octet.Reader{B: os.Append(nil, appendAnswer)}
		if again := propose.ReadOrigins(&r, readAnswer); r.Bad || !reflect.DeepEqual(os, again) {
			t.Fatalf("%+v became %+v", os, again)
		}
	})
}

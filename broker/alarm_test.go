package broker

import (
	"slices"
	"testing"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/storage"
)

func TestAlarms(t *testing.T) {
	var a Alarms
	var told []Alarm
	a.Watch(func(_, on Alarm) { told = append(told, on) })
	if a.On() != 0 || a.On().String() != "" {
		t.Error("not well from the start")
	}
	for i, step := range []struct {
		which   Alarm
		on      bool
		changed bool
		text    string
	}{
		{DiskAlarm, true, true, "low on disk"}, {DiskAlarm, true, false, "low on disk"}, {MemoryAlarm, true, true, "low on disk & memory"},
		{DiskAlarm, false, true, "low on memory"}, {StorageAlarm, false, false, "low on memory"}, {MemoryAlarm, false, true, ""},
	} {
		if a.Set(step.which, step.on) != step.changed || a.On().String() != step.text {
			t.Errorf("step %d: %q", i, a.On())
		}
	}
	if want := []Alarm{DiskAlarm, DiskAlarm | MemoryAlarm, MemoryAlarm, 0}; !slices.Equal(told, want) {
		t.Errorf("told %v", told)
	}
	if names := (MemoryAlarm | StorageAlarm).Names(); !slices.Equal(names, []string{"memory", "storage"}) {
		t.Error(names)
	}
}

// TestNothingGrowsWithoutStorage: while the disk takes no writes, durable things are not declared; what goes away does, and
// soft state is nobody's business.
func TestNothingGrowsWithoutStorage(t *testing.T) {
	db, err := storage.OpenDB(storage.NewFaultFS(1), "db", storage.DBOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	clock := queue.NewClock()
	defer clock.Close()
	pool := queue.NewPool(1 << 20)
	b, err := Open(Options{Store: db, Pool: pool, Clock: clock, NewQueue: func(q NewQueue) queue.Queue {
		return queue.NewClassic(queue.ClassicRules(0), q.Config, pool, clock, nil)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	v := b.VHost("/")
	declare := func(d QueueDeclaration, connection uint64) *amqp.Error {
		done := make(chan *amqp.Error, 1)
		v.DeclareQueue(Actor{Connection: connection}, d, func(_ *Queue, err *amqp.Error) { done <- err })
		return <-done
	}
	if err := declare(QueueDeclaration{Name: "a", Durable: true}, 0); err != nil {
		t.Fatal(err)
	}
	for _, alarm := range []Alarm{MemoryAlarm, DiskAlarm} {
		b.Alarms.Set(alarm, true)
		if err := declare(QueueDeclaration{Name: alarm.Names()[0], Durable: true}, 0); err != nil {
			t.Errorf("%v: %v", alarm.Names(), err)
		}
	}
	b.Alarms.Set(StorageAlarm, true)
	if err := declare(QueueDeclaration{Name: "b", Durable: true}, 0); err == nil || err.Code != amqp.InternalError {
		t.Errorf("a durable queue: %v", err)
	}
	if err := declare(QueueDeclaration{Name: "a", Durable: true}, 0); err != nil {
		t.Errorf("one that exists: %v", err)
	}
	if err := declare(QueueDeclaration{Name: "mine", Exclusive: true}, 1); err != nil {
		t.Errorf("an exclusive queue: %v", err)
	}
	done := make(chan *amqp.Error, 1)
	var w queue.Wake
	v.DeleteQueue(Actor{}, "a", false, false, &w, func(_ uint64, err *amqp.Error) { done <- err })
	w.Flush()
	if err := <-done; err != nil {
		t.Errorf("a deletion: %v", err)
	}
	b.Alarms.Set(StorageAlarm, false)
	if err := declare(QueueDeclaration{Name: "b", Durable: true}, 0); err != nil {
		t.Error(err)
	}
}

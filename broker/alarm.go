package broker

import (
	"strings"
	"sync"
	"sync/atomic"
)

// Alarm is a set of resources of the node that have run low. While it is not empty publishers are blocked, and nobody else.
type Alarm uint32

// The resources.
const (
	MemoryAlarm  Alarm = 1 << iota // more memory is used than vm_memory_high_watermark allows
	DiskAlarm                      // less of the disk is free than disk_free_limit asks for
	StorageAlarm                   // the disk takes no writes, or only because its ballast was given up
)

var alarmNames = [...]string{"memory", "disk", "storage"}

// Names are the names of the resources, in a fixed order.
func (a Alarm) Names() (names []string) {
	for i, name := range alarmNames {
		if a&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// String is what connection.blocked tells a client: RabbitMQ's words for memory and disk (`low on disk & memory`). To a
// client a disk that takes no writes is one with no room.
func (a Alarm) String() string {
	var low []string
	if a&(DiskAlarm|StorageAlarm) != 0 {
		low = append(low, "disk")
	}
	if a&MemoryAlarm != 0 {
		low = append(low, "memory")
	}
	if len(low) == 0 {
		return ""
	}
	return "low on " + strings.Join(low, " & ")
}

// Alarms are the alarms of a node. Whoever watches a resource sets and clears them, those who admit publishes look, and
// are told. The zero value is well. All methods may be called concurrently.
type Alarms struct {
	on atomic.Uint32

	mu       sync.Mutex // held while observers are told, so that they hear of changes in order
	watchers []func(Alarm)
}

// On are those in effect. It costs one load.
func (a *Alarms) On() Alarm { return Alarm(a.on.Load()) }

// Set raises or clears an alarm and reports whether that changed anything.
func (a *Alarms) Set(which Alarm, on bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.On()
	now := old &^ which
	if on {
		now |= which
	}
	if now == old {
		return false
	}
	a.on.Store(uint32(now))
	for _, told := range a.watchers {
		told(now)
	}
	return true
}

// Watch has told called with what is in effect after each change. It must not wait, and not change alarms.
func (a *Alarms) Watch(told func(Alarm)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watchers = append(a.watchers, told)
}

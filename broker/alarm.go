package broker

import (
	"strings"
	"sync"
	"sync/atomic"
)

// Alarm is a set of resources of a node that have run low. While it is not empty publishers are blocked, and nobody else.
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

// Alarms are the alarms that block the publishers of a node: its own, and those of the other nodes, since what is published here is
// written there, too. Whoever watches a resource sets and clears the node's own, those who admit publishes look, and are told. The
// zero value is well. All methods may be called concurrently.
type Alarms struct {
	on, own atomic.Uint32

	mu       sync.Mutex // held while observers are told, so that they hear of changes in order
	others   map[uint64]Alarm
	watchers []func(own, all Alarm)
}

// On are those in effect on any node. It costs one load.
func (a *Alarms) On() Alarm { return Alarm(a.on.Load()) }

// Own are those of this node.
func (a *Alarms) Own() Alarm { return Alarm(a.own.Load()) }

// Set raises or clears an alarm of this node and reports whether that changed anything.
func (a *Alarms) Set(which Alarm, on bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.Own()
	now := old &^ which
	if on {
		now |= which
	}
	if now == old {
		return false
	}
	a.own.Store(uint32(now))
	a.changed()
	return true
}

// Hear says which alarms another member has, 0 once it has none or is gone, and reports whether that changed anything.
func (a *Alarms) Hear(member uint64, on Alarm) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.others[member] == on {
		return false
	}
	if a.others == nil {
		a.others = map[uint64]Alarm{}
	}
	if on != 0 {
		a.others[member] = on
	} else {
		delete(a.others, member)
	}
	a.changed()
	return true
}

// changed tells all observers. Called with mu.
func (a *Alarms) changed() {
	own := a.Own()
	all := own
	for _, on := range a.others {
		all |= on
	}
	a.on.Store(uint32(all))
	for _, told := range a.watchers {
		told(own, all)
	}
}

// Watch has told called after each change, with what is in effect on this node and on any. It must not wait, and not change alarms.
func (a *Alarms) Watch(told func(own, all Alarm)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watchers = append(a.watchers, told)
}

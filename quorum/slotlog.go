package quorum

import (
	"errors"
	"fmt"

	"github.com/warrenmq/warren/queue"
	"github.com/warrenmq/warren/storage"
)

// slotLog is the queue.Log of one queue of a slot. What was published lately is in memory; what was written to a run has
// left it. Within a level all of the latter comes before all of the former.
//
//	places   1 … cursor … cold | …
//	                  on disk  | recent
//
// Next never says that it does not know: the metadata of what lies on disk are read in place, a page at a time, so that
// nothing a replica does depends on what it has in memory.
type slotLog struct {
	id     storage.LogID // what the runs know it by
	disk   *diskMeta
	octets *int64 // of all messages in memory, of all queues of the slot
	levels queue.Levels[logLevel]
	change int   // messages put less those that left memory since it was last asked
	stored int64 // octets that those in memory will take on disk: see storedOctets
}

type logLevel struct {
	recent   queue.Window[resident]
	cold     uint64 // highest place that may be on disk only
	flushing uint64 // highest place that the running checkpoint has seen
	metas    []storage.Meta
	from     uint64 // metas are all there is on disk behind this place, up to the last of them
}

// resident is a message in memory. The log holds one reference.
type resident struct {
	expiry  queue.Time
	message queue.Message
}

// metaPage is how many messages are looked up on disk at a time.
const metaPage = 1024

const placeBits = 56

func placeOf(s queue.Seq) uint64 { return uint64(s) & (1<<placeBits - 1) }
func seqOf(level uint8, place uint64) queue.Seq {
	return queue.Seq(level)<<placeBits | queue.Seq(place)
}
func newSlotLog(name uint64, disk *diskMeta, octets *int64) slotLog {
	return slotLog{id: storage.LogID(name), disk: disk, octets: octets}
}

// level is a level, which is made when it is first used.
func (l *slotLog) level(i uint8) *logLevel {
	if lv := l.levels.Has(int(i)); lv != nil {
		return lv
	}
	return l.levels.Make(int(i), logLevel{})
}

// Put implements queue.Log.
func (l *slotLog) Put(seq queue.Seq, expiry queue.Time, m *queue.Message) {
	l.change++
	l.stored += storedOctets(1, uint64(m.Size))
	*l.octets += int64(m.Ref.Len)
	l.level(seq.Level()).recent.Append(placeOf(seq), resident{expiry, *m})
}

// Next implements queue.Log.
func (l *slotLog) Next(after queue.Seq) (queue.Meta, bool) {
	lv, place := l.level(after.Level()), placeOf(after)
	if place < lv.cold {
		if m, ok := l.onDisk(lv, after); ok {
			return m, true
		}
		lv.cold = place // there is nothing behind it, and will not be
	}
	at, r := lv.recent.At(place + 1)
	if r == nil {
		return queue.Meta{}, false
	}
	return queue.Meta{Seq: seqOf(after.Level(), at), Expiry: r.expiry, Size: r.message.Size, Flags: r.message.Flags}, true
}

func (l *slotLog) onDisk(lv *logLevel, after queue.Seq) (queue.Meta, bool) {
	if place := placeOf(after); place < lv.from {
		lv.metas = lv.metas[:0]
	}
	n := 0
	for n < len(lv.metas) && lv.metas[n].Seq <= uint64(after) {
		n++
	}
	lv.metas = lv.metas[n:]
	if len(lv.metas) == 0 {
		lv.from = placeOf(after)
		lv.metas = l.disk.read(l.id, uint64(after)+1, uint64(seqOf(after.Level(), lv.cold)))
		if len(lv.metas) == 0 {
			lv.metas = nil
			return queue.Meta{}, false
		}
	}
	m := &lv.metas[0]
	return queue.Meta{Seq: queue.Seq(m.Seq), Expiry: queue.Time(m.Expiry), Size: m.Size, Flags: queue.Flags(m.Flags)}, true
}

// Resident implements queue.Log.
func (l *slotLog) Resident(queue.Seq) bool { return true }

// find is the message at seq, if it is in memory. The reference stays with the log.
func (l *slotLog) find(seq queue.Seq) (queue.Message, bool) {
	if lv := l.levels.Has(int(seq.Level())); lv != nil {
		if r := lv.recent.Find(placeOf(seq)); r != nil {
			return r.message, true
		}
	}
	return queue.Message{}, false
}

// remove takes out the messages of a range that are in memory; gone hears of each, in ascending order, and their references
// pass to it.
func (l *slotLog) remove(r queue.SeqRange, gone func(seq queue.Seq, m *queue.Message)) {
	level := r.First.Level()
	l.change -= l.level(level).recent.RemoveRange(placeOf(r.First), placeOf(r.Last), func(place uint64, m *resident) {
		l.stored -= storedOctets(1, uint64(m.message.Size))
		*l.octets -= int64(m.message.Ref.Len)
		gone(seqOf(level, place), &m.message)
	})
}

// each shows all messages in memory.
func (l *slotLog) each(f func(m *queue.Message)) {
	for _, lv := range l.levels.All() {
		for _, r := range lv.recent.Range(0, 1<<placeBits-1) {
			f(&r.message)
		}
	}
}

// len is how many messages are in memory.
func (l *slotLog) len() (n int) {
	for _, lv := range l.levels.All() {
		n += lv.recent.Len()
	}
	return n
}

// changed returns the change since the last call.
func (l *slotLog) changed() int {
	n := l.change
	l.change = 0
	return n
}

// diskMeta reads the metadata of messages in runs, for one queue of a slot at a time. It is guarded by the machine's lock.
type diskMeta struct {
	runs   *storage.RunSet
	cursor *storage.Cursor
	log    storage.LogID
}

// read returns what is known of the next messages of a log from one Seq to another. What cannot be read ends the process: a
// replica that went on without it would differ from the others.
func (d *diskMeta) read(log storage.LogID, from, to uint64) []storage.Meta {
	if d.cursor == nil {
		d.cursor = d.runs.Cursor(log)
	} else if d.log != log {
		d.cursor.Reset(log)
	}
	d.log = log
	metas, err := d.cursor.AppendMeta(nil, from, to, metaPage)
	if err != nil {
		var damage *storage.RunDamage
		if errors.As(err, &damage) {
			panic(fmt.Sprintf("quorum: messages of a quorum queue are damaged, and the slot cannot go on: %v", err))
		}
		panic(fmt.Sprintf("quorum: messages of a quorum queue cannot be read: %v", err))
	}
	return metas
}

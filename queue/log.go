package queue

import (
	"maps"
	"slices"

	"github.com/warrenmq/warren/storage"
)

// messageLog is the Log of a classic queue. What was published lately is in memory, in recent; what was flushed is in the
// runs of the node, and in memory again, in ahead, when an I/O worker has read it for the consumers to come. Within a level
// everything that was flushed comes before everything that was not.
//
//	places   1 … cursor … read … cold | …
//	         settled, or        ahead   recent
//	         in flight,  └─ on disk ─┘
//	         or returned
//
// A message in flight is kept here only until it is flushed: a copy is on disk then, and is read again, into again, if the
// message is returned.
type messageLog struct {
	levels []logLevel
	again  map[Seq]resident // returned messages that were read again; nil: none ever
	change int              // messages added less messages removed since it was last asked
	fresh  []Seq            // put since it was last cleared, if keep
	keep   bool             // the queue is journaled
}

type logLevel struct {
	recent     Window[resident]
	ahead      Window[resident]
	cold       uint64 // highest place that was flushed
	from, read uint64 // ahead has all there is of the places behind from, up to read
	flushing   uint64 // highest place that the running flush has seen
}

// resident is a message in memory.
type resident struct {
	expiry  Time
	message Message
	epoch   storage.Epoch // of its journal record, or of the time when it came
}

func newMessageLog(levels int) messageLog { return messageLog{levels: make([]logLevel, levels)} }

// Put implements Log.
func (l *messageLog) Put(seq Seq, expiry Time, m *Message) {
	l.change++
	l.levels[seq.Level()].recent.Append(seq.place(), resident{expiry: expiry, message: *m})
	if l.keep {
		l.fresh = append(l.fresh, seq)
	}
}

// Next implements Log.
func (l *messageLog) Next(after Seq) (Meta, bool) {
	lv, place := &l.levels[after.Level()], after.place()
	var r *resident
	if place < lv.cold {
		if place < lv.from || place >= lv.read {
			return Meta{}, false
		}
		var at uint64
		if at, r = lv.ahead.At(place + 1); r != nil {
			place = at
		} else if lv.read < lv.cold {
			return Meta{}, false
		}
	}
	if r == nil {
		if place, r = lv.recent.At(place + 1); r == nil {
			return Meta{}, false
		}
	}
	return Meta{Seq: seqOf(after.Level(), place), Expiry: r.expiry, Size: r.message.Size, Flags: r.message.Flags}, true
}

// Resident implements Log.
func (l *messageLog) Resident(seq Seq) bool {
	lv, place := &l.levels[seq.Level()], seq.place()
	if lv.recent.Find(place) != nil || lv.ahead.Find(place) != nil {
		return true
	}
	_, ok := l.again[seq]
	return ok
}

// lend is the message at seq, which goes to a consumer that will acknowledge it. kept says that it stays here as well, and
// the consumer needs a reference of its own; otherwise the reference passes to the caller: a copy is on disk.
func (l *messageLog) lend(seq Seq) (m Message, kept bool) {
	if r := l.levels[seq.Level()].recent.Find(seq.place()); r != nil {
		return r.message, true
	}
	return l.take(seq), false
}

// take removes the message at seq, which must be there; its reference passes to the caller.
func (l *messageLog) take(seq Seq) Message {
	l.change--
	lv := &l.levels[seq.Level()]
	if r, ok := lv.recent.Remove(seq.place()); ok {
		return r.message
	}
	if r, ok := lv.ahead.Remove(seq.place()); ok {
		return r.message
	}
	r, ok := l.again[seq]
	if !ok {
		panic("queue: the machine named a message that is not there")
	}
	delete(l.again, seq)
	return r.message
}

// remove takes out the messages of a range that are in memory; gone hears of each, in ascending order, and their references
// pass to it. What was read again lies before the cursor, what was read ahead behind it, and what is recent behind both.
func (l *messageLog) remove(r SeqRange, gone func(seq Seq, m *Message)) {
	level := r.First.Level()
	lv, first, last := &l.levels[level], r.First.place(), r.Last.place()
	if last-first < uint64(len(l.again)) {
		for place := first; place <= last; place++ {
			l.removeAgain(seqOf(level, place), gone)
		}
	} else if len(l.again) > 0 {
		for _, seq := range slices.Sorted(maps.Keys(l.again)) {
			if r.First <= seq && seq <= r.Last {
				l.removeAgain(seq, gone)
			}
		}
	}
	each := func(place uint64, m *resident) { gone(seqOf(level, place), &m.message) }
	l.change -= lv.ahead.RemoveRange(first, last, each)
	l.change -= lv.recent.RemoveRange(first, last, each)
}

func (l *messageLog) removeAgain(seq Seq, gone func(Seq, *Message)) {
	if r, ok := l.again[seq]; ok {
		delete(l.again, seq)
		l.change--
		gone(seq, &r.message)
	}
}

// changed returns the change since the last call.
func (l *messageLog) changed() int {
	n := l.change
	l.change = 0
	return n
}

// len is the number of messages in memory.
func (l *messageLog) len() int {
	n := len(l.again)
	for i := range l.levels {
		n += l.levels[i].recent.Len() + l.levels[i].ahead.Len()
	}
	return n
}

// each shows all messages in memory.
func (l *messageLog) each(f func(m *Message)) {
	for i := range l.levels {
		for _, r := range l.levels[i].recent.Range(0, maxPlace) {
			f(&r.message)
		}
		for _, r := range l.levels[i].ahead.Range(0, maxPlace) {
			f(&r.message)
		}
	}
	for _, r := range l.again {
		f(&r.message)
	}
}

// cold reports whether seq may be on disk.
func (l *messageLog) cold(seq Seq) bool { return seq.place() <= l.levels[seq.Level()].cold }

package queue

// memoryLog is the Log of a queue whose messages are all in memory: a window of places per level.
type memoryLog struct{ levels []Window[resident] }

// resident is a message in memory.
type resident struct {
	expiry  Time
	message Message
}

const placeMask = 1<<56 - 1

// Put implements Log.
func (l *memoryLog) Put(seq Seq, expiry Time, m *Message) {
	l.levels[seq.Level()].Append(uint64(seq&placeMask), resident{expiry, *m})
}

// Next implements Log; everything is in memory, so that false means that there is nothing.
func (l *memoryLog) Next(after Seq) (Meta, bool) {
	place, r := l.levels[after.Level()].At(uint64(after&placeMask) + 1)
	if r == nil {
		return Meta{}, false
	}
	return Meta{Seq: after&^placeMask | Seq(place), Expiry: r.expiry, Size: r.message.Size, Flags: r.message.Flags}, true
}

// find is the message at seq, which must be there.
func (l *memoryLog) find(seq Seq) *resident {
	return l.levels[seq.Level()].Find(uint64(seq & placeMask))
}

// take removes the message at seq, which must be there; its reference passes to the caller.
func (l *memoryLog) take(seq Seq) Message {
	r, ok := l.levels[seq.Level()].Remove(uint64(seq & placeMask))
	if !ok {
		panic("queue: the machine named a message that is not there")
	}
	return r.message
}

// remove takes out the messages of a range; gone hears of each, and their references pass to it.
func (l *memoryLog) remove(r SeqRange, gone func(m *Message)) {
	l.levels[r.First.Level()].RemoveRange(uint64(r.First&placeMask), uint64(r.Last&placeMask),
		func(_ uint64, m *resident) { gone(&m.message) })
}

// each shows all messages.
func (l *memoryLog) each(f func(m *Message)) {
	for i := range l.levels {
		for _, r := range l.levels[i].Range(0, placeMask) {
			f(&r.message)
		}
	}
}

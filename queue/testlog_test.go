package queue

import (
	"fmt"
	"slices"
)

// testLog is a Log that remembers what it should have, and shows places only below a mark for each level.
type testLog struct {
	stored   []map[uint64]Meta
	last     []uint64
	coldFrom []uint64     // places from here on are not in memory
	cold     map[Seq]bool // nor are these
	puts     func(Meta)   // hears of what is put; may be nil
}

func newTestLog(levels int) *testLog {
	l := &testLog{cold: map[Seq]bool{}, last: make([]uint64, levels), coldFrom: make([]uint64, levels)}
	for range levels {
		l.stored = append(l.stored, map[uint64]Meta{})
	}
	l.warm()
	return l
}

func (l *testLog) warm() {
	for i := range l.coldFrom {
		l.coldFrom[i] = 1 << 60
	}
	clear(l.cold)
}

func (l *testLog) Put(seq Seq, expiry Time, m *Message) {
	i := seq.Level()
	if seq.place() <= l.last[i] {
		panic(fmt.Sprintf("place %d of level %d put after %d", seq.place(), i, l.last[i]))
	}
	l.last[i] = seq.place()
	meta := Meta{Seq: seq, Expiry: expiry, Size: m.Size, Flags: m.Flags}
	l.stored[i][seq.place()] = meta
	if l.puts != nil {
		l.puts(meta)
	}
}

func (l *testLog) Next(after Seq) (Meta, bool) {
	i := after.Level()
	for p := after.place() + 1; p <= l.last[i]; p++ {
		if m, ok := l.stored[i][p]; ok {
			return m, p < l.coldFrom[i] && !l.cold[m.Seq]
		}
	}
	panic(fmt.Sprintf("nothing behind place %d of level %d", after.place(), i))
}

// Resident implements Log.
func (l *testLog) Resident(seq Seq) bool {
	if _, ok := l.stored[seq.Level()][seq.place()]; !ok {
		panic(fmt.Sprintf("asked for %d/%d, which is not there", seq.Level(), seq.place()))
	}
	return !l.cold[seq]
}

// span lists the messages stored in a range.
func (l *testLog) span(r SeqRange) (seqs []Seq) {
	if r.First.Level() != r.Last.Level() || r.First > r.Last {
		panic(fmt.Sprintf("range %x", r))
	}
	for p := r.First.place(); p <= r.Last.place(); p++ {
		if m, ok := l.stored[r.First.Level()][p]; ok {
			seqs = append(seqs, m.Seq)
		}
	}
	return seqs
}

func (l *testLog) free(seq Seq) {
	if _, ok := l.stored[seq.Level()][seq.place()]; !ok {
		panic(fmt.Sprintf("%d/%d let go twice", seq.Level(), seq.place()))
	}
	delete(l.stored[seq.Level()], seq.place())
}

// live are the Seqs of everything stored, in order.
func (l *testLog) live() (seqs []Seq) {
	for _, stored := range l.stored {
		for _, m := range stored {
			seqs = append(seqs, m.Seq)
		}
	}
	slices.Sort(seqs)
	return seqs
}

// carry carries out the effects on the log and lists them message by message.
func (l *testLog) carry(fx *Effects) (o outcome) {
	o = outcome{Due: fx.Due, More: fx.More}
	o.Deliver = append(o.Deliver, fx.Deliver...)
	for _, r := range fx.Removed {
		o.Removed = append(o.Removed, l.span(r)...)
	}
	for _, d := range fx.Discards {
		if d.Direct >= 0 {
			o.Discards = append(o.Discards, d)
			continue
		}
		for _, seq := range l.span(d.SeqRange) {
			o.Discards = append(o.Discards, Discarded{SeqRange{seq, seq}, d.Reason, d.Failed, -1, d.Failures})
		}
	}
	for _, d := range fx.Kept {
		for _, seq := range l.span(d.SeqRange) {
			o.Kept = append(o.Kept, Discarded{SeqRange{seq, seq}, d.Reason, d.Failed, -1, d.Failures})
		}
	}
	for _, x := range fx.TimedOut {
		for id := x.First; id <= x.Last; id++ {
			o.TimedOut = append(o.TimedOut, TimedOut{x.Consumer, Range{id, id}})
		}
	}
	o.Refused = append(o.Refused, fx.Refused...)
	o.Activity = append(o.Activity, fx.Activity...)
	for _, d := range fx.Deliver {
		if d.Settled && d.Direct < 0 {
			l.free(d.Seq)
		}
	}
	for _, seq := range o.Removed {
		l.free(seq)
	}
	for _, d := range o.Discards {
		if d.Direct < 0 {
			l.free(d.First)
		}
	}
	return o
}

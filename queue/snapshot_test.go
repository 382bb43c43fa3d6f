package queue

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
)

// twinLog is the log of a State that repeats what another did before it.
type twinLog struct{ *testLog }

// Put implements Log.
func (l twinLog) Put(seq Seq, expiry Time, m *Message) {
	meta := Meta{Seq: seq, Expiry: expiry, Size: m.Size, Flags: m.Flags, Failed: m.Failed}
	if was := l.stored[seq.Level()][seq.place()]; was != meta {
		panic(fmt.Sprintf("%+v put where %+v was", meta, was))
	}
}

// do runs a command, and again on the twin, if there is one.
func (d *duel) do(command func(s *State, fx *Effects) any) any {
	got := command(d.s, &d.fx)
	if d.twin != nil {
		d.twinFx.Reset()
		if again := command(d.twin, &d.twinFx); got != again {
			d.t.Errorf("%v, but %v after a snapshot", got, again)
		}
		d.alike()
	}
	return got
}

// alike compares the effects and the state of the twins.
func (d *duel) alike() {
	ours, theirs := d.fx, d.twinFx
	for a, b := reflect.ValueOf(ours), reflect.ValueOf(theirs); a.NumField() > 0; {
		for i := range a.NumField() {
			x, y := a.Field(i), b.Field(i)
			if x.Kind() == reflect.Slice && x.Len() == 0 && y.Len() == 0 {
				continue
			}
			if !reflect.DeepEqual(x.Interface(), y.Interface()) {
				d.t.Errorf("%s: %+v, but %+v after a snapshot", a.Type().Field(i).Name, x, y)
			}
		}
		break
	}
	if a, b := d.s.Stats(), d.twin.Stats(); a != b {
		d.t.Errorf("counts %+v, but %+v after a snapshot", a, b)
	}
}

// twins looks at the snapshots of both, when effects have been carried out. Now and then the machine gives way to its twin,
// or gets one.
func (d *duel) twins() {
	if !d.replicated {
		return
	}
	if d.twin != nil {
		a, b := d.s.AppendSnapshot([]byte("x")), d.twin.AppendSnapshot(nil)
		if !bytes.Equal(a[1:], b) {
			d.t.Errorf("snapshots differ:\n%x\n%x", a[1:], b)
		}
		if err := d.twin.Check(); err != nil {
			d.t.Error(err)
		}
	}
	switch d.r.IntN(40) {
	case 0:
		d.twin = nil
	case 1:
		if d.twin != nil {
			d.s, d.twin = d.twin, nil
			d.s.log = d.log
		}
	case 2, 3:
		b := d.s.AppendSnapshot(nil)
		twin, err := RestoreSnapshot(d.m.rules, d.m.config, twinLog{d.log}, b)
		clear(b)
		if err != nil {
			d.t.Fatalf("a snapshot does not come back: %v", err)
		}
		twin.maxEffects = d.s.maxEffects
		d.twin = twin
	}
}

// stepReplicated does a random command that only replicated queues have.
func (d *duel) stepReplicated(at Time) bool {
	switch d.r.IntN(4) {
	case 0:
		session := d.r.Uint64N(4)
		d.note("%d down %d", at, session)
		d.do(func(s *State, fx *Effects) any { s.Down(at, session, fx); return nil })
		return d.compare(d.m.down(at, func(id uint64) bool { return id == session }))
	case 1:
		odd := func(id uint64) bool { return id%2 == 1 }
		d.note("%d down where odd", at)
		d.do(func(s *State, fx *Effects) any { s.DownWhere(at, odd, fx); return nil })
		return d.compare(d.m.down(at, odd))
	}
	var got []Discarded
	for x := range d.s.KeptDiscards() {
		got = append(got, x)
	}
	var ranges []SeqRange
	for i, x := range d.m.kept {
		want := Discarded{SeqRange{x.seq, x.seq}, x.reason, x.failed > 0, -1, x.failed}
		if i >= len(got) || got[i] != want {
			d.t.Errorf("kept are %+v; %d: want %+v", got, i, want)
		}
		if d.r.IntN(2) == 0 {
			ranges = append(ranges, SeqRange{x.seq - Seq(min(x.seq.place(), uint64(d.r.IntN(2)))), x.seq + Seq(d.r.IntN(10))})
		}
	}
	if len(got) != len(d.m.kept) {
		d.t.Errorf("%d kept, want %d", len(got), len(d.m.kept))
	}
	if d.r.IntN(4) == 0 {
		ranges = append(ranges, SeqRange{0, 1<<64 - 1}, SeqRange{5, 3})
	}
	d.r.Shuffle(len(ranges), func(i, j int) { ranges[i], ranges[j] = ranges[j], ranges[i] })
	ranges = slices.Clip(ranges)
	d.note("%d buried %x", at, ranges)
	d.do(func(s *State, fx *Effects) any { s.Buried(at, ranges, fx); return nil })
	return d.compare(d.m.buried(at, ranges))
}

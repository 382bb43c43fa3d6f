package queue

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
)

// twinLog is the log of a State that repeats what another did before it.
type twinLog struct{ *testLog }

// Put implements Log.
func (l twinLog) Put(seq Seq, expiry Time, m *Message) {
	meta := Meta{Seq: seq, Expiry: expiry, Size: m.Size, Flags: m.Flags}
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
	a, b := reflect.ValueOf(ours), reflect.ValueOf(theirs)
	for i := range a.NumField() {
		x, y := a.Field(i), b.Field(i)
		if x.Kind() == reflect.Slice && x.Len() == 0 && y.Len() == 0 {
			continue
		}
		if !reflect.DeepEqual(x.Interface(), y.Interface()) {
			d.t.Errorf("%s: %+v, but %+v after a snapshot", a.Type().Field(i).Name, x, y)
		}
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

// busyState is a State of a quorum queue that has some of everything, and its rules and limits.
func busyState(t testing.TB) (*State, Config, *testLog) {
	config := unlimited
	config.KeepDiscards, config.Overflow, config.MaxLength = true, RejectPublish, 30
	config.DelayType, config.DelayMin, config.ConsumerTimeout = DelayFailed, 1000, 100
	log := newTestLog(32)
	s := New(QuorumRules(), config, log)
	var fx Effects
	run := func(command func()) {
		fx.Reset()
		command()
		log.carry(&fx)
	}
	attach := func(spec ConsumerSpec) (id ConsumerID) {
		run(func() { id, _ = s.Attach(1, spec, &fx) })
		return id
	}
	a, b := attach(ConsumerSpec{Session: 1, Prefetch: 10}), attach(ConsumerSpec{Session: 2, Priority: 3, Prefetch: 15, Timeout: 50})
	attach(ConsumerSpec{Session: 3, Getter: true})
	batch := make([]Message, 60)
	for i := range batch {
		batch[i] = Message{Size: uint32(i % 7), TTL: int64(i%5)*1000 - 1, Priority: uint8(i % 3), Flags: Flags(i % 16)}
	}
	run(func() { s.Publish(2, batch, &fx) })
	run(func() { s.Publish(3, batch[:30], &fx) })
	run(func() { s.Settle(3, a, []Range{{2, 3}}, Ack, &fx) })
	run(func() { s.Settle(4, a, []Range{{4, 5}}, DiscardFailed, &fx) })
	run(func() { s.Settle(5, b, []Range{{4, 9}}, ReturnFailed, &fx) })
	run(func() { s.Settle(5, a, []Range{{7, 8}}, Return, &fx) })
	run(func() { s.Tick(60, &fx) })
	run(func() { s.Detach(60, a, Cancel, &fx) })
	attach(ConsumerSpec{Session: 4, Prefetch: 2})
	if st := s.Stats(); st.Delayed == 0 || st.Kept == 0 || st.Unacked == 0 || st.Ready == 0 || s.returns.Len() == 0 || !s.refusing || len(s.consumer(b).late) == 0 {
		t.Fatalf("%+v, %d returned, refusing %v", st, s.returns.Len(), s.refusing)
	}
	return s, config, log
}

func TestDamagedSnapshot(t *testing.T) {
	s, config, log := busyState(t)
	snapshot := s.AppendSnapshot(nil)
	restore := func(rules Rules, config Config, b []byte) (*State, error) {
		return RestoreSnapshot(rules, config, log, b)
	}
	if again, err := restore(s.rules, config, snapshot); err != nil || !bytes.Equal(again.AppendSnapshot(nil), snapshot) {
		t.Fatal(err)
	}
	bad := func(b []byte, what string) {
		t.Helper()
		if _, err := restore(s.rules, config, b); !errors.Is(err, ErrRecord) {
			t.Errorf("%s: %v", what, err)
		}
	}
	content := snapshot[:len(snapshot)-4]
	for i := range snapshot {
		for bit := range 8 {
			flipped := slices.Clone(snapshot)
			flipped[i] ^= 1 << bit
			bad(flipped, "a bit flipped")
			// With a right checksum it is another snapshot, or none; it must not break anything.
			if i < len(content) {
				if s, err := restore(s.rules, config, sealed(flipped[:len(content)])); err == nil {
					s.AppendSnapshot(nil)
				} else if !errors.Is(err, ErrRecord) {
					t.Error(err)
				}
			}
		}
		bad(snapshot[:i], "truncated")
		if i < len(content) {
			bad(sealed(content[:i]), "truncated and sealed")
		}
	}
	bad(nil, "empty")
	bad(sealed(append(slices.Clone(content), 0)), "too long")
	for what, change := range map[string]func(*Rules, *Config){
		"fewer levels":     func(r *Rules, _ *Config) { r.Levels = 31 },
		"no returns":       func(r *Rules, _ *Config) { r.Requeue = Original },
		"nothing kept":     func(_ *Rules, c *Config) { c.KeepDiscards = false },
		"no refusals":      func(_ *Rules, c *Config) { c.Overflow = DropHead },
		"an active one is": func(_ *Rules, c *Config) { c.SingleActive = true },
	} {
		rules, config := s.rules, config
		change(&rules, &config)
		if _, err := restore(rules, config, snapshot); !errors.Is(err, ErrRecord) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestSnapshotOfABacklog says that a snapshot does not grow with what nobody has taken.
func TestSnapshotOfABacklog(t *testing.T) {
	s := New(QuorumRules(), unlimited, &benchLog{})
	var fx Effects
	empty := len(s.AppendSnapshot(nil))
	for range 100 {
		s.Publish(1, benchBatch(10_000), &fx)
		fx.Reset()
	}
	if n := len(s.AppendSnapshot(nil)); n > empty+20 || n > 64 {
		t.Errorf("%d octets for a million messages, %d for none", n, empty)
	}
}

// FuzzRestoreSnapshot gives RestoreSnapshot snapshots with a right checksum and any content.
func FuzzRestoreSnapshot(f *testing.F) {
	s, config, _ := busyState(f)
	add := func(b []byte, single bool) { f.Add(b[:len(b)-4], single) }
	add(s.AppendSnapshot(nil), false)
	for seed := uint64(1); seed < 40; seed += 2 {
		d := makeDuel(f, seed, true)
		d.maxOps = 100
		d.run(seed)
		add(d.s.AppendSnapshot(nil), d.m.config.SingleActive)
	}
	f.Fuzz(func(t *testing.T, content []byte, single bool) {
		config := config
		config.SingleActive = single
		s, err := RestoreSnapshot(QuorumRules(), config, everywhere{}, sealed(content))
		if err != nil {
			if !errors.Is(err, ErrRecord) {
				t.Fatal(err)
			}
			return
		}
		b := s.AppendSnapshot(nil)
		again, err := RestoreSnapshot(QuorumRules(), config, everywhere{}, b)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, again.AppendSnapshot(nil)) {
			t.Fatalf("%x became another", b)
		}
		if n := len(s.consumers); n > 0 { // whatever it says, it is a queue
			var fx Effects
			s.Settle(s.now, s.consumers[n-1].id, []Range{{0, s.consumers[n-1].lastID}}, ReturnFailed, &fx)
			s.Down(s.now, 1, &fx)
		}
	})
}

// everywhere has a message at every place.
type everywhere struct{}

func (everywhere) Put(Seq, Time, *Message)     {}
func (everywhere) Next(after Seq) (Meta, bool) { return Meta{Seq: after + 1}, true }
func (everywhere) Resident(Seq) bool           { return true }

func TestRangesOfLateDeliveries(t *testing.T) {
	var ranges []Range
	for _, id := range []uint64{5, 7, 6, 2, 1, 9, 8, 12, 3} {
		ranges = with(ranges, id)
	}
	if want := []Range{{1, 3}, {5, 9}, {12, 12}}; !slices.Equal(ranges, want) {
		t.Errorf("%d, want %d", ranges, want)
	}
	for _, less := range []struct {
		Range
		left []Range
	}{
		{Range{4, 4}, []Range{{1, 3}, {5, 9}, {12, 12}}},
		{Range{2, 6}, []Range{{1, 1}, {7, 9}, {12, 12}}},
		{Range{6, 6}, []Range{{1, 3}, {5, 5}, {7, 9}, {12, 12}}},
		{Range{0, 20}, nil},
	} {
		if got := lessRange(ranges, less.Range); !slices.Equal(got, less.left) {
			t.Errorf("%d without %d are %d, want %d", ranges, less.Range, got, less.left)
		}
	}
}

// TestConsumersWithoutWindow says that Ready is not needed where prefetch alone counts: a settlement makes room.
func TestConsumersWithoutWindow(t *testing.T) {
	f := quorumFlow(1)
	for range 3 {
		f.s.consumer(1).room = 256 // as after four billion deliveries
		f.fx.Reset()
		f.s.Publish(1, f.batch, &f.fx)
		if len(f.fx.Deliver) != 256 {
			t.Fatalf("%d handed out", len(f.fx.Deliver))
		}
		f.s.Settle(1, 1, []Range{{0, 1 << 62}}, Ack, &f.fx)
		if room := f.s.consumer(1).room; room < 2000 {
			t.Fatalf("room for %d", room)
		}
	}
}

// TestOverdueStays: a snapshot tells that a delivery of a consumer has timed out, even when the consumer has settled it since.
func TestOverdueStays(t *testing.T) {
	s := New(QuorumRules(), Config{TTL: -1, MaxLength: -1, MaxBytes: -1, DeliveryLimit: -1}, everywhere{})
	var fx Effects
	id, err := s.Attach(1, ConsumerSpec{Session: 1, Prefetch: 1, Timeout: 10}, &fx)
	if err != nil {
		t.Fatal(err)
	}
	fx.Reset()
	s.Publish(1, []Message{{TTL: -1}}, &fx)
	fx.Reset()
	if s.Tick(100, &fx); len(fx.TimedOut) != 1 {
		t.Fatalf("%+v", fx)
	}
	fx.Reset()
	s.Settle(101, id, []Range{{First: 1, Last: 1}}, Ack, &fx)
	again, err := RestoreSnapshot(QuorumRules(), Config{TTL: -1, MaxLength: -1, MaxBytes: -1, DeliveryLimit: -1}, everywhere{}, s.AppendSnapshot(nil))
	if err != nil {
		t.Fatal(err)
	}
	for h := range again.Holders() {
		if !h.Overdue || len(h.Late) > 0 {
			t.Errorf("%+v", h)
		}
	}
}

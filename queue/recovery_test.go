package queue

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"
)

// drill is a duel with a naive store below it, which crashes, and must go on with what a restart finds.
type drill struct {
	*duel
	journal  []entry // by position
	cut      int     // positions before this one were let go of
	record   []byte  // the last consumption record
	position int     // of the journal when it was encoded
	snapshot snapshot
	runs     []testExtent
	putAt    map[Seq]int
}

// entry is one journal record: a message was put, or a range has gone.
type entry struct {
	put  Meta
	gone SeqRange
}

type testExtent struct {
	Extent
	metas []Meta
}

// snapshot is what the model knew when a record was encoded.
type snapshot struct {
	live   map[Seq]bool
	passed []modelMessage // in flight and returned ones, as they would be served
}

func newDrill(t testing.TB, seed uint64) *drill {
	d := &drill{duel: newDuel(t, seed), putAt: map[Seq]int{}}
	d.holes = true
	d.hook()
	return d
}

func (d *drill) hook() {
	d.log.puts = func(m Meta) {
		if m.Flags&Persistent != 0 {
			d.putAt[m.Seq] = len(d.journal)
			d.journal = append(d.journal, entry{put: m})
		}
	}
	// Ranges are journaled whole, with the transient messages in them, or without these.
	d.gone = func(r SeqRange) {
		if d.r.IntN(2) == 0 {
			d.journal = append(d.journal, entry{gone: r})
			return
		}
		for _, seq := range d.log.span(r) {
			if d.log.stored[seq.Level()][seq.place()].Flags&Persistent != 0 {
				d.journal = append(d.journal, entry{gone: SeqRange{seq, seq}})
			}
		}
	}
}

// encode takes a consumption record.
func (d *drill) encode() {
	d.record = d.s.Encode(nil)
	if again := d.s.Encode([]byte("x")); !bytes.Equal(again[1:], d.record) {
		d.t.Errorf("%x and %x of one state", d.record, again[1:])
	}
	d.position = len(d.journal)
	d.snapshot = snapshot{live: map[Seq]bool{}}
	for _, seq := range d.m.live() {
		d.snapshot.live[seq] = true
	}
	var rest []modelMessage
	for _, q := range d.m.queues() {
		for _, x := range *q {
			if q == &d.m.returns {
				d.snapshot.passed = append(d.snapshot.passed, *x)
			} else if x.returned {
				rest = append(rest, *x)
			}
		}
	}
	for _, c := range d.m.consumers {
		for _, h := range c.held {
			x := *h.m
			x.acquired++
			rest = append(rest, x)
		}
	}
	slices.SortFunc(rest, func(a, b modelMessage) int {
		if a.seq < b.seq {
			return -1
		}
		return 1
	})
	d.snapshot.passed = append(d.snapshot.passed, rest...)
}

// flush writes what is alive of the oldest part of the journal into a run, takes a record, and cuts the journal; runs in
// which nothing is alive are dropped, others sometimes copied forward.
func (d *drill) flush() {
	d.encode()
	cut := d.cut + d.r.IntN(len(d.journal)-d.cut+1)
	living := d.s.Living(nil)
	var metas []Meta
	for _, e := range d.journal[d.cut:cut] {
		if e.put.Seq != 0 && living.Any(e.put.Seq, e.put.Seq) {
			if !d.snapshot.live[e.put.Seq] {
				if _, ok := d.log.stored[e.put.Seq.Level()][e.put.Seq.place()]; ok {
					d.t.Errorf("%x is stored but gone", e.put.Seq)
				}
			}
			metas = append(metas, e.put)
		}
	}
	d.cut = cut
	d.runs = slices.DeleteFunc(d.runs, func(x testExtent) bool {
		alive := living.Any(x.First, x.Last)
		for _, m := range x.metas {
			if d.snapshot.live[m.Seq] && !alive {
				d.t.Errorf("%x is alive, its extent %x not", m.Seq, x.SeqRange)
			}
		}
		if alive && d.r.IntN(4) == 0 {
			copied := []Meta(nil)
			for r := range living.Within(x.First, x.Last) {
				for _, m := range x.metas {
					if r.First <= m.Seq && m.Seq <= r.Last {
						copied = append(copied, m)
					}
				}
			}
			metas = append(metas, copied...)
			return true
		}
		return !alive
	})
	slices.SortFunc(metas, func(a, b Meta) int {
		if a.Seq < b.Seq {
			return -1
		}
		return 1
	})
	for len(metas) > 0 {
		n := 1 + d.r.IntN(min(12, len(metas)))
		x := testExtent{Extent: Extent{SeqRange: SeqRange{metas[0].Seq, metas[n-1].Seq}}, metas: metas[:n]}
		if x.First.Level() != x.Last.Level() && d.r.IntN(2) == 0 {
			n = slices.IndexFunc(metas, func(m Meta) bool { return m.Seq.Level() != metas[0].Seq.Level() })
			x = testExtent{Extent: Extent{SeqRange: SeqRange{metas[0].Seq, metas[n-1].Seq}}, metas: metas[:n]}
		}
		for _, m := range x.metas {
			x.Count++
			x.Octets += uint64(m.Size)
			if m.Expiry != 0 {
				x.Expiring++
			}
		}
		d.runs = append(d.runs, x)
		metas = metas[n:]
	}
}

// expected are the messages that must come back when the journal ends at kept: in the order in which they are served,
// those that were handed out first, per list.
func (d *drill) expected(kept int) *model {
	exists := map[Seq]Meta{}
	for _, x := range d.runs {
		for _, m := range x.metas {
			exists[m.Seq] = m
		}
	}
	highest := make([]uint64, len(d.m.levels))
	for _, e := range d.journal[d.cut:kept] {
		if e.put.Seq != 0 {
			exists[e.put.Seq] = e.put
		}
	}
	if d.record != nil {
		for seq := range exists {
			if d.putAt[seq] < d.position && !d.snapshot.live[seq] {
				delete(exists, seq)
			}
		}
	}
	for _, e := range d.journal[min(d.position, kept):kept] {
		if e.gone.First != 0 {
			for seq := range exists {
				if e.gone.First <= seq && seq <= e.gone.Last {
					delete(exists, seq)
				}
			}
			i := e.gone.Last.Level()
			highest[i] = max(highest[i], e.gone.Last.place())
		}
	}
	m := newModel(d.m.rules, d.m.config, d.m.limit)
	take := func(seq Seq) *modelMessage {
		meta := exists[seq]
		delete(exists, seq)
		return &modelMessage{seq: seq, expiry: meta.Expiry, size: meta.Size}
	}
	back := func(x *modelMessage) {
		x.redelivered, x.returned = true, true
		if m.rules.Requeue == Returns {
			m.returns = append(m.returns, x)
		} else {
			m.levels[x.seq.Level()] = append(m.levels[x.seq.Level()], x)
		}
	}
	for _, p := range d.snapshot.passed {
		if _, ok := exists[p.seq]; ok {
			x := take(p.seq)
			x.acquired, x.failed = p.acquired, p.failed
			back(x)
		}
	}
	var rest []Seq
	for seq := range exists {
		rest = append(rest, seq)
	}
	slices.Sort(rest)
	for _, seq := range rest {
		flags := exists[seq].Flags
		was := flags&WasDelivered != 0
		x := take(seq)
		if x.seq.place() <= highest[seq.Level()] {
			x.acquired = 1
			back(x)
			continue
		}
		if x.redelivered = was; was && m.rules.CountReturns {
			x.failed = flags.Failures()
		}
		m.levels[seq.Level()] = append(m.levels[seq.Level()], x)
	}
	for _, l := range m.levels {
		slices.SortFunc(l, func(a, b *modelMessage) int {
			if a.seq < b.seq {
				return -1
			}
			return 1
		})
	}
	return m
}

// restart ends the queue, cleanly or with the loss of some of the journal, and starts it again.
func (d *drill) restart() bool {
	unclean := d.r.IntN(4) > 0
	kept := len(d.journal)
	if !unclean {
		d.encode()
	} else if d.r.IntN(4) > 0 {
		kept -= d.r.IntN(min(kept-d.cut, 30) + 1)
	}
	d.note("restart, unclean %v, %d of %d..%d kept, record of %d", unclean, kept, d.cut, len(d.journal), d.position)
	want := d.expected(kept)
	r, err := Restore(d.m.rules, d.record)
	if err != nil {
		d.t.Error(err)
		return false
	}
	var gone []SeqRange
	for _, e := range d.journal[min(d.position, kept):kept] {
		if e.gone.First != 0 {
			gone = append(gone, e.gone)
		}
	}
	if d.r.IntN(3) == 0 {
		d.r.Shuffle(len(gone), func(i, j int) { gone[i], gone[j] = gone[j], gone[i] })
	}
	for _, g := range gone {
		if err := r.Gone(g); err != nil {
			d.t.Error(err)
		}
	}
	log := newTestLog(len(d.m.levels))
	store := func(m Meta) {
		log.stored[m.Seq.Level()][m.Seq.place()] = m
		log.last[m.Seq.Level()] = max(log.last[m.Seq.Level()], m.Seq.place())
	}
	for _, x := range d.runs {
		switch r.Found(x.Extent) {
		case Alive:
			for _, m := range x.metas {
				store(m)
			}
		case Mixed:
			for _, m := range x.metas {
				if r.FoundMessage(m) {
					store(m)
				}
			}
		}
	}
	for _, e := range d.journal[d.cut:kept] {
		if e.put.Seq != 0 && r.FoundMessage(e.put) {
			store(e.put)
		}
	}
	if got, live := log.live(), want.live(); !slices.Equal(got, live) {
		d.t.Errorf("came back %x, want %x", got, live)
		return false
	}
	s := r.State(d.m.config, log, unclean)
	s.maxEffects = d.m.limit
	was := map[Seq]bool{}
	for _, q := range d.m.queues() {
		for _, x := range *q {
			was[x.seq] = x.redelivered
		}
	}
	for _, l := range want.levels {
		for _, x := range l {
			x.redelivered = x.redelivered || unclean || was[x.seq]
		}
	}
	for i := range want.places {
		want.places[i] = s.level(i).next - 1
		if want.places[i] > d.m.places[i] {
			d.t.Errorf("level %d goes on at %d, it had reached %d", i, want.places[i], d.m.places[i])
		}
		if l := want.levels[i]; len(l) > 0 && l[len(l)-1].seq.place() > want.places[i] {
			d.t.Errorf("level %d goes on at %d and has %x", i, want.places[i], l[len(l)-1].seq)
		}
	}
	want.now = d.m.now
	s.now = d.m.now
	d.s, d.m, d.log = s, want, log
	d.ours, d.theirs = 0, 0
	d.journal = d.journal[:kept]
	for len(d.journal) < d.position {
		d.journal = append(d.journal, entry{})
	}
	d.hook()
	if got, want := d.s.Stats(), d.m.counts(); got != want {
		d.t.Errorf("counts after restart\n got %+v\nwant %+v", got, want)
	}
	if err := d.s.Check(); err != nil {
		d.t.Error(err)
	}
	d.s.Tick(d.at, &d.fx)
	return d.compare(d.m.command(d.at, nil))
}

// same restores a State from its own record and all that is stored, and compares records.
func (d *drill) same() {
	record := d.s.Encode(nil)
	r, err := Restore(d.m.rules, record)
	if err != nil {
		d.t.Errorf("%v: %x", err, record)
		return
	}
	for _, seq := range d.log.live() {
		if !r.FoundMessage(d.log.stored[seq.Level()][seq.place()]) {
			d.t.Errorf("%x is not alive by the record", seq)
		}
	}
	s := r.State(d.m.config, d.log, false)
	if again := s.Encode(nil); !bytes.Equal(again, record) {
		d.t.Errorf("restored it encodes as\n%x, not\n%x", again, record)
	}
	if got, want := s.Stats(), d.s.Stats(); got.Ready != want.Ready+want.Unacked || got.ReadyBytes != want.ReadyBytes+want.UnackedBytes {
		d.t.Errorf("restored it has %+v, not %+v", got, want)
	}
}

// TestRestart runs histories with records, flushes and crashes at random moments. WARREN_QUEUE_SECONDS=n goes on for n
// seconds with random seeds instead, WARREN_QUEUE_SEED=n runs one.
func TestRestart(t *testing.T) {
	first, n := uint64(0), uint64(1500)
	if testing.Short() {
		n = 100
	}
	if v := os.Getenv("WARREN_QUEUE_SEED"); v != "" {
		seed, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		first, n = seed, 1
	}
	until := time.Now().Add(time.Hour)
	if v := os.Getenv("WARREN_QUEUE_SECONDS"); v != "" {
		seconds, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		first, n, until = rand.Uint64()>>1, 1<<60, time.Now().Add(time.Duration(seconds)*time.Second)
	}
	restarts, seed := 0, first
	for ; seed < first+n && time.Now().Before(until); seed++ {
		d := newDrill(t, seed)
		d.before = func() bool {
			switch d.r.IntN(40) {
			case 0, 1:
				d.note("record")
				d.encode()
			case 2:
				d.note("flush")
				d.flush()
			case 3:
				if d.m.out.More {
					return true
				}
				restarts++
				return d.restart()
			case 4:
				d.same()
			}
			return !t.Failed()
		}
		d.run(seed)
	}
	t.Logf("%d restarts, seeds %d to %d", restarts, first, seed-1)
}

func TestDamagedRecord(t *testing.T) {
	s, _ := backlog(t, 5000)
	var fx Effects
	id, _ := s.Attach(1, ConsumerSpec{Window: 2000}, &fx)
	for fx.More {
		fx.Reset()
		s.Continue(1, &fx)
	}
	s.Settle(1, id, []Range{{3, 500}, {700, 700}}, Ack, &fx)
	record := s.Encode(nil)
	if len(record) > 40 {
		t.Errorf("three runs in flight take %d octets", len(record))
	}
	bad := func(rules Rules, record []byte, what string) {
		t.Helper()
		if _, err := Restore(rules, record); !errors.Is(err, ErrRecord) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range record {
		for bit := range 8 {
			flipped := slices.Clone(record)
			flipped[i] ^= 1 << bit
			bad(s.rules, flipped, "a bit flipped")
		}
		if i > 0 { // an empty one is none
			bad(s.rules, record[:i], "truncated")
		}
	}
	bad(s.rules, append(slices.Clone(record), 0), "too long")
	if _, err := Restore(s.rules, record); err != nil {
		t.Error(err)
	}
	bad(Rules{Levels: 2}, record, "other levels")
	bad(Rules{Levels: 1, CountReturns: true}, record, "counts it has not")

	// version, counts, levels, after, ahead, again, runs, then first (twice) and more of each: 2 to 3, and 5
	good := []byte{1, 0, 1, 9, 3, 0, 2, 2 * 2, 1, 2 * 2, 0}
	if r, err := Restore(s.rules, sealed(good)); err != nil || len(r.levels[0].candidates) != 2 {
		t.Fatal(err)
	}
	for what, record := range map[string][]byte{
		"an unknown version":          {2, 0, 1, 9, 3, 0, 0},
		"no next place":               {1, 0, 1, 9, 0, 0, 0},
		"more redelivered than there": {1, 0, 1, 9, 3, 4, 0},
		"place 0":                     {1, 0, 1, 9, 3, 0, 1, 0, 0},
		"a run past the cursor":       {1, 0, 1, 9, 3, 0, 1, 2 * 9, 1},
		"a run of another level":      append(binary.AppendVarint([]byte{1, 0, 1, 9, 3, 0, 1}, 1<<56+1), 0),
		"a run before the last":       {1, 0, 1, 9, 3, 0, 2, 2 * 4, 2, 5, 1},
		"more runs than there are":    {1, 0, 1, 9, 3, 0, 3, 2 * 2, 1, 2 * 2, 0},
		"fewer runs than there are":   {1, 0, 1, 9, 3, 0, 1, 2 * 2, 1, 2 * 2, 0},
		"nothing":                     {},
		"places without end":          append(binary.AppendUvarint([]byte{1, 0, 1}, maxPlace), 1, 0, 0),
	} {
		bad(s.rules, sealed(record), what)
	}
}

// What the journal and the footers say of a queue need not be right either.
func TestFoundThatCannotBe(t *testing.T) {
	r, err := Restore(Rules{Levels: 2}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range []SeqRange{{0, 1}, {5, 4}, {1, 1<<56 | 1}, {2<<56 | 1, 2<<56 | 1}, {1, maxPlace}, {1 << 56, 1<<56 | 3}} {
		if r.Gone(g) == nil {
			t.Errorf("%x has gone", g)
		}
	}
	if r.FoundMessage(Meta{Seq: 2<<56 | 1}) || r.FoundMessage(Meta{}) || r.Found(Extent{SeqRange{2<<56 | 1, 2<<56 | 9}, 3, 3, 0}) != Dead {
		t.Error("found what cannot be")
	}
	if s := r.State(unlimited, newTestLog(2), true); s.Stats() != (Stats{}) || s.level(0).next != 1 || s.level(1).next != 1 {
		t.Errorf("%+v", s.Stats())
	}
}

// A returned message that is not in memory is wanted when it has to go out, not before.
func TestColdIsNotWantedInVain(t *testing.T) {
	log := newTestLog(1)
	s := New(Rules{}, unlimited, log)
	var fx Effects
	id, _ := s.Attach(1, ConsumerSpec{}, &fx)
	s.Publish(1, []Message{{Size: 1, TTL: 50}}, &fx)
	log.cold[1] = true
	fx.Reset()
	if s.Detach(1, id, Remove, &fx); s.Cold() || fx.Due != 51 {
		t.Errorf("cold %v, due %d", s.Cold(), fx.Due)
	}
	fx.Reset()
	if s.Tick(51, &fx); !s.Cold() || fx.Due != 0 || len(fx.Discards) != 0 {
		t.Errorf("cold %v, %+v", s.Cold(), fx)
	}
	log.warm()
	if s.Loaded(51, &fx); s.Cold() || len(fx.Discards) != 1 {
		t.Errorf("cold %v, %+v", s.Cold(), fx)
	}
}

// Recovery takes memory for what was handed out, not for what waits or has gone.
func TestRecoveryCostsNothing(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, _ := Restore(Rules{Levels: 1}, nil)
	for p := Seq(1); p <= 1_000_000; p++ {
		if p%1000 != 0 {
			r.Gone(SeqRange{p, p})
		}
	}
	r.Gone(SeqRange{2_000_000, 900_000_000})
	if r.Found(Extent{SeqRange{1_000_001, 1_999_999}, 1, 1, 0}) != Mixed || r.Found(Extent{SeqRange{999_001, 999_999}, 9, 9, 0}) != Dead ||
		r.Found(Extent{SeqRange{900_000_001, 910_000_000}, 10_000_000, 7, 0}) != Alive {
		t.Error("fates are wrong")
	}
	for p := Seq(1000); p <= 1_000_000; p += 1000 {
		if !r.FoundMessage(Meta{Seq: p, Size: 1}) {
			t.Fatal(p)
		}
	}
	s := r.State(unlimited, &fullLog{}, true)
	runtime.ReadMemStats(&after)
	if st := s.Stats(); st.Ready != 10_001_000 || st.ReadyBytes != 1007 {
		t.Errorf("%+v", st)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("took %d octets", n)
	}
}

// sealed appends the checksum to a record.
func sealed(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(slices.Clone(b), crc32.Checksum(b, castagnoli))
}

// FuzzRestore gives Restore records with a right checksum and any content.
func FuzzRestore(f *testing.F) {
	for seed := range uint64(8) {
		d := newDrill(f, seed)
		d.maxOps = 100
		d.run(seed)
		record := d.s.Encode(nil)
		f.Add(record[:len(record)-4], uint8(len(d.m.levels)), d.m.rules.CountReturns, d.m.rules.Requeue == Returns)
	}
	f.Fuzz(func(t *testing.T, record []byte, levels uint8, counts, returns bool) {
		rules := Rules{Levels: int(levels), CountReturns: counts}
		if returns {
			rules.Requeue = Returns
		}
		r, err := Restore(rules, sealed(record))
		if err != nil {
			if !errors.Is(err, ErrRecord) {
				t.Fatal(err)
			}
			return
		}
		log := newTestLog(max(int(levels), 1))
		for i := range r.levels {
			lv := &r.levels[i]
			for _, c := range slices.Clone(lv.candidates) {
				if seq := seqOf(uint8(i), c.first); !r.FoundMessage(Meta{Seq: seq, Size: 1}) {
					t.Fatalf("%x is in the record but not alive", seq)
				} else {
					log.stored[i][c.first] = Meta{Seq: seq, Size: 1}
				}
			}
		}
		s := r.State(unlimited, log, true)
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		var fx Effects
		s.Attach(1, ConsumerSpec{}, &fx)
		if _, err := Restore(rules, s.Encode(nil)); err != nil {
			t.Fatal(err)
		}
	})
}

package queue

import (
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"
)

// tokens is a Gate that lets so many pass.
type tokens int

func (n *tokens) Acquire() bool {
	if *n == 0 {
		return false
	}
	*n--
	return true
}

// duel drives a State and the model with the same random commands.
type duel struct {
	t        testing.TB
	r        *rand.Rand
	s        *State
	m        *model
	log      *testLog
	at       Time
	fx       Effects
	trail    [12]noted // the last commands
	noted    int
	cold     bool // whether this duel lets messages leave memory
	ours     tokens
	theirs   tokens
	maxOps   int
	overFull int            // ready messages above which the duel stops to publish
	gone     func(SeqRange) // hears of every range that leaves; may be nil
	holes    bool           // there are places behind cursors that hold nothing
	before   func() bool    // called before each command; may be nil
	living   Living

	replicated bool // there are timeouts, delays, dead letters that are kept, sessions that end, and snapshots
	twin       *State
	twinFx     Effects
}

func newDuel(t testing.TB, seed uint64) *duel { return makeDuel(t, seed, false) }

func makeDuel(t testing.TB, seed uint64, replicated bool) *duel {
	r := rand.New(rand.NewPCG(seed, 2))
	chance := func(n int) bool { return r.IntN(n) == 0 }
	rules := Rules{
		Levels: 1, CountReturns: chance(2), Preempt: chance(2), ExclusiveConsumers: chance(2), RejectBefore: chance(2),
		DropBefore: chance(2),
	}
	if chance(2) {
		rules.Levels = []int{2, 3, 11, 32, 200}[r.IntN(5)]
		rules.DefaultLevel = uint8(r.IntN(5))
	}
	if chance(3) {
		rules.Requeue = Returns
	}
	if chance(3) {
		rules.PrefetchZero = 7
	}
	d := &duel{t: t, r: r, at: 1, cold: chance(4) && !replicated, maxOps: 400, overFull: 5 + r.IntN(60), replicated: replicated}
	if replicated {
		rules.CountReturns, rules.NoWindow, rules.ZeroTTL = !chance(10), chance(2), int64(r.IntN(2))
		if chance(2) {
			rules = QuorumRules()
		}
	}
	config := d.config()
	config.SingleActive = chance(4)
	limit := MaxEffects
	if chance(3) {
		limit = 1 + r.IntN(6)
	}
	d.log = newTestLog(rules.Levels)
	d.s, d.m = New(rules, config, d.log), newModel(rules, config, limit)
	d.s.maxEffects = limit
	return d
}

func (d *duel) config() Config {
	c := unlimited
	if d.r.IntN(3) == 0 {
		c.TTL = d.r.Int64N(40)
	}
	if d.r.IntN(3) == 0 {
		c.MaxLength = d.r.Int64N(20)
	}
	if d.r.IntN(4) == 0 {
		c.MaxBytes = d.r.Int64N(100)
	}
	if d.r.IntN(2) == 0 {
		c.DeliveryLimit = d.r.Int64N(4)
	}
	c.Overflow = Overflow(d.r.IntN(3))
	if !d.replicated {
		return c
	}
	if d.r.IntN(3) == 0 {
		c.DelayType, c.DelayMin, c.DelayMax = DelayType(d.r.IntN(4)), d.r.Int64N(20), d.r.Int64N(60)
	}
	if d.r.IntN(3) == 0 {
		c.ConsumerTimeout = d.r.Int64N(60)
	}
	c.KeepDiscards = d.r.IntN(2) == 0
	return c
}

type noted struct {
	format string
	args   []any
}

func (d *duel) note(format string, args ...any) {
	d.trail[d.noted%len(d.trail)] = noted{format, args}
	d.noted++
}

// compare carries out the machine's effects and compares them, and the counts, with the model's.
func (d *duel) compare(want outcome) bool {
	d.left()
	got := d.log.carry(&d.fx)
	if !reflect.DeepEqual(got, want) {
		d.t.Errorf("effects\n got %+v\nwant %+v", got, want)
	}
	if got, want := d.s.Stats(), d.m.counts(); got != want {
		d.t.Errorf("counts\n got %+v\nwant %+v", got, want)
	}
	d.waits()
	d.twins()
	d.fx.Reset()
	return !d.t.Failed()
}

// left looks at what has left the queue: no range may touch a message that is still there.
func (d *duel) left() {
	live := d.m.live()
	leave := func(r SeqRange) {
		i, _ := slices.BinarySearch(live, r.First)
		if r.First.Level() != r.Last.Level() || r.First > r.Last || i < len(live) && live[i] <= r.Last {
			d.t.Errorf("range %x to %x has left, but %x are there", r.First, r.Last, live)
		}
		if d.gone != nil {
			d.gone(r)
		}
	}
	for _, x := range d.fx.Deliver {
		if x.Settled && x.Direct < 0 {
			leave(SeqRange{x.Seq, x.Seq})
		}
	}
	for _, r := range d.fx.Removed {
		leave(r)
	}
	for _, x := range d.fx.Discards {
		if x.Direct < 0 {
			leave(x.SeqRange)
		}
	}
}

// waits compares what the machine says it waits for.
func (d *duel) waits() {
	seq, cold := d.s.Wants()
	if cold != d.s.Cold() {
		d.t.Errorf("wants %v, cold %v", cold, d.s.Cold())
	}
	var first []Seq // of each list that is stuck
	wanted := false
	for _, q := range d.m.queues() {
		if len(*q) > 0 && d.m.head(q) == nil {
			x := (*q)[0]
			first = append(first, x.seq)
			wanted = wanted || seq == x.seq || d.holes && !x.returned && seq.Level() == x.seq.Level() && seq < x.seq
		}
	}
	if cold && !wanted {
		d.t.Errorf("wants %d/%d, stuck at %x", seq.Level(), seq.place(), first)
	}
	if n, _ := d.m.ready(); n > 0 && d.m.top() == nil && len(d.m.line) > 0 && !d.fx.More && !cold {
		d.t.Errorf("stuck at %x and wants nothing", first)
	}
}

func (d *duel) batch() []Message {
	n := 1 + d.r.IntN(6)
	if d.r.IntN(20) == 0 {
		n = 40
	}
	batch := make([]Message, n)
	for i := range batch {
		m := &batch[i]
		*m = Message{Size: d.r.Uint32N(20), TTL: -1, Priority: uint8(d.r.UintN(14)), Flags: Flags(d.r.UintN(4))}
		if d.r.IntN(30) == 0 {
			m.Priority = uint8(d.r.Uint32())
		}
		if d.r.IntN(4) == 0 {
			m.TTL = d.r.Int64N(30)
		}
		if d.r.IntN(10) == 0 {
			m.Flags = m.Flags.WithFailures(d.r.Uint32N(4))
		}
	}
	return batch
}

func (d *duel) spec() ConsumerSpec {
	spec := ConsumerSpec{
		NoAck: d.r.IntN(3) == 0, Exclusive: d.r.IntN(8) == 0, Getter: d.r.IntN(4) == 0,
		Prefetch: d.r.Uint32N(6), Priority: d.r.Int32N(3) - 1, Window: 1 + d.r.Uint32N(9),
	}
	if d.r.IntN(3) == 0 {
		spec.Window = 0
	}
	if d.replicated {
		spec.Session = d.r.Uint64N(4)
		if d.r.IntN(3) == 0 {
			spec.Timeout = d.r.Int64N(60)
		}
	}
	return spec
}

// someone is the id of a consumer, rarely of one that does not exist.
func (d *duel) someone(getter bool) ConsumerID {
	var ids []ConsumerID
	for _, c := range d.m.consumers {
		if c.spec.Getter == getter {
			ids = append(ids, c.id)
		}
	}
	if len(ids) == 0 || d.r.IntN(50) == 0 {
		return ConsumerID(d.r.Uint32N(30))
	}
	return ids[d.r.IntN(len(ids))]
}

// held picks delivery ids of a consumer, most of them in flight.
func (d *duel) held(c *modelConsumer) (ids []Range) {
	if c != nil && len(c.late) > 0 && d.r.IntN(2) == 0 {
		return []Range{{c.late[0], c.late[d.r.IntN(len(c.late))]}}
	}
	if c == nil || len(c.held) == 0 {
		return []Range{{1, 5}}
	}
	switch d.r.IntN(4) {
	case 0: // all
		return []Range{{c.held[0].id, c.last}}
	case 1: // one
		id := c.held[d.r.IntN(len(c.held))].id
		return []Range{{id, id}}
	case 2: // up to one
		return []Range{{0, c.held[d.r.IntN(len(c.held))].id}}
	}
	for id := c.held[0].id; id <= c.last; id += 1 + d.r.Uint64N(4) {
		last := id + d.r.Uint64N(3)
		ids = append(ids, Range{id, last})
		id = last
	}
	return ids
}

// step does one random command on both and reports whether they agree.
func (d *duel) step() bool {
	if d.r.IntN(3) == 0 {
		d.at += Time(d.r.IntN(8))
	}
	at := d.at
	if d.replicated && d.r.IntN(20) == 0 {
		return d.stepReplicated(at)
	}
	switch op := d.r.IntN(100); {
	case op < 25:
		batch := d.batch()
		if n, _ := d.m.ready(); n > d.overFull {
			batch = batch[:1]
		}
		if d.cold && d.r.IntN(10) == 0 {
			for i := range d.log.coldFrom {
				if d.log.coldFrom[i] == 1<<60 && d.r.IntN(2) == 0 {
					d.log.coldFrom[i] = d.m.places[i] + 1 + d.r.Uint64N(5)
					d.m.coldFrom[i] = d.log.coldFrom[i]
				}
			}
		}
		d.note("%d publish %v cold from %v", at, batch, slices.Clone(d.log.coldFrom))
		d.do(func(s *State, fx *Effects) any { s.Publish(at, batch, fx); return nil })
		return d.compare(d.m.publish(at, batch))
	case op < 55:
		c := d.m.find(d.someone(d.r.IntN(5) == 0))
		id := ConsumerID(99)
		if c != nil {
			id = c.id
		}
		ids, o := d.held(c), Outcome(d.r.IntN(5))
		if d.r.IntN(2) == 0 {
			o = Ack
		}
		more := tokens(d.r.IntN(3))
		d.ours, d.theirs = d.ours+more, d.theirs+more
		d.note("%d settle %d %v %d, gate %d", at, id, ids, o, d.ours)
		d.do(func(s *State, fx *Effects) any { s.Settle(at, id, ids, o, fx); return nil })
		return d.compare(d.m.settle(at, id, ids, o))
	case op < 70:
		id := d.someone(false)
		d.note("%d ready %d", at, id)
		d.do(func(s *State, fx *Effects) any { s.Ready(at, id, fx); return nil })
		return d.compare(d.m.readyFor(at, id))
	case op < 73:
		id := d.someone(false)
		if d.r.IntN(3) == 0 && !d.replicated {
			d.note("gate %d", id)
			var held int
			d.do(func(s *State, fx *Effects) any {
				held = s.Gate(id, &d.ours)
				return held
			})
			if want := d.m.gate(id, &d.theirs); held != want {
				d.t.Errorf("gate: %d held, want %d", held, want)
				return false
			}
			return true
		}
		d.note("block %d", id)
		d.do(func(s *State, fx *Effects) any { s.Block(id); return nil })
		d.m.block(id)
		return true
	case op < 82:
		id, noAck := d.someone(true), d.r.IntN(2) == 0
		d.note("%d get %d %v", at, id, noAck)
		var got Delivery
		var ok bool
		d.do(func(s *State, fx *Effects) any {
			got, ok = s.Get(at, id, noAck, fx)
			return got
		})
		want, wantOK, o := d.m.get(at, id, noAck)
		if got != want || ok != wantOK {
			d.t.Errorf("get: %+v %v, want %+v %v", got, ok, want, wantOK)
		}
		agree := d.compare(o)
		if c := d.m.find(id); !ok && c != nil && !c.cancelled && c.spec.Getter && len(o.TimedOut) == 0 && d.s.Cold() != (d.s.Stats().Ready > 0) {
			d.t.Errorf("nothing to get, %d ready, cold %v", d.s.Stats().Ready, d.s.Cold())
		}
		if ok && got.Settled {
			if d.gone != nil {
				d.gone(SeqRange{got.Seq, got.Seq})
			}
			d.log.free(got.Seq)
		}
		return agree
	case op < 87:
		if len(d.m.consumers) > 12 {
			return true
		}
		ours, theirs := d.spec(), ConsumerSpec{}
		theirs = ours
		if d.r.IntN(4) == 0 && !d.replicated {
			ours.Gate, theirs.Gate = &d.ours, &d.theirs
		}
		d.note("%d attach %+v", at, ours)
		var id ConsumerID
		var err error
		d.do(func(s *State, fx *Effects) any {
			id, err = s.Attach(at, ours, fx)
			return id
		})
		wantID, wantErr, o := d.m.attach(at, theirs)
		if id != wantID || err != wantErr {
			d.t.Errorf("attach: %d %v, want %d %v", id, err, wantID, wantErr)
		}
		return d.compare(o)
	case op < 91:
		id, how := d.someone(d.r.IntN(5) == 0), Detachment(d.r.IntN(2))
		d.note("%d detach %d %d", at, id, how)
		d.do(func(s *State, fx *Effects) any { s.Detach(at, id, how, fx); return nil })
		return d.compare(d.m.detach(at, id, how))
	case d.cold && op < 92 && d.r.IntN(2) == 0:
		for _, seq := range d.m.live() {
			if d.r.IntN(4) == 0 {
				d.log.cold[seq], d.m.away[seq] = true, true
			}
		}
		d.note("unloaded, cold are %v", maps.Clone(d.m.away))
		d.s.Unloaded()
		return true
	case (d.cold || d.replicated) && d.gone == nil && op < 92 && d.r.IntN(4) == 0: // what is lost would be found again after a restart
		return d.lose(at)
	case op < 92:
		d.note("%d purge", at)
		got := d.do(func(s *State, fx *Effects) any { return s.Purge(at, fx) })
		want, o := d.m.purge(at)
		if got != want {
			d.t.Errorf("purge: %d, want %d", got, want)
		}
		return d.compare(o)
	case op < 93:
		config := d.config()
		config.SingleActive = d.m.config.SingleActive != (d.r.IntN(8) == 0)
		d.note("%d configure %+v", at, config)
		d.do(func(s *State, fx *Effects) any { s.Configure(at, config, fx); return nil })
		return d.compare(d.m.configure(at, config))
	case op < 97:
		d.note("%d tick", at)
		d.do(func(s *State, fx *Effects) any { s.Tick(at, fx); return nil })
		return d.compare(d.m.command(at, nil))
	default:
		d.note("%d loaded", at)
		d.log.warm()
		d.m.warm()
		d.do(func(s *State, fx *Effects) any { s.Loaded(at, fx); return nil })
		return d.compare(d.m.command(at, nil))
	}
}

func (d *duel) run(seed uint64) (ops int) {
	defer func() {
		if p := recover(); p != nil {
			d.t.Errorf("panic: %v", p)
		}
		if d.t.Failed() {
			for i := max(0, d.noted-len(d.trail)); i < d.noted; i++ {
				n := d.trail[i%len(d.trail)]
				d.t.Logf(n.format, n.args...)
			}
			d.t.Fatalf("seed %d, command %d, rules %+v, config %+v, budget %d", seed, ops, d.m.rules, d.m.config, d.m.limit)
		}
	}()
	for ops < d.maxOps {
		ops++
		if d.before != nil && !d.before() || !d.step() {
			return
		}
		for d.m.out.More && d.r.IntN(5) > 0 {
			d.note("%d continue", d.at)
			d.do(func(s *State, fx *Effects) any { s.Continue(d.at, fx); return nil })
			if !d.compare(d.m.command(d.at, nil)) {
				return
			}
		}
		if ops%16 == 0 {
			if err := d.s.Check(); err != nil {
				d.t.Error(err)
			}
			if got, want := d.log.live(), d.m.live(); !slices.Equal(got, want) {
				d.t.Errorf("the log has %x, the queue %x", got, want)
			}
			d.checkLiving()
		}
	}
	return ops
}

// lose makes some messages unreadable.
func (d *duel) lose(at Time) bool {
	live := d.m.live()
	if len(live) == 0 {
		return true
	}
	first := live[d.r.IntN(len(live))]
	e := Extent{SeqRange: SeqRange{first, first + Seq(d.r.IntN(4))}}
	d.note("%d lost %x", at, e.SeqRange)
	d.holes = true
	n := uint64(0)
	queues := d.m.queues()
	for i, q := range append(queues, &d.m.delayed, &d.m.kept) {
		*q = slices.DeleteFunc(*q, func(x *modelMessage) bool {
			if x.seq < e.First || x.seq > e.Last {
				return false
			}
			n++
			if !x.returned && i < len(queues) {
				e.Count++
				e.Octets += uint64(x.size)
				if x.expiry != 0 {
					e.Expiring++
				}
			}
			d.log.free(x.seq)
			return true
		})
	}
	d.log.warm()
	d.m.warm()
	if got := d.do(func(s *State, fx *Effects) any { return s.Lost(at, e, fx) }); got != n {
		d.t.Errorf("lost %v, want %d", got, n)
	}
	return d.compare(d.m.command(at, nil))
}

// checkLiving compares what is alive.
func (d *duel) checkLiving() {
	var got []Seq
	d.living = d.s.Living(d.living)
	for i, r := range d.living {
		for seq := r.First; seq <= r.Last; seq++ {
			got = append(got, seq)
		}
		if i > 0 && d.living[i-1].Last+1 >= r.First {
			d.t.Errorf("%x touch or overlap", d.living)
		}
	}
	want := d.m.live()
	if !d.holes && !slices.Equal(got, want) {
		d.t.Errorf("alive are %x, want %x", got, want)
	}
	for _, seq := range want {
		if !d.living.Any(seq, seq) {
			d.t.Errorf("%x is not among the living %x", seq, d.living)
		}
	}
	if len(got) == 0 {
		return
	}
	first, last := got[d.r.IntN(len(got))]-Seq(d.r.IntN(3)), got[d.r.IntN(len(got))]+Seq(d.r.IntN(3))
	first, last = min(first, last), max(first, last)
	var some []Seq
	for r := range d.living.Within(first, last) {
		for seq := r.First; seq <= r.Last; seq++ {
			some = append(some, seq)
		}
	}
	got = slices.DeleteFunc(got, func(seq Seq) bool { return seq < first || seq > last })
	if !slices.Equal(some, got) || d.living.Any(first, last) != (len(got) > 0) {
		d.t.Errorf("alive from %x to %x are %x, want %x", first, last, some, got)
	}
	if len(got) > 0 {
		low, ok := d.living.Low(got[0].Level())
		if i := slices.IndexFunc(want, func(seq Seq) bool { return seq.Level() == got[0].Level() }); !d.holes && (!ok || low != want[i]) {
			d.t.Errorf("the lowest of level %d is %x, want %x", got[0].Level(), low, want[i])
		}
	}
}

// TestStateAgainstModel runs about a million random commands. WARREN_QUEUE_SECONDS=n goes on for n seconds instead,
// WARREN_QUEUE_SEED=n runs one duel.
func TestStateAgainstModel(t *testing.T) {
	if v := os.Getenv("WARREN_QUEUE_SEED"); v != "" {
		seed, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		makeDuel(t, seed, seed%2 == 1).run(seed)
		return
	}
	first, want, until := uint64(0), 1_000_000, time.Now().Add(time.Hour)
	if testing.Short() {
		want = 50_000
	}
	if v := os.Getenv("WARREN_QUEUE_SECONDS"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		first, want, until = rand.Uint64(), 1<<60, time.Now().Add(time.Duration(n)*time.Second)
	}
	ops, seed := 0, first
	for ; ops < want && time.Now().Before(until); seed++ {
		ops += makeDuel(t, seed, seed%2 == 1).run(seed)
	}
	t.Logf("%d commands, seeds %d to %d", ops, first, seed-1)
}

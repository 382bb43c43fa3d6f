package queue

import "testing"

// benchLog keeps the messages of one level in a ring, as little as a Log can do.
type benchLog struct {
	ring  [1 << 12]Meta
	first uint64 // lowest place that may be stored
	last  uint64
}

func (l *benchLog) Put(seq Seq, expiry Time, m *Message) {
	l.ring[seq%Seq(len(l.ring))] = Meta{Seq: seq, Expiry: expiry, Size: m.Size}
	l.last = uint64(seq)
}

func (l *benchLog) Next(after Seq) (Meta, bool) {
	for p := uint64(after) + 1; p <= l.last; p++ {
		if m := l.ring[p%uint64(len(l.ring))]; uint64(m.Seq) == p {
			return m, true
		}
	}
	return Meta{}, false
}

func (l *benchLog) Resident(Seq) bool { return true }

var unlimited = Config{TTL: -1, MaxLength: -1, MaxBytes: -1, DeliveryLimit: -1}

func benchBatch(n int) []Message {
	batch := make([]Message, n)
	for i := range batch {
		batch[i] = Message{Size: 16, TTL: -1}
	}
	return batch
}

// flow publishes a batch, lets the consumers take and acknowledge it, and starts anew.
type flow struct {
	s      *State
	fx     Effects
	batch  []Message
	ids    []ConsumerID
	acked  []DeliveryID
	noAck  bool
	ranges [1]Range
}

func newFlow(consumers int, noAck bool) *flow {
	return newFlowOf(New(Rules{}, unlimited, &benchLog{}), consumers, noAck)
}

// quorumFlow is that of a quorum queue whose consumers may take their time.
func quorumFlow(consumers int) *flow {
	config := unlimited
	config.ConsumerTimeout, config.DeliveryLimit = 1_800_000, 20
	return newFlowOf(New(QuorumRules(), config, &benchLog{}), consumers, false)
}

func newFlowOf(s *State, consumers int, noAck bool) *flow {
	f := &flow{s: s, batch: benchBatch(256), noAck: noAck}
	for range consumers {
		id, _ := f.s.Attach(1, ConsumerSpec{NoAck: noAck, Prefetch: 1000}, &f.fx)
		f.ids, f.acked = append(f.ids, id), append(f.acked, 0)
	}
	return f
}

func (f *flow) step() {
	f.fx.Reset()
	f.s.Publish(1, f.batch, &f.fx)
	if len(f.fx.Deliver) != len(f.batch) {
		panic("not delivered")
	}
	if !f.noAck {
		for _, d := range f.fx.Deliver {
			f.ranges[0].Last = max(f.ranges[0].Last, d.ID)
		}
		for i, id := range f.ids {
			f.fx.Reset()
			f.s.Settle(1, id, []Range{{f.acked[i] + 1, f.acked[i] + 256}}, Ack, &f.fx)
			f.acked[i] = f.s.consumer(id).lastID
		}
	}
	for _, id := range f.ids {
		f.fx.Reset()
		f.s.Ready(1, id, &f.fx)
	}
}

// backlog publishes a batch with nobody there, and drains it by one Ready.
func (f *flow) backlog() {
	f.fx.Reset()
	f.s.Block(f.ids[0])
	f.s.Publish(1, f.batch, &f.fx)
	f.s.Ready(1, f.ids[0], &f.fx)
	if len(f.fx.Deliver) != len(f.batch) {
		panic("not delivered")
	}
	f.fx.Reset()
	f.s.Settle(1, f.ids[0], []Range{{1, 1 << 62}}, Ack, &f.fx)
	f.s.Ready(1, f.ids[0], &f.fx)
}

func BenchmarkState(b *testing.B) {
	per := func(step func()) func(*testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				step()
				n += 256
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/msg")
		}
	}
	b.Run("NoAck/1", per(newFlow(1, true).step))
	b.Run("NoAck/10", per(newFlow(10, true).step))
	b.Run("Ack/1", per(newFlow(1, false).step))
	b.Run("Ack/10", per(newFlow(10, false).step))
	b.Run("Quorum/1", per(quorumFlow(1).step))
	b.Run("Quorum/10", per(quorumFlow(10).step))
	b.Run("Backlog/NoAck", per(newFlow(1, true).backlog))
	b.Run("Backlog/Ack", per(newFlow(1, false).backlog))
}

func BenchmarkEncode(b *testing.B) {
	idle := newFlow(1, false)
	idle.step()
	busy := newFlow(1, false)
	busy.s.Publish(1, benchBatch(200), &busy.fx)
	for id := range DeliveryID(200) {
		if id%4 == 0 {
			busy.s.Settle(1, 1, []Range{{id, id}}, Ack, &busy.fx)
		}
	}
	for name, s := range map[string]*State{"Idle": idle.s, "InFlight/150": busy.s} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var record []byte
			for b.Loop() {
				record = s.Encode(record[:0])
			}
			b.ReportMetric(float64(len(record)), "octets")
		})
	}
}

func BenchmarkSnapshot(b *testing.B) {
	idle := quorumFlow(1)
	idle.step()
	busy := quorumFlow(10)
	busy.s.Publish(1, benchBatch(10_000), &busy.fx)
	for name, s := range map[string]*State{"Idle": idle.s, "InFlight/10000": busy.s} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var snapshot []byte
			for b.Loop() {
				snapshot = s.AppendSnapshot(snapshot[:0])
			}
			b.ReportMetric(float64(len(snapshot)), "octets")
		})
	}
}

func TestStateDoesNotAllocate(t *testing.T) {
	for name, step := range map[string]func(){
		"no-ack, one consumer": newFlow(1, true).step, "no-ack, ten": newFlow(10, true).step,
		"ack, one": newFlow(1, false).step, "ack, ten": newFlow(10, false).step,
		"quorum, one": quorumFlow(1).step, "quorum, ten": quorumFlow(10).step,
		"backlog, no-ack": newFlow(1, true).backlog, "backlog, ack": newFlow(1, false).backlog,
	} {
		for range 20 {
			step()
		}
		if n := testing.AllocsPerRun(100, step); n != 0 {
			t.Errorf("%s: %v allocations in a batch", name, n)
		}
	}
}

package stream

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/warrenmq/warren/amqp"
	"github.com/warrenmq/warren/storage"
	"github.com/warrenmq/warren/test/seeds"
)

func TestParseSpec(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_500)
	str := amqp.StringValue
	for _, c := range []struct {
		v    amqp.Value
		want Spec
	}{
		{amqp.Value{}, Spec{Kind: Next}},
		{str("first"), Spec{Kind: First}},
		{str("last"), Spec{Kind: Last}},
		{amqp.Value{Tag: amqp.TagBinary, Raw: []byte("next")}, Spec{Kind: Next}},
		{str("stored"), Spec{Kind: Stored}},
		{amqp.Int64Value(0), Spec{Kind: At}},
		{amqp.Value{Tag: amqp.TagUint8, Raw: []byte{200}}, Spec{Kind: At, N: 200}},
		{amqp.Int64Value(-7), Spec{Kind: FromEnd, N: 7}},
		{amqp.Int64Value(-1 << 63), Spec{Kind: FromEnd, N: 1 << 63}},
		{amqp.TimeValue(1_600_000_000), Spec{Kind: Since, Since: 1_600_000_000_000}},
		{amqp.TimeValue(1 << 63), Spec{Kind: Since, Since: 1<<63 - 1}},
		{str("1h"), Spec{Kind: Since, Since: 1_700_000_000_500 - 3_600_000}},
		{str("90s"), Spec{Kind: Since, Since: 1_700_000_000_500 - 90_000}},
		{str("7D"), Spec{Kind: Since, Since: 1_700_000_000_500 - 7*86_400_000}},
		{str("2023-11-14T22:13:20.678Z"), Spec{Kind: Since, Since: 1_700_000_000_678}},
		{str("2023-11-14T23:13:20+01:00"), Spec{Kind: Since, Since: 1_700_000_000_000}},
		{str("2023-11-14T22:13:20.6780001Z"), Spec{Kind: Since, Since: 1_700_000_000_679}},
	} {
		if got, err := ParseSpec(c.v, now); err != nil || got != c.want {
			t.Errorf("%s %q: %+v, %v, want %+v", c.v.TypeName(), c.v.Raw, got, err, c.want)
		}
	}
	for _, v := range []amqp.Value{str(""), str("First"), str("foo"), str("7d"), str("1w"), str("0s"), str("3"), str("-1h"), str("1.5h"),
		str("2023-11-14"), str("2023-11-14 22:13:20"), amqp.BoolValue(true), {Tag: amqp.TagVoid}, {Tag: amqp.TagDouble, Raw: make([]byte, 8)},
		{Tag: amqp.TagDecimal, Raw: make([]byte, 5)}, amqp.ArrayValue(nil), amqp.TableValue(nil)} {
		if got, err := ParseSpec(v, now); !errors.Is(err, ErrOffset) {
			t.Errorf("%s %q: %+v, %v", v.TypeName(), v.Raw, got, err)
		}
	}
}

func TestParseAge(t *testing.T) {
	for s, want := range map[string]int64{"1s": 1000, "05m": 300_000, "2M": 2 * 30 * 86_400_000, "1Y": 365 * 86_400_000,
		"99999999999999999999999Y": 1e14, "99999999999s": 99_999_999_999_000} {
		if got, err := ParseAge(s); err != nil || got != want {
			t.Errorf("%s: %d, %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "s", "5", "0D", "7d", "1w", "1 h", "1hh", "+1h", "1H"} {
		if got, err := ParseAge(s); !errors.Is(err, ErrAge) {
			t.Errorf("%q: %d, %v", s, got, err)
		}
	}
}

// TestResolve looks every kind of place up.
func TestResolve(t *testing.T) {
	m := newModel(seeds.Of(t))
	l, _ := openLog(t, storage.NewFaultFS(1), Options{SegmentBytes: 10_000})
	resolve := func(s Spec) uint64 {
		t.Helper()
		n, err := l.Resolve(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, k := range []Kind{First, Last, Next, FromEnd} {
		if n := resolve(Spec{Kind: k}); n != 0 {
			t.Errorf("kind %d of an empty log is %d", k, n)
		}
	}
	if n := resolve(Spec{Kind: Since}); n != 0 {
		t.Error(n)
	}
	fill(t, m, l, 50, 4, 500)
	l.Cut(60)
	first := l.First()
	if first == 0 || first > 60 {
		t.Fatal(first)
	}
	for s, want := range map[Spec]uint64{
		{Kind: First}:                 first,
		{Kind: Last}:                  196,
		{Kind: Next}:                  200,
		{Kind: At, N: 3}:              first,
		{Kind: At, N: 150}:            150,
		{Kind: At, N: 1000}:           1000,
		{Kind: FromEnd, N: 1}:         199,
		{Kind: FromEnd, N: 140}:       max(first, 60),
		{Kind: FromEnd, N: 1000}:      first,
		{Kind: Since}:                 first,
		{Kind: Since, Since: 1 << 60}: 200,
	} {
		if got := resolve(s); got != want {
			t.Errorf("%+v: %d, want %d", s, got, want)
		}
	}
	if _, err := l.Resolve(Spec{Kind: Stored}); !errors.Is(err, ErrOffset) {
		t.Error(err)
	}
	r := l.Read(202, Filter{}) // beyond the end: what comes before is passed over
	var rec Record
	if err := r.Next(&rec); !errors.Is(err, ErrEnd) || r.Offset() != 202 {
		t.Fatal(err, r.Offset())
	}
	m.append(t, l, m.build(2, 10))
	if err := r.Next(&rec); !errors.Is(err, ErrEnd) {
		t.Fatal(err)
	}
	m.append(t, l, m.build(2, 10))
	if err := r.Next(&rec); err != nil || rec.Offset != 202 {
		t.Fatal(err, rec)
	}
}

// TestSince looks times up against a naive scan, in many small segments, with a clock that is set back and forth.
func TestSince(t *testing.T) {
	seed := seeds.Of(t)
	for round := range rounds(40) {
		rng := rand.New(rand.NewPCG(seed, uint64(round)))
		m := newModel(seed)
		fs := storage.NewFaultFS(1)
		l, _ := openLog(t, fs, Options{SegmentBytes: 1 + rng.Int64N(300_000)})
		for range rng.IntN(300) {
			if rng.IntN(10) == 0 {
				m.clock += rng.Int64N(200_000) - 100_000
			}
			if rng.IntN(30) == 0 {
				if err := l.Sync(); err != nil {
					t.Fatal(err)
				}
			}
			m.append(t, l, m.build(1, 4000))
		}
		if rng.IntN(2) == 0 && m.next > 0 {
			l.Cut(rng.Uint64N(m.next))
		}
		first := l.First()
		ask := func(at int64) {
			t.Helper()
			if got, err := l.Resolve(Spec{Kind: Since, Since: at}); err != nil || got != m.since(first, at) {
				t.Fatalf("round %d: since %d: %d, %v, want %d", round, at, got, err, m.since(first, at))
			}
		}
		for _, c := range m.chunks {
			at, ok, err := l.TimeOf(c.first)
			if want := c.first >= first; err != nil || ok != want || want && at != c.time {
				t.Fatalf("the time of %d: %d, %v, %v, want %d", c.first, at, ok, err, c.time)
			}
			ask(c.time)
			ask(c.time + 1)
		}
		for range 50 {
			ask(1_700_000_000_000 + rng.Int64N(1_000_000) - 300_000)
		}
	}
}

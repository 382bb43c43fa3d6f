package stream

import (
	"errors"
	"math"
	"time"

	"github.com/warrenmq/warren/amqp"
)

// Kind says how a Spec names a place.
type Kind uint8

// The kinds of places.
const (
	Next    Kind = iota // what comes from now on
	First               // the oldest record
	Last                // the first record of the last chunk
	At                  // an offset
	FromEnd             // so many records from the end
	Since               // the first chunk of that time or later
	Stored              // behind what the consumer has acknowledged
)

// Spec is where a consumer wants to start. The zero value is Next.
type Spec struct {
	Kind  Kind
	N     uint64 // of At and FromEnd
	Since int64  // milliseconds since 1970
}

// ErrOffset is of an x-stream-offset that says nothing.
var ErrOffset = errors.New("stream: invalid offset")

// ParseSpec reads the consumer argument x-stream-offset (docs/design/streams.md). The zero Value is Next. now is for intervals.
func ParseSpec(v amqp.Value, now time.Time) (Spec, error) {
	if n, ok := v.Int(); ok {
		if n < 0 {
			return Spec{Kind: FromEnd, N: uint64(-n)}, nil
		}
		return Spec{Kind: At, N: uint64(n)}, nil
	}
	if s, ok := v.Timestamp(); ok {
		if s > math.MaxInt64/1000 {
			return Spec{Kind: Since, Since: math.MaxInt64}, nil
		}
		return Spec{Kind: Since, Since: int64(s) * 1000}, nil
	}
	if b, ok := v.Bytes(); ok {
		return parseText(string(b), now)
	}
	if v.Tag == 0 {
		return Spec{}, nil
	}
	return Spec{}, ErrOffset
}

func parseText(s string, now time.Time) (Spec, error) {
	switch s {
	case "first":
		return Spec{Kind: First}, nil
	case "last":
		return Spec{Kind: Last}, nil
	case "next":
		return Spec{Kind: Next}, nil
	case "stored":
		return Spec{Kind: Stored}, nil
	}
	if age, err := ParseAge(s); err == nil {
		return Spec{Kind: Since, Since: now.UnixMilli() - age}, nil
	}
	t, err := time.Parse(time.RFC3339, s) // which takes fractions of a second, too
	if err != nil {
		return Spec{}, ErrOffset
	}
	at := t.UnixMilli()
	if t.Nanosecond()%1e6 != 0 {
		at++ // chunks of the millisecond before are earlier
	}
	return Spec{Kind: Since, Since: at}, nil
}

// ErrAge is of an age that is none.
var ErrAge = errors.New("stream: invalid age")

// ParseAge reads a number above 0 and one of the units Y (365 days), M (30 days), D, h, m, s, the grammar of x-max-age, as
// milliseconds. What exceeds a hundred thousand million seconds counts as that.
func ParseAge(s string) (ms int64, err error) {
	const most = 1e11
	if len(s) < 2 {
		return 0, ErrAge
	}
	n := int64(0)
	for _, c := range []byte(s[:len(s)-1]) {
		if c < '0' || c > '9' {
			return 0, ErrAge
		}
		n = min(n*10+int64(c-'0'), most)
	}
	unit := int64(1)
	switch s[len(s)-1] {
	case 'Y':
		unit = 365 * 86400
	case 'M':
		unit = 30 * 86400
	case 'D':
		unit = 86400
	case 'h':
		unit = 3600
	case 'm':
		unit = 60
	case 's':
	default:
		return 0, ErrAge
	}
	if n == 0 {
		return 0, ErrAge
	}
	if n > most/unit {
		return most * 1000, nil
	}
	return n * unit * 1000, nil
}

// Resolve finds the offset that a Spec means now; a reader that begins there begins where the Spec says. Stored is for
// Offsets.Start to resolve, and ErrOffset here. Offsets below First are raised to it; those beyond Next stay.
func (l *Log) Resolve(s Spec) (uint64, error) {
	first, next := l.Range()
	switch s.Kind {
	case Next:
		return next, nil
	case First:
		return first, nil
	case At:
		return max(s.N, first), nil
	case FromEnd:
		if s.N >= next-first {
			return first, nil
		}
		return next - s.N, nil
	case Last:
		return l.last()
	case Since:
		return l.since(s.Since)
	}
	return 0, ErrOffset
}

// last is the first offset of the last chunk.
func (l *Log) last() (uint64, error) {
	first, segs := l.First(), l.snapshot()
	for i := len(segs) - 1; i >= 0; i-- {
		s := segs[i]
		if s.end.chunks == 0 {
			continue
		}
		found := s.base
		_, err := l.seekIn(s, func(b boundary) bool { return b.offset < s.end.offset }, func(b boundary, _ Header) bool {
			found = b.offset
			return false
		})
		if err != nil && !isDamage(err) {
			return l.retry(err, first, l.last)
		}
		return found, nil
	}
	return l.Next(), nil
}

// since is the first offset of the first chunk of a time or later, Next if there is none. Clocks may have stepped back: the
// first chunk of time ≥ t is the first at which the greatest time so far is ≥ t.
func (l *Log) since(t int64) (uint64, error) {
	first := l.First()
	for _, s := range l.snapshot() {
		if s.end.chunks == 0 || s.end.max < t {
			continue
		}
		b, err := l.seekIn(s, func(b boundary) bool { return b.max < t }, func(_ boundary, h Header) bool { return h.Time >= t })
		if err != nil && !isDamage(err) {
			return l.retry(err, first, func() (uint64, error) { return l.since(t) })
		}
		return b.offset, nil // damaged: a reader will find that out
	}
	return l.Next(), nil
}

// TimeOf is the time of the chunk that has an offset, in milliseconds since 1970; false if there is none, or it is damaged. The
// difference to LastTime is how far a consumer that is there lags.
func (l *Log) TimeOf(offset uint64) (ms int64, ok bool, err error) {
	l.mu.Lock()
	i := segmentOf(l.segs, offset)
	if i < 0 || offset >= l.segs[i].end.offset {
		l.mu.Unlock()
		return 0, false, nil
	}
	s := *l.segs[i]
	l.mu.Unlock()
	_, err = l.seekIn(s, func(b boundary) bool { return b.offset <= offset }, func(_ boundary, h Header) bool {
		ms, ok = h.Time, h.Next() > offset
		return ok
	})
	if isDamage(err) || gone(err) {
		return 0, false, nil
	}
	return ms, ok && err == nil, err
}

// retry is for what may have failed because the segment was cut meanwhile.
func (l *Log) retry(err error, first uint64, again func() (uint64, error)) (uint64, error) {
	if gone(err) && l.First() != first {
		return again()
	}
	return 0, err
}

// seekIn walks over a segment's chunks from the last boundary in the index that is before, to the first chunk for which stop
// holds.
func (l *Log) seekIn(s segment, before func(boundary) bool, stop func(boundary, Header) bool) (boundary, error) {
	b := startOf(s.base)
	if s.end.pos > fileHeader {
		var x *openFile
		var err error
		if s.index.n > 0 {
			if x, err = l.o.Files.get(fileName(l.dir, s.base, indexSuffix)); err != nil && !gone(err) {
				return b, err
			}
			if x == nil { // made anew with the next start
				s.index.n = 0
			}
		}
		b, err = s.index.search(fileOf(x), s.base, func(b boundary) bool { return b.pos <= s.end.pos && before(b) })
		if x != nil {
			l.o.Files.put(x)
		}
		if err != nil {
			return b, err
		}
	}
	f, err := l.o.Files.get(fileName(l.dir, s.base, segmentSuffix))
	if err != nil {
		return b, err
	}
	defer l.o.Files.put(f)
	w := headers{f: f, limit: s.end.pos}
	return w.seek(b, stop)
}

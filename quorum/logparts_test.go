package quorum

import (
	"math"
	"testing"

	"github.com/lni/dragonboat/v4/raftio"
	"github.com/lni/dragonboat/v4/raftpb"
)

// listLog is a log of entries of one size.
type listLog struct {
	raftio.ILogDB
	size, last uint64
	read       uint64 // entries
}

func (l *listLog) IterateEntries(ents []raftpb.Entry, size, _, _, low, high, maxSize uint64) ([]raftpb.Entry, uint64, error) {
	for i := low; i < high && i <= l.last; i++ {
		l.read++
		ents = append(ents, raftpb.Entry{Index: i})
		if size += l.size; size > maxSize {
			break
		}
	}
	return ents, size, nil
}

// TestLogParts: what a member lacks is read in parts, and that there is more is told in the way of the log.
func TestLogParts(t *testing.T) {
	for _, c := range []struct {
		name                         string
		size, last, low, high, bound uint64
		want                         int
		more                         bool
	}{
		{"little", 100, 50, 1, 51, 64 << 20, 50, false},
		{"one part", 100, 128, 1, 129, 64 << 20, 128, false},
		{"many", 100, 5000, 1, 5001, 64 << 20, 128, true},
		{"from the middle", 100, 5000, 4990, 5001, 64 << 20, 11, false},
		{"large ones", 256 << 10, 5000, 1, 5001, 64 << 20, 5, true},
		{"a bound below that of parts", 1000, 5000, 1, 5001, 3500, 4, true},
		{"a gap stays one", 100, 20, 1, 51, 64 << 20, 20, false},
		{"without a bound", 100, 5000, 1, 5001, math.MaxUint64, 5000, false},
	} {
		l := &listLog{size: c.size, last: c.last}
		ents, size, err := logParts{l}.IterateEntries(nil, 0, 16, 1, c.low, c.high, c.bound)
		if err != nil || len(ents) != c.want || ents[0].Index != c.low || (size > c.bound) != c.more || l.read != uint64(c.want) {
			t.Errorf("%s: %d entries of %d read, size %d, %v", c.name, len(ents), l.read, size, err)
		}
	}
}

package stream

import (
	"errors"

	"github.com/warrenmq/warren/amqp"
)

// Filter is what a consumer wants to see. The zero value wants everything.
type Filter struct {
	// Values are what it looks for (x-stream-filter). An empty value looks for records without one.
	Values [][]byte
	// Unfiltered are records without a value, too (x-stream-match-unfiltered).
	Unfiltered bool
}

// Match reports whether a chunk with this bloom filter, nil for none, may have something that the consumer wants.
func (f *Filter) Match(bloom []byte) bool {
	if len(f.Values) == 0 {
		return true
	}
	unfiltered := len(bloom) == 0 || bloom[0]&1 != 0
	if f.Unfiltered && unfiltered {
		return true
	}
	for _, v := range f.Values {
		if len(v) == 0 {
			if unfiltered {
				return true
			}
			continue
		}
		if len(bloom) == 0 {
			continue
		}
		x, y := bloomBits(v, len(bloom))
		if bloom[x/8]&(1<<(x%8)) != 0 && bloom[y/8]&(1<<(y%8)) != 0 {
			return true
		}
	}
	return false
}

// ErrFilter is of an x-stream-filter that is an array without elements, or with some that are no strings.
var ErrFilter = errors.New("stream: invalid filter")

// ParseFilter reads the consumer arguments x-stream-filter and x-stream-match-unfiltered, either of which may be the zero Value.
// A string or an array of strings is a filter; anything else but an array is none. The filter has copies.
func ParseFilter(values, unfiltered amqp.Value) (f Filter, err error) {
	if s, ok := values.Str(); ok {
		f.Values = [][]byte{append([]byte{}, s...)}
	}
	if a, ok := values.Array(); ok {
		for v := range a.All() {
			s, ok := v.Str()
			if !ok {
				return Filter{}, ErrFilter
			}
			f.Values = append(f.Values, append([]byte{}, s...))
		}
		if len(f.Values) == 0 {
			return Filter{}, ErrFilter
		}
	}
	if len(f.Values) > 0 {
		f.Unfiltered, _ = unfiltered.Bool()
	}
	return f, nil
}

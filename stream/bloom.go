package stream

// The sizes of a filter in octets (x-stream-filter-size-bytes).
const (
	MinFilterSize     = 16
	MaxFilterSize     = 255
	DefaultFilterSize = 16
)

// Bloom is the filter of a chunk while it is built: bit 0 says that there is a record without a value, and each value sets
// two of the others. Bit n is bit n%8, from the lowest, of octet n/8.
type Bloom struct {
	bits   [MaxFilterSize]byte
	size   uint8
	valued bool
}

// Reset empties the filter, and gives it a size; below MinFilterSize there is none.
func (b *Bloom) Reset(size uint8) {
	if size < MinFilterSize {
		size = 0
	}
	clear(b.bits[:b.size])
	b.size, b.valued = size, false
}

// Add adds the value of a record; an empty one is none.
func (b *Bloom) Add(value []byte) {
	if b.size == 0 {
		return
	}
	if len(value) == 0 {
		b.bits[0] |= 1
		return
	}
	b.valued = true
	x, y := bloomBits(value, int(b.size))
	b.bits[x/8] |= 1 << (x % 8)
	b.bits[y/8] |= 1 << (y % 8)
}

// Bytes is the filter, nil if no record has a value. It is a view.
func (b *Bloom) Bytes() []byte {
	if !b.valued {
		return nil
	}
	return b.bits[:b.size]
}

// bloomBits are the two bits of a value in a filter of size octets.
func bloomBits(value []byte, size int) (x, y uint32) {
	h := uint64(14695981039346656037) // FNV-1a
	for _, c := range value {
		h = (h ^ uint64(c)) * 1099511628211
	}
	h ^= h >> 33 // and MurmurHash3's finalizer, so that both halves depend on all of it
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	n := uint32(8*size - 1)
	return 1 + uint32(h)%n, 1 + uint32(h>>32)%n
}

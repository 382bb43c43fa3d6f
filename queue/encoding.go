package queue

import (
	"encoding/binary"

	"github.com/warrenmq/warren/octet"
)

// MaxConfig is at most how many octets AppendConfig appends.
const MaxConfig = 96

// AppendConfig appends limits as nodes send and keep them.
func AppendConfig(dst []byte, c *Config) []byte {
	dst = binary.AppendVarint(dst, c.TTL)
	dst = binary.AppendVarint(dst, c.MaxLength)
	dst = binary.AppendVarint(dst, c.MaxBytes)
	dst = append(dst, byte(c.Overflow))
	dst = binary.AppendVarint(dst, c.DeliveryLimit)
	dst = append(dst, octet.Of(c.SingleActive)|octet.Of(c.KeepDiscards)<<1, byte(c.DelayType))
	dst = binary.AppendVarint(dst, c.DelayMin)
	dst = binary.AppendVarint(dst, c.DelayMax)
	return binary.AppendVarint(dst, c.ConsumerTimeout)
}

// ReadConfig takes limits.
func ReadConfig(r *octet.Reader) (c Config) {
	c.TTL, c.MaxLength, c.MaxBytes = r.Varint(), r.Varint(), r.Varint()
	c.Overflow = Overflow(r.Below(byte(RejectPublishDLX) + 1))
	c.DeliveryLimit = r.Varint()
	flags := r.Below(4)
	c.SingleActive, c.KeepDiscards = flags&1 != 0, flags&2 != 0
	c.DelayType = DelayType(r.Below(byte(DelayReturned) + 1))
	c.DelayMin, c.DelayMax, c.ConsumerTimeout = r.Varint(), r.Varint(), r.Varint()
	return c
}

// AppendRanges appends ascending ranges: how many, and for each how far it is behind the last one, and its length.
func AppendRanges(dst []byte, rs []Range) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(rs)))
	last := uint64(0)
	for _, r := range rs {
		dst = binary.AppendUvarint(dst, r.First-last)
		dst = binary.AppendUvarint(dst, r.Last-r.First)
		last = r.Last
	}
	return dst
}

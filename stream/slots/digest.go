package slots

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
)

// Digest is a sum of the replicated state of a slot, but for what the messages say, and the index of the entry applied last: replicas
// at the same index have the same sum.
func (h *Host) Digest(slot int) (applied uint64, sum string) {
	h.mu.Lock()
	m := h.slots[slot].machine
	h.mu.Unlock()
	return m.digest()
}

func (m *machine) digest() (applied uint64, sum string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := sha256.New()
	d.Write(m.common(nil))
	var b []byte
	for _, id := range slices.Sorted(maps.Keys(m.streams)) {
		b = m.streams[id].record(binary.BigEndian.AppendUint64(b[:0], id))
		d.Write(b)
	}
	return m.applied, hex.EncodeToString(d.Sum(nil)[:16])
}

package quorum

// SlotOf is the slot that a queue lies in. There must be slots.
func (h *Host) SlotOf(id uint64) int { return int(id % uint64(max(h.SlotCount(), 1))) }

// Leads reports whether this node carries out what is done once for a queue.
func (h *Host) Leads(id uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.slots) == 0 {
		return false
	}
	m := h.slots[id%uint64(len(h.slots))].machine
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leading()
}

// StartMeta starts this node's replica of metadata.
func (h *Host) StartMeta(o MetaOptions) (*Meta, error) {
	engine, err := h.raft()
	if err != nil {
		return nil, err
	}
	o.Node, o.Boot, o.Log = h.o.Node, h.boot, h.o.Log
	h.mu.Lock()
	o.pace = paceOf(h.tick)
	h.mu.Unlock()
	return StartMeta(engine, o)
}

package storage

import (
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A faultFile is an open file of a FaultFS.
type faultFile struct {
	fs     *FaultFS
	node   *faultNode
	name   string
	closed bool
}

func (h *faultFile) begin(e Event) (*Fault, error) {
	e.Name = h.name
	fault, err := h.fs.begin(e)
	if err == nil && h.closed {
		err = fs.ErrClosed
	}
	return fault, err
}

func (h *faultFile) ReadAt(p []byte, off int64) (int, error) {
	fault, err := h.begin(Event{Op: OpRead, Offset: off, Length: len(p)})
	defer h.fs.mu.Unlock()
	if err != nil {
		return 0, pathError("read", h.name, err)
	}
	n := 0
	if off < int64(len(h.node.data)) {
		n = copy(p, h.node.data[off:])
	}
	if fault != nil {
		return min(n, fault.Short), pathError("read", h.name, fault.Err)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (h *faultFile) WriteAt(p []byte, off int64) (int, error) {
	fault, err := h.begin(Event{Op: OpWrite, Offset: off, Length: len(p)})
	defer h.fs.mu.Unlock()
	if err != nil {
		return 0, pathError("write", h.name, err)
	}
	if fault != nil {
		n := min(fault.Short, len(p))
		h.write(p[:n], off)
		return n, pathError("write", h.name, fault.Err)
	}
	if h.fs.limited {
		if room := int64(len(h.node.data)) + max(h.fs.space, 0) - off; room < int64(len(p)) {
			n := int(max(room, 0))
			h.write(p[:n], off)
			return n, pathError("write", h.name, unix.ENOSPC)
		}
	}
	h.write(p, off)
	return len(p), nil
}

func (h *faultFile) write(p []byte, off int64) {
	if len(p) == 0 {
		return
	}
	before := len(h.node.data)
	h.do(dataChange{off, slices.Clone(p)})
	h.fs.space -= int64(len(h.node.data) - before)
}

func (h *faultFile) do(c dataChange) {
	h.node.data = c.apply(h.node.data)
	h.node.change = append(h.node.change, c)
}

func (h *faultFile) Size() (int64, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.fs.dead {
		return 0, pathError("stat", h.name, ErrDead)
	}
	return int64(len(h.node.data)), nil
}

func (h *faultFile) Truncate(size int64) error {
	fault, err := h.begin(Event{Op: OpTruncate, Offset: size})
	defer h.fs.mu.Unlock()
	if err == nil && fault != nil {
		err = fault.Err
	}
	if err != nil {
		return pathError("truncate", h.name, err)
	}
	h.fs.space -= size - int64(len(h.node.data))
	h.do(dataChange{off: size})
	return nil
}

// SyncData implements File. As on Linux, when it fails the pages are taken for clean all the same: what they hold may or may
// not have reached the disk, and a later sync that succeeds does not bring it there.
func (h *faultFile) SyncData() error {
	fault, err := h.begin(Event{Op: OpSync})
	defer h.fs.mu.Unlock()
	if err != nil {
		return pathError("fdatasync", h.name, err)
	}
	node, lies := h.node, strings.Contains(h.name, h.fs.sabotage.Name)
	switch {
	case fault != nil:
		for _, c := range node.change {
			node.disk = c.tear(node.disk, h.fs.rng)
		}
		node.change = nil
		return pathError("fdatasync", h.name, fault.Err)
	case h.fs.sabotage.NoSync && lies:
		return nil
	case h.fs.sabotage.DropWrite && lies && len(node.change) > 0:
		node.change = node.change[:len(node.change)-1]
	}
	for _, c := range node.change {
		node.disk = c.apply(node.disk)
	}
	node.change = nil
	return nil
}

func (h *faultFile) Close() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.closed {
		return pathError("close", h.name, fs.ErrClosed)
	}
	h.closed = true
	return nil
}

// apply makes the change in whole.
func (c dataChange) apply(data []byte) []byte {
	if c.data == nil {
		return resize(data, c.off)
	}
	if end := c.off + int64(len(c.data)); end > int64(len(data)) {
		data = resize(data, end)
	}
	copy(data[c.off:], c.data)
	return data
}

// tear makes what a power cut leaves of the change: all, nothing, or some of its sectors.
func (c dataChange) tear(data []byte, rng *rand.Rand) []byte {
	how := rng.IntN(4)
	if how == 0 {
		return data
	}
	if how == 1 || c.data == nil {
		return c.apply(data)
	}
	end := c.off + int64(len(c.data))
	if rng.IntN(2) == 0 && end > int64(len(data)) {
		data = resize(data, end) // the size went to the disk before the contents
	}
	for off := c.off; off < end; {
		next := min((off/Sector+1)*Sector, end)
		if rng.IntN(2) == 0 {
			data = dataChange{off, c.data[off-c.off : next-c.off]}.apply(data)
		}
		off = next
	}
	return data
}

func resize(data []byte, size int64) []byte {
	if size <= int64(len(data)) {
		return data[:size]
	}
	return append(data, make([]byte, size-int64(len(data)))...)
}

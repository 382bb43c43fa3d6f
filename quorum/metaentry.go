package quorum

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"

	sm "github.com/lni/dragonboat/v4/statemachine"

	"github.com/warrenmq/warren/octet"
	"github.com/warrenmq/warren/quorum/propose"
)

// An entry is a batch of commands of one member:
//
//	version u8 | node u64 | boot u64 | number u64 | count uvarint | count × (length uvarint, command)
//
// in little endian. It is the number-th of a start of a node, and applied if it is the next one of that start, as batches of
// slots are: what was proposed again is applied once, and in order. One of node 0 has no commands, and only moves the index.
const metaVersion = 1

type metaHeader struct{ node, boot, number uint64 }

const metaHeaderLen = 1 + 3*8

func (h metaHeader) append(dst []byte) []byte {
	dst = append(dst, metaVersion)
	for _, v := range [...]uint64{h.node, h.boot, h.number} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	return dst
}

func readMetaEntry(b []byte) (h metaHeader, commands [][]byte, err error) {
	if len(b) < metaHeaderLen {
		return h, nil, fmt.Errorf("%w: an entry of %d octets", errFormat, len(b))
	}
	if b[0] != metaVersion {
		return h, nil, fmt.Errorf("%w: an entry of version %d, and this node knows %d", errFormat, b[0], metaVersion)
	}
	field := func(i int) uint64 { return binary.LittleEndian.Uint64(b[1+8*i:]) }
	h = metaHeader{field(0), field(1), field(2)}
	for r := (octet.Reader{B: b[metaHeaderLen:]}); len(r.B) > 0; {
		commands = append(commands, r.Take(r.Uvarint()))
		if r.Bad {
			return h, nil, fmt.Errorf("%w: an entry that ends in a command", errFormat)
		}
	}
	return h, commands, nil
}

// metaOrigins are those of metadata, which answers once.
type metaOrigins = propose.Origins[struct{}]

func appendMetaOrigins(dst []byte, os metaOrigins) []byte {
	dst = append(dst, metaVersion)
	for _, o := range os {
		for _, v := range [...]uint64{o.Node, o.Boot, o.Last} {
			dst = binary.AppendUvarint(dst, v)
		}
	}
	return dst
}

func readMetaOrigins(b []byte) (os metaOrigins, err error) {
	if len(b) == 0 {
		return nil, nil
	}
	if b[0] != metaVersion {
		return nil, fmt.Errorf("%w: numbering of version %d, and this node knows %d", errFormat, b[0], metaVersion)
	}
	for r := (octet.Reader{B: b[1:]}); len(r.B) > 0; {
		os = append(os, &propose.Origin[struct{}]{Node: r.Uvarint(), Boot: r.Uvarint(), Last: r.Uvarint()})
		if r.Bad {
			return nil, fmt.Errorf("%w: numbering", errFormat)
		}
	}
	return os, nil
}

// metaMachine is the state machine of shard 1.
type metaMachine struct {
	store   MetaStore
	p       *metaProposer
	origins metaOrigins
}

// Open implements sm.IOnDiskStateMachine.
func (m *metaMachine) Open(<-chan struct{}) (uint64, error) {
	index, numbering := m.store.Applied()
	var err error
	m.origins, err = readMetaOrigins(numbering)
	return index, err
}

// Update implements sm.IOnDiskStateMachine. An error ends the process.
func (m *metaMachine) Update(entries []sm.Entry) ([]sm.Entry, error) {
	for i := range entries {
		e := &entries[i]
		h, commands, err := readMetaEntry(e.Cmd)
		if err != nil {
			return nil, fmt.Errorf("metadata, entry %d: %w", e.Index, err)
		}
		applied := h.node == 0
		if !applied {
			var o *propose.Origin[struct{}]
			if o, applied = m.origins.Next(propose.Header{Node: h.node, Boot: h.boot, Number: h.number}); o != nil {
				e.Result.Value = o.Last
			}
		}
		if !applied {
			commands = nil
		}
		results, err := m.store.ApplyEntry(e.Index, appendMetaOrigins(nil, m.origins), commands)
		if err != nil {
			return nil, fmt.Errorf("metadata, entry %d: %w", e.Index, err)
		}
		if applied && h.node == m.p.node && h.boot == m.p.boot {
			m.p.applied(h.number, results)
		}
	}
	return entries, nil
}

// Lookup implements sm.IOnDiskStateMachine: who asks wants to know when it may.
func (m *metaMachine) Lookup(any) (any, error) { return nil, nil }

// Sync implements sm.IOnDiskStateMachine.
func (m *metaMachine) Sync() error { return m.store.SyncEntries() }

// PrepareSnapshot implements sm.IOnDiskStateMachine. It comes between two calls of Update.
func (m *metaMachine) PrepareSnapshot() (any, error) { return m.store.Capture() }

// SaveSnapshot implements sm.IOnDiskStateMachine.
func (m *metaMachine) SaveSnapshot(capture any, w io.Writer, _ <-chan struct{}) error {
	_, err := io.Copy(w, bytes.NewReader(capture.([]byte)))
	return err
}

// RecoverFromSnapshot implements sm.IOnDiskStateMachine.
func (m *metaMachine) RecoverFromSnapshot(r io.Reader, _ <-chan struct{}) error {
	err := m.store.Restore(r)
	if err != nil {
		return err
	}
	_, numbering := m.store.Applied()
	if m.origins, err = readMetaOrigins(numbering); err != nil {
		return err
	}
	if o := m.origins.Of(m.p.node); o != nil && o.Boot == m.p.boot {
		m.p.applied(o.Last, nil)
	}
	return nil
}

// Close implements sm.IOnDiskStateMachine.
func (m *metaMachine) Close() error { return nil }

package quorum

import (
	"testing"

	sm "github.com/lni/dragonboat/v4/statemachine"

	"github.com/warrenmq/warren/quorum/propose"
	"github.com/warrenmq/warren/storage"
)

// entry is a batch of commands of node 1.
func entry(boot, number uint64, commands ...[]byte) []byte {
	b := make([]byte, propose.HeaderLen)
	h := propose.Header{At: 1, Node: 1, Boot: boot, Number: number}
	h.Put(b)
	for _, c := range commands {
		b = append(b, c...)
	}
	return b
}

func entries(bs ...[]byte) (list []sm.Entry) {
	for i, b := range bs {
		list = append(list, sm.Entry{Index: uint64(i + 1), Cmd: b})
	}
	return list
}

func create(id uint64) []byte {
	c := noLimits
	return appendConfig(append(appendCommand(nil, cmdCreate, id), rulesVersion), &c)
}

// TestDeletedButDeclared: a node was killed when a queue's deletion was in the log and not in metadata. The queue is there
// again, empty, and this node's.
func TestDeletedButDeclared(t *testing.T) {
	log := [][]byte{
		entry(1, 1, appendCommand(nil, cmdBegin, 0), create(7)),
		entry(1, 2, appendCommand(nil, cmdDelete, 7)),
	}
	for known := range 2 { // before anything is applied again, or in between
		r := newRig(t, 1, storage.NewFaultFS(1), 2)
		if known == 0 {
			r.know(7)
		}
		r.feed(log[:1], nil)
		r.know(7)
		r.feed(log, nil)
		if r.m.queues[7] != nil {
			t.Fatal("it was deleted")
		}
		r.feed(append(log, entry(2, 1, appendCommand(nil, cmdBegin, 0), create(7))), nil)
		if q := r.m.queues[7]; q == nil || q.local == nil || q.local != r.m.locals[7] {
			t.Fatal("nobody knows it")
		}
		// A deletion of this start is final.
		r.feed(append(log, entry(2, 1), entry(2, 2, appendCommand(nil, cmdDelete, 7))), nil)
		if r.m.queues[7] != nil || r.m.locals[7] != nil {
			t.Fatal("it is still there")
		}
	}
}

// TestOtherFormat: what a machine does not know ends it, rather than making it differ from others.
func TestOtherFormat(t *testing.T) {
	for name, b := range map[string][]byte{
		"version":   append([]byte{2}, entry(1, 1)[1:]...),
		"kind":      entry(1, 1, appendCommand(nil, 99, 0)),
		"short":     entry(1, 1)[:20],
		"cut":       entry(1, 1, create(7)[:5]),
		"rules":     entry(1, 1, append(appendCommand(nil, cmdCreate, 7), 9, 0)),
		"outcome":   entry(1, 1, append(appendCommand(nil, cmdSettle, 7), 1, 99, 0)),
		"no config": entry(1, 1, append(appendCommand(nil, cmdCreate, 7), rulesVersion, 0)),
	} {
		r := newRig(t, 1, storage.NewFaultFS(1), 1)
		if _, err := r.m.Update(entries(b)); err == nil {
			t.Errorf("%s: it goes on", name)
		}
	}
}

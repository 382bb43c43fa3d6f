package quorum

import (
	"bufio"
	"encoding/binary"
	"io"
	"sync/atomic"

	sm "github.com/lni/dragonboat/v4/statemachine"
)

// renewed is the state of a shard under a replica that goes on with what one before has left (votes.go). The Raft engine wants
// a replica whose log is empty to have an empty state, and gives it everything from the start, or a copy. So it is told that the
// state is empty, as long as the log is, and what the state has already is passed over.
type renewed struct {
	sm.IOnDiskStateMachine
	begin func() error  // writes down that the log is not empty any more
	begun bool          // that was done
	has   atomic.Uint64 // the entry up to which the state has all
	got   atomic.Uint64 // the last one that came under this replica
}

// Open implements sm.IOnDiskStateMachine.
func (r *renewed) Open(stop <-chan struct{}) (uint64, error) {
	index, err := r.IOnDiskStateMachine.Open(stop)
	if err != nil {
		return 0, err
	}
	r.has.Store(index)
	if !r.begun {
		return 0, nil
	}
	r.got.Store(index)
	return index, nil
}

func (r *renewed) begins() error {
	if r.begun {
		return nil
	}
	if err := r.begin(); err != nil {
		return err
	}
	r.begun = true
	return nil
}

// Update implements sm.IOnDiskStateMachine. What is passed over has a result that nobody waits for: who did ended with the replica
// before.
func (r *renewed) Update(entries []sm.Entry) ([]sm.Entry, error) {
	if err := r.begins(); err != nil {
		return nil, err
	}
	n, has := 0, r.has.Load()
	for n < len(entries) && entries[n].Index <= has {
		n++
	}
	if n < len(entries) {
		if _, err := r.IOnDiskStateMachine.Update(entries[n:]); err != nil {
			return nil, err
		}
	}
	if len(entries) > 0 {
		r.got.Store(entries[len(entries)-1].Index)
	}
	return entries, nil
}

// SaveSnapshot implements sm.IOnDiskStateMachine. A state that is ahead of what the Raft engine knows of is not passed on.
func (r *renewed) SaveSnapshot(view any, to io.Writer, stop <-chan struct{}) error {
	if r.behind() {
		return sm.ErrSnapshotStreaming
	}
	return r.IOnDiskStateMachine.SaveSnapshot(view, to, stop)
}

// behind reports whether the replica has not got yet what the state has.
func (r *renewed) behind() bool { return r.got.Load() < r.has.Load() }

// RecoverFromSnapshot implements sm.IOnDiskStateMachine.
func (r *renewed) RecoverFromSnapshot(from io.Reader, stop <-chan struct{}) error {
	if err := r.begins(); err != nil {
		return err
	}
	b := bufio.NewReaderSize(from, 64<<10)
	index := uint64(0)
	if head, err := b.Peek(1 + frameHeader + 8); err == nil { // what is wrong with it, the state itself says
		index = binary.LittleEndian.Uint64(head[1+frameHeader:])
	}
	if index > r.has.Load() || index == 0 {
		if err := r.IOnDiskStateMachine.RecoverFromSnapshot(b, stop); err != nil {
			return err
		}
	} else if _, err := io.Copy(io.Discard, b); err != nil {
		return err
	}
	r.got.Store(index)
	return nil
}

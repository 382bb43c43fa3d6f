package cli

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// trimEvery is how often memory that is not needed any more is given back.
	trimEvery = 5 * time.Second
	// restfulOctets is how much a node at rest allocates at most between two looks: signs of life, questions of operators.
	restfulOctets = 2 << 20
	// restfulLooks is how many looks in a row must find it at rest. Then a collection disturbs nobody.
	restfulLooks = 2
	// spareOctets is from how much on it is worth one.
	spareOctets = 8 << 20
)

// heap is what the runtime says of its own memory, which is not that of messages.
type heap struct {
	allocated uint64 // since the start
	spare     uint64 // what a collection would find, or has found and not given back yet
}

// readings are what heap is computed from.
func newReadings() []metrics.Sample {
	return []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}}
}

func readHeap(r []metrics.Sample) heap {
	metrics.Read(r)
	allocated, live, objects, free := r[0].Value.Uint64(), r[1].Value.Uint64(), r[2].Value.Uint64(), r[3].Value.Uint64()
	return heap{allocated, objects - min(live, objects) + free}
}

// rest knows when a node has come to rest with memory that it does not need. The collector runs when the heap has grown, so that what
// a busy time leaves stays for as long as nothing happens.
type rest struct {
	before uint64 // allocated at the last look
	looks  int    // that found the node at rest
}

// look reports whether it is time to collect.
func (r *rest) look(h heap) bool {
	calm := h.allocated-r.before <= restfulOctets
	r.before = h.allocated
	if !calm {
		r.looks = 0
		return false
	}
	r.looks++
	return r.looks >= restfulLooks && h.spare >= spareOctets
}

// trim gives back memory that is not needed any more.
func (r *rooms) trim(ctx context.Context) {
	t := time.NewTicker(trimEvery)
	defer t.Stop()
	var rest rest
	readings := newReadings()
	for {
		select {
		case <-t.C:
			r.pool.Trim()
			if rest.look(readHeap(readings)) {
				debug.FreeOSMemory()
			}
		case <-ctx.Done():
			return
		}
	}
}

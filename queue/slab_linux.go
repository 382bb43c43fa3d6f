package queue

import "golang.org/x/sys/unix"

// newSlabMemory takes a slab's memory from the system rather than the collector, whose pace would otherwise follow it: a
// hundred megabytes of messages let it leave as much garbage again.
func newSlabMemory() []byte {
	b, err := unix.Mmap(-1, 0, SlabSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return make([]byte, SlabSize)
	}
	return b
}

// freeSlabMemory gives it back. Nobody may touch it any more.
func freeSlabMemory(b []byte) {
	_ = unix.Munmap(b) // memory of the collector is not known there, and stays its own
}

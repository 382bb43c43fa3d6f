//go:build !linux

package queue

func newSlabMemory() []byte { return make([]byte, SlabSize) }

func freeSlabMemory([]byte) {}

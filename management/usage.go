package management

import "runtime/debug"

// usage is what the process takes of the machine. What the system does not tell is 0.
type usage struct {
	resident        uint64 // bytes
	diskFree        uint64 // bytes on the file system of the data directory
	files, maxFiles uint64 // file descriptors
	collections     uint32 // runs of the garbage collector
}

func usageOf(dir string) (u usage) {
	var gc debug.GCStats
	debug.ReadGCStats(&gc)
	u.collections = uint32(gc.NumGC)
	u.fill(dir)
	return u
}

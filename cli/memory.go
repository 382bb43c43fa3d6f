package cli

import (
	"bufio"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/warrenmq/warren/config"
)

// collectAt is the growth, in percent, at which the collector runs: message bytes lie outside its heap, and what it keeps has
// few pointers, so that it has little to do. It stays below 1 % of the processor's time under load, and how much garbage gathers
// before it runs is most of what the node's memory swings by.
const collectAt = 30

// floor lets the collector rest while the heap is small: it counts for the pace, and, never being touched, takes no memory.
var floor = make([]byte, 56<<20)

// limitMemory sets the collector, unless the environment already did through Go's own variables.
//
// The soft limit is nine tenths of the memory watermark, so that the collector works harder before publishers are blocked; it is never less
// than three times the bound on messages, below which the collector could not keep up.
func limitMemory(cfg config.Config, total uint64, env func(string) (string, bool)) {
	if v, _ := env("GOGC"); v == "" {
		debug.SetGCPercent(collectAt)
		runtime.KeepAlive(floor)
	}
	if v, _ := env("GOMEMLIMIT"); v == "" {
		debug.SetMemoryLimit(int64(softLimit(cfg, total)))
	}
}

func softLimit(cfg config.Config, total uint64) uint64 {
	if cfg.MemoryLimit != 0 {
		return min(cfg.MemoryLimit, 1<<62)
	}
	return min(max(cfg.MemoryWatermark.Bytes(total)/10*9, 3*cfg.MemoryBound), 1<<62)
}

// memoryTotal is the memory available: what is configured, else the least of the machine's and its control group's.
func memoryTotal(cfg config.Config) uint64 {
	if cfg.MemoryTotal != 0 {
		return cfg.MemoryTotal
	}
	total := uint64(0)
	if f, err := os.Open("/proc/meminfo"); err == nil {
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if rest, ok := strings.CutPrefix(lines.Text(), "MemTotal:"); ok {
				kib, _ := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
				total = kib << 10
				break
			}
		}
	}
	for _, path := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if limit, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil && limit > 0 && (total == 0 || limit < total) {
			total = limit
		}
	}
	if total == 0 { // not Linux: a cautious guess that a configuration can correct
		total = 4 << 30
	}
	return total
}

// anonymousMemory is how much memory the process has that is no part of a file: what cannot be taken from it. 0 if nobody
// tells.
func anonymousMemory() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 3 {
		return 0
	}
	resident, _ := strconv.ParseUint(fields[1], 10, 64)
	shared, _ := strconv.ParseUint(fields[2], 10, 64)
	return (resident - min(shared, resident)) * uint64(os.Getpagesize())
}

package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// machine describes what the brokers ran on: processor, cores, kernel, Go.
func machine() string {
	return fmt.Sprintf("%d cores (%s), Linux %s, %s", runtime.NumCPU(), processor(readText("/proc/cpuinfo")),
		strings.TrimSpace(readText("/proc/sys/kernel/osrelease")), runtime.Version())
}

// processor returns the first model name of /proc/cpuinfo, or the architecture.
func processor(cpuinfo string) string {
	for line := range strings.Lines(cpuinfo) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// loadAverage returns the machine's one-minute load.
func loadAverage() (load float64) {
	fmt.Sscan(readText("/proc/loadavg"), &load)
	return load
}

// readText returns a file's content, "" if it cannot be read.
func readText(path string) string {
	data, _ := os.ReadFile(path)
	return string(data)
}

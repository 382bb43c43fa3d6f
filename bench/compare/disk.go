package main

import (
	"os"
	"syscall"
	"time"
)

const (
	syncOctets = 4 << 10
	syncsEach  = 64 // per round
)

// syncTimes appends n blocks of 4 KiB to a new file in dir, each followed by fdatasync, and returns
// how long each took, in milliseconds. What a broker with durable messages can confirm hangs on it.
func syncTimes(dir string, n int) ([]float64, error) {
	f, err := os.CreateTemp(dir, "sync")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	block := make([]byte, syncOctets)
	took := make([]float64, 0, n)
	for range n {
		started := time.Now()
		if _, err := f.Write(block); err != nil {
			return nil, err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return nil, err
		}
		took = append(took, float64(time.Since(started).Nanoseconds())/1e6)
	}
	return took, nil
}

// sameDisk reports whether two paths lie on one file system.
func sameDisk(a, b string) bool {
	var one, other syscall.Stat_t
	return syscall.Stat(a, &one) == nil && syscall.Stat(b, &other) == nil && one.Dev == other.Dev
}

//go:build sabotage

package storage

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// The file that WARREN_INJECT names says what goes wrong with the machine: by how many milliseconds its clock is, and how many each
// sync of its disk takes. It may be written at any time.
var clockOff, syncTakes atomic.Int64

func init() {
	path := os.Getenv("WARREN_INJECT")
	if path == "" {
		return
	}
	read := func() {
		var clock, sync int64
		text, _ := os.ReadFile(path) // not there: nothing goes wrong
		_, _ = fmt.Sscan(string(text), &clock, &sync)
		clockOff.Store(clock)
		syncTakes.Store(sync)
	}
	read()
	go func() {
		for range time.Tick(50 * time.Millisecond) {
			read()
		}
	}()
}

// Wall is the system's clock, as much ahead as it was told.
func Wall() time.Time { return time.Now().Add(time.Duration(clockOff.Load()) * time.Millisecond) }

// Slow takes as long as a sync is to take.
func Slow() {
	if n := syncTakes.Load(); n > 0 {
		time.Sleep(time.Duration(n) * time.Millisecond)
	}
}

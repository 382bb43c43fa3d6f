//go:build !sabotage

package storage

import "time"

// Wall is the system's clock. A build for drills can set it wrong.
func Wall() time.Time { return time.Now() }

// Slow is called before something is synced. A build for drills can have it take its time.
func Slow() {}

//go:build !sabotage

package queue

// What a build for drills breaks on purpose, to show that they would notice. No other build can.
const (
	sabotageConfirm = false // messages are confirmed before they are written
	sabotageSkip    = false // recovery skips records
)

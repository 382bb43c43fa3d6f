//go:build !sabotage

package slots

// What a build for drills breaks on purpose, to show that they would notice. No other build can.
const (
	sabotageConfirm = false // messages are confirmed before they are in the log
	sabotageCommit  = false // offsets are committed when messages are delivered, not when they are acknowledged
)

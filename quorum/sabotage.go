//go:build !sabotage

package quorum

// sabotageConfirm is what a build for drills breaks on purpose, to show that they would notice: messages are confirmed before
// they are in the log. No other build can.
const sabotageConfirm = false

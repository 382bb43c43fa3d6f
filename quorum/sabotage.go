//go:build !sabotage

package quorum

// What a build for drills breaks on purpose, to show that they would notice. No other build can.
const (
	sabotageConfirm = false // messages are confirmed before they are in the log
	sabotageAgain   = false // proposers propose some batches twice: that does no harm
	sabotageTwice   = false // they do, and machines apply them twice
	sabotageForget  = false // a replica that starts anew passes over what was settled in the log that it replays
)

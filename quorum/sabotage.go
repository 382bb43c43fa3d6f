//go:build !sabotage

package quorum

// What a build for drills breaks on purpose, to show that they would notice. No other build can.
const (
	sabotageConfirm = false // messages are confirmed before they are in the log
	sabotageTwice   = false // batches that were proposed twice are applied twice
	sabotageForget  = false // a replica that starts anew passes over what was settled in the log that it replays
	sabotageDiffer  = false // the replicas of member 2 count something that the others do not
	sabotageClock   = false // replicas look at their own clocks
)

// sabotaged is the engine as a build for drills has it.
func sabotaged(e engine) engine { return e }

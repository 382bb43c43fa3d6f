//go:build sabotage

package quorum

import "os"

var (
	sabotageConfirm = os.Getenv("WARREN_SABOTAGE") == "confirm"
	sabotageTwice   = os.Getenv("WARREN_SABOTAGE") == "twice"
	sabotageAgain   = os.Getenv("WARREN_SABOTAGE") == "again" || sabotageTwice
	sabotageForget  = os.Getenv("WARREN_SABOTAGE") == "forget"
)

//go:build sabotage

package queue

import "os"

var (
	sabotageConfirm = os.Getenv("WARREN_SABOTAGE") == "confirm"
	sabotageSkip    = os.Getenv("WARREN_SABOTAGE") == "skip"
)

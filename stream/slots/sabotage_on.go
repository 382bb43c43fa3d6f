//go:build sabotage

package slots

import "os"

var (
	sabotageConfirm = os.Getenv("WARREN_SABOTAGE") == "confirm"
	sabotageCommit  = os.Getenv("WARREN_SABOTAGE") == "commit"
)

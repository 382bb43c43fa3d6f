//go:build sabotage

package quorum

import "os"

var sabotageConfirm = os.Getenv("WARREN_SABOTAGE") == "confirm"

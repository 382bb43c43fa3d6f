//go:build sabotage

package cluster

import "os"

var sabotageImage = os.Getenv("WARREN_SABOTAGE") == "image"

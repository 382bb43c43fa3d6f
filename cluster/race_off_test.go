//go:build !race

package cluster

// raced says that the race detector is in.
const raced = false

//go:build race

package server

// raced says that the race detector is in.
const raced = true

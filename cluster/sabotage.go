//go:build !sabotage

package cluster

// What a build for drills breaks on purpose, by WARREN_SABOTAGE.
const sabotageImage = false // a node is taken with an old copy of its directory

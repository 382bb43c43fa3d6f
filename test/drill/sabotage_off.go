//go:build !sabotage

package main

const canSabotage = false

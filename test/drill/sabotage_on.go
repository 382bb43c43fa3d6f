//go:build sabotage

package main

const canSabotage = true

//go:build !linux

package main

func needsNamespaces() string { return "network namespaces, which only Linux has" }

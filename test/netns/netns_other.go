//go:build !linux

// Package netns gives tests networks of their own, which only Linux has.
package netns

import (
	"context"
	"errors"
	"os/exec"
)

const lack = "network namespaces, which only Linux has"

var errNotLinux = errors.New("needs " + lack)

// Missing says what this user lacks for a namespace.
func Missing(...string) string { return lack }

// Run fails.
func Run(context.Context, []string) (bool, error) { return false, errNotLinux }

// RaiseLoopback fails.
func RaiseLoopback() error { return errNotLinux }

// Namespace does not exist.
type Namespace struct{}

// New fails.
func New() (*Namespace, error) { return nil, errNotLinux }

// Do fails.
func (*Namespace) Do(func() error) error { return errNotLinux }

// Start fails.
func (*Namespace) Start(*exec.Cmd) error { return errNotLinux }

// IP fails.
func (*Namespace) IP(string, ...any) error { return errNotLinux }

// Mount, Fill and Widen fail, too.
func Mount(string, int64) error { return errNotLinux }
func Fill(string) error         { return errNotLinux }
func Widen(string, int64) error { return errNotLinux }

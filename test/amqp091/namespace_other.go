//go:build !linux

package main

import (
	"errors"
	"syscall"
)

var errNotLinux = errors.New("needs network namespaces, which only Linux has")

func runInNamespace([]string) (bool, error) { return false, errNotLinux }
func raiseLoopback() error                  { return errNotLinux }
func endWithParent() *syscall.SysProcAttr   { return nil }

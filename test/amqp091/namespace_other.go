//go:build !linux

package main

import (
	"context"
	"errors"
	"os/exec"
	"syscall"
)

var errNotLinux = errors.New("needs network namespaces, which only Linux has")

func runInNamespace(context.Context, []string) (bool, error) { return false, errNotLinux }
func raiseLoopback() error                                   { return errNotLinux }
func endWithParent() *syscall.SysProcAttr                    { return nil }
func endWithChildren(*exec.Cmd)                              {}

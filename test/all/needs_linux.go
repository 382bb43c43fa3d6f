package main

import (
	"os"
	"os/exec"
	"syscall"
)

// needsNamespaces tries whether this user may make a network namespace.
func needsNamespaces() string {
	cmd := exec.Command("true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
	}
	if err := cmd.Run(); err != nil {
		return "a network namespace, which cannot be made here: " + err.Error()
	}
	return ""
}

//go:build !linux

package cli

import (
	"os/exec"
	"syscall"
)

// asChild keeps a terminal's interrupt from a process: it is for this one, which passes it on.
func asChild(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

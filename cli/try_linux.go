package cli

import (
	"os/exec"
	"runtime"
	"syscall"
)

// asChild has a process end with this one, however that ends. The thread that starts it must not end before: it is this
// goroutine's from now on.
func asChild(c *exec.Cmd) {
	runtime.LockOSThread()
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
}

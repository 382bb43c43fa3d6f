//go:build !linux

package storage

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func fdatasync(fd uintptr) syscall.Errno {
	errno, _ := unix.Fsync(int(fd)).(syscall.Errno)
	return errno
}

// Sleep waits for d.
func Sleep(d time.Duration) { time.Sleep(d) }

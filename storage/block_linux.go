package storage

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Go's scheduler learns of a system call that blocks from its monitor only, which looks every 10 ms when nothing has
// happened for a while. Until then the call keeps one of GOMAXPROCS processors, for all the time that the disk takes: of
// two processors one, while a message a millisecond is synced. Where all are kept, nobody looks at the network. So calls that
// are known to block say so beforehand, as the runtime's own do, and their processor is another's at once.

//go:linkname enterSyscallBlock runtime.entersyscallblock
func enterSyscallBlock()

//go:linkname exitSyscall runtime.exitsyscall
func exitSyscall()

// blocked is a system call that blocks.
//
//go:nosplit
//go:norace
//go:uintptrescapes
func blocked(call, a, b, c uintptr) syscall.Errno {
	enterSyscallBlock()
	_, _, errno := syscall.RawSyscall(call, a, b, c)
	exitSyscall()
	return errno
}

func fdatasync(fd uintptr) syscall.Errno { return blocked(unix.SYS_FDATASYNC, fd, 0, 0) }

// Sleep waits for d, to some 50 µs. Where nothing else is to be done time.Sleep takes a millisecond at least.
func Sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	t := unix.NsecToTimespec(int64(d))
	blocked(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&t)), 0, 0) // a signal ends it early
}

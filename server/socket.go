package server

import (
	"syscall"
	"unsafe"
)

// readNow and writeNow read and write little, and a socket that does not block. They do not tell Go's scheduler, as package
// syscall does: that is for calls that may take their time, and costs the wake-up of the runtime's monitor, which then looks
// every 20 µs whether they are over. Much is better announced: while it is copied, on a machine that others use as well,
// another goroutine can go on. EINTR and EAGAIN are the caller's.

func readNow(fd int, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(syscall.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func writeNow(fd int, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

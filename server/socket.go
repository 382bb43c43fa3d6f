package server

import (
	"syscall"
	"unsafe"
)

// readNow and writeNow read and write a socket that does not block. They do not tell Go's scheduler, as package syscall
// does: that is for calls that may sleep, and costs the wake-up of the runtime's monitor, which then looks every 20 µs
// whether the call is over. EINTR and EAGAIN are the caller's.

func readNow(fd uintptr, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func writeNow(fd uintptr, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

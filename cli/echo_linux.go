package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// silence stops a terminal from showing what is typed, until the function that it returns is called.
func silence(terminal *os.File) (restore func()) {
	fd := int(terminal.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return func() {}
	}
	after := *before
	after.Lflag &^= unix.ECHO
	_ = unix.IoctlSetTermios(fd, unix.TCSETS, &after) // then it is seen
	return func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, before) }
}

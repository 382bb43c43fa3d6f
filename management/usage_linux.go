package management

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

func (u *usage) fill(dir string) {
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		if fields := bytes.Fields(text); len(fields) > 1 {
			pages, _ := strconv.ParseUint(string(fields[1]), 10, 64)
			u.resident = pages * uint64(os.Getpagesize())
		}
	}
	if d, err := os.Open("/proc/self/fd"); err == nil {
		names, _ := d.Readdirnames(-1)
		d.Close()
		u.files = uint64(max(len(names)-1, 0)) // the directory itself was open
	}
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		u.maxFiles = limit.Cur
	}
	var fs syscall.Statfs_t
	if dir == "" {
		dir = "."
	}
	if syscall.Statfs(dir, &fs) == nil {
		u.diskFree = fs.Bavail * uint64(fs.Bsize)
	}
}

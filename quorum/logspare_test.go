package quorum

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTrimLog: what a log's file has stays, and what it has taken beyond that goes.
func TestTrimLog(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "host", "1", "tandb", "node-1-1", "000001.log")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("entries"), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, 8<<20); err != nil {
		t.Skip("this file system takes nothing in advance: ", err)
	}
	f.Close()
	octets := func() int64 {
		var s syscall.Stat_t
		if err := syscall.Stat(path, &s); err != nil {
			t.Fatal(err)
		}
		return s.Blocks * 512
	}
	if octets() < 8<<20 {
		t.Skip("this file system does not tell what is taken")
	}
	if err := trimLog(dir); err != nil {
		t.Fatal(err)
	}
	if n := octets(); n > 64<<10 {
		t.Errorf("%d octets are taken still", n)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "entries" {
		t.Errorf("it has %q (%v)", b, err)
	}
}

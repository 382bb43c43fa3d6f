package storage

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

func TestProbe(t *testing.T) {
	dir := t.TempDir()
	l, err := Probe(OS{}, dir, 4096, 20)
	if err != nil || l.P50 <= 0 || l.P99 < l.P50 {
		t.Error(l, err)
	}
	if names, _ := (OS{}).List(dir); len(names) > 0 {
		t.Error(names)
	}
	fs := NewFaultFS(1)
	fs.Inject(Fault{Op: OpSync, After: 3})
	if _, err := Probe(fs, ".", 512, 10); !errors.Is(err, unix.EIO) {
		t.Error(err)
	}
}

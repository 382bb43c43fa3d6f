package storage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func mustCreate(t *testing.T, fs FS, name string) File {
	t.Helper()
	f, err := fs.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func mustWrite(t *testing.T, f File, off int64, data string) {
	t.Helper()
	if n, err := f.WriteAt([]byte(data), off); err != nil || n != len(data) {
		t.Fatal(n, err)
	}
}

func mustSync(t *testing.T, f File) {
	t.Helper()
	if err := f.SyncData(); err != nil {
		t.Fatal(err)
	}
}

// outcomes are the contents of "f" after power cuts with many seeds; "-" is no file.
func outcomes(t *testing.T, prepare func(*FaultFS), what func([]byte) string) []string {
	t.Helper()
	seen := map[string]bool{}
	for seed := range uint64(400) {
		disk := NewFaultFS(seed)
		prepare(disk)
		after := disk.Crash(seed)
		if c := after.Contents("f"); c == nil {
			seen["-"] = true
		} else {
			seen[what(c)] = true
		}
	}
	var list []string
	for s := range seen {
		list = append(list, s)
	}
	slices.Sort(list)
	return list
}

// sectors is one letter a sector, "?" for one that is mixed.
func sectors(data []byte) string {
	var b strings.Builder
	for c := range slices.Chunk(data, Sector) {
		letter := c[0]
		if bytes.Count(c, c[:1]) != len(c) {
			letter = '?'
		}
		if letter == 0 {
			letter = '0'
		}
		b.WriteByte(letter)
	}
	return b.String()
}

func TestFaultFSPowerCut(t *testing.T) {
	block := func(letter string, n int) string { return strings.Repeat(letter, n*Sector) }
	durable := func(disk *FaultFS, data string) File {
		f := mustCreate(t, disk, "f")
		mustWrite(t, f, 0, data)
		mustSync(t, f)
		if err := disk.SyncDir("."); err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, c := range []struct {
		name    string
		prepare func(*FaultFS)
		want    string
	}{
		{"synced", func(d *FaultFS) { durable(d, block("a", 2)) }, "[aa]"},
		{"torn between sectors", func(d *FaultFS) { mustWrite(t, durable(d, block("a", 2)), 0, block("b", 2)) }, "[aa ab ba bb]"},
		{"the second of two writes alone", func(d *FaultFS) {
			f := durable(d, block("a", 2))
			mustWrite(t, f, 0, block("b", 1))
			mustWrite(t, f, Sector, block("c", 1))
		}, "[aa ac ba bc]"},
		{"one over the other", func(d *FaultFS) {
			f := durable(d, block("a", 1))
			mustWrite(t, f, 0, block("b", 1))
			mustWrite(t, f, 0, block("c", 1))
		}, "[a b c]"},
		{"growth", func(d *FaultFS) { mustWrite(t, durable(d, block("a", 1)), Sector, block("b", 2)) }, "[a a00 a0b ab ab0 abb]"},
		{"no name", func(d *FaultFS) { mustSync(t, mustCreate(t, d, "f")) }, "[ -]"},
		{"no name and no contents", func(d *FaultFS) { mustWrite(t, mustCreate(t, d, "f"), 0, block("a", 1)) }, "[ - 0 a]"},
		{"removed", func(d *FaultFS) { durable(d, block("a", 1)); d.Remove("f") }, "[- a]"},
		{"renamed over", func(d *FaultFS) {
			g := mustCreate(t, d, "g")
			mustWrite(t, g, 0, block("b", 1))
			mustSync(t, g)
			durable(d, block("a", 1))
			d.Rename("g", "f")
		}, "[a b]"},
		{"a failed sync and one that is not", func(d *FaultFS) {
			f := durable(d, block("a", 1))
			mustWrite(t, f, 0, block("b", 1))
			d.Inject(Fault{Op: OpSync})
			if err := f.SyncData(); !errors.Is(err, unix.EIO) {
				t.Error(err)
			}
			mustSync(t, f)
		}, "[a b]"},
		{"no sync", func(d *FaultFS) {
			f := durable(d, block("a", 1))
			d.SetSabotage(Sabotage{NoSync: true})
			mustWrite(t, f, 0, block("b", 1))
			mustSync(t, f)
		}, "[a b]"},
		{"no directory sync", func(d *FaultFS) { d.SetSabotage(Sabotage{NoSyncDir: true}); durable(d, block("a", 1)) }, "[- a]"},
		{"dropped write", func(d *FaultFS) {
			f := durable(d, block("a", 2))
			d.SetSabotage(Sabotage{DropWrite: true})
			mustWrite(t, f, 0, block("b", 1))
			mustWrite(t, f, Sector, block("c", 1))
			mustSync(t, f)
		}, "[ba]"},
		{"a kill and then a power cut", func(d *FaultFS) {
			f := durable(d, block("a", 1))
			mustWrite(t, f, 0, block("b", 1))
			k := d.Kill()
			if got := sectors(k.Contents("f")); got != "b" {
				t.Errorf("after the kill: %s", got)
			}
			if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, ErrDead) {
				t.Errorf("a write of the dead process: %v", err)
			}
			d.names, d.durable, d.pending = k.names, k.durable, k.pending
		}, "[a b]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := fmt.Sprint(outcomes(t, c.prepare, sectors)); got != c.want {
				t.Errorf("outcomes %s, want %s", got, c.want)
			}
		})
	}
}

// TestFaultFSLosing: nothing is left that did not have to be.
func TestFaultFSLosing(t *testing.T) {
	disk := NewFaultFS(1)
	f := mustCreate(t, disk, "f")
	mustWrite(t, f, 0, "synced")
	mustSync(t, f)
	if err := disk.SyncDir("."); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, f, 0, "SYNCED, and more")
	g := mustCreate(t, disk, "g")
	mustWrite(t, g, 0, "its name is not")
	mustSync(t, g)
	if err := disk.Rename("f", "h"); err != nil {
		t.Fatal(err)
	}
	after := disk.CrashLosing()
	if names, _ := after.List("."); fmt.Sprint(names) != "[f]" || string(after.Contents("f")) != "synced" {
		t.Errorf("%v, %q", names, after.Contents("f"))
	}
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, ErrDead) {
		t.Errorf("a write of the dead process: %v", err)
	}
}

func TestFaultFSFaults(t *testing.T) {
	disk := NewFaultFS(1)
	if err := disk.MkdirAll("a/b"); err != nil {
		t.Fatal(err)
	}
	if _, err := disk.Create("a/c/f"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	f := mustCreate(t, disk, "a/b/f")
	if _, err := disk.Create("a/b/f"); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	disk.Inject(Fault{Op: OpWrite, Name: "b/f", After: 1, Times: 2, Short: 3})
	mustWrite(t, f, 0, "12345")
	for range 2 {
		if n, err := f.WriteAt([]byte("abcde"), 5); n != 3 || !errors.Is(err, unix.EIO) {
			t.Error(n, err)
		}
	}
	if got := string(disk.Contents("a/b/f")); got != "12345abc" {
		t.Error(got)
	}
	disk.SetSpace(2)
	if n, err := f.WriteAt([]byte("12345678901"), 0); n != 10 || !errors.Is(err, unix.ENOSPC) {
		t.Error(n, err)
	}
	if free, _ := disk.Free("a"); free != 0 {
		t.Error(free)
	}
	mustWrite(t, f, 0, "overwrites")
	var events []Op
	disk.Observe(func(e Event) { events = append(events, e.Op) })
	disk.StopAfter(1)
	mustSync(t, f)
	if err := f.SyncData(); !errors.Is(err, ErrDead) {
		t.Error(err)
	}
	if !slices.Equal(events, []Op{OpSync, OpSync}) {
		t.Error(events)
	}
	after := disk.Kill()
	list, err := after.List("a/b")
	if err != nil || fmt.Sprint(list) != "[f]" {
		t.Error(list, err)
	}
	g, err := after.Open("a/b/f")
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 20)
	if n, err := g.ReadAt(buf, 4); err != io.EOF || n != 6 {
		t.Error(n, err)
	}
}

func TestFaultFSIsDeterministic(t *testing.T) {
	run := func(seed uint64) string {
		disk := NewFaultFS(1)
		var all strings.Builder
		for i := range 20 {
			f := mustCreate(t, disk, fmt.Sprint(i))
			mustWrite(t, f, 0, strings.Repeat("x", 10*Sector))
			if i%2 == 0 {
				disk.SyncDir(".")
			}
		}
		after := disk.Crash(seed)
		for i := range 20 {
			fmt.Fprintf(&all, "%s\n", sectors(after.Contents(fmt.Sprint(i))))
		}
		return all.String()
	}
	if run(7) != run(7) || run(7) == run(8) {
		t.Error("the outcome does not depend on the seed alone")
	}
}

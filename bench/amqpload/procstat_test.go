package main

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// TestCPUOfAnotherProcess compares the CPU clock of a child with what the system accounts to it.
func TestCPUOfAnotherProcess(t *testing.T) {
	child := exec.Command("dd", "if=/dev/zero", "of=/dev/null", "bs=64k") // nearly all of it system time
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	tree := &processTree{root: child.Process.Pid}
	for deadline := time.Now().Add(10 * time.Second); tree.cpu() < 100*time.Millisecond; {
		if time.Now().After(deadline) {
			t.Fatalf("%v of CPU time after ten seconds of work", tree.cpu())
		}
	}
	read := tree.cpu()
	child.Process.Kill()
	child.Wait()
	accounted := child.ProcessState.UserTime() + child.ProcessState.SystemTime()
	if read > accounted+20*time.Millisecond || accounted > read*3/2 {
		t.Errorf("read %v, accounted %v", read, accounted)
	}
	if used := cpuOf(child.Process.Pid); used != 0 {
		t.Errorf("a process that is gone has used %v", used)
	}
}

func TestTreeHoldsChildren(t *testing.T) {
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	defer child.Process.Kill()
	nodes := (&processTree{root: child.Process.Pid, others: []int{os.Getppid(), 1 << 30}}).members()
	if nodes[0] != child.Process.Pid || !slices.Contains(nodes[1:], os.Getppid()) {
		t.Errorf("members %v of %d and %d", nodes, child.Process.Pid, os.Getppid())
	}
	members := (&processTree{root: os.Getpid()}).members()
	if members[0] != os.Getpid() || len(members) < 2 || members[len(members)-1] != child.Process.Pid {
		t.Errorf("members %v of %d, child %d", members, os.Getpid(), child.Process.Pid)
	}
}

func TestReadingCountsCalls(t *testing.T) {
	tree := &processTree{root: os.Getpid()}
	before := tree.io()
	f, err := os.Create(t.TempDir() + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for range 10 {
		f.Write(make([]byte, 1000))
	}
	after := tree.io()
	if writes, octets := after.writes-before.writes, after.writeOctets-before.writeOctets; writes < 10 || octets < 10_000 {
		t.Errorf("%d writes of %d octets", writes, octets)
	}
}

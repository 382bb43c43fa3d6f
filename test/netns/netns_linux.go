// Package netns gives tests networks of their own: Linux's network namespaces. All that is in one goes with the last process
// in it, so that nothing is left behind whatever becomes of a test.
package netns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes are those of a process in a new namespace.
func attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	if os.Geteuid() != 0 {
		// In a user namespace of its own, a plain user may make a network namespace.
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return a
}

// Missing says what this user lacks for a namespace, or which of the programs to be used there; empty: nothing.
func Missing(programs ...string) string {
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			return p
		}
	}
	cmd := exec.Command("true")
	cmd.SysProcAttr = attributes()
	if err := cmd.Run(); err != nil {
		return "a network namespace, which cannot be made here: " + err.Error()
	}
	return ""
}

// Run runs this program again with args in a new namespace, and reports whether it succeeded. There it is root.
func Run(ctx context.Context, args []string) (bool, error) {
	// The kernel ends the child when the thread that made it ends, so keep the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = attributes()
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("make a network namespace: %w", err)
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return false, nil
	}
	return err == nil, err
}

// Mount mounts a file system of memory at a directory, which only programs in this program's namespaces see. It is called after Run.
func Mount(dir string, octets int64) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts to this program: %w", err)
	}
	if err := unix.Mount("drill", dir, "tmpfs", 0, fmt.Sprint("size=", octets)); err != nil {
		return fmt.Errorf("mount memory at %s: %w", dir, err)
	}
	return nil
}

// Fill leaves a file system of Mount hardly any room, and Widen makes it as large as it says.
func Fill(dir string) (err error) {
	const little = 64 << 10 // or what is written meanwhile is more than what is allowed, which the kernel refuses
	for room := int64(little); room < 1024*little; room *= 2 {
		var s unix.Statfs_t
		if err := unix.Statfs(dir, &s); err != nil {
			return err
		}
		if err = Widen(dir, int64(s.Blocks-s.Bfree)*s.Bsize+room); err == nil {
			return nil
		}
	}
	return err
}

func Widen(dir string, octets int64) error {
	if err := unix.Mount("drill", dir, "tmpfs", unix.MS_REMOUNT, fmt.Sprint("size=", octets)); err != nil {
		return fmt.Errorf("change the size of %s: %w", dir, err)
	}
	return nil
}

// RaiseLoopback brings up lo, which is down in a new namespace.
func RaiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("bring up lo: %w", err)
	}
	return nil
}

// Namespace is a namespace beside that of this program, for programs that it starts. Its methods may be called concurrently.
type Namespace struct{ jobs chan func() }

// New makes a namespace, with lo up. It lasts as long as this program, or a program in it.
func New() (*Namespace, error) {
	n := &Namespace{jobs: make(chan func())}
	ready := make(chan error)
	go n.live(ready)
	return n, <-ready
}

// live has the namespace's thread, and never ends: its programs would end with it.
func (n *Namespace) live(ready chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() { // by this one's namespace others know that of the program
		go n.live(ready)
		select {}
	}
	err := unix.Unshare(unix.CLONE_NEWNET)
	if err == nil {
		err = RaiseLoopback()
	}
	ready <- err
	for job := range n.jobs {
		job()
	}
}

// Do calls f on the namespace's thread. Sockets that f makes itself and programs that it starts are in the namespace.
func (n *Namespace) Do(f func() error) (err error) {
	done := make(chan struct{})
	n.jobs <- func() {
		defer close(done)
		err = f()
	}
	<-done
	return err
}

// Start starts a program in the namespace. The kernel kills it when this program ends, however that happens.
func (n *Namespace) Start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return n.Do(cmd.Start)
}

// IP runs ip (of iproute2) with the words of line, in the namespace; n may be nil: in that of this program.
func (n *Namespace) IP(format string, args ...any) error {
	words := strings.Fields(fmt.Sprintf(format, args...))
	run := func() error {
		if out, err := exec.Command("ip", words...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(words, " "), err, out)
		}
		return nil
	}
	if n == nil {
		return run()
	}
	return n.Do(run)
}

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	startLimit = 30 * time.Second
	stopLimit  = 30 * time.Second
	// greetInterval is how often a starting broker is asked.
	greetInterval = 50 * time.Millisecond
)

// warren is a Warren node of its own, on a data directory that every start finds empty.
type warren struct {
	binary string
	dir    string // holds the data directory and the log

	membership []string // the arguments of a node of a cluster

	address string   // of AMQP
	started []string // the arguments of the last start
	cmd     *exec.Cmd
	ended   chan struct{} // closed when the process is gone
}

// arguments is the command line of a node that listens on loopback only.
func (w *warren) arguments(amqp, http, metrics string) []string {
	return append([]string{"server", "--data-dir", w.dataDir(),
		"--listen", amqp, "--http", http, "--metrics", metrics}, w.membership...)
}

func (w *warren) uri() string { return "amqp://guest:guest@" + w.address + "/" }

func (w *warren) pid() int {
	if w.cmd == nil {
		return 0
	}
	return w.cmd.Process.Pid
}

func (w *warren) pids() []int { return []int{w.pid()} }

func (w *warren) alive() bool {
	if w.cmd == nil {
		return false
	}
	select {
	case <-w.ended:
		return false
	default:
		return true
	}
}

func (w *warren) start(ctx context.Context) error {
	if w.alive() {
		return nil
	}
	if err := os.RemoveAll(w.dataDir()); err != nil {
		return err
	}
	if err := os.MkdirAll(w.dir, 0o755); err != nil {
		return err
	}
	ports, err := freeAddresses(3)
	if err != nil {
		return err
	}
	log, err := os.Create(w.logPath())
	if err != nil {
		return err
	}
	defer log.Close()
	w.address = ports[0]
	w.started = w.arguments(ports[0], ports[1], ports[2])
	cmd := exec.Command(w.binary, w.started...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the terminal must not end it first
	if err := cmd.Start(); err != nil {
		return err
	}
	w.cmd, w.ended = cmd, make(chan struct{})
	go func() { cmd.Wait(); close(w.ended) }()
	return w.awaitGreeting(ctx)
}

func (w *warren) awaitGreeting(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		err := greet(w.address, time.Second)
		if err == nil {
			return nil
		}
		select {
		case <-w.ended:
			return fmt.Errorf("%s ended (%v); the end of its log:\n%s", w.binary, w.cmd.ProcessState, w.logTail())
		case <-ctx.Done():
			w.stop()
			return fmt.Errorf("%s does not answer on %s (%v); the end of its log:\n%s", w.binary, w.address, err, w.logTail())
		case <-time.After(greetInterval):
		}
	}
}

// stop ends the process with SIGTERM, or SIGKILL after stopLimit.
func (w *warren) stop() error {
	if !w.alive() {
		return nil
	}
	w.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-w.ended:
		return nil
	case <-time.After(stopLimit):
		w.cmd.Process.Kill()
		<-w.ended
		return fmt.Errorf("%s did not stop within %v of SIGTERM", w.binary, stopLimit)
	}
}

func (w *warren) http() string { return "http://" + w.started[slices.Index(w.started, "--http")+1] }

func (w *warren) dataDir() string { return filepath.Join(w.dir, "data") }

// startCommand starts the node as it was, with the data it has; the log goes on.
func (w *warren) startCommand() string {
	words := []string{"exec", quoted(w.binary)}
	for _, a := range w.started {
		words = append(words, quoted(a))
	}
	return strings.Join(append(words, ">>"+quoted(w.logPath()), "2>&1"), " ")
}

// quoted returns s as one word of a shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func (w *warren) logPath() string { return filepath.Join(w.dir, "log") }

func (w *warren) logTail() string {
	data, _ := os.ReadFile(w.logPath())
	return tail(string(data), 2000)
}

// freeAddresses returns loopback addresses with ports that were free a moment ago.
func freeAddresses(n int) ([]string, error) {
	var addresses []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // after all are chosen, so that they differ
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

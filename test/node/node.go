// Package node runs Warren in processes of its own, for tests that end them.
package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// patience is how long a node may take to start, or to stop.
const patience = 2 * time.Minute

// Build builds Warren as it is released; tags are those of the build.
func Build(binary string, tags ...string) error {
	args := []string{"build", "-o", binary}
	for _, t := range tags {
		args = append(args, "-tags", t)
	}
	cmd := exec.Command("go", append(args, "github.com/warrenmq/warren")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build Warren: %w\n%s", err, out)
	}
	return nil
}

// Addresses are where a node listens, as its ports file says.
type Addresses struct{ AMQP, HTTP, Cluster string }

// Process is a node in a process of its own. Its methods are for one goroutine at a time, but for Ended and Complaints.
type Process struct {
	Binary string
	Dir    string   // has the data below data, the log in log, and the ports file
	Args   []string // of warren server, besides those that name what is in Dir
	Env    []string // besides this process's
	Data   string   // the data directory; empty: below Dir
	// Spawn starts the command; nil: its Start.
	Spawn func(*exec.Cmd) error

	cmd   *exec.Cmd
	ended chan struct{}
}

// Launch starts the process and returns before the node serves.
func (p *Process) Launch() error {
	if err := os.Remove(p.ports()); err != nil && !os.IsNotExist(err) {
		return err
	}
	log, err := os.OpenFile(filepath.Join(p.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.Binary, append([]string{"server", "--data-dir", p.DataDir(), "--ports-file", p.ports()}, p.Args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), p.Env...)
	spawn := p.Spawn
	if spawn == nil {
		spawn = (*exec.Cmd).Start
	}
	if err := spawn(cmd); err != nil {
		return err
	}
	ended := make(chan struct{})
	p.cmd, p.ended = cmd, ended
	go func() {
		cmd.Wait()
		close(ended)
	}()
	return nil
}

// DataDir is the data directory.
func (p *Process) DataDir() string {
	if p.Data != "" {
		return p.Data
	}
	return filepath.Join(p.Dir, "data")
}

func (p *Process) ports() string { return filepath.Join(p.Dir, "ports.json") }

// Serving returns the addresses of a node that serves.
func (p *Process) Serving() (at Addresses, ok bool) {
	text, err := os.ReadFile(p.ports())
	return at, err == nil && json.Unmarshal(text, &at) == nil && at.AMQP != ""
}

// Ready waits until the node serves.
func (p *Process) Ready(most time.Duration) (Addresses, error) {
	for deadline := time.Now().Add(most); time.Now().Before(deadline); {
		if at, ok := p.Serving(); ok {
			return at, nil
		}
		select {
		case <-p.ended:
			return Addresses{}, fmt.Errorf("the node ended at its start: %v", p.cmd.ProcessState)
		case <-time.After(2 * time.Millisecond):
		}
	}
	return Addresses{}, fmt.Errorf("the node did not start within %v", most)
}

// Start starts the node and returns when it serves. One that does not is killed.
func (p *Process) Start() (Addresses, error) {
	if err := p.Launch(); err != nil {
		return Addresses{}, err
	}
	at, err := p.Ready(patience)
	if err != nil {
		p.Kill()
	}
	return at, err
}

// Interrupt starts the node and kills it so much later, whether it serves or not.
func (p *Process) Interrupt(after time.Duration) error {
	if err := p.Launch(); err != nil {
		return err
	}
	time.Sleep(after)
	err := p.cmd.Process.Kill()
	<-p.ended
	if errors.Is(err, os.ErrProcessDone) {
		err = nil // Ready would have told of it
	}
	return err
}

// Kill ends the node with SIGKILL. Nothing of it runs when Kill returns. An error says that it had ended by itself.
func (p *Process) Kill() error {
	if how := p.Ended(); how != nil {
		return fmt.Errorf("the node ended by itself: %v", how)
	}
	err := p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.ended
	return err
}

// Stop ends the node in order.
func (p *Process) Stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.Kill()
		return fmt.Errorf("the node did not stop within %v", patience)
	}
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("the node did not stop in order: %v", p.cmd.ProcessState)
	}
	return nil
}

// Pid is the id of a node that runs.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Signal sends a signal to a node that runs.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Ended returns how the process ended, or nil while it runs.
func (p *Process) Ended() *os.ProcessState {
	select {
	case <-p.ended:
		return p.cmd.ProcessState
	default:
		return nil
	}
}

// Complaints are what the node has said of damage and losses, in all its lives.
func (p *Process) Complaints() string {
	text, _ := os.ReadFile(filepath.Join(p.Dir, "log"))
	return ComplaintsIn(text)
}

// ComplaintsIn are the lines of a log that tell of errors, and what comes before a crash.
func ComplaintsIn(log []byte) string {
	var found []byte
	for line := range bytes.Lines(log) {
		if bytes.Contains(line, []byte("msg=\"closing ")) { // what a client did wrong
			continue
		}
		if bytes.Contains(line, []byte("level=ERROR")) || bytes.Contains(line, []byte("level=WARN")) && bytes.Contains(line, []byte("not in good order")) ||
			bytes.HasPrefix(line, []byte("panic:")) || bytes.HasPrefix(line, []byte("fatal error:")) {
			found = append(found, line...)
		}
	}
	return string(found)
}

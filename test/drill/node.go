package main

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

// node is what is killed.
type node interface {
	// start starts it and returns the address of its AMQP listener.
	start() (string, error)
	// kill ends it without a word. Nothing of it runs when kill returns.
	kill() error
	// stop ends it in order.
	stop() error
	// complaints are what it has said of damage and losses so far.
	complaints() string
}

// process is a Warren in a process of its own, killed with SIGKILL.
type process struct {
	binary, dir string
	typ         string // of queues whose declaration says nothing; "": classic
	env         []string
	cmd         *exec.Cmd
	ended       chan struct{}
}

func (p *process) start() (string, error) {
	ports := filepath.Join(p.dir, "ports.json")
	os.Remove(ports)
	log, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return "", err
	}
	defer log.Close()
	if err := p.spawn(log); err != nil {
		return "", err
	}
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		var at struct{ AMQP string }
		if text, err := os.ReadFile(ports); err == nil && json.Unmarshal(text, &at) == nil && at.AMQP != "" {
			return at.AMQP, nil
		}
		select {
		case <-p.ended:
			return "", fmt.Errorf("the node ended at its start: %v", p.cmd.ProcessState)
		case <-time.After(2 * time.Millisecond):
		}
	}
	p.kill()
	return "", errors.New("the node did not start within 30 s")
}

// spawn runs the program.
func (p *process) spawn(log *os.File) error {
	ports := filepath.Join(p.dir, "ports.json")
	p.cmd = exec.Command(p.binary, "server", "--data-dir", filepath.Join(p.dir, "data"), "--ports-file", ports,
		"--listen", "127.0.0.1:0", "--http", "none", "--metrics", "none", "--memory-bound", fmt.Sprint(bound), "--log-level", "info",
		"--set", fmt.Sprintf("warren.flush_at=%d", flushAt), "--set", fmt.Sprintf("warren.journal_max=%d", journalMax))
	if p.typ != "" {
		p.cmd.Args = append(p.cmd.Args, "--set", "default_queue_type="+p.typ)
	}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = append(os.Environ(), p.env...)
	if err := p.cmd.Start(); err != nil {
		return err
	}
	p.ended = make(chan struct{})
	go func() {
		p.cmd.Wait()
		close(p.ended)
	}()
	return nil
}

func (p *process) kill() error {
	select {
	case <-p.ended:
		return fmt.Errorf("the node ended by itself: %v", p.cmd.ProcessState)
	default:
	}
	err := p.cmd.Process.Signal(syscall.SIGKILL)
	<-p.ended
	return err
}

func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.ended:
	case <-time.After(30 * time.Second):
		p.kill()
		return errors.New("the node did not stop within 30 s")
	}
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("the node did not stop in order: %v", p.cmd.ProcessState)
	}
	return nil
}

func (p *process) complaints() string {
	text, _ := os.ReadFile(filepath.Join(p.dir, "log"))
	return complaintsIn(text)
}

// complaintsIn are the lines of a log that tell of errors, and what comes before a crash.
func complaintsIn(log []byte) string {
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

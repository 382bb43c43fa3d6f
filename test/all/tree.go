package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// binary is Warren's program, where `make build` puts it too.
const binary = "build/warren"

// tree is the source tree under test: the program built from it and a broker that several parts share.
type tree struct {
	built  bool
	broker *broker
	dir    string // the broker's data directory and log
}

// broker is a Warren that runs on ports chosen at its start.
type broker struct {
	AMQP    string `json:"amqp"` // host:port
	HTTP    string `json:"http"`
	Metrics string `json:"metrics"`

	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has ended
}

func (b *broker) uri() string { return "amqp://guest:guest@" + b.AMQP }

func (t *tree) build(ctx context.Context) error {
	if t.built {
		return nil
	}
	cmd := command(ctx, "go", "build", "-trimpath", "-o", binary, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build Warren: %w\n%s", err, out)
	}
	t.built = true
	return nil
}

// warren returns the shared broker, which is built and started when it is first needed. One that has died since is an
// error.
func (t *tree) warren(ctx context.Context) (*broker, error) {
	if t.broker != nil {
		select {
		case <-t.broker.ended:
			return nil, fmt.Errorf("Warren has ended since it was started: %v\n%s", t.broker.cmd.ProcessState, t.log())
		default:
			return t.broker, nil
		}
	}
	if err := t.build(ctx); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "warren-test-")
	if err != nil {
		return nil, err
	}
	t.dir = dir
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	ports := filepath.Join(dir, "ports.json")
	b := &broker{ended: make(chan struct{})}
	b.cmd = command(ctx, binary, "server", "--data-dir", filepath.Join(dir, "data"), "--ports-file", ports,
		"--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
	b.cmd.Stdout, b.cmd.Stderr = log, log
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { b.cmd.Wait(); close(b.ended) }()
	t.broker = b

	for deadline := time.Now().Add(30 * time.Second); ; {
		text, err := os.ReadFile(ports)
		if err == nil && json.Unmarshal(text, b) == nil && b.AMQP != "" { // else it is not yet written to its end
			return b, nil
		}
		select {
		case <-b.ended:
			return nil, fmt.Errorf("Warren ended at its start: %v\n%s", b.cmd.ProcessState, t.log())
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return nil, errors.New("Warren did not write its ports file within 30 s\n" + t.log())
		}
	}
}

// log is what the broker has printed.
func (t *tree) log() string {
	text, _ := os.ReadFile(filepath.Join(t.dir, "log"))
	return string(text)
}

// stop ends the shared broker, if there is one, and removes its data. A broker that has died before, or that does not end
// in order, is an error.
func (t *tree) stop() error {
	if t.dir != "" {
		defer os.RemoveAll(t.dir)
	}
	if t.broker == nil {
		return nil
	}
	select {
	case <-t.broker.ended:
		return fmt.Errorf("Warren ended before it was told to: %v\n%s", t.broker.cmd.ProcessState, t.log())
	default:
	}
	t.broker.cmd.Cancel()
	select {
	case <-t.broker.ended:
	case <-time.After(20 * time.Second):
		t.broker.cmd.Process.Kill()
		<-t.broker.ended
	}
	if !t.broker.cmd.ProcessState.Success() {
		return fmt.Errorf("Warren did not stop in order: %v\n%s", t.broker.cmd.ProcessState, t.log())
	}
	return nil
}

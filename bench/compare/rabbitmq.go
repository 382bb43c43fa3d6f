package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// rabbitmq is the peer that bench/rabbitmq installs, starts and stops; its folder and port come from
// the script's PEER_DIR and PEER_PORT.
type rabbitmq struct {
	script string

	process int
	started bool // by us; one that was running is left running
}

func (r *rabbitmq) uri() string {
	return "amqp://guest:guest@127.0.0.1:" + cmp.Or(os.Getenv("PEER_PORT"), "5682") + "/"
}

func (r *rabbitmq) pid() int { return r.process }

func (r *rabbitmq) start(ctx context.Context) error {
	if running(r.process) {
		return nil
	}
	if pid, ok := r.recorded(); ok && running(pid) {
		r.process = pid
		return nil
	}
	if _, err := r.call(ctx, "install"); err != nil {
		return err
	}
	printed, err := r.call(ctx, "start")
	if err != nil {
		return err
	}
	r.started = true
	r.process, err = strconv.Atoi(strings.TrimSpace(printed))
	if err != nil {
		return fmt.Errorf("%s start printed no process id: %w", r.script, err)
	}
	return nil
}

func (r *rabbitmq) stop() error {
	if !r.started {
		return nil
	}
	r.started, r.process = false, 0
	_, err := r.call(context.Background(), "stop")
	return err
}

// recorded returns the process id that the script wrote down.
func (r *rabbitmq) recorded() (pid int, ok bool) {
	data, err := os.ReadFile(filepath.Join(peerDir(), "pid"))
	if err != nil {
		return 0, false
	}
	pid, err = strconv.Atoi(strings.TrimSpace(string(data)))
	return pid, err == nil
}

func peerDir() string { return cmp.Or(os.Getenv("PEER_DIR"), "/opt/peers/rabbitmq") }

func (r *rabbitmq) call(ctx context.Context, verb string) (printed string, err error) {
	cmd := exec.CommandContext(ctx, "bash", r.script, verb)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", r.script, verb, err, tail(stderr.String(), 1000))
	}
	return string(out), nil
}

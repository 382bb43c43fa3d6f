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
	three  bool // a cluster of clusterNodes instead of a node

	processes []int
	started   bool // by us; one that was running is left running
}

func (r *rabbitmq) uri() string {
	port, _ := strconv.Atoi(cmp.Or(os.Getenv("PEER_PORT"), "5682"))
	var uris []string
	for i := range len(r.names()) {
		uris = append(uris, fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d/", port+i))
	}
	return strings.Join(uris, ",")
}

func (r *rabbitmq) pids() []int { return r.processes }

// names are what the script tells its nodes apart by.
func (r *rabbitmq) names() (names []string) {
	if !r.three {
		return []string{""}
	}
	for i := range clusterNodes {
		names = append(names, strconv.Itoa(i+1))
	}
	return names
}

// verb returns the script's word for what is to be done with a node or with the cluster.
func (r *rabbitmq) verb(do string) string {
	if r.three {
		return do + strconv.Itoa(clusterNodes)
	}
	return do
}

func (r *rabbitmq) start(ctx context.Context) error {
	if allRunning(r.processes, len(r.names())) {
		return nil
	}
	if pids := r.recorded(); allRunning(pids, len(r.names())) {
		r.processes = pids
		return nil
	}
	if _, err := r.call(ctx, "install"); err != nil {
		return err
	}
	r.started = true // should it fail, what has started must be stopped
	printed, err := r.call(ctx, r.verb("start"))
	if err != nil {
		return err
	}
	r.processes = nil
	for _, word := range strings.Fields(printed) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			return fmt.Errorf("%s %s printed no process id: %w", r.script, r.verb("start"), err)
		}
		r.processes = append(r.processes, pid)
	}
	if len(r.processes) != len(r.names()) {
		return fmt.Errorf("%s %s printed %d process ids for %d nodes", r.script, r.verb("start"), len(r.processes), len(r.names()))
	}
	return nil
}

func (r *rabbitmq) stop() error {
	if !r.started {
		return nil
	}
	r.started, r.processes = false, nil
	_, err := r.call(context.Background(), r.verb("stop"))
	return err
}

// recorded returns the process ids that the script wrote down.
func (r *rabbitmq) recorded() (pids []int) {
	for _, name := range r.names() {
		if pid, err := strconv.Atoi(strings.TrimSpace(readText(filepath.Join(peerDir(), "pid"+name)))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// allRunning reports whether there are n processes and all run.
func allRunning(pids []int, n int) bool {
	for _, pid := range pids {
		if !running(pid) {
			return false
		}
	}
	return len(pids) == n
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

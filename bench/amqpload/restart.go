package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const (
	restartLimit  = 5 * time.Minute
	restartPoll   = time.Millisecond
	restartGently = 60 * time.Second // for an end on SIGTERM
)

// restart tells how long a broker was away between publishing and draining, in seconds. The last two
// count from the start of the new process.
type restart struct {
	Signal        string  `json:"signal"`
	Stop          float64 `json:"stop"`
	Connected     float64 `json:"connected"`
	FirstDelivery float64 `json:"first_delivery"`

	started time.Time
	process *exec.Cmd
	ended   chan struct{} // closed when the new process is gone
}

// restartBroker ends the broker under the meter and starts it again with a shell command.
func restartBroker(w *workload, m *meter) (*restart, error) {
	if m.broker == nil {
		return nil, errors.New("-restart needs the broker's -pid")
	}
	r := &restart{Signal: "KILL"}
	signal := syscall.SIGKILL
	if w.RestartGently {
		r.Signal, signal = "TERM", syscall.SIGTERM
	}
	old, signalled := m.broker.rootPid(), time.Now()
	if err := syscall.Kill(old, signal); err != nil {
		return nil, fmt.Errorf("ending the broker: %w", err)
	}
	for !gone(old) {
		if time.Since(signalled) > restartGently {
			return nil, fmt.Errorf("process %d still runs %v after SIG%s", old, restartGently, r.Signal)
		}
		time.Sleep(restartPoll)
	}
	r.Stop = time.Since(signalled).Seconds()

	r.process = exec.Command("sh", "-c", w.Restart)
	r.process.Stdout, r.process.Stderr = os.Stderr, os.Stderr
	r.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL} // it must not outlive us
	r.started, r.ended = time.Now(), make(chan struct{})
	if err := r.process.Start(); err != nil {
		return nil, fmt.Errorf("-restart: %w", err)
	}
	go func() { r.process.Wait(); close(r.ended) }()
	m.broker.follow(r.process.Process.Pid)
	if err := r.awaitConnection(w.endpoint); err != nil {
		r.stop()
		return nil, err
	}
	r.Connected = time.Since(r.started).Seconds()
	return r, nil
}

func (r *restart) awaitConnection(e endpoint) error {
	for {
		c, err := dial(e)
		if err == nil {
			c.Close()
			return nil
		}
		select {
		case <-r.ended:
			return fmt.Errorf("the restarted broker ended: %v", r.process.ProcessState)
		case <-time.After(restartPoll):
		}
		if time.Since(r.started) > restartLimit {
			return fmt.Errorf("the restarted broker takes no connection: %w", err)
		}
	}
}

// stop ends the new process and what it started; nil is none.
func (r *restart) stop() {
	if r == nil || r.process == nil {
		return
	}
	group := -r.process.Process.Pid
	syscall.Kill(group, syscall.SIGTERM)
	select {
	case <-r.ended:
	case <-time.After(restartGently):
		syscall.Kill(group, syscall.SIGKILL)
		<-r.ended
	}
}

// gone reports whether a process has ended with all its threads, even if its parent has not asked for its
// status yet. While other threads end, they keep the files open, and with them the locks.
func gone(pid int) bool {
	const threads = 17 // field 20 of /proc/PID/stat
	fields := statFields(pid)
	return len(fields) <= threads || fields[0] == "Z" && (fields[threads] == "0" || fields[threads] == "1")
}

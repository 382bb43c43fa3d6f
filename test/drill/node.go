package main

import (
	"fmt"
	"time"

	warren "github.com/warrenmq/warren/test/node"
)

// node is what is killed.
type node interface {
	// start starts it and returns the address of its AMQP listener.
	start() (string, error)
	// kill ends it without a word. Nothing of it runs when kill returns.
	kill() error
	// stop ends it in order.
	stop() error
	// interrupt starts it and ends it without a word meanwhile, so much later if that makes sense.
	interrupt(after time.Duration) error
	// complaints are what it has said of damage and losses so far.
	complaints() string
}

// process is a Warren in a process of its own, killed with SIGKILL.
type process struct{ warren.Process }

// newProcess is a node whose queues are of a type if their declaration says nothing; "": classic.
func newProcess(binary, dir, typ string, env ...string) *process {
	args := []string{"--listen", "127.0.0.1:0", "--http", "none", "--metrics", "none", "--memory-bound", fmt.Sprint(bound), "--log-level", "info",
		"--set", fmt.Sprintf("warren.flush_at=%d", flushAt), "--set", fmt.Sprintf("warren.journal_max=%d", journalMax)}
	if typ != "" {
		args = append(args, "--set", "default_queue_type="+typ)
	}
	return &process{warren.Process{Binary: binary, Dir: dir, Args: args, Env: env}}
}

func (p *process) start() (string, error) {
	at, err := p.Start()
	return at.AMQP, err
}

func (p *process) kill() error                         { return p.Kill() }
func (p *process) stop() error                         { return p.Stop() }
func (p *process) interrupt(after time.Duration) error { return p.Interrupt(after) }
func (p *process) complaints() string                  { return p.Complaints() }

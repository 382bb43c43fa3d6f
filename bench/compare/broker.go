package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"syscall"
	"time"
)

// broker is one side of the comparison.
type broker interface {
	uri() string // of a cluster all nodes', with commas between
	pids() []int
	// start makes the broker ready for connections; one that runs already is left alone.
	start(ctx context.Context) error
	// stop ends what start has started.
	stop() error
}

// given is a broker that somebody else started and stops.
type given struct {
	address string // an amqp:// URI
	process int
}

func (g *given) uri() string { return g.address }
func (g *given) pids() []int { return []int{g.process} }
func (g *given) stop() error { return nil }

func (g *given) start(context.Context) error {
	if !running(g.process) {
		return fmt.Errorf("no process %d", g.process)
	}
	u, err := url.Parse(g.address)
	if err != nil {
		return err
	}
	return greet(u.Host, time.Second)
}

// running reports whether a process exists.
func running(pid int) bool { return pid > 0 && syscall.Kill(pid, 0) != syscall.ESRCH }

// greet reports whether what listens there answers a protocol header as AMQP brokers do.
func greet(address string, timeout time.Duration) error {
	c, err := net.DialTimeout("tcp", address, timeout)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(timeout))
	if _, err := io.WriteString(c, "AMQP\x00\x00\x09\x01"); err != nil {
		return err
	}
	var kind [1]byte
	if _, err := io.ReadFull(c, kind[:]); err != nil {
		return err
	}
	if kind[0] != 1 { // a method frame
		return fmt.Errorf("%s answers with octet %d, not with a method frame", address, kind[0])
	}
	return nil
}

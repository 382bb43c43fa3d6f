package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// startBroker runs command until the returned function is called, and waits until it listens where the suite looks.
// What the broker prints goes to the file log; its end is shown if the broker does not come up.
func startBroker(ctx context.Context, command []string, log string) (stop func(), err error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = file, file
	cmd.SysProcAttr = endWithParent()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop = func() {
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(15 * time.Second):
			fmt.Fprintln(os.Stderr, "amqp091: the broker did not end on SIGTERM within 15 s: killed")
			cmd.Process.Kill()
		}
	}

	deadline := time.Now().Add(60 * time.Second)
	for _, address := range []string{amqpAddress, httpAddress} {
		for !listens(address) {
			select {
			case err := <-ended:
				return nil, fmt.Errorf("the broker ended at its start: %v\n%s", err, tail(log))
			case <-ctx.Done():
				stop()
				return nil, ctx.Err()
			case <-time.After(50 * time.Millisecond):
			}
			if time.Now().After(deadline) {
				stop()
				return nil, fmt.Errorf("the broker does not listen on %s\n%s", address, tail(log))
			}
		}
	}
	return stop, nil
}

func listens(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

func tail(file string) string {
	text, _ := os.ReadFile(file)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// A bridge leads from the namespace to a broker outside it. Unix sockets belong to the file system and not to a network
// namespace, so each side needs only an ordinary listener: inside, TCP to a socket file; outside, the socket file to TCP.

// serveBridge is the side outside: dir/amqp and dir/http lead to the two addresses in forward.
func serveBridge(dir, forward string) (stop func(), err error) {
	amqp, http, ok := strings.Cut(forward, ",")
	if !ok {
		return nil, fmt.Errorf("-forward %q: want two addresses with a comma between", forward)
	}
	return relays(
		relay{"unix", filepath.Join(dir, "amqp"), "tcp", amqp},
		relay{"unix", filepath.Join(dir, "http"), "tcp", http})
}

// joinBridge is the side in the namespace.
func joinBridge(dir string) (stop func(), err error) {
	return relays(
		relay{"tcp", amqpAddress, "unix", filepath.Join(dir, "amqp")},
		relay{"tcp", httpAddress, "unix", filepath.Join(dir, "http")})
}

// relay passes every connection to one address on to another, in both directions.
type relay struct{ fromNetwork, from, toNetwork, to string }

func relays(all ...relay) (stop func(), err error) {
	var listeners []net.Listener
	stop = func() {
		for _, l := range listeners {
			l.Close()
		}
	}
	for _, r := range all {
		l, err := net.Listen(r.fromNetwork, r.from)
		if err != nil {
			stop()
			return nil, err
		}
		listeners = append(listeners, l)
		go r.accept(l)
	}
	return stop, nil
}

func (r relay) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer client.Close()
			broker, err := net.Dial(r.toNetwork, r.to)
			if err != nil {
				return
			}
			// The end of either direction ends both, as a broker's close would.
			go func() { io.Copy(broker, client); broker.Close(); client.Close() }()
			io.Copy(client, broker)
			broker.Close()
		}()
	}
}

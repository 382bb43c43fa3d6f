// Amqp091 runs the integration tests of github.com/rabbitmq/amqp091-go, the client library that most Go programs use,
// against a broker, and compares the outcome of every test with what RabbitMQ gives.
//
//	go run ./test/amqp091 -- build/warren server --listen 127.0.0.1:5672 --http 127.0.0.1:15672 …
//	go run ./test/amqp091 -forward 127.0.0.1:5682,127.0.0.1:15682
//
// The first form starts the broker, the second uses one that runs. The suite hard-codes localhost:5672 and
// localhost:15672, so both happen in a network namespace of their own, where these ports are free: nothing that
// listens on the machine is in the way or reached by mistake. It is Linux's; root is not needed where the kernel lets
// users make namespaces.
//
// The suite is compiled from the module cache, in the version that go.mod names, and never changed. The expected
// outcomes are in expectations.txt; expectations.go says what its words mean. The program ends with a line
// "N passed, N failed, N skipped" and with exit code 1 if anything is not as expected.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/warrenmq/warren/test/netns"
)

// Where the suite looks for its broker.
const (
	amqpAddress = "127.0.0.1:5672"
	httpAddress = "127.0.0.1:15672"
)

type options struct {
	expect  string        // file of expected outcomes
	record  string        // write the outcomes to this file instead of comparing them
	log     string        // keep the suite's events (JSON lines) here
	run     string        // regular expression: only these tests, the others are not missed
	timeout time.Duration // for the whole suite
	forward string        // AMQP and HTTP address of a broker that runs, comma between
	broker  []string      // command of a broker to start
	dir     string        // scratch directory with the compiled suite
	inside  bool          // this process is already inside the namespace
}

func main() {
	var o options
	flag.StringVar(&o.expect, "expect", "test/amqp091/expectations.txt", "`file` of expected outcomes")
	flag.StringVar(&o.record, "record", "", "write the outcomes to `file` instead of comparing them")
	flag.StringVar(&o.log, "log", "", "keep the events of the run in `file`")
	flag.StringVar(&o.run, "run", "", "only the tests that match this `expression`")
	flag.DurationVar(&o.timeout, "timeout", 10*time.Minute, "time limit for the whole suite")
	flag.StringVar(&o.forward, "forward", "", "use a running broker: `AMQP,HTTP` addresses")
	flag.StringVar(&o.dir, "dir", "", "internal: scratch directory")
	flag.BoolVar(&o.inside, "inside", false, "internal: already inside the namespace")
	flag.Parse()
	o.broker = flag.Args()
	if (o.forward == "") == (len(o.broker) == 0) {
		fmt.Fprintln(os.Stderr, "amqp091: give a broker's command after --, or -forward")
		os.Exit(2)
	}

	run := outside
	if o.inside {
		run = inside
	}
	// An interrupt ends the suite, then the broker, then this program and what it has put on disk.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "amqp091:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// outside prepares, where the network is still there, everything that the namespace needs, and runs this program again
// inside it.
func outside(ctx context.Context, o options) (bool, error) {
	dir, err := os.MkdirTemp("", "amqp091-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	if err := buildSuite(ctx, dir); err != nil {
		return false, err
	}
	args := []string{"-inside", "-dir", dir, "-expect", o.expect, "-record", o.record, "-log", o.log,
		"-run", o.run, "-timeout", o.timeout.String(), "-forward", o.forward}
	if o.forward != "" {
		stop, err := serveBridge(dir, o.forward)
		if err != nil {
			return false, err
		}
		defer stop()
	}
	return netns.Run(ctx, append(append(args, "--"), o.broker...))
}

// inside runs in the namespace: it brings the broker up, runs the suite and judges it.
func inside(ctx context.Context, o options) (bool, error) {
	if err := netns.RaiseLoopback(); err != nil {
		return false, err
	}
	if o.forward != "" {
		stop, err := joinBridge(o.dir)
		if err != nil {
			return false, err
		}
		defer stop()
	} else {
		stop, err := startBroker(ctx, o.broker, filepath.Join(o.dir, "broker.log"))
		if err != nil {
			return false, err
		}
		defer stop()
	}

	if err := announcesRabbitMQ(); err != nil {
		return false, err
	}
	result, err := runSuite(ctx, o)
	if err != nil {
		return false, err
	}
	if o.record != "" {
		return true, os.WriteFile(o.record, record(result), 0o644)
	}
	text, err := os.ReadFile(o.expect)
	if err != nil {
		return false, err
	}
	expected, err := parseExpectations(string(text))
	if err != nil {
		return false, fmt.Errorf("%s: %w", o.expect, err)
	}
	if o.run != "" {
		expected = expected.only(result)
	}
	verdict := judge(expected, result)
	verdict.print(os.Stdout)
	return len(verdict.failed) == 0, nil
}

// announcesRabbitMQ looks at the name that the broker gives itself: with another one three tests do nothing and pass.
func announcesRabbitMQ() error {
	conn, err := amqp.Dial("amqp://guest:guest@" + amqpAddress + "/")
	if err != nil {
		return err
	}
	defer conn.Close()
	if product := conn.Properties["product"]; product != "RabbitMQ" {
		return fmt.Errorf("the broker announces itself as %v: it must be RabbitMQ for this suite", product)
	}
	return nil
}

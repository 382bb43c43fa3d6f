package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/warrenmq/warren/test/gotest"
)

// format finds Go files that gofmt would change.
func format(ctx context.Context, _ *tree) (outcome, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "./...").Output()
	if err != nil {
		return outcome{}, fmt.Errorf("go list: %w", err)
	}
	var files []string
	for dir := range strings.Lines(string(out)) {
		in, err := filepath.Glob(filepath.Join(strings.TrimSpace(dir), "*.go"))
		if err != nil {
			return outcome{}, err
		}
		files = append(files, in...)
	}
	unformatted, err := exec.CommandContext(ctx, "gofmt", append([]string{"-l"}, files...)...).CombinedOutput()
	if err != nil || len(unformatted) > 0 {
		return outcome{}, fmt.Errorf("make fmt would change:\n%s", unformatted)
	}
	return outcome{}, nil
}

func vet(ctx context.Context, _ *tree) (outcome, error) {
	if err := pinned(ctx); err != nil {
		return outcome{}, err
	}
	out, err := command(ctx, "go", "vet", "./...").CombinedOutput()
	os.Stdout.Write(out)
	return outcome{}, err
}

// oldPebble is the version of Pebble's first module path that Dragonboat is written for: with another it does not compile,
// or is untried. Any dependency could raise it.
const oldPebble = "v0.0.0-20221207173255-0f086d933dac"

// pinned checks the versions of dependencies that must not move by themselves.
func pinned(ctx context.Context) error {
	out, err := command(ctx, "go", "list", "-m", "-f", "{{.Version}}", "github.com/cockroachdb/pebble").CombinedOutput()
	if version := strings.TrimSpace(string(out)); err != nil || version != oldPebble {
		return fmt.Errorf("github.com/cockroachdb/pebble is %s, and has to stay %s: see docs/dependencies.md", version, oldPebble)
	}
	return nil
}

// unit runs the tests that sit beside the code.
func unit(ctx context.Context, _ *tree) (outcome, error) {
	return goTest(ctx, "CGO_ENABLED=0", "./...") // as Warren is built
}

// concurrent are the rooms whose code runs in many goroutines. The others are run by one at a time.
var concurrent = []string{"exchange", "queue", "cluster", "quorum", "remote", "stream", "broker", "server", "management", "cli"}

// race runs the tests of the concurrent rooms under the race detector, which makes them some ten times slower: long ones
// shorten themselves for -short.
func race(ctx context.Context, _ *tree) (outcome, error) {
	args := []string{"-race", "-short"}
	for _, room := range concurrent {
		if _, err := os.Stat(room); err == nil {
			args = append(args, "./"+room+"/...")
		}
	}
	o, err := goTest(ctx, "CGO_ENABLED=1", args...) // the detector's need
	o.left = nil                                    // what skips itself here did so in unit, or is only too long for this
	return o, err
}

func needsCompiler() string {
	if _, err := exec.LookPath("gcc"); err != nil {
		return "the race detector needs a C compiler (gcc)"
	}
	return ""
}

// goTest runs go test with one more variable in its environment, prints a line for each package and all that a failed
// test printed, and counts tests.
func goTest(ctx context.Context, variable string, args ...string) (outcome, error) {
	cmd := command(ctx, "go", append([]string{"test", "-json", "-timeout=20m"}, args...)...) // a room with many nodes takes its time under the race detector
	cmd.Env = append(os.Environ(), variable)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return outcome{}, err
	}
	if err := cmd.Start(); err != nil {
		return outcome{}, err
	}
	log, readErr := gotest.Read(stdout, func(t *gotest.Test) {
		switch {
		case t.Outcome == gotest.Failed:
			fmt.Printf("FAIL %s %s\n%s", t.Package, t.Name, t.Output)
		case t.Name == "" && t.Outcome == gotest.Passed:
			fmt.Printf("ok   %s %.1f s\n", t.Package, t.Seconds)
		}
	})
	err = errors.Join(readErr, cmd.Wait())

	var o outcome
	for _, t := range log.Tests {
		switch t.Outcome {
		case gotest.Passed:
			o.passed++
		case gotest.Skipped:
			if t.Name == playTranscripts {
				continue
			}
			o.left = append(o.left, fmt.Sprintf("%s %s: %s", t.Package, t.Name, t.LastWords()))
		default:
			o.failed++
		}
	}
	return o, err
}

// drill kills a node a hundred times under load, and cuts the power of another; what happened is held against the promises of
// docs/reliability.md. The drill's own test, in unit, shows that it can fail.
func drill(ctx context.Context, _ *tree) (outcome, error) {
	var total outcome
	for _, run := range []struct{ test, kills string }{{"TestKills", "100"}, {"TestPowerCuts", "40"}} {
		o, err := goTest(ctx, "WARREN_DRILL_KILLS="+run.kills, "-count=1", "-run", "^"+run.test+"$", "./test/drill")
		total.passed, total.failed, total.left = total.passed+o.passed, total.failed+o.failed, append(total.left, o.left...)
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// faults kills, stops, cuts off, forgets and takes in the nodes of a cluster under load, with disks and clocks at fault, and holds what happened against the same promises.
func faults(ctx context.Context, _ *tree) (outcome, error) {
	return goTest(ctx, "WARREN_FAULT_SECONDS=60", "-count=1", "-timeout=30m", "-run", "^TestFaults$", "./test/fault")
}

// playTranscripts is the test that plays the transcripts. It skips itself in unit, where it is given no broker.
const playTranscripts = "TestBroker"

// transcripts plays the protocol conversations of conformance/ against a fresh broker.
func transcripts(ctx context.Context, t *tree) (outcome, error) {
	w, err := t.warren(ctx)
	if err != nil {
		return outcome{}, err
	}
	cmd := command(ctx, "go", "test", "-v", "-count=1", "-run", "^"+playTranscripts+"$", "./conformance")
	cmd.Env = append(os.Environ(), "WARREN_CONFORMANCE_URI="+w.uri(), "WARREN_CONFORMANCE_HTTP=http://"+w.HTTP)
	return counted(cmd)
}

// clients runs the programs of conformance/clients against the same broker.
func clients(ctx context.Context, t *tree) (outcome, error) {
	w, err := t.warren(ctx)
	if err != nil {
		return outcome{}, err
	}
	return counted(command(ctx, "conformance/clients/run", "--uri", w.uri()))
}

func needsBash() string {
	if _, err := exec.LookPath("bash"); err != nil {
		return "bash"
	}
	return ""
}

// amqp091 runs the Go client's own suite against a broker that calls itself RabbitMQ, in a network namespace.
func amqp091(ctx context.Context, t *tree) (outcome, error) {
	if err := t.build(ctx); err != nil {
		return outcome{}, err
	}
	data, err := os.MkdirTemp("", "warren-amqp091-")
	if err != nil {
		return outcome{}, err
	}
	defer os.RemoveAll(data)
	// Not by go run, which would not pass on a signal.
	const program = "build/amqp091"
	if out, err := command(ctx, "go", "build", "-o", program, "./test/amqp091").CombinedOutput(); err != nil {
		return outcome{}, fmt.Errorf("build the suite's runner: %w\n%s", err, out)
	}
	cmd := command(ctx, program, "--", binary, "server", "--data-dir", data,
		"--listen", "127.0.0.1:5672", "--http", "127.0.0.1:15672", "--metrics", "127.0.0.1:15692")
	cmd.Env = append(os.Environ(), "WARREN_PRODUCT=RabbitMQ", "WARREN_PRODUCT_VERSION=4.3.6")
	o, err := counted(cmd)
	o.left = nil // the suite's skips are judged one by one against a list with reasons
	return o, err
}

var counts = regexp.MustCompile(`(\d+) passed, (\d+) failed`)

// counted runs a command that prints "left out  NAME: WHY" for what it leaves out and, last, "N passed, N failed".
func counted(cmd *exec.Cmd) (outcome, error) {
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return outcome{}, err
	}
	if err := cmd.Start(); err != nil {
		return outcome{}, err
	}
	var o outcome
	last := ""
	lines := bufio.NewReader(io.TeeReader(stdout, os.Stdout))
	for {
		line, err := lines.ReadString('\n')
		if what, ok := strings.CutPrefix(line, "left out "); ok {
			o.left = append(o.left, strings.TrimSpace(what))
		}
		if counts.MatchString(line) {
			last = line
		}
		if err != nil {
			break
		}
	}
	err = cmd.Wait()
	found := counts.FindStringSubmatch(last)
	if found == nil {
		return o, errors.Join(err, errors.New("it printed no counts"))
	}
	o.passed, _ = strconv.Atoi(found[1])
	o.failed, _ = strconv.Atoi(found[2])
	if err != nil && o.failed == 0 && len(o.left) > 0 {
		err = nil // it is strict about what it left out, and so is the caller
	}
	return o, err
}

// command is a command that is asked to end, and then ended, when ctx ends.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	return cmd
}

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/warrenmq/warren/test/gotest"
)

const suiteModule = "github.com/rabbitmq/amqp091-go"

// buildSuite compiles the suite into dir/suite.test. It works on a copy, dir/src, since the module cache is read-only
// and the suite has dependencies that this module must not have.
func buildSuite(ctx context.Context, dir string) error {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", suiteModule)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("find %s: %w", suiteModule, err)
	}
	cached := strings.TrimSpace(string(out))
	if cached == "" { // known to go.mod, not yet fetched
		if out, err := exec.CommandContext(ctx, "go", "mod", "download", suiteModule).CombinedOutput(); err != nil {
			return fmt.Errorf("fetch %s: %w\n%s", suiteModule, err, out)
		}
		return buildSuite(ctx, dir)
	}
	source := filepath.Join(dir, "src")
	if err := os.CopyFS(source, os.DirFS(cached)); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "test", "-c", "-tags", "integration", "-o", filepath.Join(dir, "suite.test"), ".")
	build.Dir = source
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("compile the suite: %w\n%s", err, out)
	}
	return nil
}

// silence is how long the suite may print nothing; its slowest test takes half of it. A test that hangs would otherwise
// use up the time of all that come after it.
const silence = 75 * time.Second

// runSuite runs the compiled suite and returns the outcome of every test. Where a test hangs or the process dies, it
// starts again behind that test.
func runSuite(ctx context.Context, o options) (*gotest.Log, error) {
	// A suite that hangs beyond its own time limit is ended.
	ctx, cancel := context.WithTimeout(ctx, o.timeout+30*time.Second)
	defer cancel()
	var events io.Writer = io.Discard
	if o.log != "" {
		file, err := os.Create(o.log)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		events = file
	}
	whole := &gotest.Log{}
	var skip []string
	for {
		run, err := runOnce(ctx, o, skip, events)
		if err != nil {
			return nil, err
		}
		whole.Packages = append(whole.Packages, run.Packages...)
		again := false
		for _, t := range run.Tests {
			if waiting(t) {
				again = true // it never had its turn
				continue
			}
			whole.Tests = append(whole.Tests, t)
			if !strings.Contains(t.Name, "/") {
				skip = append(skip, "^"+regexp.QuoteMeta(t.Name)+"$")
			}
			again = again || t.Outcome == gotest.Endless
		}
		if !again {
			return whole, nil
		}
		fmt.Fprintf(os.Stderr, "amqp091: the suite was cut short after %d tests; starting it again behind them\n", len(whole.Tests))
	}
}

// waiting reports whether a parallel test was paused and never continued.
func waiting(t *gotest.Test) bool {
	return t.Outcome == gotest.Endless && strings.Contains(t.Output, "=== PAUSE") && !strings.Contains(t.Output, "=== CONT")
}

// runOnce runs the suite without the tests whose names match one of skip, and copies its events to a writer.
func runOnce(ctx context.Context, o options, skip []string, events io.Writer) (*gotest.Log, error) {
	goCommand, err := exec.LookPath("go")
	if err != nil {
		return nil, err
	}
	once, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(once, goCommand, "tool", "test2json", "-t", "-p", suiteModule, filepath.Join(o.dir, "suite.test"),
		"-test.v=test2json", "-test.count=1", "-test.timeout="+o.timeout.String(), "-test.run="+o.run,
		"-test.skip="+strings.Join(skip, "|"))
	cmd.Dir = filepath.Join(o.dir, "src")
	cmd.Env = append(os.Environ(), "AMQP_URL=amqp://guest:guest@"+amqpAddress+"/")
	cmd.Stderr = os.Stderr
	endWithChildren(cmd)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	watch := time.AfterFunc(silence, cancel)
	defer watch.Stop()
	run, err := gotest.Read(io.TeeReader(stdout, io.MultiWriter(events, heard{watch})), nil)
	io.Copy(io.Discard, stdout)
	wait := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("the suite was ended: %w", ctx.Err())
	case err != nil && once.Err() == nil: // else the last line may be half a line
		return nil, fmt.Errorf("read the suite's events: %w", err)
	case len(run.Tests) == 0 && len(skip) == 0:
		return nil, fmt.Errorf("the suite ran no test: %v", wait)
	}
	return run, nil
}

// heard is a writer that puts the end off whenever something is written.
type heard struct{ watch *time.Timer }

func (h heard) Write(p []byte) (int, error) {
	h.watch.Reset(silence)
	return len(p), nil
}

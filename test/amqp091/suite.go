package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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

// runSuite runs the compiled suite and returns the outcome of every test.
func runSuite(ctx context.Context, o options) (*gotest.Log, error) {
	goCommand, err := exec.LookPath("go")
	if err != nil {
		return nil, err
	}
	// A suite that hangs beyond its own time limit is ended.
	ctx, cancel := context.WithTimeout(ctx, o.timeout+30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, goCommand, "tool", "test2json", "-t", "-p", suiteModule, filepath.Join(o.dir, "suite.test"),
		"-test.v=test2json", "-test.count=1", "-test.timeout="+o.timeout.String(), "-test.run="+o.run)
	cmd.Dir = filepath.Join(o.dir, "src")
	cmd.Env = append(os.Environ(), "AMQP_URL=amqp://guest:guest@"+amqpAddress+"/")
	cmd.Stderr = os.Stderr
	endWithChildren(cmd)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var log io.Writer = io.Discard
	if o.log != "" {
		file, err := os.Create(o.log)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		log = file
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	run, err := gotest.Read(io.TeeReader(stdout, log), nil)
	io.Copy(io.Discard, stdout)
	wait := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("the suite was ended: %w", ctx.Err())
	case err != nil:
		return nil, fmt.Errorf("read the suite's events: %w", err)
	case len(run.Tests) == 0:
		return nil, fmt.Errorf("the suite ran no test: %v", wait)
	}
	return run, nil
}

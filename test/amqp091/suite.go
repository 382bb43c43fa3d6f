package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/warrenmq/warren/test/gotest"
)

const suiteModule = "github.com/rabbitmq/amqp091-go"

// buildSuite compiles the suite into dir/suite.test. It works on a copy, dir/src, since the module cache is read-only
// and the suite has dependencies that this module must not have.
func buildSuite(dir string) error {
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", suiteModule)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("find %s: %w", suiteModule, err)
	}
	cached := strings.TrimSpace(string(out))
	if cached == "" { // known to go.mod, not yet fetched
		if out, err := exec.Command("go", "mod", "download", suiteModule).CombinedOutput(); err != nil {
			return fmt.Errorf("fetch %s: %w\n%s", suiteModule, err, out)
		}
		return buildSuite(dir)
	}
	source := filepath.Join(dir, "src")
	if err := os.CopyFS(source, os.DirFS(cached)); err != nil {
		return err
	}
	build := exec.Command("go", "test", "-c", "-tags", "integration", "-o", filepath.Join(dir, "suite.test"), ".")
	build.Dir = source
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("compile the suite: %w\n%s", err, out)
	}
	return nil
}

// runSuite runs the compiled suite and returns the outcome of every test.
func runSuite(o options) (*gotest.Log, error) {
	goCommand, err := exec.LookPath("go")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(goCommand, "tool", "test2json", "-t", "-p", suiteModule, filepath.Join(o.dir, "suite.test"),
		"-test.v=test2json", "-test.count=1", "-test.timeout="+o.timeout.String(), "-test.run="+o.run)
	cmd.Dir = filepath.Join(o.dir, "src")
	cmd.Env = append(os.Environ(), "AMQP_URL=amqp://guest:guest@"+amqpAddress+"/")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = endWithParent()
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
	// A suite that hangs beyond its own time limit is ended.
	var killed atomic.Bool
	limit := time.AfterFunc(o.timeout+30*time.Second, func() { killed.Store(true); cmd.Process.Kill() })
	defer limit.Stop()
	run, err := gotest.Read(io.TeeReader(stdout, log), nil)
	io.Copy(io.Discard, stdout)
	wait := cmd.Wait()
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the suite's events: %w", err)
	case killed.Load():
		return nil, fmt.Errorf("the suite did not end within %v", o.timeout)
	case len(run.Tests) == 0:
		return nil, fmt.Errorf("the suite ran no test: %v", wait)
	}
	return run, nil
}

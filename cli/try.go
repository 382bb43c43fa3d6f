package cli

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// trial is a cluster of processes on this machine, each a node as it would run on one of its own.
type trial struct {
	program *program
	binary  string
	dir     string
	nodes   int
	amqp    int // ports of the first node; 0: any
	http    int

	mu    sync.Mutex // guards what follows, and the output
	procs []*os.Process
	ended int
}

// tryPatience is how long a node of a trial may take to serve.
const tryPatience = time.Minute

func (p *program) tryCommand() *cobra.Command {
	t := &trial{program: p}
	c := &cobra.Command{
		Use:   "try",
		Short: "Run a cluster of several nodes on this machine, to look at",
		Long: `Run a cluster on this machine, each node in a process of its own with its data below one directory, until SIGTERM or SIGINT. Kill a node
to see what becomes of clients and queues: the commands that start it again are shown.

It is for trying things out. A cluster that shall survive a machine has a node on each of three: see docs/cluster.md.`,
		Example: `  warren cluster try
  warren cluster try --nodes 5 --dir /tmp/five
  warren cluster status`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return t.run() },
	}
	c.Flags().IntVar(&t.nodes, "nodes", 3, "how many nodes, 1 to 7")
	c.Flags().StringVar(&t.dir, "dir", "warren-cluster", "directory of the nodes' data")
	c.Flags().IntVar(&t.amqp, "port", 5672, "AMQP port of the first node; the others have those behind it. 0: any")
	c.Flags().IntVar(&t.http, "http-port", 15672, "the same for HTTP")
	return c
}

func (t *trial) run() (err error) {
	if t.nodes < 1 || t.nodes > 7 {
		return usage("a cluster of %d nodes: 1 to 7 are possible", t.nodes)
	}
	if t.binary, err = os.Executable(); err != nil {
		return err
	}
	secret := filepath.Join(t.dir, "secret")
	if err := makeSecret(secret); err != nil {
		return &failure{code: exitConfig, text: "cannot write the cluster's secret: " + err.Error(), err: err, remedy: "Choose another directory with --dir."}
	}
	signals := t.program.signals
	if signals == nil {
		c := make(chan os.Signal, 2)
		signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
		defer signal.Stop(c)
		signals = c
	}
	ended := make(chan string, t.nodes)
	defer t.stop(ended)
	join := ""
	for i := 1; i <= t.nodes; i++ {
		args := t.args(i, secret, join)
		if err := t.start(i, args, ended); err != nil {
			return err
		}
		at, err := t.await(i, signals, ended)
		if err != nil {
			return err
		}
		if join == "" {
			join = at["cluster"]
		}
		t.say("node %d: amqp://%s, http://%s/api/\n", i, at["amqp"], at["http"])
	}
	t.say("%d nodes run; each has its log in %s. Look at them with: %s cluster status\n", t.nodes, filepath.Join(t.dir, "N", "log"), t.binary)
	for {
		select {
		case <-signals:
			return nil
		case what := <-ended:
			t.say("%s", what)
			t.mu.Lock()
			over := t.ended == t.nodes
			t.mu.Unlock()
			if over {
				return &failure{code: exitSoftware, text: "all nodes have ended"}
			}
		}
	}
}

// makeSecret writes a secret unless there is one.
func makeSecret(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	var b [32]byte
	rand.Read(b[:])
	return os.WriteFile(path, []byte(hex.EncodeToString(b[:])+"\n"), 0o600)
}

// args are those of a node's server.
func (t *trial) args(i int, secret, join string) []string {
	at := func(port int) string {
		if port != 0 {
			port += i - 1
		}
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	args := []string{"server", "--node-name", fmt.Sprintf("warren@%d", i), "--data-dir", filepath.Join(t.dir, strconv.Itoa(i)),
		"--listen", at(t.amqp), "--http", at(t.http), "--metrics", "none", "--ports-file", t.ports(i),
		"--cluster-listen", "127.0.0.1:0", "--cluster-secret-file", secret}
	if join != "" {
		args = append(args, "--join", join)
	}
	return args
}

func (t *trial) ports(i int) string { return filepath.Join(t.dir, strconv.Itoa(i), "ports.json") }

// start starts a node. When it ends, ended is told.
func (t *trial) start(i int, args []string, ended chan<- string) error {
	dir := filepath.Join(t.dir, strconv.Itoa(i))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	if err := os.Remove(t.ports(i)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	defer log.Close()
	c := exec.Command(t.binary, args...)
	c.Stdout, c.Stderr = log, log // and a terminal's interrupt is for this process, which passes it on
	asChild(c)
	if err := c.Start(); err != nil {
		return err
	}
	t.mu.Lock()
	t.procs = append(t.procs, c.Process)
	t.mu.Unlock()
	go func() {
		err := c.Wait()
		t.mu.Lock()
		t.ended++
		t.mu.Unlock()
		command := t.binary
		for _, a := range args {
			command += " " + a
		}
		ended <- fmt.Sprintf("node %d has ended: %s. Start it again with:\n  %s\n", i, c.ProcessState, command)
		_ = err // the state says it
	}()
	return nil
}

// await returns the addresses of a node when it serves.
func (t *trial) await(i int, signals <-chan os.Signal, ended <-chan string) (at map[string]string, err error) {
	timeout := time.After(tryPatience)
	for {
		text, err := os.ReadFile(t.ports(i))
		if err == nil && json.Unmarshal(text, &at) == nil {
			return at, nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-signals:
			return nil, &failure{code: exitTemporary, text: "stopped while it was starting"}
		case what := <-ended:
			t.copyLog(i)
			return nil, &failure{code: exitUnavailable, text: what}
		case <-timeout:
			t.copyLog(i)
			return nil, &failure{code: exitTemporary, text: fmt.Sprintf("node %d does not serve after %v", i, tryPatience)}
		}
	}
}

// copyLog shows what a node that does not start has said.
func (t *trial) copyLog(i int) {
	if f, err := os.Open(filepath.Join(t.dir, strconv.Itoa(i), "log")); err == nil {
		defer f.Close()
		_, _ = io.Copy(t.program.err, io.LimitReader(f, 16<<10))
	}
}

// stop stops all nodes, the last one first.
func (t *trial) stop(ended <-chan string) {
	t.mu.Lock()
	procs, left := t.procs, len(t.procs)-t.ended
	t.mu.Unlock()
	for i := len(procs) - 1; i >= 0; i-- {
		_ = procs[i].Signal(syscall.SIGTERM) // it may have ended
	}
	timeout := time.After(2 * stopTime)
	for ; left > 0; left-- {
		select {
		case <-ended:
		case <-timeout:
			for _, p := range procs {
				_ = p.Kill()
			}
			return
		}
	}
}

func (t *trial) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.program.out, format, args...)
}

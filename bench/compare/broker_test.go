package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the test binary stand in for a Warren node: with STAND_IN set it does as that says.
func TestMain(m *testing.M) {
	switch os.Getenv("STAND_IN") {
	case "":
		os.Exit(m.Run())
	case "refuse":
		io.WriteString(os.Stderr, "no such flag\n")
		os.Exit(3)
	case "serve":
		serveStandIn(os.Args)
	}
}

// serveStandIn answers every connection on the --listen address with one octet, and every request to the --http address with
// wholeStatus, until SIGTERM.
func serveStandIn(args []string) {
	go http.ListenAndServe(argument(args, "--http"), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, wholeStatus) }))
	l, err := net.Listen("tcp", argument(args, "--listen"))
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.ReadFull(c, make([]byte, 8))
			c.Write([]byte{1})
			c.Close()
		}
	}()
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	<-ended
}

func standIn(t *testing.T, does string) *warren {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("STAND_IN", does)
	w := &warren{binary: self, dir: t.TempDir()}
	t.Cleanup(func() { w.stop() })
	return w
}

func TestWarrenStartsOnAnEmptyDirectoryAndStops(t *testing.T) {
	w := standIn(t, "serve")
	leftOver := filepath.Join(w.dir, "data", "left-over")
	for range 2 {
		if err := os.MkdirAll(leftOver, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := w.start(context.Background()); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(leftOver); err == nil {
			t.Error("the data directory was not empty")
		}
		pid := w.pid()
		if err := w.start(context.Background()); err != nil || w.pid() != pid {
			t.Errorf("a second start: process %d, then %d (%v)", pid, w.pid(), err)
		}
		if err := w.stop(); err != nil || running(pid) {
			t.Errorf("stop: %v, running %v", err, running(pid))
		}
	}
}

func TestWarrenThatEndsShowsItsLog(t *testing.T) {
	w := standIn(t, "refuse")
	err := w.start(context.Background())
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no such flag") {
		t.Errorf("error %v", err)
	}
}

func TestGivenBrokerMustAnswer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	answers := make(chan string, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.ReadFull(c, make([]byte, 8))
			io.WriteString(c, <-answers)
			c.Close()
		}
	}()
	g := &given{"amqp://guest:guest@" + l.Addr().String() + "/", os.Getpid()}
	for answer, good := range map[string]bool{"\x01": true, "HTTP/1.1 400": false, "": false} {
		answers <- answer
		if err := g.start(context.Background()); (err == nil) != good {
			t.Errorf("answer %q: %v", answer, err)
		}
	}
	g.process = 1 << 30
	if err := g.start(context.Background()); err == nil {
		t.Error("a process that is not there is accepted")
	}
}

func TestRabbitMQThatRunsIsNeitherStartedNorStopped(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PEER_DIR", dir)
	t.Setenv("PEER_PORT", "5999")
	script := filepath.Join(dir, "script")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(script, `echo "$1" >>"$PEER_DIR/calls"; [ "$1" = start ] && echo 4711; exit 0`)
	write(filepath.Join(dir, "pid"), "1\n") // the first process always runs
	r := &rabbitmq{script: script}
	if err := r.start(context.Background()); err != nil || !slices.Equal(r.pids(), []int{1}) || r.uri() != "amqp://guest:guest@127.0.0.1:5999/" {
		t.Fatal(r.pids(), r.uri(), err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if calls := readText(filepath.Join(dir, "calls")); calls != "" {
		t.Errorf("calls of the script: %s", calls)
	}

	os.Remove(filepath.Join(dir, "pid"))
	r = &rabbitmq{script: script}
	if err := r.start(context.Background()); err != nil || !slices.Equal(r.pids(), []int{4711}) {
		t.Fatal(r.pids(), err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if calls := readText(filepath.Join(dir, "calls")); calls != "install\nstart\nstop\n" {
		t.Errorf("calls of the script: %q", calls)
	}
}

func TestFreeAddressesDiffer(t *testing.T) {
	addresses, err := freeAddresses(3)
	if err != nil || addresses[0] == addresses[1] || addresses[1] == addresses[2] || addresses[0] == addresses[2] {
		t.Errorf("%v %v", addresses, err)
	}
}

func TestSyncTimes(t *testing.T) {
	dir := t.TempDir()
	took, err := syncTimes(dir, 3)
	if err != nil || len(took) != 3 || took[0] <= 0 || took[0] > float64(time.Minute.Milliseconds()) {
		t.Errorf("%v %v", took, err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := syncTimes(filepath.Join(dir, "absent"), 1); err == nil {
		t.Error("a directory that is not there is accepted")
	}
	if !sameDisk(dir, dir) || sameDisk(dir, "/proc") {
		t.Error("sameDisk")
	}
}

func TestProcessorName(t *testing.T) {
	if got := processor("processor\t: 0\nmodel name\t: Fast CPU: 9000\nmodel name\t: other\n"); got != "Fast CPU: 9000" {
		t.Errorf("processor %q", got)
	}
}
